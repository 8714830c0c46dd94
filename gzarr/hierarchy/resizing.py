"""Changes the extents of an array, and clears what is outside: whole objects are deleted, parts of others become fill.

An array that shrinks leaves nothing there. Others do: an append that was killed, a write that came after the shrinking,
and other libraries, which leave the chunks at the edge as they are. So an array that grows looks first at the chunks at
its old edge and for new ones that are there already.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from itertools import compress, product
from math import prod
from operator import ge, le, lt
from typing import Any

import numpy as np

from gzarr.backend import Array
from gzarr.chunk_io import engine
from gzarr.chunk_io.array_io import ArrayIO
from gzarr.chunk_io.prepare import prepare_array
from gzarr.chunk_io.reference import ReadJob, WriteJob
from gzarr.codecs.spec import ArrayRepr, equals_fill, fill_of
from gzarr.errors import ReadOnlyError, SelectionError
from gzarr.hierarchy.node import GzarrArray
from gzarr.hierarchy.values import broadcast_value
from gzarr.indexing.grid import Grid, nchunks
from gzarr.indexing.keys import Coords
from gzarr.indexing.plan import box_between, make_plan
from gzarr.indexing.selection import Box
from gzarr.metadata.documents import ShapeChangedError, check_shape, document_key, write_shape
from gzarr.metadata.model import ArrayMeta
from gzarr.storage.base import Store
from gzarr.storage.changing import attempts, given_up
from gzarr.storage.invalidation import invalidate
from gzarr.storage.locks import while_locked
from gzarr.storage.rules import DOCUMENTS
from gzarr.tensors import from_tensor, to_host

#: The most new objects that an array which grows asks for one by one; for more, it lists those that are stored.
_MOST_ASKED_FOR = 10_000
#: So many are never worth a listing.
_FEW = 100
#: Decoded bytes at the old edge that are looked at together.
_LOOK_NBYTES = 1 << 26


def objects_stored(meta: ArrayMeta, store: Store, path: str) -> list[Coords]:
    """Return the coordinates of the stored objects of an array that are in its grid. Lists the array's keys.

    Raises: StoreError, also if a link in the place of a folder of chunks leads to nothing.
    """
    return [coords for coords in _all_objects(meta, store, path) if _in_grid(meta, coords)]


def _all_objects(meta: ArrayMeta, store: Store, path: str) -> Iterator[Coords]:
    """Iterate over the coordinates of all stored objects, including those that an earlier, larger shape has left."""
    ndim = len(meta.shape)
    skip = len(path) + 1 if path else 0
    for key in store.list_prefix(path):
        coords = meta.keys.decode(key[skip:], ndim)
        if coords is not None:
            yield coords
        elif store.files is not None and key[skip:] not in DOCUMENTS:
            store.getsize(key)  # raises if chunks are lost, as a link in the place of their folder leads to nothing


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
            for box in _outside(meta.grid, *_only(coords), shape):
                clear_box(io, box)
    _delete(io, gone)


def clear_ahead(io: ArrayIO, meta: ArrayMeta, shape: tuple[int, ...], check: Callable[[], object]) -> None:
    """Clear what an array that grows would show outside its old shape. In nearly all cases there is nothing.

    io, meta: of the array as it will be. shape: the old one, where the new one is larger.
    check: raises if the stored shape is another one. Stores without locks need it, so that nothing is cleared that
    others have appended.
    """
    if meta.shape == shape:
        return
    grid = meta.grid
    begun = tuple([axis.locate(n - 1) + 1 if n else 0 for axis, n in zip(grid, shape, strict=True)])
    within = tuple([axis.nchunks if n == axis.extent else axis.locate(n) for axis, n in zip(grid, shape, strict=True)])
    if nchunks(grid) - prod(within) <= min(max(prod(begun), _FEW), _MOST_ASKED_FOR):
        edges = [((0,) * len(grid), begun)]
        new = list(_beyond(grid, begun))
        ahead = list(compress(new, io.store.contains_many([io.layout.key(coords) for coords in new])))
    else:
        stored = objects_stored(meta, io.store, io.layout.names.path)
        ahead = [coords for coords in stored if any(map(ge, coords, begun))]
        edges = [_only(coords) for coords in stored if any(map(ge, coords, within)) and all(map(lt, coords, begun))]
    most = _LOOK_NBYTES // max(_chunk(io).dtype.itemsize, 1)
    boxes = [box for edge in edges for box in _cut(grid, *edge, shape, most)]
    boxes = list(_written(io, boxes))
    if io.store.conditional is None:
        _delete(io, ahead)
    else:
        boxes += [box for coords in ahead for box in _outside(grid, *_only(coords), shape)]
    for box in boxes:
        clear_box(io, box, check)


def _beyond(grid: Grid, counts: Sequence[int]) -> Iterator[Coords]:
    """Iterate over the objects that are not among so many first ones of every axis."""
    total = [axis.nchunks for axis in grid]
    for axis, n in enumerate(counts):
        yield from product(*map(range, counts[:axis]), range(n, total[axis]), *map(range, total[axis + 1 :]))


def _only(coords: Coords) -> tuple[Coords, Coords]:
    """An object as a range of objects."""
    return coords, tuple([c + 1 for c in coords])


def _is_outside(grid: Grid, coords: Coords, shape: tuple[int, ...]) -> bool:
    """Whether all of an object is outside a shape."""
    return any(axis.bounds(c)[0] >= extent for axis, c, extent in zip(grid, coords, shape, strict=True))


def _outside(grid: Grid, first: Coords, stop: Coords, shape: tuple[int, ...]) -> Iterator[Box]:
    """Yield boxes that make up what a range of objects holds of an array outside a smaller shape."""
    if any(map(ge, first, stop)):
        return
    lows = [axis.bounds(c)[0] for axis, c in zip(grid, first, strict=True)]
    highs = [min(axis.bounds(c - 1)[1], axis.extent) for axis, c in zip(grid, stop, strict=True)]
    for axis, extent in enumerate(shape):
        start = max(lows[axis], extent)
        if start < highs[axis]:
            yield box_between((*lows[:axis], start, *lows[axis + 1 :]), highs)
            if start == lows[axis]:
                return
            highs[axis] = start


def _cut(grid: Grid, first: Coords, stop: Coords, shape: tuple[int, ...], most: int) -> Iterator[Box]:
    """Yield `_outside` in boxes of at most so many elements, or of one object."""
    boxes = list(_outside(grid, first, stop, shape))
    counts = [b - a for a, b in zip(first, stop, strict=True)]
    axis = counts.index(max(counts))
    if sum(prod(box.shape) for box in boxes) <= most or counts[axis] == 1:
        yield from boxes
        return
    middle = first[axis] + counts[axis] // 2
    yield from _cut(grid, first, (*stop[:axis], middle, *stop[axis + 1 :]), shape, most)
    yield from _cut(grid, (*first[:axis], middle, *first[axis + 1 :]), stop, shape, most)


def _written(io: ArrayIO, boxes: Sequence[Box]) -> Iterator[Box]:
    """Yield the boxes that hold anything but the fill value."""
    chunk = _chunk(io)
    for box in boxes:
        out = io.backend.empty(box.shape, chunk.dtype)
        engine.read((ReadJob(io, make_plan(box, io.layout.grid), out),))
        if not equals_fill(to_host(out), chunk):
            yield box


def _chunk(io: ArrayIO) -> ArrayRepr:
    return io.chain((0,) * len(io.layout.grid)).chunk


def _delete(io: ArrayIO, objects: Sequence[Coords]) -> None:
    keys = [io.layout.key(coords) for coords in objects]
    try:
        io.store.delete_many(keys)
    finally:
        invalidate(lambda: [io.store.lock_name(key) for key in keys])


def clear_box(io: ArrayIO, box: Box, check: Callable[[], object] | None = None) -> None:
    """Set the elements of a box to the fill value. check: of `WriteJob`."""
    chunk = _chunk(io)
    fill = np.empty((), chunk.dtype)
    fill[()] = fill_of(chunk)
    write_box(io, box, np.broadcast_to(fill, box.shape), write_empty=False, check=check)


def write_box(
    io: ArrayIO, box: Box, value: Array, *, write_empty: bool, check: Callable[[], object] | None = None
) -> None:
    """Write the elements of a box. write_empty: whether chunks equal to the fill value are stored."""
    engine.write((WriteJob(io, make_plan(box, io.layout.grid), value, write_empty=write_empty, check=check),))


def resize_array(array: GzarrArray, shape: tuple[int, ...]) -> None:
    """Change the shape, and clear what is outside of it and what others have left in what is added."""
    _check_resizable(array)
    key = document_key(array.metadata, array.path)

    def resize() -> None:
        for _ in attempts():
            before = array.refresh().metadata  # another array object may have changed shape or attributes
            new = before.resized(shape)
            clear_outside(array._io, before, shape)
            try:
                _clear_ahead(array, new, before)
                done = _store_shape(array, new, before)
            except ShapeChangedError:
                continue
            if done:
                return
        raise given_up(array.store, key)

    while_locked(array.store.node_locked(key), resize)


def append_to(array: GzarrArray, data: Any, axis: int) -> tuple[int, ...]:
    """Add data at the end of an axis. Returns: the new shape."""
    _check_resizable(array)
    data = from_tensor(data)
    if not hasattr(data, "shape"):
        data = array.backend.asarray(data, array.dtype)
    if not 0 <= axis < array.ndim:
        raise SelectionError(f"{array.store_path}: cannot append along axis {axis} of a {array.ndim}-dimensional array")
    # Stores without conditions have locks, so no other writer changes the shape meanwhile: it says what is complete.
    # With conditions, writers do not wait: the shape tells others which elements are taken.
    reserves = array.store.live().conditional is not None
    key = document_key(array.metadata, array.path)

    def append() -> tuple[int, ...]:
        for _ in attempts():
            if _append_once(array, data, axis, reserves=reserves):
                return array.shape
        raise given_up(array.store, key)

    return while_locked(array.store.node_locked(key), append)


def _append_once(array: GzarrArray, data: Any, axis: int, *, reserves: bool) -> bool:
    """Append data to the array as it is stored now. Returns: False if others have changed its shape meanwhile."""
    before = array.refresh().metadata
    data, box = _appended(array, data, axis)
    extents = list(before.shape)
    extents[axis] += box.shape[axis]
    grown = before.resized(tuple(extents))
    if reserves and not _store_shape(array, grown, before):
        return False
    io = array._io if reserves else array._prepared(grown)
    try:
        write_box(io, box, data, write_empty=array.write_empty_chunks)
        return reserves or _store_shape(array, grown, before)
    except BaseException:
        # What made the append fail may make this fail, too. The error of the append is the one to raise.
        with contextlib.suppress(Exception):
            if reserves or array.refresh().shape == before.shape:  # else what failed came after the shape was stored
                clear_box(io, box)
        with contextlib.suppress(Exception):
            if reserves and write_shape(array.store, array.path, before, grown):  # unless others have appended since
                array.refresh()
        raise


def _appended(array: GzarrArray, data: Any, axis: int) -> tuple[Any, Box]:
    """Return data to append as an array of the backend, and their place."""
    old, added = array.shape, tuple(data.shape)
    if len(added) != len(old) or added[:axis] + added[axis + 1 :] != old[:axis] + old[axis + 1 :]:
        raise ValueError(
            f"{array.store_path}: cannot append data of shape {added} to an array of shape {old} along axis "
            f"{axis}: all other axes must agree"
        )
    low = [old[axis] if n == axis else 0 for n in range(array.ndim)]
    box = box_between(low, [n + extent for n, extent in zip(low, added, strict=True)])
    return broadcast_value(data, array.dtype, box, array), box


def _clear_ahead(array: GzarrArray, new: ArrayMeta, before: ArrayMeta) -> None:
    """Clear what others have left where the array grows. Raises: ShapeChangedError."""
    store, path = array.store, array.path
    io = prepare_array(new, store, path, array.backend, None, array.opened_with.allow_pickle)
    clear_ahead(io, new, tuple(map(min, before.shape, new.shape)), lambda: check_shape(store, path, before))


def _check_resizable(array: GzarrArray) -> None:
    array.check_metadata_writable()
    if array.is_view:
        raise ReadOnlyError(f"{array.store_path}: a view cannot be resized; resize the array that it shows")


def _store_shape(array: GzarrArray, new: ArrayMeta, before: ArrayMeta) -> bool:
    """Store another shape and take it, unless the stored shape is no longer that of `before`."""
    io = array._prepared(new)
    done = write_shape(array.store, array.path, new, before)
    if done:
        array._take(new, io)
    return done
