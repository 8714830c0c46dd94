"""A stored array as Xarray finds it before decoding: lazy data, names of axes, attributes, and how it is encoded."""

import warnings
from collections.abc import Mapping
from contextlib import suppress
from inspect import signature
from typing import Any

import numpy as np
import xarray as xr
from xarray.backends import BackendArray
from xarray.backends.zarr import encode_zarr_variable
from xarray.core import indexing

from gzarr.codecs.registry import to_numcodecs
from gzarr.errors import GzarrError, MetadataError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.lazy_views import LazyView
from gzarr.hierarchy.threads import run_in_thread
from gzarr.metadata.conventions import ATTRIBUTE, MASK, decode_mask
from gzarr.metadata.documents import split_codecs

#: How Xarray marks arrays of objects that are text.
OBJECTS = np.dtype("O", metadata={"element_type": str})
#: Whether Xarray's engine "zarr" reads and writes NumPy's strings.
HAS_STRINGS = "zarr_format" in signature(encode_zarr_variable).parameters


class LazyArray(BackendArray):
    """An array as Xarray's lazy indexing wants it. gzarr itself makes selections of every kind.

    Attributes
    ----------
    shape : tuple of int
        Extents.
    dtype : numpy.dtype
        Data type; it says whether objects are text.
    """

    __slots__ = ("_array", "_unpack", "dtype", "shape")

    def __init__(self, array: Array | LazyView, unpack: Any = None) -> None:
        self._array = array
        self._unpack = unpack
        self.shape = array.shape
        meta = array.arrays[0].metadata if isinstance(array, LazyView) else array.metadata
        is_text = meta.data_type.variable == "string" and array.dtype.hasobject
        text = np.dtypes.StringDType() if HAS_STRINGS else OBJECTS
        self.dtype: np.dtype[Any] = text if is_text else array.dtype if unpack is None else unpack.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        array = self._array
        # If only some axes have points, Xarray takes them out of the box around them.
        points = isinstance(key, indexing.VectorizedIndexer) and all(isinstance(i, np.ndarray) for i in key.tuple)
        support = indexing.IndexingSupport.VECTORIZED if points else indexing.IndexingSupport.OUTER
        selecting = array.vindex if points else array.oindex

        def read(key: Any) -> Any:
            found = selecting[key]
            return found.result() if isinstance(found, LazyView) else found

        values = indexing.explicit_indexing_adapter(key, array.shape, support, read)
        if self.dtype.kind == "T":
            missing = np.asarray(values) == None  # noqa: E711 - of each element, which may be None in v2
            return np.where(missing, "", values).astype(self.dtype)
        return values if self._unpack is None else self._unpack(values)

    async def async_getitem(self, key: indexing.ExplicitIndexer) -> Any:
        """Read a selection on a thread, for ``await dataset.load_async()``."""
        return await run_in_thread(self.__getitem__, key)


def variable_of(array: Array, fill_is_missing: bool | None = None) -> xr.Variable:
    """Return an array as Xarray finds it before decoding. Raises MetadataError if an axis has no name."""
    dims = dimensions(array)
    if dims is None:
        raise MetadataError(
            f"{array.store_path}: Xarray needs names for its {array.ndim} axes; create it "
            f"with dimension_names (v3), set its attribute {ATTRIBUTE!r} (v2), or leave it out with drop_variables"
        )
    if len(dims) != array.ndim:
        raise MetadataError(f"{array.store_path}: {len(dims)} names {dims} for {array.ndim} axes")
    attributes = {key: value for key, value in array.attrs.items() if key != ATTRIBUTE}
    meta, encoding = array.metadata, _encoding(array, dims)
    if fill_is_missing is None:
        fill_is_missing = meta.zarr_format == 2
    if fill_is_missing and meta.fill_value is not None:
        attributes[MASK] = meta.fill_value
    elif not fill_is_missing:
        if meta.zarr_format == 3:
            encoding["fill_value"] = meta.fill_value
        if MASK in attributes:
            attributes[MASK] = _decoded_mask(array, attributes[MASK])
    data = LazyArray(array)
    if data.dtype.kind == "T":
        encoding["dtype"] = data.dtype  # else Xarray decodes it to objects
    return xr.Variable(dims, indexing.LazilyIndexedArray(data), attributes, encoding)


