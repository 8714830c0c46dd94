"""Creates arrays: from keywords, filled with a value, from data, like another array."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gzarr.api.keywords import take_node_options
from gzarr.api.locating import join_storage_options, open_store_at
from gzarr.errors import (
    MetadataError,
)
from gzarr.hierarchy import new_nodes
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.options import UNSET
from gzarr.indexing.keys import join_path, normalize_path


def create_array(
    store: Any = None,
    *,
    name: str | None = None,
    shape: Any = None,
    dtype: Any = None,
    data: Any = None,
    chunks: Any = None,
    shards: Any = None,
    compressor: Any = UNSET,
    compressors: Any = UNSET,
    filters: Any = UNSET,
    serializer: Any = UNSET,
    codecs: Any = UNSET,
    fill_value: Any = UNSET,
    order: str | None = None,
    zarr_format: int | None = None,
    attributes: Mapping[str, Any] | None = None,
    dimension_names: Any = None,
    chunk_key_encoding: Any = None,
    overwrite: bool = False,
    path: str | None = None,
    device: str | None = None,
    **kwargs: Any,
) -> Array:
    """Create an array.

    store: a store, path, URL or mapping; None for memory.
    name: path of the array in the store (``path`` means the same).
    shape: extents. dtype: element type, float64 by default. data: array-like to fill the array with.
    chunks: an int, a tuple (None or -1 for a whole axis), False for one chunk, None or "auto" for a guess, or a list of
        chunk lengths for every axis. shards: shape of the shards, "auto", or None for none.
    compressor, compressors: one or several codecs from bytes to bytes (of numcodecs, gzarr.codecs or zarr), None for
        none. filters: codecs before them. serializer: the codec from array to bytes. codecs: the whole chain instead.
    fill_value: what unwritten elements are. order: "C" or "F" in chunks.
    zarr_format: 2 or 3. attributes: user attributes. dimension_names: a name for every axis (v3).
    chunk_key_encoding: {"name": "default" or "v2", "separator": "/" or "."}.
    overwrite: whether to delete what is stored there.
    device: where reads give their results: "auto", "cpu", "cuda", "cuda:N".
    kwargs: the rest of `gzarr.hierarchy.options.ArrayOptions`: layout ("gpu" for chunks, shards and a compressor that
        suit GPUs), object_codec, dimension_separator, write_empty_chunks; of
        `gzarr.hierarchy.open_options.OpenOptions`:
        synchronizer, chunk_store, meta_array, chunk_cache, allow_pickle; options of the device: stream,
        max_device_nbytes, strict, reader (see `gzarr.devices.backend_for`).
    Raises: MetadataError, ContainsArrayError, ContainsGroupError, ReadOnlyError, TypeError for unknown keywords.

    >>> z = create_array(shape=(100, 100), chunks=(10, 10), dtype="i4")
    >>> z[0, :3] = [1, 2, 3]
    >>> z[0, :5]
    array([1, 2, 3, 0, 0], dtype=int32)
    """
    if name and path:
        raise MetadataError(f"name={name!r} and path={path!r} mean the same; give one of them")
    options, backend = take_node_options(device, kwargs)
    given = {"shape": shape, "dtype": dtype, "chunks": chunks, "shards": shards, "order": order, **kwargs}
    given |= {"compressor": compressor, "compressors": compressors, "filters": filters, "serializer": serializer}
    given |= {"codecs": codecs, "fill_value": fill_value, "zarr_format": zarr_format, "attributes": attributes}
    given |= {"dimension_names": dimension_names, "chunk_key_encoding": chunk_key_encoding}
    store = join_storage_options(store, given)
    opened, base = open_store_at(store, "w" if overwrite else "a")
    where = join_path(base, normalize_path(name or path or ""))
    return new_nodes.make(options.store(opened), where, backend, data=data, overwrite=overwrite, **given)


def create(
    shape: Any = None,
    chunks: Any = True,
    dtype: Any = None,
    compressor: Any = "default",
    fill_value: Any = 0,
    order: str | None = None,
    store: Any = None,
    **kwargs: Any,
) -> Array:
    """Create an array, with the positional arguments of zarr 2. See `create_array`."""
    given = {"shape": shape, "chunks": chunks, "dtype": dtype, "compressor": compressor, "order": order}
    return create_array(store, fill_value=fill_value, **given, **kwargs)


def empty(shape: Any, **kwargs: Any) -> Array:
    """Create an array with nothing stored; what unwritten elements are is undefined in v2, the default in v3."""
    return create_array(**{"fill_value": None, **kwargs, "shape": shape})


def zeros(shape: Any, **kwargs: Any) -> Array:
    """Create an array of zeros; nothing is stored for them. See `create_array`.

    >>> zeros((10000, 10000), chunks=(1000, 1000), dtype="i4").nchunks
    100
    """
    return create_array(**{"fill_value": 0, **kwargs, "shape": shape})


def ones(shape: Any, **kwargs: Any) -> Array:
    """Create an array of ones; nothing is stored for them. See `create_array`."""
    return create_array(**{"fill_value": 1, **kwargs, "shape": shape})


def full(shape: Any, fill_value: Any, **kwargs: Any) -> Array:
    """Create an array filled with a value; nothing is stored for it. See `create_array`."""
    return create_array(**{**kwargs, "shape": shape, "fill_value": fill_value})


def array(data: Any, **kwargs: Any) -> Array:
    """Create an array from data, by default with the chunks of a gzarr or h5py array. See `create_array`.

    >>> array([[1, 2], [3, 4]])[:, 1]
    array([2, 4])
    """
    chunks = getattr(data, "chunks", None)
    if chunks is not None and kwargs.get("chunks") is None and not {"shards", "layout"} & kwargs.keys():
        kwargs["chunks"] = chunks
    return create_array(data=data, **kwargs)


def from_array(store: Any = None, *, data: Any, **kwargs: Any) -> Array:
    """Create an array from data, like it where it is an array of gzarr. See `create_array`."""
    return create_array(store, data=data, **new_nodes.like(data, kwargs))


def empty_like(a: Any, **kwargs: Any) -> Array:
    """`empty` with the shape, dtype, chunks and codecs of another array."""
    return create_array(**new_nodes.like(a, {"fill_value": None, **kwargs}))


def zeros_like(a: Any, **kwargs: Any) -> Array:
    """`zeros` with the shape, dtype, chunks and codecs of another array."""
    return create_array(**new_nodes.like(a, {"fill_value": 0, **kwargs}))


def ones_like(a: Any, **kwargs: Any) -> Array:
    """`ones` with the shape, dtype, chunks and codecs of another array."""
    return create_array(**new_nodes.like(a, {"fill_value": 1, **kwargs}))


def full_like(a: Any, **kwargs: Any) -> Array:
    """`full` with the shape, dtype, chunks, codecs and (unless given) fill value of another array."""
    return create_array(**new_nodes.like(a, kwargs))
