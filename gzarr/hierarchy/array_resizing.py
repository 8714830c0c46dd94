"""Changes the extents of an array: what `gzarr.Array.resize` and `gzarr.Array.append` do."""

from __future__ import annotations

import contextlib
from typing import Any

from gzarr.chunk_io.prepare import prepare_array
from gzarr.errors import ReadOnlyError, SelectionError
from gzarr.hierarchy.node import GzarrArray
from gzarr.hierarchy.resizing import clear_ahead, clear_box, clear_outside, write_box
from gzarr.hierarchy.values import broadcast_value
from gzarr.indexing.plan import box_between
from gzarr.indexing.selection import Box
from gzarr.metadata.documents import ShapeChangedError, check_shape, document_key, write_shape
from gzarr.metadata.model import ArrayMeta
from gzarr.storage.changing import attempts, given_up
from gzarr.storage.locks import while_locked
from gzarr.tensors import from_tensor


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
                shape: tuple[int, ...] = array.shape
                return shape
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
    kept = tuple(map(min, before.shape, new.shape))
    clear_ahead(io, new, kept, lambda: check_shape(store, path, before))


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
