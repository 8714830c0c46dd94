"""Reduces arrays of any size to a few numbers: block by block, on several threads. What is not stored is not read.

Results are combined in the order of the blocks, whatever the threads do, so they are the same each time.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, Generic, TypeVar

import numpy as np

from gzarr.backend import Work
from gzarr.concurrency import new_lock
from gzarr.config import config
from gzarr.display.progress import ProgressLike, counted
from gzarr.hierarchy.accessors import Indexed
from gzarr.hierarchy.resizing import objects_stored
from gzarr.indexing.grid import nchunks
from gzarr.indexing.regions import Region, cut

P = TypeVar("P")

#: Default memory in bytes.
MAX_NBYTES = 256 << 20
#: Blocks grow to this size.
_BLOCK_NBYTES = 4 << 20
#: A thread holds a block, and what is made of it.
_BLOCKS_A_THREAD = 3


def fold(
    array: Indexed,
    reduce: Callable[..., P],
    combine: Callable[[P, P], P],
    *,
    others: Sequence[Indexed] = (),
    of_fill: Callable[[int], P] | None = None,
    max_nbytes: int = MAX_NBYTES,
    progress: ProgressLike = None,
) -> P | None:
    """Reduce an array block by block, and combine the results in order.

    Parameters
    ----------
    array : Array
        The array.
    reduce : callable
        Called with a block of whole chunks, by several threads at once.
    combine : callable
        Called with what was made of some blocks, and of the block after them.
    others : sequence of Array
        Arrays of the same shape, whose blocks ``reduce`` gets too. Then missing chunks are no blocks of their own.
    of_fill : callable, optional
        Returns what is made of a number of elements that are all the fill value. By default, ``reduce`` gets blocks of
        nothing else.
    max_nbytes : int
        Memory for blocks. If a chunk takes more, one is reduced after the other.
    progress : bool or callable, optional
        True for a bar, or a function of (bytes done, bytes in all, name).

    Returns
    -------
    object
        What is made of everything; None for an array without elements.
    """
    if not array.size:
        return None
    chunks, threads = array.metadata.chunk_grid, int(config.get("threading.max_workers") or os.cpu_count() or 1)
    share = max_nbytes // (threads * _BLOCKS_A_THREAD)
    itemsize = sum(one.itemsize for one in (array, *others))
    regions = cut(chunks, chunks, itemsize, min(share, _BLOCK_NBYTES))
    parts, stored = _InOrder(combine), _Stored(array)

    def part_of(region: Region, *, is_stored: bool) -> P:
        if is_stored:
            return reduce(array[region])
        shape = tuple(s.stop - s.start for s in region)
        if of_fill is not None:
            return of_fill(math.prod(shape))
        xp: Any = array.backend.xp
        return reduce(xp.broadcast_to(xp.asarray(fill_of(array)), shape))

    with counted(progress, array.nbytes) as add:

        def task(item: tuple[int, Region]) -> None:
            number, region = item
            if others:
                parts.put(number, [reduce(*(one[region] for one in (array, *others)))])
            else:
                parts.put(number, [part_of(piece, is_stored=there) for piece, there in stored.cut(region)])
            add(math.prod(s.stop - s.start for s in region) * array.itemsize, str(array.store_path))

        if regions.nbytes <= share:
            work = Work(len(regions), regions.nbytes, 1, waits=array.store.concurrency > 1)
            array.backend.run(task, enumerate(regions), work)
        else:
            for item in enumerate(regions):
                task(item)
    return parts.result


def fill_of(array: Indexed) -> Any:
    """An element of an array where nothing is stored."""
    value = array.fill_value
    return np.asarray(0 if value is None else value, array.metadata.data_type.dtype).astype(array.dtype)[()]


class _InOrder(Generic[P]):
    """Combines what comes in any order, in its order."""

    def __init__(self, combine: Callable[[P, P], P]) -> None:
        self.result: P | None = None
        self._combine = combine
        self._waiting: dict[int, list[P]] = {}
        self._n = 0
        self._lock = new_lock()

    def put(self, number: int, parts: list[P]) -> None:
        """Take what comes at a place."""
        with self._lock:
            self._waiting[number] = parts
            while self._n in self._waiting:
                for part in self._waiting.pop(self._n):
                    self.result = part if self.result is None else self._combine(self.result, part)
                self._n += 1


class _Stored:
    """Which parts of an array are stored. Lists its keys."""

    def __init__(self, array: Indexed) -> None:
        self._grid = array.metadata.grid
        self._coords = set(objects_stored(array.metadata, array.store, array.path))
        self._all = len(self._coords) == nchunks(self._grid)

    def cut(self, region: Region) -> Iterator[tuple[Region, bool]]:
        """Yield a region in parts, with whether each is stored."""
        spans = [
            range(axis.locate(part.start), axis.locate(part.stop - 1) + 1)
            for axis, part in zip(self._grid, region, strict=True)
        ]
        there = [self._all or coords in self._coords for coords in product(*spans)]
        if all(there) or not any(there):
            yield region, there[0]
            return
        for coords, is_stored in zip(product(*spans), there, strict=True):
            bounds = [axis.bounds(c) for axis, c in zip(self._grid, coords, strict=True)]
            yield (
                tuple(
                    slice(max(low, part.start), min(high, part.stop))
                    for (low, high), part in zip(bounds, region, strict=True)
                ),
                is_stored,
            )
