"""Clears what is outside an array that shrinks: whole objects are deleted, parts of others become the fill value.

Otherwise growing the array again would show old values in the chunks at the former edge.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gzarr.backend import Array, Chain
from gzarr.chunk_io import engine
from gzarr.chunk_io.array_io import ArrayIO
from gzarr.chunk_io.waves import WriteJob
from gzarr.codecs.spec import fill_of
from gzarr.indexing.keys import Coords
from gzarr.indexing.plan import box_between, make_plan
from gzarr.indexing.selection import Box
from gzarr.metadata.model import ArrayMeta
from gzarr.storage.base import Store
from gzarr.storage.invalidation import announce


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


def clear_outside(io: ArrayIO, meta: ArrayMeta, store: Store, path: str, shape: tuple[int, ...]) -> None:
    """Clear all elements of an array that are outside a smaller shape. Only stored objects are touched."""
    shrunk = [axis for axis, (old, new) in enumerate(zip(meta.shape, shape, strict=True)) if new < old]
    if not shrunk:
        return
    gone: list[str] = []
    for coords in list(_all_objects(meta, store, path)):
        if not _in_grid(meta, coords):
            gone.append(io.layout.key(coords))
            continue
        bounds = [axis.bounds(c) for axis, c in zip(meta.grid, coords, strict=True)]
        if any(bounds[axis][0] >= shape[axis] for axis in shrunk):
            gone.append(io.layout.key(coords))
            continue
        for axis in shrunk:
            if bounds[axis][1] > shape[axis]:
                _fill(io, meta, bounds, axis, shape[axis])
    try:
        store.delete_many(gone)
    finally:
        announce(lambda: [store.lock_name(key) for key in gone])


def _fill(io: ArrayIO, meta: ArrayMeta, bounds: list[tuple[int, int]], axis: int, start: int) -> None:
    """Set the part of one object that is at or beyond ``start`` on an axis to the fill value."""
    lows = [low for low, _ in bounds]
    highs = [min(high, extent) for (_, high), extent in zip(bounds, meta.shape, strict=True)]
    lows[axis] = start
    clear_box(io, meta, box_between(lows, highs))


def clear_box(io: ArrayIO, meta: ArrayMeta, box: Box) -> None:
    """Set the elements of a box to the fill value."""
    chain: Chain = io.chain((0,) * len(box.shape))
    fill = np.empty((), meta.data_type.dtype)
    fill[()] = fill_of(chain.chunk, None)
    write_box(io, box, np.broadcast_to(fill, box.shape), write_empty=False)


def write_box(io: ArrayIO, box: Box, value: Array, *, write_empty: bool) -> None:
    """Write the elements of a box. write_empty: whether chunks equal to the fill value are stored."""
    engine.write((WriteJob(io, make_plan(box, io.layout.grid), value, write_empty=write_empty),))
