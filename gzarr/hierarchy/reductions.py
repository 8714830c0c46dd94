"""Reduces arrays of any size to a few numbers, or along some axes: block by block, on several threads.

What is not stored is not read.

Results are combined in the order of the blocks, whatever the threads do, so they are the same each time.
"""

import functools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from hashlib import sha256
from itertools import islice, product
from typing import Any, Generic, TypeVar

import numpy as np

from gzarr.backend import Array as AnyArray
from gzarr.backend import Backend, Work
from gzarr.concurrency import new_lock
from gzarr.config import config
from gzarr.display.progress import ProgressLike, counted
from gzarr.hierarchy.node import GzarrArray
from gzarr.hierarchy.reaching import close_if_opened_here, open_store_at
from gzarr.hierarchy.region_writing import shown
from gzarr.hierarchy.resizing import objects_stored
from gzarr.indexing.keys import Coords, join_path
from gzarr.indexing.regions import Region, Regions, chunk_spans, cut
from gzarr.metadata.documents import documents
from gzarr.scale.blocks import BlockPlan, one_by_one, parse_part
from gzarr.scale.results import PartResults
from gzarr.scale.running import run
from gzarr.storage.base import tokens_of
from gzarr.storage.lasting import lasting

P = TypeVar("P")

#: Default memory in bytes.
MAX_NBYTES = 256 << 20
#: Blocks grow to this size.
_BLOCK_NBYTES = 4 << 20
#: A thread holds a block, and what is made of it.
_BLOCKS_A_THREAD = 3
#: Parts of a job have the same blocks on any machine: those for so many threads.
_THREADS_OF_PARTS = 16
#: Objects whose versions tell an array from another.
_SAMPLED = 100


