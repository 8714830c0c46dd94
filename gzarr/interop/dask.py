"""Dask arrays from Zarr arrays and back, on any device, with blocks that never share a stored object.

``dask.array.from_array(array)`` and ``dask.array.store(x, array, lock=False)`` take gzarr arrays as they are.
``dask.array.from_zarr`` and ``to_zarr`` use zarr-python, so give them paths. The two functions here do the same with
gzarr alone, and add the device.

Rule: one task writes what is stored as one object, a chunk or a shard. Threads of one process may share an object, but
processes would overwrite each other's part of it, so `to_zarr` moves the boundaries of blocks onto those of objects.
"""

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np

from gzarr.api.create import create_array
from gzarr.api.open import open_array
from gzarr.errors import MissingExtraError, SelectionError, StoreError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.keywords import FromZarrKeywords, ToZarrKeywords
from gzarr.hierarchy.lazy_views import LazyView
from gzarr.hierarchy.options import check_keywords
from gzarr.hierarchy.reaching import close_if_opened_here, join_storage_options, open_store_at
from gzarr.indexing.keys import join_path, normalize_path
from gzarr.interop.finding import reads
from gzarr.storage import Store
from gzarr.storage.wrappers import type_name

try:
    import dask.array as da
    from dask.base import get_scheduler
    from dask.local import get_sync
    from dask.threaded import get as get_threaded
except ImportError as error:
    raise MissingExtraError("gzarr.interop.dask needs Dask: pip install 'gzarr[dask]'") from error

__all__ = ["from_zarr", "to_zarr"]


def from_zarr(
    url: Any,
    component: str | None = None,
    *,
    storage_options: Any = None,
    chunks: Any = None,
    name: str | bool | None = None,
    inline_array: bool = False,
    device: str | None = None,
    **kwargs: Unpack[FromZarrKeywords],
) -> da.Array:
    """Return a lazy Dask array over a Zarr array, as `dask.array.from_zarr` does.

    Parameters
    ----------
    url : Array, LazyView, Store, path, URL or mapping
        A gzarr array, a view of one (`Array.lazy`), or what `gzarr.open_array` opens.
    component : str, optional
        Path of the array in it.
    storage_options : mapping, optional
        Options for the server of a URL.
    chunks : optional
        Blocks in any form that Dask takes. By default one block for each shard or, without shards, each chunk.
    name : str or bool, optional
        Name of the Dask array. By default it is derived from the array's place, metadata and device. False makes a new
        name, which is needed if the data change while results of an earlier Dask array over them are in use.
    inline_array : bool
        Whether every task holds the array.
    device : str, optional
        Where blocks are; on a GPU their meta is a CuPy array. By default the array's device.
    **kwargs
        See `gzarr.open_array`. The mode is "r" by default.

    Returns
    -------
    dask.array.Array
        The lazy array.

    Raises
    ------
    ArrayNotFoundError
        If there is no array.
    MetadataError
        If its metadata are malformed.
    DeviceError
        If the device cannot be used.

    Examples
    --------
    >>> import gzarr
    >>> from gzarr.interop.dask import from_zarr
    >>> z = gzarr.ones((1000, 1000), chunks=(100, 1000), store="ones.zarr")
    >>> x = from_zarr("ones.zarr", device="cpu")
    >>> x.numblocks, float(x.sum().compute(scheduler="synchronous"))
    ((10, 1), 1000000.0)
    """
    check_keywords(kwargs, FromZarrKeywords, from_zarr)
    array: Any
    if isinstance(url, LazyView) and component is None and device is None and not kwargs:
        array = url
    elif isinstance(url, Array) and component is None and not kwargs:
        array = url if device is None else url.to(device)
    else:
        given: dict[str, Any] = {"mode": "r", "storage_options": storage_options, **kwargs}
        array = open_array(url, path=component, device=device, **given)
    meta = array.backend.empty((0,) * array.ndim, array.dtype)
    if meta.dtype != array.dtype:  # GPUs have only native byte order
        array = array.astype(meta.dtype)
    if chunks is None and isinstance(array, LazyView):
        chunks = array.chunk_sizes
    elif chunks is None:
        chunks = tuple(tuple(np.diff(edges).tolist()) or (0,) for edges in _object_edges(array))
    return da.from_array(array, chunks, name=name, inline_array=inline_array, meta=meta)