def encoded_variable(variable: xr.Variable, name: str, **how: Any) -> xr.Variable:
    """Return a variable as it is stored, as Xarray encodes it, and warn of numbers that wrap, as Xarray does not warn.

    Dask's blocks are not looked at.
    """
    packing = variable.encoding
    dtype = None if "_Unsigned" in packing else packing.get("dtype")
    if dtype is not None and np.dtype(dtype).kind in "iu" and variable.dtype.kind in "iuf" and variable.chunks is None:
        variable = variable.copy(deep=False, data=variable.data)  # what is lazy is read once
        scale, offset, limits = packing.get("scale_factor"), packing.get("add_offset"), np.iinfo(dtype)
        for extreme in (np.fmin, np.fmax) if isinstance(variable.data, np.ndarray) and variable.size else ():
            value = extreme.reduce(variable.data, axis=None).item()
            stored = value if scale is None and offset is None else (value - (offset or 0)) / (scale or 1)
            if stored < limits.min - 0.5 or stored >= limits.max + 0.5:
                remedy = "choose a wider dtype, or another scale_factor or add_offset"
                text = f"variable {name!r}: {value} does not fit into {np.dtype(dtype)} and is wrapped; {remedy}"
                warnings.warn(text, RuntimeWarning, stacklevel=5)
    return encode_zarr_variable(variable, name=name, **how)


def _decoded_mask(array: Array, value: Any) -> Any:
    try:
        return decode_mask(value, array.dtype)
    except ValueError as error:
        raise MetadataError(f"{array.store_path}: attribute {MASK!r} is {value!r}, not a value in base64") from error


def _encoding(array: Array, dims: tuple[str, ...]) -> dict[str, Any]:
    """Return how an array is stored, in words that both zarr-python and gzarr take for a new array."""
    meta = array.metadata
    encoding: dict[str, Any] = {
        "chunks": tuple(map(length_of, meta.chunk_grid)),
        "preferred_chunks": dict(zip(dims, map(length_of, meta.grid), strict=True)),
    }
    if array.shards:
        encoding["shards"] = tuple(map(length_of, meta.grid))
    filters, serializer, compressors = split_codecs(meta)
    if serializer is not None:
        encoding["serializer"] = serializer.to_json()
        as_given = [[codec.to_json() for codec in codecs] for codecs in (compressors, filters)]
    else:
        as_given = []
        with suppress(GzarrError):  # of a package that is not installed: the data can be opened all the same
            as_given = [list(map(to_numcodecs, codecs)) for codecs in (compressors, filters)]
    encoding.update((name, tuple(codecs)) for name, codecs in zip(("compressors", "filters"), as_given, strict=False))
    return encoding


def length_of(axis: Any) -> int | tuple[int, ...]:
    """Return the length of the chunks along an axis of a grid; all lengths if they vary."""
    return axis.length if hasattr(axis, "length") else axis.lengths


def dimensions(array: Array | LazyView) -> tuple[str, ...] | None:
    """Return the names of an array's axes, or None if an axis has none."""
    names = array.dimension_names or (None if isinstance(array, LazyView) else array.attrs.get(ATTRIBUTE))
    if names is None:
        return None if array.ndim else ()
    named = tuple(name for name in names if isinstance(name, str))
    return named if len(named) == len(names) else None


def shown_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a group that Xarray shows: not those of netCDF, whose names begin with "_nc"."""
    return {key: value for key, value in attributes.items() if not key.lower().startswith("_nc")}
