"""Reduces arrays of any size to a few numbers, or along some axes: block by block, on several threads.

What is not stored is not read.

Results are combined in the order of the blocks, whatever the threads do, so they are the same each time.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import Any, Generic, TypeVar

import numpy as np

from gzarr.backend import Array as AnyArray
from gzarr.backend import Backend, Work
from gzarr.concurrency import new_lock
from gzarr.config import config
from gzarr.display.progress import ProgressLike, counted
from gzarr.hierarchy.node import GzarrArray
from gzarr.hierarchy.resizing import objects_stored
from gzarr.indexing.grid import nchunks
from gzarr.indexing.regions import Region, Regions, chunk_spans, cut

P = TypeVar("P")

#: Default memory in bytes.
MAX_NBYTES = 256 << 20
#: Blocks grow to this size.
_BLOCK_NBYTES = 4 << 20
#: A thread holds a block, and what is made of it.
_BLOCKS_A_THREAD = 3


def fold(
    array: GzarrArray,
    reduce: Callable[..., P],
    combine: Callable[[P, P], P],
    *,
    others: Sequence[GzarrArray] = (),
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
    stored = _StoredRegions(array)
    result: P | None = None

    def part_of(region: Region, *, is_stored: bool) -> P:
        if of_fill is not None and not is_stored:
            return of_fill(math.prod(_shape(region)))
        return reduce(array[region] if is_stored else _fill(array, region))

    def parts_of(region: Region) -> list[P]:
        if others:
            return [reduce(*(one[region] for one in (array, *others)))]
        return [part_of(part, is_stored=there) for part, there in stored.cut(region)]

    def take(_: Region, parts: list[P]) -> None:
        nonlocal result
        for part in parts:
            result = part if result is None else combine(result, part)

    _for_each_block(array, others, lambda regions: regions, parts_of, take, max_nbytes, progress)
    return result


def fold_along(
    array: GzarrArray,
    axes: Sequence[int],
    reduce: Callable[..., AnyArray],
    combine: Callable[[AnyArray, AnyArray], AnyArray],
    *,
    others: Sequence[GzarrArray] = (),
    max_nbytes: int = MAX_NBYTES,
    progress: ProgressLike = None,
) -> AnyArray:
    """Reduce an array along some axes block by block, and combine the results of blocks along these axes, in order.

    Parameters
    ----------
    array : Array
        The array, of one element or more.
    axes : sequence of int
        The axes that ``reduce`` takes away.
    reduce, combine, others, max_nbytes, progress
        As of `fold`. ``reduce`` returns an array of the shape of its block without the axes.

    Returns
    -------
    array
        Of the shape of the array without the axes.

    Raises
    ------
    ValueError
        If ``reduce`` or ``combine`` returns another shape, or several data types.
    """
    kept = [axis for axis in range(len(array.shape)) if axis not in axes]
    made, stored = _Along(array, kept), _StoredRegions(array)
    column: AnyArray = None  # what is made of the blocks along the axes, as far as they have come

    def one_after_the_other(regions: Regions) -> Iterator[Region]:
        """The blocks along the axes come together."""
        spans = [range(n) for n in regions.lengths]
        for number in product(*[spans[axis] for axis in (*kept, *axes)]):
            place = dict(zip((*kept, *axes), number, strict=True))
            yield regions.region([place[axis] for axis in sorted(place)])

    def part_of(region: Region) -> AnyArray:
        if others or stored.has_any(region):
            part = reduce(*(one[region] for one in (array, *others)))
        else:
            part = reduce(_fill(array, region))
        made.check(part, region, "func")
        return part

    def take(region: Region, part: AnyArray) -> None:
        nonlocal column
        column = part if column is None else combine(column, part)
        if all(region[axis].stop == array.shape[axis] for axis in axes):
            made.store(column, region)
            column = None

    _for_each_block(array, others, one_after_the_other, part_of, take, max_nbytes, progress)
    return made.result


def _for_each_block(
    array: GzarrArray,
    others: Sequence[GzarrArray],
    ordered: Callable[[Regions], Iterable[Region]],
    part_of: Callable[[Region], P],
    take: Callable[[Region, P], None],
    max_nbytes: int,
    progress: ProgressLike,
) -> None:
    """Make something of every block of whole chunks, on several threads, and take it in the order of the blocks."""
    chunks, threads = array.metadata.chunk_grid, int(config.get("threading.max_workers") or os.cpu_count() or 1)
    share = max_nbytes // (threads * _BLOCKS_A_THREAD)
    itemsize = sum(one.itemsize for one in (array, *others))
    regions = cut(chunks, chunks, itemsize, min(share, _BLOCK_NBYTES))
    parts = _InOrder(array.backend, take)
    with counted(progress, array.nbytes) as add:

        def carry_out(item: tuple[int, Region]) -> None:
            number, region = item
            parts.put(number, region, part_of(region))
            add(math.prod(_shape(region)) * array.itemsize, str(array.store_path))

        if regions.nbytes <= share:
            work = Work(len(regions), regions.nbytes, 1, waits=array.store.concurrency > 1)
            array.backend.run(carry_out, enumerate(ordered(regions)), work)
        else:
            for item in enumerate(ordered(regions)):
                carry_out(item)


def _shape(region: Region) -> tuple[int, ...]:
    return tuple(part.stop - part.start for part in region)


def _fill(array: GzarrArray, region: Region) -> AnyArray:
    """A block of which nothing is stored."""
    xp: Any = array.backend.xp
    return xp.broadcast_to(xp.asarray(fill_of(array)), _shape(region))


def fill_of(array: GzarrArray) -> Any:
    """An element of an array where nothing is stored."""
    value = array.fill_value
    return np.asarray(0 if value is None else value, array.metadata.data_type.dtype).astype(array.dtype)[()]


class _InOrder(Generic[P]):
    """Hands on what is made of blocks in any order, in their order."""

    def __init__(self, backend: Backend, take: Callable[[Region, P], None]) -> None:
        self._backend, self._take = backend, take
        self._waiting: dict[int, tuple[Region, P, object]] = {}
        self._mark: object = None  # of the stream that took the last one
        self._n = 0
        self._lock = new_lock()

    def put(self, number: int, region: Region, part: P) -> None:
        """Note what is made of the block with a number, and hand on what comes next."""
        with self._lock:
            self._waiting[number] = region, part, self._backend.record()
            while self._n in self._waiting:
                region, part, mark = self._waiting.pop(self._n)
                for before in (self._mark, mark):
                    self._backend.wait(before)
                self._take(region, part)
                self._mark = self._backend.record()
                self._n += 1


class _Along:
    """What is made of the blocks along some axes, in an array of the other axes."""

    def __init__(self, array: GzarrArray, kept: Sequence[int]) -> None:
        self.result: AnyArray = None
        self._array, self._kept = array, kept

    def store(self, made: AnyArray, region: Region) -> None:
        """Store what was made of the blocks beside and before a block."""
        self.check(made, region, "combine")
        made = made if hasattr(made, "dtype") else np.asarray(made)
        if self.result is None:
            empty = np.empty if isinstance(made, (np.ndarray, np.generic)) else self._array.backend.empty
            self.result = empty(tuple(self._array.shape[axis] for axis in self._kept), made.dtype)
        if made.dtype != self.result.dtype:
            raise ValueError(
                f"{self._array.store_path}: func and combine returned {self.result.dtype}, and {made.dtype} for the "
                f"block {_named(region)}; return one data type"
            )
        self.result[tuple(region[axis] for axis in self._kept)] = made

    def check(self, part: AnyArray, region: Region, what: str) -> None:
        """Raise ValueError if what was made of a block has another shape."""
        expected = tuple(_shape(region)[axis] for axis in self._kept)
        if np.shape(part) != expected:
            raise ValueError(
                f"{self._array.store_path}: {what} returned an array of shape {np.shape(part)} for the block "
                f"{_named(region)}; expected {expected}, its shape without the axes of axis="
            )


def _named(region: Region) -> str:
    return "[" + ", ".join(f"{part.start}:{part.stop}" for part in region) + "]"


class _StoredRegions:
    """Which parts of an array are stored. Lists its keys."""

    def __init__(self, array: GzarrArray) -> None:
        self._grid = array.metadata.grid
        self._coords = set(objects_stored(array.metadata, array.store, array.path))
        self._all = len(self._coords) == nchunks(self._grid)

    def has_any(self, region: Region) -> bool:
        """Whether something of a region is stored."""
        return any(there for _, there in self.cut(region))

    def cut(self, region: Region) -> Iterator[tuple[Region, bool]]:
        """Yield a region in parts, with whether each is stored."""
        touched = list(product(*chunk_spans(self._grid, region)))
        there = [self._all or coords in self._coords for coords in touched]
        if all(there) or not any(there):
            yield region, there[0]
            return
        parts = Regions(self._grid, (1,) * len(self._grid), 1).within(region)
        yield from zip(parts, there, strict=True)
