"""TensorStore: a future for each batch, several batches ahead, and a cache of the memory that there is."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.loader.cases import Task
from benchmarks.loader.contestant import Batch, Contestant

AHEAD = 2  # batches being read beside the one that is waited for; 4 and 8 are not faster


class TensorStore(Contestant):
    """Google's tensorstore."""

    def __init__(self, task: Task, place: str) -> None:
        import importlib.metadata

        import tensorstore

        super().__init__(task, place)
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
        if self.place.startswith("http"):
            return {"driver": "http", "base_url": self.place}
        return {"driver": "file", "path": self.place}

    def fresh(self) -> Contestant:
        return type(self)(self.task, self.place)

    def epoch(self, number: int) -> Iterator[Batch]:
        waiting: deque[tuple[Any, Any]] = deque()
        for ids in self.task.batches(number):
            waiting.append((ids, self._read(ids)))
            if len(waiting) > AHEAD:
                yield _done(*waiting.popleft())
        while waiting:
            yield _done(*waiting.popleft())

    def _read(self, ids: Any) -> Any:
        """Begin to read a batch, in the fastest of several ways: for images of a chunk each, that is a future each."""
        if self.task.case.order == "crops":
            crops = [self.array[self.task.box(start)].translate_to[0] for start in self.task.crops[ids]]
            return self.lib.stack(crops).read()
        if self.task.data.name == "images":
            return [self.array[i].read() for i in ids.tolist()]
        with self.lib.Batch() as batch:
            return self.array.oindex[ids].read(batch=batch)


def _done(ids: Any, reading: Any) -> Batch:
    if isinstance(reading, list):
        return Batch(ids, np.stack([future.result() for future in reading]))
    return Batch(ids, reading.result())
