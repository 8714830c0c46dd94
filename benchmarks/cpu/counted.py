"""A driver that counts: what gzarr's reference path asks of the stores, decodes, encodes and copies in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from benchmarks.cpu.data import Layout
from benchmarks.cpu.driver import files
from benchmarks.cpu.drivers_zarr import Gzarr
from benchmarks.cpu.workloads import Task
from gzarr.profiling.recorder import Stage
from gzarr.storage import Store
from gzarr.storage.watching import WatchedStore

T = TypeVar("T")


class Call(NamedTuple):
    """A call of a store. verb: as `gzarr.storage.watching` names it; what: requests, keys or paths."""

    store: Watched
    verb: str
    what: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Counts:
    """What one call of a workload comes to.

    Attributes
    ----------
    steps : tuple of tuple of Call
        The calls of stores in each call of the driver, of which one waits for the other.
    decoded_nbytes : int
        Encoded bytes of chunks that were decoded to be read; of chunks that are read in part, those of their blocks.
    encoded_nchunks : int
        Chunks that were encoded.
    copied_nbytes : int
        Bytes of values that were copied to results, or that were written.
    results_nbytes : tuple of int
        Size of every array that was returned.
    transferred_nbytes : int
        Bytes in bodies, both ways, that a server counted.
    """

    steps: tuple[tuple[Call, ...], ...]
    decoded_nbytes: int
    encoded_nchunks: int
    copied_nbytes: int
    results_nbytes: tuple[int, ...]
    transferred_nbytes: int


class Watched(WatchedStore):
    """A store whose calls are noted.

    Attributes
    ----------
    root : Path or None
        The folder of the store's files, or its only file.
    """

    files, versions, conditional = WatchedStore.files, WatchedStore.versions, WatchedStore.conditional

    def __init__(self, store: Store, root: Path | None, note: Callable[[Call], None]) -> None:
        super().__init__(store)
        self.root, self._note = root, note

    @property
    def below(self) -> Store:
        """The store itself, whose calls are not noted."""
        return self._store

    def contains_many(self, keys: Sequence[str]) -> list[bool]:
        """Whether an object exists for each key."""
        with self._watching("size of", keys):
            return self._store.contains_many(keys)

    @contextmanager
    def _watching(self, verb: str, what: Sequence[Any]) -> Iterator[None]:
        self._note(Call(self, verb, tuple(what)))
        yield


def _step(method: Callable[..., T]) -> Callable[..., T]:
    """A call of the driver that others wait for."""

    @wraps(method)
    def called(self: Counted, *given: Any) -> T:
        answer = method(self, *given)
        self.steps.append([])
        return answer

    return called


class Counted(Gzarr):
    """gzarr over watched stores.

    Attributes
    ----------
    steps : list of list of Call
        The calls of stores, by call of the driver.
    written_nbytes : int
        Size of all values that were written.
    """

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[list[Call]] = [[]]
        self.written_nbytes = 0

    def _watched(self, place: Any, mode: str) -> Watched:
        store = self.lib.storage.open_store(place, mode=mode)[0]
        return Watched(store, place if isinstance(place, Path) else None, self._note)

    def _note(self, call: Call) -> None:
        self.steps[-1].append(call)

    @_step
    def open(self, path: Any) -> Any:
        return super().open(self._watched(path, "r"))

    def open_writable(self, path: Any) -> Any:
        return super().open_writable(self._watched(path, "r+"))

    def create(self, path: Any, layout: Layout) -> Any:
        super().create(path, layout)
        return self.open_writable(path)

    def in_memory(self, path: Path) -> Any:
        return self.open_writable(files(path))

    def zipped(self, path: Path) -> Any:
        return super().open(self._watched(path, "r"))

    def remote(self, url: str) -> Any:
        return self.open(url)

    @_step
    def open_group(self, path: Any) -> Any:
        return super().open_group(self._watched(path, "r"))

    read, orthogonal, points = _step(Gzarr.read), _step(Gzarr.orthogonal), _step(Gzarr.points)

    @_step
    def write(self, array: Any, selection: Any, value: Any) -> None:
        self.written_nbytes += value.nbytes
        super().write(array, selection, value)

    @_step
    def write_points(self, array: Any, coordinates: Any, values: Any) -> None:
        self.written_nbytes += values.nbytes
        super().write_points(array, coordinates, values)

    @_step
    def append(self, array: Any, value: Any) -> Any:
        self.written_nbytes += value.nbytes
        return super().append(array, value)


def count(driver: Counted, task: Task) -> Counts:
    """Run a task once and count."""
    import gzarr

    if task.before:
        task.before()
    if task.counts:
        task.counts()
    driver.steps, driver.written_nbytes = [[]], 0
    with gzarr.config.set({"cpu.native": False}), gzarr.profile() as profile:
        answer = task.run()
    told, none = task.counts() if task.counts else {}, Stage()
    arrays = [each for each in (answer if isinstance(answer, list) else [answer]) if isinstance(each, np.ndarray)]
    return Counts(
        steps=tuple(tuple(step) for step in driver.steps if step),
        decoded_nbytes=profile.stages.get("decode", none).bytes_in,
        encoded_nchunks=profile.stages.get("encode", none).chunks,
        copied_nbytes=profile.stages.get("place", none).bytes_out + driver.written_nbytes,
        results_nbytes=tuple(each.nbytes for each in arrays),
        transferred_nbytes=told.get("bytes_sent", 0) + told.get("bytes_received", 0),
    )
