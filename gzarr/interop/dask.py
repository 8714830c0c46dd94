"""Dask arrays from Zarr arrays and back, on any device, with blocks that never share a stored object.

``dask.array.from_array(array)`` and ``dask.array.store(x, array, lock=False)`` take gzarr arrays as they are.
``dask.array.from_zarr`` and ``to_zarr`` use zarr-python: give them paths, which need not be written or read by it.
The two functions here do the same with gzarr alone, and add the device.

Rule: what is stored as one object (a chunk, or a shard) is written by one task. Tasks of several threads may share an
object, but tasks of several processes would overwrite each other's part of it, so `to_zarr` moves the boundaries of
blocks onto those of objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gzarr.api.create import create_array
from gzarr.api.open import open_array
from gzarr.errors import MissingExtraError, SelectionError, StoreError
from gzarr.hierarchy.array import Array
from gzarr.storage.wrappers import type_name

try:
    import dask.array as da
    from dask.base import get_scheduler
    from dask.local import get_sync
    from dask.threaded import get as get_threaded
except ImportError as error:
    raise MissingExtraError("gzarr.interop.dask needs Dask: pip install 'gzarr[dask]'") from error


def from_zarr(
    url: Any,
    component: str | None = None,
    *,
    storage_options: Any = None,
    chunks: Any = None,
    name: str | bool | None = None,
    inline_array: bool = False,
    device: str | None = None,
    **kwargs: Any,
) -> da.Array:
    """A lazy Dask array over a Zarr array, as `dask.array.from_zarr` gives it.

    url: a gzarr array, or what `gzarr.open_array` opens. component: path of the array in it.
    chunks: blocks in any form that Dask takes; None for one block for each shard or, without shards, chunk.
    name: name of the Dask array; None derives it from the array's place, metadata and device, False makes a new one:
        choose that if the data change while results of an earlier Dask array over them are kept.
    inline_array: whether every task holds the array. device: where blocks are; on a GPU their meta is a CuPy array.
    kwargs: of `gzarr.open_array`.
    Raises: ArrayNotFoundError, MetadataError, DeviceError.
    """
    if isinstance(url, Array) and component is None and not kwargs:
        array = url if device is None else url.to(device)
    else:
        if storage_options is not None:
            kwargs["storage_options"] = storage_options
        array = open_array(url, path=component, device=device, **{"mode": "r", **kwargs})
    meta = array.backend.empty((0,) * array.ndim, array.dtype)
    if meta.dtype != array.dtype:  # a GPU has native byte order only
        array = array.astype(meta.dtype)
    if chunks is None:
        chunks = tuple(_block_lengths(edges) for edges in _object_edges(array))
    return da.from_array(array, chunks, name=name, inline_array=inline_array, meta=meta)


def to_zarr(
    arr: da.Array,
    url: Any,
    component: str | None = None,
    *,
    storage_options: Any = None,
    region: Any = None,
    compute: bool = True,
    return_stored: bool = False,
    overwrite: bool = False,
    **kwargs: Any,
) -> Any:
    """Store a Dask array, as `dask.array.to_zarr` does: into a new Zarr array, or into one that exists.

    arr: with blocks of NumPy or CuPy arrays.
    url: a gzarr array to write into, or a store, path or URL in which an array is created. component: its path there.
    region: slices of the existing array to write into, one an axis; None for all of it.
    compute: whether to write now; else a Dask object that writes is returned. return_stored: whether to return a Dask
        array over what was stored. overwrite: whether a new array may replace what is there.
    kwargs: of `gzarr.create_array`; by default chunks are the blocks, made regular.
    Raises: ValueError for another shape or unknown block sizes, SelectionError for a region that is not of slices,
        StoreError for memory that the workers do not share, ContainsArrayError, MetadataError.
    """
    if np.isnan(np.asarray(arr.shape, float)).any():
        raise ValueError(
            f"cannot store a Dask array of unknown shape {arr.shape}; call its compute_chunk_sizes() first"
        )
    if isinstance(url, Array):
        if component is not None or overwrite or kwargs:
            given = ", ".join(["component"] * (component is not None) + ["overwrite"] * overwrite + list(kwargs))
            raise TypeError(f"{given}: only for arrays that are created, but {url.store_path} exists")
        array = url
        array.check_writable()
    else:
        if region is not None:
            raise ValueError(f"region={region!r} needs an existing gzarr array to write into, got {url!r}")
        if storage_options is not None:
            kwargs["storage_options"] = storage_options
        defaults = {"shape": arr.shape, "dtype": arr.dtype}
        if kwargs.get("layout") is None:
            defaults["chunks"] = tuple(max(1, *sizes) for sizes in arr.chunks)
        array = create_array(url, name=component, overwrite=overwrite, **{**defaults, **kwargs})
    slices = _region_slices(region, array.shape)
    expected = tuple(len(range(s.start, s.stop, s.step)) for s in slices)
    if arr.shape != expected:
        raise ValueError(f"cannot store a Dask array of shape {arr.shape} into {expected} of {array.store_path}")
    _check_shared(arr, array)
    blocks = tuple(map(_aligned_lengths, arr.chunks, slices, _object_edges(array)))
    arr = arr if blocks == arr.chunks else arr.rechunk(blocks)
    # No lock: no two blocks meet in an object.
    stored = arr.store(array, lock=False, regions=slices or None, compute=compute, return_stored=return_stored)
    return stored[0] if isinstance(stored, tuple) else stored


def _object_edges(array: Array) -> list[Sequence[int]]:
    """For every axis the boundaries of the stored objects, from 0 to the extent or past it."""
    return [axis.edges() for axis in array.metadata.grid]


def _block_lengths(edges: Sequence[int]) -> tuple[int, ...]:
    return tuple(np.diff(np.asarray(edges)).tolist()) or (0,)


def _region_slices(region: Any, shape: tuple[int, ...]) -> tuple[slice, ...]:
    """A slice of positive step for every axis, with all of its three numbers."""
    items = () if region is None else region if isinstance(region, tuple) else (region,)
    if len(items) > len(shape) or not all(isinstance(item, slice) for item in items):
        raise SelectionError(f"a region is a tuple of at most {len(shape)} slices, got {region!r}")
    items += (slice(None),) * (len(shape) - len(items))
    slices = tuple(slice(*item.indices(extent)) for item, extent in zip(items, shape, strict=True))
    if any(s.step < 0 for s in slices):
        raise SelectionError(f"a region takes slices of positive step, got {region!r}")
    return slices


def _aligned_lengths(lengths: tuple[int, ...], within: slice, edges: Sequence[int]) -> tuple[int, ...]:
    """Lengths of blocks, each boundary moved down to the last one of a stored object's.

    lengths: of the blocks as they are, along one axis. within: where they go. edges: boundaries of stored objects.
    """
    total = sum(lengths)
    # The first element of the blocks that lies at or behind each boundary of an object.
    firsts = -((within.start - np.asarray(edges, np.int64)) // within.step)
    allowed = np.unique(np.clip(firsts, 0, total))
    wanted = np.cumsum(lengths)[:-1]
    below = np.searchsorted(allowed, wanted, side="right") - 1
    moved = np.unique([0, *allowed[np.maximum(below, 0)].tolist(), total])
    return tuple(np.diff(moved).tolist()) or (total,)


def _check_shared(arr: da.Array, array: Array) -> None:
    """Refuse to let other processes write into this one's memory: what they wrote would be lost."""
    if type_name(array.store) == "MemoryStore" and get_scheduler(collections=[arr]) not in (get_threaded, get_sync):
        raise StoreError(
            f"{array.store_path} lies in the memory of this process, and the scheduler writes from others: "
            "store into a directory or a remote store, or compute with scheduler='threads'"
        )
