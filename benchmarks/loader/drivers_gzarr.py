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
            kinds = {"crops": self.lib.Crops(self.task.crop, n=self.task.n)}
        shuffle = "blocks" if case.order == "blocks" else "exact"
        memory, blocks = self.task.memory, case.block_chunks
        return self.lib.Loader(
            self.array,
            self.task.batch,
            shuffle=shuffle,
            seed=SEED,
            memory=memory,
            block_chunks=blocks,
            device="cpu",
            **kinds,
        )

    def epoch(self, number: int) -> Iterator[Batch]:
        self.loader.set_epoch(number)
        starts = partial(self._starts, number) if self.task.case.order == "crops" else None
        for step, values in enumerate(self.loader):
            ids = partial(self.loader.batch_ids, step)
            yield Batch(ids, values, starts and partial(starts, step))

    def _starts(self, epoch: int, step: int) -> Any:
        """Where the crops of a batch begin."""
        samples = self.loader._setup.samples.at(SEED, epoch)  # noqa: SLF001 - a user has no need to know
        return samples.boxes(self.loader.batch_ids(step), len(self.task.crop))

    def fresh(self) -> Contestant:
        return type(self)(self.task, self.place, self.array)

    def decodes(self) -> float | None:
        return float(self.loader.stats().chunks)

    def close(self) -> None:
        self.loader.close()