def to_zarr(
    arr: da.Array,
    url: Any,
    component: str | None = None,
    *,
    storage_options: Any = None,
    region: Any = None,
    align: bool = True,
    compute: bool = True,
    return_stored: bool = False,
    overwrite: bool = False,
    **kwargs: Unpack[ToZarrKeywords],
) -> Any:
    """Store a Dask array, as `dask.array.to_zarr` does, in a new Zarr array or in one that exists.

    A Dask array that reads what it is stored into, or what it replaces, is computed before anything is written, if its
    graph holds the gzarr or zarr array that it reads. Functions in the graph that open it by its path are not seen.

    Parameters
    ----------
    arr : dask.array.Array
        With blocks of NumPy or CuPy arrays.
    url : Array, Store, path, URL or mapping
        A gzarr array to write into, or the place where an array is created.
    component : str, optional
        Path of the new array in that place.
    storage_options : mapping, optional
        Options for the server of a URL.
    region : slice or tuple of slice, optional
        Part of the existing array to write into. By default all of it.
    align : bool
        Whether to move the boundaries of blocks onto those of stored chunks or shards. If not, blocks that share one
        are refused.
    compute : bool
        Whether to write now; otherwise a Dask object that writes is returned.
    return_stored : bool
        Whether to return a Dask array over what was stored.
    overwrite : bool
        Whether a new array may replace what is stored there.
    **kwargs
        See `gzarr.create_array`. By default chunks are the blocks, made regular.

    Returns
    -------
    None, dask.delayed.Delayed or dask.array.Array
        As ``compute`` and ``return_stored`` say.

    Raises
    ------
    ValueError
        If the shapes differ, or sizes of blocks are unknown; if blocks share a stored object and are not aligned; or if
        ``compute`` is false, but the array must be computed before what it reads is overwritten.
    SelectionError
        If the region is not made of slices.
    StoreError
        If the array is in memory that the workers do not share.
    ContainsArrayError, ContainsGroupError
        If something is stored there and ``overwrite`` is false.

    Examples
    --------
    >>> import dask.array as da, gzarr
    >>> from gzarr.interop.dask import to_zarr
    >>> to_zarr(da.arange(10, chunks=5), "numbers.zarr")
    >>> gzarr.open_array("numbers.zarr", "r")[-2:]
    array([8, 9])
    """
    check_keywords(kwargs, ToZarrKeywords, to_zarr)
    if np.isnan(np.asarray(arr.shape, float)).any():
        raise ValueError(
            f"cannot store a Dask array of unknown shape {arr.shape}; call its compute_chunk_sizes() first"
        )
    if region is not None and not isinstance(url, Array) and not overwrite and not kwargs:
        url, component = open_array(url, "r+", path=component, storage_options=storage_options), None
    if isinstance(url, Array):
        if component is not None or overwrite or kwargs:
            names = ", ".join(["component"] * (component is not None) + ["overwrite"] * overwrite + list(kwargs))
            raise TypeError(f"{names}: for new arrays only, but {url.store_path} exists")
        array = url
        array.check_writable()
    else:
        if region is not None:
            raise ValueError(
                f"region={region!r} is of an array that exists: leave out {', '.join(kwargs) or 'overwrite'}"
            )
        given: dict[str, Any] = {"shape": arr.shape, "dtype": arr.dtype, "storage_options": storage_options}
        if kwargs.get("layout") is None:
            given["chunks"] = tuple(max(1, *sizes) for sizes in arr.chunks)
        if overwrite and _reads_place(arr, url, component, storage_options):
            _check_computes(compute, url)
            array = create_array(url, name=component, overwrite=True, data=arr, **{**given, **kwargs})
            return from_zarr(array, name=False) if return_stored else None
        array = create_array(url, name=component, overwrite=overwrite, **{**given, **kwargs})
    slices = _region_slices(region, array.shape)
    expected = tuple(len(range(s.start, s.stop, s.step)) for s in slices)
    if arr.shape != expected:
        raise ValueError(f"cannot store a Dask array of shape {arr.shape} into {expected} of {array.store_path}")
    if isinstance(url, Array) and _reads(arr, (array.store, array.path)):
        _check_computes(compute, array.store_path)
        array[slices] = arr
        return from_zarr(array, name=False)[slices] if return_stored else None
    check_shared(arr, array)
    given_blocks, arr = arr.chunks, aligned(arr, array, slices)
    if not align and arr.chunks != given_blocks:
        raise ValueError(
            f"{array.store_path}: blocks of {given_blocks} share chunks or shards, which tasks would overwrite: "
            f"rechunk to {arr.chunks}, or pass align=True"
        )
    # Without a lock: no two blocks share an object.
    stored = arr.store(array, lock=False, regions=slices or None, compute=compute, return_stored=return_stored)
    return stored[0] if isinstance(stored, tuple) else stored


