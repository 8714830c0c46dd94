"""Clears what is outside an array: whole objects are deleted, parts of others become the fill value.

An array that shrinks leaves nothing there. Others do: an append that was killed, a write that came after the shrinking,
and other libraries, which leave the chunks at the edge as they are. So an array that grows looks first at the chunks at
its old edge and for new ones that are there already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import compress, product
from math import prod
from operator import ge, le

import numpy as np

from gzarr.backend import Array
from gzarr.chunk_io import engine
from gzarr.chunk_io.array_io import ArrayIO
from gzarr.chunk_io.waves import ReadJob, WriteJob
from gzarr.codecs.spec import equals_fill, fill_of
from gzarr.indexing.grid import Grid
from gzarr.indexing.keys import Coords
from gzarr.indexing.plan import box_between, make_plan
from gzarr.indexing.selection import Box
from gzarr.metadata.model import ArrayMeta
from gzarr.storage.base import Store
from gzarr.storage.invalidation import announce

#: The most new objects that an array which grows asks for one by one; for more, it lists those that are stored.
_MOST_ASKED_FOR = 10_000
#: So many are never worth a listing.
_FEW = 100
#: Decoded bytes at the old edge that are looked at together.
_LOOK_NBYTES = 1 << 26


def objects_stored(meta: ArrayMeta, store: Store, path: str) -> list[Coords]:
    """Return the coordinates of the stored objects of an array that are in its grid. Lists the array's keys."""
    return [coords for coords in _all_objects(meta, store, path) if _in_grid(meta, coords)]


def _all_objects(meta: ArrayMeta, store: Store, path: str) -> Iterator[Coords]:
    """Iterate over the coordinates of all stored objects, including those that an earlier, larger shape has left."""
    ndim = len(meta.shape)
    skip = len(path) + 1 if path else 0
    for key in store.list_prefix(path):
        coords = meta.keys.decode(key[skip:], ndim)
        if coords is not None:
            yield coords


def _in_grid(meta: ArrayMeta, coords: Coords) -> bool:
    return all(c < axis.nchunks for c, axis in zip(coords, meta.grid, strict=True))


def clear_outside(io: ArrayIO, meta: ArrayMeta, shape: tuple[int, ...]) -> None:
    """Clear all elements of an array that are outside a smaller shape. Only stored objects are touched."""
    if all(map(le, meta.shape, shape)):
        return
    gone: list[Coords] = []
    for coords in list(_all_objects(meta, io.store, io.layout.names.path)):
        if not _in_grid(meta, coords) or _is_outside(meta.grid, coords, shape):
            gone.append(coords)
        else:
            for box in _outside(meta.grid, coords, shape):
                clear_box(io, box)
    _delete(io, gone)


def clear_ahead(io: ArrayIO, meta: ArrayMeta, shape: tuple[int, ...], check: Callable[[], object]) -> None:
    """Clear what an array that grows would show outside its old shape. In nearly all cases there is nothing.

    io, meta: of the array as it will be, on the host. shape: the old one, where the new one is larger.
    check: raises if the stored shape is another one. Stores without locks need it, so that nothing is cleared that
    others have appended.
    """
    if meta.shape == shape:
        return
    edge: list[Coords] = []
    ahead: list[Coords] = []
    for coords in _reaching_outside(io, meta, shape):
        (ahead if _is_outside(meta.grid, coords, shape) else edge).append(coords)
    stored = io.store.contains_many([io.layout.key(coords) for coords in ahead])
    ahead = list(compress(ahead, stored))
    boxes = list(_written(io, [box for coords in edge for box in _outside(meta.grid, coords, shape)]))
    if io.store.conditional is None:
        _delete(io, ahead)
    else:
        boxes += [box for coords in ahead for box in _outside(meta.grid, coords, shape)]
    for box in boxes:
        clear_box(io, box, check)


def _reaching_outside(io: ArrayIO, meta: ArrayMeta, shape: tuple[int, ...]) -> Iterator[Coords]:
    """Iterate over the objects that are not within a smaller shape; those that are missing may be left out."""
    counts = [axis.nchunks for axis in meta.grid]
    within = [
        axis.nchunks if extent == axis.extent else axis.locate(extent)
        for axis, extent in zip(meta.grid, shape, strict=True)
    ]
    if prod(counts) - prod(within) > min(max(prod(within), _FEW), _MOST_ASKED_FOR):
        stored = objects_stored(meta, io.store, io.layout.names.path)
        return (coords for coords in stored if any(map(ge, coords, within)))
    return (
        coords
        for axis, n in enumerate(within)
        for coords in product(*map(range, within[:axis]), range(n, counts[axis]), *map(range, counts[axis + 1 :]))
    )


def _is_outside(grid: Grid, coords: Coords, shape: tuple[int, ...]) -> bool:
    """Whether all of an object is outside a shape."""
    return any(axis.bounds(c)[0] >= extent for axis, c, extent in zip(grid, coords, shape, strict=True))


def _outside(grid: Grid, coords: Coords, shape: tuple[int, ...]) -> Iterator[Box]:
    """Yield boxes that make up what an object holds of an array outside a smaller shape."""
    bounds = [axis.bounds(c) for axis, c in zip(grid, coords, strict=True)]
    lows = [low for low, _ in bounds]
    highs = [min(high, axis.extent) for axis, (_, high) in zip(grid, bounds, strict=True)]
    for axis, extent in enumerate(shape):
        start = max(lows[axis], extent)
        if start < highs[axis]:
            yield box_between((*lows[:axis], start, *lows[axis + 1 :]), highs)
            if start == lows[axis]:
                return
            highs[axis] = start


def _written(io: ArrayIO, boxes: Sequence[Box]) -> Iterator[Box]:
    """Yield the boxes that hold anything but the fill value."""
    chunk = io.chain((0,) * len(io.layout.grid)).chunk
    largest = max((prod(box.shape) * chunk.dtype.itemsize for box in boxes), default=0)
    n = max(_LOOK_NBYTES // max(largest, 1), 1)
    for some in (boxes[start : start + n] for start in range(0, len(boxes), n)):
        outs = [io.backend.empty(box.shape, chunk.dtype) for box in some]
        engine.read([ReadJob(io, make_plan(box, io.layout.grid), out) for box, out in zip(some, outs, strict=True)])
        yield from (box for box, out in zip(some, outs, strict=True) if not equals_fill(np.asarray(out), chunk))


def _delete(io: ArrayIO, objects: Sequence[Coords]) -> None:
    keys = [io.layout.key(coords) for coords in objects]
    try:
        io.store.delete_many(keys)
    finally:
        announce(lambda: [io.store.lock_name(key) for key in keys])


def clear_box(io: ArrayIO, box: Box, check: Callable[[], object] | None = None) -> None:
    """Set the elements of a box to the fill value. check: of `WriteJob`."""
    chunk = io.chain((0,) * len(box.shape)).chunk
    fill = np.empty((), chunk.dtype)
    fill[()] = fill_of(chunk)
    write_box(io, box, np.broadcast_to(fill, box.shape), write_empty=False, check=check)


def write_box(
    io: ArrayIO, box: Box, value: Array, *, write_empty: bool, check: Callable[[], object] | None = None
) -> None:
    """Write the elements of a box. write_empty: whether chunks equal to the fill value are stored."""
    engine.write((WriteJob(io, make_plan(box, io.layout.grid), value, write_empty=write_empty, check=check),))
