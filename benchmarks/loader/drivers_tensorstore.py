"""TensorStore: futures of batches or of samples, several batches ahead, and a cache of the memory that there is."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.loader.cases import Task
from benchmarks.loader.contestant import Batch, Contestant

AHEAD = 4  # batches being read beside the one that is waited for; 1 and 2 are slower, 8 is not faster


class TensorStore(Contestant):
    """Google's tensorstore. futures: a future for each sample, not one for each batch."""

    def __init__(self, task: Task, place: str, *, futures: bool = False) -> None:
        import importlib.metadata

        import tensorstore

        super().__init__(task, place)
        self.lib, self.version = tensorstore, importlib.metadata.version("tensorstore")
        self.futures = futures
        self.array = self._open()

    def _open(self) -> Any:
        wanted_again = self.task.data.chunks[0] > 1  # else the cache only costs
        limit = self.task.memory if wanted_again else 0
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
        return type(self)(self.task, self.place, futures=self.futures)

    def epoch(self, number: int) -> Iterator[Batch]:
        waiting: deque[tuple[Any, Any]] = deque()
        for ids in self.task.batches(number):
            waiting.append((ids, self._read(ids)))
            if len(waiting) > AHEAD:
                yield _done(*waiting.popleft())
        while waiting:
            yield _done(*waiting.popleft())

    def _read(self, ids: Any) -> Any:
        if self.task.case.order == "crops":
            crops = [self.array[self.task.box(start)].translate_to[0] for start in self.task.crops[ids]]
            return [crop.read() for crop in crops] if self.futures else self.lib.stack(crops).read()
        if self.futures:
            return [self.array[i].read() for i in ids.tolist()]
        with self.lib.Batch() as batch:
            return self.array.oindex[ids].read(batch=batch)


def _done(ids: Any, reading: Any) -> Batch:
    if isinstance(reading, list):
        return Batch(ids, np.stack([future.result() for future in reading]))
    return Batch(ids, reading.result())


def sample_futures(task: Task, place: str) -> TensorStore:
    """A future for each sample."""
    return TensorStore(task, place, futures=True)