def _reads(arr: da.Array, place: tuple[Store, str]) -> bool:
    return reads(arr.dask.layers.values(), [place])


def _reads_place(arr: da.Array, url: Any, component: str | None, storage_options: Any) -> bool:
    """Return whether a Dask array reads what is stored at the place of a new array."""
    store, base = open_store_at(join_storage_options(url, {"storage_options": storage_options}), "a")
    try:
        return _reads(arr, (store, join_path(base, normalize_path(component or ""))))
    finally:
        close_if_opened_here(url, store)


def _check_computes(compute: bool, where: Any) -> None:
    if not compute:
        raise ValueError(
            f"{where}: the Dask array reads what it is stored into, so it cannot be stored later, block by block: "
            "call its persist() first, pass compute=True, or store it elsewhere"
        )


def aligned(arr: da.Array, array: Array, region: tuple[slice, ...]) -> da.Array:
    """Return a Dask array no two blocks of which share a stored object of the region that they are written to."""
    blocks = tuple(map(_aligned_lengths, arr.chunks, region, _object_edges(array)))
    return arr if blocks == arr.chunks else arr.rechunk(blocks)


def _object_edges(array: Array) -> list[Sequence[int]]:
    """Return for every axis the boundaries of the stored objects, from 0 to the extent or past it."""
    return [axis.edges() for axis in array.metadata.grid]


def _region_slices(region: Any, shape: tuple[int, ...]) -> tuple[slice, ...]:
    """Return a slice of positive step for every axis, with all of its three numbers."""
    items = () if region is None else region if isinstance(region, tuple) else (region,)
    if len(items) > len(shape) or not all(isinstance(item, slice) for item in items):
        raise SelectionError(f"a region is a tuple of at most {len(shape)} slices, got {region!r}")
    items += (slice(None),) * (len(shape) - len(items))
    slices = tuple(slice(*item.indices(extent)) for item, extent in zip(items, shape, strict=True))
    if any(s.step < 0 for s in slices):
        raise SelectionError(f"a region takes slices of positive step, got {region!r}")
    return slices


def _aligned_lengths(lengths: tuple[int, ...], within: slice, edges: Sequence[int]) -> tuple[int, ...]:
    """Return lengths of blocks with each boundary moved down to the last one of a stored object.

    ``lengths`` are those of the blocks along one axis, ``within`` says where they go, ``edges`` are the boundaries of
    stored objects.
    """
    total = sum(lengths)
    # The first element of the blocks at or beyond each boundary of an object.
    firsts = -((within.start - np.asarray(edges, np.int64)) // within.step)
    allowed = np.unique(np.clip(firsts, 0, total))
    wanted = np.cumsum(lengths)[:-1]
    below = np.searchsorted(allowed, wanted, side="right") - 1
    aligned = np.unique([0, *allowed[np.maximum(below, 0)].tolist(), total])
    return tuple(np.diff(aligned).tolist()) or (total,)


def check_shared(arr: da.Array, array: Array) -> None:
    """Refuse to let other processes write into this one's memory: what they wrote would be lost."""
    if type_name(array.store) == "MemoryStore" and get_scheduler(collections=[arr]) not in (get_threaded, get_sync):
        raise StoreError(
            f"{array.store_path} is in the memory of this process, and the scheduler writes from others: "
            "store into a directory or a remote store, or compute with scheduler='threads'"
        )
