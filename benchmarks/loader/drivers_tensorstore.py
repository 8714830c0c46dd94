"""TensorStore: a future for each batch, several batches ahead, and a cache of the memory that there is."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.loader.cases import Task
from benchmarks.loader.contestant import Batch, Contestant

AHEAD = 4  # batches being read; 2 are slower, 8 are not faster


class TensorStore(Contestant):
    """Google's tensorstore."""

    def __init__(self, task: Task, path: Path) -> None:
        import importlib.metadata

        import tensorstore

        super().__init__(task, path)
        self.lib, self.version = tensorstore, importlib.metadata.version("tensorstore")
        self.caches = task.case.name in {"Cx", "Cb", "D"}  # where a chunk is wanted more than once
        self.array = self._open()

    def _open(self) -> Any:
        limit = self.task.memory if self.caches else 0
        return self.lib.open(
            {"driver": "zarr3", "kvstore": self.store()},
            read=True,
            context=self.lib.Context({"cache_pool": {"total_bytes_limit": limit}}),
            recheck_cached_data="open",  # else every use of the cache asks the file system
        ).result()

    def store(self) -> dict[str, Any]:
        """Where the array is."""
        return {"driver": "file", "path": str(self.path)}

    def fresh(self) -> Contestant:
        return type(self)(self.task, self.path)

    def epoch(self, number: int) -> Iterator[Batch]:
        waiting: deque[tuple[Any, Any]] = deque()
        for ids in self.task.batches(number):
            waiting.append((ids, self._read(ids)))
            if len(waiting) > AHEAD:
                yield Batch(*_done(waiting.popleft()))
        while waiting:
            yield Batch(*_done(waiting.popleft()))

    def _read(self, ids: Any) -> Any:
        if self.task.case.order != "crops":
            return self.array.oindex[ids].read()
        return self.lib.stack([self.array[self.task.box(start)].translate_to[0] for start in self.task.crops[ids]]).read()


def _done(one: tuple[Any, Any]) -> tuple[Any, Any]:
    ids, future = one
    return ids, future.result()
