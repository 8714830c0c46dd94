"""Functions that create arrays: from keywords, filled with a value, from data."""

from collections.abc import Mapping
from typing import Any, Unpack

from gzarr.errors import MetadataError
from gzarr.hierarchy import new_nodes
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.keywords import CreateArrayKeywords, CreateKeywords, FilledKeywords, NewArrayKeywords
from gzarr.hierarchy.options import UNSET, check_keywords
from gzarr.hierarchy.reaching import reach_node, take_format


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
    **kwargs: Unpack[CreateArrayKeywords],
) -> Array:
    """Create an array, and fill it if data are given.

    Parameters
    ----------
    store : Store, Group, path, URL or mapping, optional
        Where to create the array. By default in memory.
    name, path : str, optional
        Path of the array in the store. Both mean the same: ``name`` is zarr-python 3's keyword, ``path`` zarr 2's.
    shape : int or sequence of int
        Extents. By default those of ``data``.
    dtype : dtype-like, optional
        Data type of the elements. By default that of ``data``, or float64.
    data : array-like, optional
        Values to fill the array with, on the host or on a GPU. Those of xarray lend the names of their axes, too.
    chunks : int, tuple, list, False or "auto", optional
        Shape of the chunks; None or -1 in a tuple stands for a whole axis, False for one chunk. A list of chunk lengths
        for every axis makes chunks of varying length (v3). By default a shape is chosen.
    shards : tuple or "auto", optional
        Shape of the shards (v3). By default chunks are objects of their own.
    compressor, compressors : codec or sequence of codecs, optional
        Codecs from bytes to bytes: objects of numcodecs, `gzarr.codecs` or zarr-python, or dicts. None for none.
        ``compressor`` takes one codec, as in zarr 2; ``compressors`` takes one or several, as in zarr-python 3.
    filters : codec or sequence of codecs, optional
        Codecs that run before the compressors.
    serializer : codec, optional
        The codec from array to bytes (v3).
    codecs : sequence of codecs, optional
        The whole codec chain, instead of the four keywords above (v3).
    fill_value : scalar, optional
        Value of elements that were never written. By default 0, False, an empty string, or NaT for times; undefined
        in v2 if it is None.
    order : {"C", "F"}, optional
        Memory order of the elements within a chunk.
    zarr_format : {2, 3}, optional
        By default the setting ``default_zarr_format``, which is 3.
    attributes : mapping, optional
        User attributes: JSON values by name.
    dimension_names : sequence of str or None, optional
        A name for every axis (v3).
    chunk_key_encoding : mapping, optional
        ``{"name": "default" or "v2", "separator": "/" or "."}``.
    overwrite : bool
        Whether to replace an array or group that is stored there.
    device : str, optional
        Where reads put their results: "auto", "cpu", "cuda" or "cuda:N". By default the setting ``device``.
    **kwargs
        Options of the array: ``layout`` ("gpu" for chunks, shards and a compressor that suit GPUs), ``object_codec``,
        ``dimension_separator``, ``write_empty_chunks``. ``mode`` of zarr: "w" overwrites, "w-" does not. Options of
        this array object, which are not stored: ``read_only``, ``synchronizer``, ``meta_array``,
        ``chunk_cache``, ``allow_pickle`` (see `gzarr.hierarchy.options.OpenOptions`) and ``storage_options`` for
        the server of a URL. Options of the device: ``stream``, ``max_device_nbytes``, ``strict``, ``reader`` (see
        `gzarr.devices.backend_for`).

    Returns
    -------
    Array
        The new array, open for reading and writing.

    Raises
    ------
    MetadataError
        If keywords contradict each other, or the format has no such array.
    ContainsArrayError, ContainsGroupError
        If something is stored there and ``overwrite`` is false.
    ReadOnlyError
        If the store was opened for reading.
    TypeError
        If a keyword is unknown; the message suggests one.

    Examples
    --------
    >>> import gzarr
    >>> z = gzarr.create_array("example.zarr", shape=(100, 100), chunks=(10, 10), dtype="i4")
    >>> z[0, :3] = [1, 2, 3]
    >>> z[0, :5]
    array([1, 2, 3, 0, 0], dtype=int32)

    Chunks of a sharded array are stored together, and each of them can be read by itself:

    >>> z = gzarr.create_array(shape=(4000, 4000), chunks=(100, 100), shards=(1000, 1000), dtype="f4")
    >>> z.nchunks
    1600
    """
    check_keywords(kwargs, CreateArrayKeywords, create_array)
    if name and path:
        raise MetadataError(f"name={name!r} and path={path!r} mean the same; give one of them")
    given: dict[str, Any] = {"shape": shape, "dtype": dtype, "chunks": chunks, "shards": shards, "order": order}
    given |= {**kwargs, "zarr_format": zarr_format}
    given["zarr_format"] = take_format(zarr_format, given)
    given |= {"compressor": compressor, "compressors": compressors, "filters": filters, "serializer": serializer}
    given |= {"codecs": codecs, "fill_value": fill_value, "attributes": attributes}
    given |= {"dimension_names": dimension_names, "chunk_key_encoding": chunk_key_encoding}
    overwrite = _overwrites(given.pop("mode", None), overwrite)
    opened, where, _, opened_with = reach_node(store, name or path, "w" if overwrite else "a", device, given)
    return new_nodes.make(opened, where, opened_with, data=data, overwrite=overwrite, **given)


