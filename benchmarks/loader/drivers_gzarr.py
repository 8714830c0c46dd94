"""gzarr.Loader."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarks.loader.cases import SEED, Task
from benchmarks.loader.contestant import Batch, Contestant


class Gzarr(Contestant):
    """gzarr on the CPU."""

    def __init__(self, task: Task, place: str, array: Any = None) -> None:
        import gzarr
        from gzarr.cpu.compiled import library

        super().__init__(task, place)
        self.version = f"{gzarr.__version__} (compiled loop: {library.status()})"
        self.lib = gzarr
        self.array = gzarr.open_array(place, mode="r", device="cpu") if array is None else array
        self.loader = self._loader()

    def _loader(self) -> Any:
        case, kinds = self.task.case, {}
        if case.order == "crops":
            kinds = {"crops": self.lib.Crops(self.task.crop, n=self.task.n, seed=SEED)}
        shuffle = "blocks" if case.order == "blocks" else "exact"
        memory, blocks = self.task.memory, case.block_chunks
        return self.lib.Loader(
            self.array,
            case.batch,
            shuffle=shuffle,
            seed=SEED,
            memory=memory,
            block_chunks=blocks,
            device="cpu",
            **kinds,
        )

    def epoch(self, number: int) -> Iterator[Batch]:
        self.loader.set_epoch(number)
        for step, values in enumerate(self.loader):
            ids = partial(self.loader.batch_ids, step)
            yield Batch(ids, values, partial(self._starts, step) if self.task.case.order == "crops" else None)

    def _starts(self, step: int) -> Any:
        """Where the crops of a batch begin."""
        return self.loader.samples.boxes(self.loader.batch_ids(step))

    def fresh(self) -> Contestant:
        return type(self)(self.task, self.place, self.array)

    def decodes(self) -> float | None:
        return float(self.loader.stats().decodes)

    def close(self) -> None:
        self.loader.close()
