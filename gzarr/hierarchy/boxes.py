"""Boxes of one size of many arrays as columns: those of an array are a single job, in which each chunk stands once.

Theory of operation. A job of its own takes a box of a few chunks longer to prepare than to read. So boxes are collected
by the grid of their arrays and by size, and `plan_arrays` cuts all of them at once. Whatever is no box of a plain array
of the CPU is left to the caller.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from gzarr.backend import Array as AnyArray
from gzarr.backend import Work
from gzarr.chunk_io.array_io import ArrayIO
from gzarr.chunk_io.reference import ReadJob
from gzarr.hierarchy.array import Array
from gzarr.indexing.copies import plan_arrays
from gzarr.indexing.grid import nchunks

#: Plans number the chunks of all arrays together.
_MAX_NCHUNKS = 1 << 40
#: Boxes of so many bytes are read without a job, whose parts several threads could share.
_SMALL_NBYTES = 1 << 17
#: So many of them are one task.
_BATCH = 8
#: NumPy's types of integers that index as Python's do. Times are not among them.
_INTEGERS = frozenset(np.dtype(code).type for code in "bBhHiIlLqQ")


class _WantedBox(NamedTuple):
    """A box: the number of its item, the item, its first element, and the shape of its result."""

    number: int
    array: Array
    key: Any
    out: AnyArray
    start: Sequence[int]
    shape: tuple[int, ...]


def box_jobs(items: Iterable[tuple[Array, Any, AnyArray]]) -> tuple[list[ReadJob], dict[int, AnyArray]]:
    """Make jobs of those items that are several boxes of one size of an array, and read small boxes without a job.

    items: (array, selection, array to read into or None). Returns: the jobs, and the results by the items' numbers.
    """
    by_array: dict[tuple[Hashable, tuple[int, ...]], list[_WantedBox]] = {}
    places: dict[int, Hashable] = {}
    for number, (array, key, out) in enumerate(items):
        box = _box(key, array.metadata.shape)
        if box is not None:
            start, size, shape = box
            place = places.get(id(array)) or places.setdefault(id(array), _place(array))
            by_array.setdefault((place, size), []).append(_WantedBox(number, array, key, out, start, shape))
    by_grid: dict[tuple[int, int, tuple[int, ...]], list[tuple[ArrayIO, list[_WantedBox]]]] = {}
    results: dict[int, AnyArray] = {}
    small: list[_WantedBox] = []
    for (_, size), boxes in by_array.items():
        io = _plain(boxes[0].array) if len(boxes) > 1 else None
        if io is None:
            small += boxes
        elif taken := [box for box in boxes if _takes(box)]:
            by_grid.setdefault((id(io.layout.grid), id(io.layout.objects), size), []).append((io, taken))
    _read_small(small, results)
    return [job for (*_, size), members in by_grid.items() for job in _jobs(members, size, results)], results


def _jobs(
    members: Sequence[tuple[ArrayIO, list[_WantedBox]]], size: tuple[int, ...], results: dict[int, AnyArray]
) -> list[ReadJob]:
    layout = members[0][0].layout
    which = np.repeat(np.arange(len(members)), [len(boxes) for _, boxes in members])
    starts = np.array([box.start for _, boxes in members for box in boxes], np.int64)
    jobs, slot = [], (1, *size)
    for (io, boxes), plan in zip(members, plan_arrays(which, starts, size, layout.grid, layout.objects), strict=True):
        blocks = []
        for number, array, _, out, _, shape in boxes:
            result = results[number] = io.backend.empty(shape, array.dtype) if out is None else out
            blocks.append(result.reshape(slot))
        jobs.append(ReadJob(io, plan, tuple(blocks)))
    return jobs


def _place(array: Array) -> Hashable:
    """What is equal for arrays that are one: those that were opened again (``group[name]``) are other objects."""
    meta = array.metadata
    if array.is_view or array._ready() is None:
        return id(array)
    fixed = map(id, (array.store, array.backend, meta.grid, meta.codecs, meta.data_type, meta.fill_value))
    return (array.path, *fixed)


def _plain(array: Array) -> ArrayIO | None:
    """An array as the engine reads it, if copies are made of its chunks; None if not, or if it cannot be read."""
    dtype = array.dtype
    if array.device != "cpu" or dtype != array.metadata.data_type.dtype or dtype.hasobject or dtype.shape:
        return None
    io = array._ready()
    if io is None or io.compiled is None or not io.compiled.reads_copies():
        return None
    return io if nchunks(io.layout.grid) <= _MAX_NCHUNKS else None


def _read_small(boxes: Sequence[_WantedBox], results: dict[int, AnyArray]) -> None:
    """Read boxes without jobs, several threads sharing them, as far as the loop does that."""
    calls = [(basic.read, box) for box in boxes if (basic := _basic(box)) is not None]
    if not calls:
        return

    def read(some: "Sequence[tuple[Callable[[Any, np.dtype[Any]], Any], _WantedBox]]") -> None:
        for call, box in some:
            found = call(box.key, box.array.dtype)
            if found is not None:
                results[box.number] = found

    batches = (calls[first : first + _BATCH] for first in range(0, len(calls), _BATCH))
    first = calls[0][1]
    work = Work(len(calls), math.prod(first.shape) * first.array.itemsize, _BATCH, unlocked=True)
    first.array.backend.run(read, batches, work)


def _basic(box: _WantedBox) -> Any:
    array = box.array
    if box.out is not None or array.device != "cpu" or math.prod(box.shape) * array.itemsize > _SMALL_NBYTES:
        return None
    return None if array._ready() is None else array._basic()


def _takes(box: _WantedBox) -> bool:
    """Whether a box can be read into what was given."""
    out = box.out
    return out is None or (
        type(out) is np.ndarray
        and out.shape == box.shape
        and out.dtype == box.array.dtype
        and out.flags.c_contiguous
        and out.flags.writeable
    )


def _box(key: Any, extents: tuple[int, ...]) -> tuple[list[int], tuple[int, ...], tuple[int, ...]] | None:
    """First element, size, and shape of the result, of integers and slices within an array; None for all else."""
    items = key if type(key) is tuple else (key,)
    start, size, shape = [], [], []
    if len(items) > len(extents):
        return None
    for item, extent in zip(items, extents, strict=False):
        if type(item) is slice and item.step is None:
            low, high = item.start or 0, extent if item.stop is None else item.stop
            low, high = _index(low), _index(high)
            if not 0 <= low < high <= extent:
                return None
            shape.append(high - low)
            size.append(high - low)
        elif 0 <= (low := _index(item)) < extent:
            size.append(1)
        else:
            return None
        start.append(low)
    rest = extents[len(items) :]
    if not (shape or rest) or 0 in rest:
        return None
    return start + [0] * len(rest), (*size, *rest), (*shape, *rest)


def _index(value: Any) -> int:
    """An integer of Python or NumPy as Python's; -1 for all else."""
    return value if type(value) is int else int(value) if type(value) in _INTEGERS else -1