def _overwrites(mode: str | None, overwrite: bool) -> bool:
    """Return whether a ``mode=`` of zarr replaces what is stored there."""
    if mode == "w":
        return True
    if mode in ("w-", "x"):
        return False
    if mode in (None, "a", "r+"):
        return overwrite
    raise ValueError(f"mode must be 'w', 'w-', 'x', 'a' or 'r+' to create an array, got {mode!r}")


def create(
    shape: Any = None,
    chunks: Any = True,
    dtype: Any = None,
    compressor: Any = "default",
    fill_value: Any = 0,
    order: str | None = None,
    store: Any = None,
    **kwargs: Unpack[CreateKeywords],
) -> Array:
    """Create an array, with the positional arguments of zarr 2.

    Parameters
    ----------
    shape, chunks, dtype, compressor, fill_value, order, store, **kwargs
        See `create_array`.

    Returns
    -------
    Array
        The new array.

    Examples
    --------
    >>> import gzarr
    >>> gzarr.create((100, 100), (10, 10), "i4").nchunks
    100
    """
    given: dict[str, Any] = {"shape": shape, "chunks": chunks, "dtype": dtype, "compressor": compressor, **kwargs}
    return create_array(store, fill_value=fill_value, order=order, **given)


def _filled(fill_value: Any, shape: Any, keywords: Mapping[str, Any]) -> Array:
    return create_array(**{"fill_value": fill_value, **keywords, "shape": shape})


def empty(shape: Any, **kwargs: Unpack[FilledKeywords]) -> Array:
    """Create an array without giving it a fill value; nothing is stored.

    Parameters
    ----------
    shape : int or sequence of int
        Extents.
    **kwargs
        See `create_array`.

    Returns
    -------
    Array
        The new array. Its unwritten elements are undefined in v2, and the data type's default value in v3.
    """
    return _filled(None, shape, kwargs)


def zeros(shape: Any, **kwargs: Unpack[FilledKeywords]) -> Array:
    """Create an array of zeros; nothing is stored for them.

    Parameters
    ----------
    shape : int or sequence of int
        Extents.
    **kwargs
        See `create_array`.

    Returns
    -------
    Array
        The new array.

    Examples
    --------
    >>> import gzarr
    >>> z = gzarr.zeros((10000, 10000), chunks=(1000, 1000), dtype="i4")
    >>> z.nchunks, z.nchunks_initialized
    (100, 0)
    """
    return _filled(0, shape, kwargs)


def ones(shape: Any, **kwargs: Unpack[FilledKeywords]) -> Array:
    """Create an array of ones; nothing is stored for them.

    Parameters
    ----------
    shape : int or sequence of int
        Extents.
    **kwargs
        See `create_array`.

    Returns
    -------
    Array
        The new array.
    """
    return _filled(1, shape, kwargs)


def full(shape: Any, fill_value: Any, **kwargs: Unpack[FilledKeywords]) -> Array:
    """Create an array filled with a value; nothing is stored for it.

    Parameters
    ----------
    shape : int or sequence of int
        Extents.
    fill_value : scalar
        Value of all elements.
    **kwargs
        See `create_array`.

    Returns
    -------
    Array
        The new array.

    Examples
    --------
    >>> import gzarr
    >>> gzarr.full((2, 2), 7, dtype="i4")[...]
    array([[7, 7],
           [7, 7]], dtype=int32)
    """
    given: dict[str, Any] = {**kwargs, "shape": shape, "fill_value": fill_value}
    return create_array(**given)


def array(data: Any, **kwargs: Unpack[NewArrayKeywords]) -> Array:
    """Create an array from data.

    Parameters
    ----------
    data : array-like
        Values, on the host or on a GPU. The chunk shape of a gzarr, zarr-python or h5py array
        is kept.
    **kwargs
        See `create_array`.

    Returns
    -------
    Array
        The new array.

    Examples
    --------
    >>> import gzarr
    >>> gzarr.array([[1, 2], [3, 4]])[:, 1]
    array([2, 4])
    """
    given: dict[str, Any] = {**kwargs, "data": data}
    chunks = getattr(data, "chunks", None)
    if chunks is not None and given.get("chunks") is None and not {"shards", "layout"} & given.keys():
        given["chunks"] = chunks
    return create_array(**given)