def fold(
    array: GzarrArray,
    reduce: Callable[..., P],
    combine: Callable[[P, P], P],
    *,
    others: Sequence[GzarrArray] = (),
    of_fill: Callable[[int], P] | None = None,
    max_nbytes: int = MAX_NBYTES,
    progress: ProgressLike = None,
    on: Any = None,
    by: Callable[..., Any] | None = None,
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
    on : optional
        What does the blocks: see `gzarr.scale.running.run`.
    by : callable, optional
        What ``combine`` does with results other than None, if it is not itself a function of NumPy.

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

    def join(one: list[P], two: list[P]) -> Any:
        is_exact = _is_exact(by or combine, [part for part in (*one, *two) if part is not None])
        return [functools.reduce(combine, [*one, *two])] if is_exact else NotImplemented

    how = {"group": lambda _: 0, "join": join, "nothing": []}
    _for_each_block(array, others, None, parts_of, take, max_nbytes, progress, on, how)
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
    on: Any = None,
) -> AnyArray:
    """Reduce an array along some axes block by block, and combine the results of blocks along these axes, in order.

    Parameters
    ----------
    array : Array
        The array, of one element or more.
    axes : sequence of int
        The axes that ``reduce`` takes away.
    reduce, combine, others, max_nbytes, progress, on
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

    def part_of(region: Region) -> AnyArray:
        if others or stored.has_any(region):
            return reduce(*(one[region] for one in (array, *others)))
        return reduce(_fill(array, region))

    def take(region: Region, part: AnyArray) -> None:
        nonlocal column
        if part is not None:
            made.check(part, region, "func")
            column = part if column is None else combine(column, part)
        if all(region[axis].stop == array.shape[axis] for axis in axes):
            made.store(column, region)
            column = None

    def join(one: AnyArray, two: AnyArray) -> Any:
        return combine(one, two) if _is_exact(combine, [one, two]) else NotImplemented

    # the blocks along the axes come together
    _for_each_block(array, others, (*kept, *axes), part_of, take, max_nbytes, progress, on, {"join": join}, axes)
    return made.result


def _for_each_block(
    array: GzarrArray,
    others: Sequence[GzarrArray],
    order: Sequence[int] | None,
    part_of: Callable[[Region], P],
    take: Callable[[Region, P], None],
    max_nbytes: int,
    progress: ProgressLike,
    on: Any,
    how: Mapping[str, Any],
    along: Sequence[int] = (),
) -> None:
    """Make something of every block, and take it in order. how: fields of the plan. along: axes of a group of it."""
    chunks, share = array.metadata.chunk_grid, max_nbytes // (_thread_count(on) * _BLOCKS_A_THREAD)
    itemsize = sum(one.itemsize for one in (array, *others))
    regions = cut(chunks, chunks, itemsize, min(share, _BLOCK_NBYTES))
    parts = _InOrder(array.backend, take)

    def put(numbers: range, made: list[P]) -> None:
        for number, part in zip(numbers, made, strict=True):
            parts.put(number, regions.at(number, order), part)

    def threaded(task: Callable[[int], None], numbers: Iterable[int]) -> None:
        if regions.nbytes <= share:
            work = Work(len(regions), regions.nbytes, 1, waits=array.store.concurrency > 1)
            array.backend.run(task, numbers, work)
        else:
            one_by_one(task, numbers)

    blocks = BlockPlan(
        name=str(array.store_path),
        n=len(regions),
        do=lambda number: part_of(regions.at(number, order)),
        size=lambda number: math.prod(_shape(regions.at(number, order))) * array.itemsize,
        take=put,
        threads=threaded,
        **{"group": lambda number: number // math.prod(regions.lengths[axis] for axis in along), **how},
    )
    with counted(progress, array.nbytes) as add:
        run([blocks], on, add=add)


def _thread_count(on: Any) -> int:
    here = int(config.get("threading.max_workers") or os.cpu_count() or 1)
    return _THREADS_OF_PARTS if isinstance(on, PartResults) else here


def _is_exact(combine: Callable[..., Any], parts: Sequence[Any]) -> bool:
    """Whether results are the same however they are grouped."""
    return combine in (np.maximum, np.minimum) or (
        combine is np.add and all(getattr(part, "dtype", np.dtype("O")).kind in "iu" for part in parts)
    )


@contextmanager
def kept_results(on: Any, part: tuple[int, int] | None, notes: Any, told: Callable[[], Any]) -> Iterator[Any]:
    """What does the blocks of an operation: ``on``, or one of several parts, whose results are kept in ``notes``.

    told: what all parts of one run say, and no other run. Raises: ValueError.
    """
    this = parse_part(part)
    if this is None and notes is None:
        yield on
        return
    if this is None or notes is None or on is not None:
        raise ValueError("part= needs notes=, a folder where all parts find each other's results, and no on=")
    store, path = open_store_at(notes, "a")
    try:
        run_id = sha256(repr(told()).encode()).hexdigest()[:16]
        results = PartResults(this, store, join_path(path, run_id), run_id)
        yield results
        results.remove()
    finally:
        close_if_opened_here(notes, store)


def state_of(array: GzarrArray) -> str:
    """A digest of an array's metadata, and of the versions of some of its objects."""
    every = math.prod(axis.nchunks for axis in array.metadata.grid) // _SAMPLED + 1
    some = islice(product(*(range(axis.nchunks) for axis in array.metadata.grid)), 0, _SAMPLED * every, every)
    keys = [join_path(array.path, array.metadata.keys.encode(coords)) for coords in some]
    told = list(documents(array.metadata, "")), [lasting(token) for token in tokens_of(array.store, keys)]
    return sha256(repr(told).encode()).hexdigest()


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
                f"block {shown(region)}; return one data type"
            )
        self.result[tuple(region[axis] for axis in self._kept)] = made

    def check(self, part: AnyArray, region: Region, what: str) -> None:
        """Raise ValueError if what was made of a block has another shape."""
        expected = tuple(_shape(region)[axis] for axis in self._kept)
        if np.shape(part) != expected:
            raise ValueError(
                f"{self._array.store_path}: {what} returned an array of shape {np.shape(part)} for the block "
                f"{shown(region)}; expected {expected}, its shape without the axes of axis="
            )


class _StoredRegions:
    """Which parts of an array are stored. Lists its keys."""

    def __init__(self, array: GzarrArray) -> None:
        self._array, self._grid = array, array.metadata.grid

    @cached_property
    def _coords(self) -> set[Coords]:
        return set(objects_stored(self._array.metadata, self._array.store, self._array.path))

    def has_any(self, region: Region) -> bool:
        """Whether something of a region is stored."""
        return any(there for _, there in self.cut(region))

    def cut(self, region: Region) -> Iterator[tuple[Region, bool]]:
        """Yield a region in parts, with whether each is stored."""
        touched = list(product(*chunk_spans(self._grid, region)))
        there = [coords in self._coords for coords in touched]
        if all(there) or not any(there):
            yield region, there[0]
            return
        yield from zip(Regions(self._grid, (1,) * len(self._grid), 1).within(region), there, strict=True)
