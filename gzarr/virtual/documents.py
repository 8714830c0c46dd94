"""Zarr v3 documents of what other formats describe in their own words."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gzarr.dtypes import default_fill, fill_to_json, parse_dtype, to_v3
from gzarr.indexing.keys import Coords
from gzarr.metadata.conventions import MASK, marking
from gzarr.metadata.fields import dump_json

#: A codec in JSON.
Codec = dict[str, Any]


def codec(name: str, **configuration: Any) -> Codec:
    """A codec in JSON."""
    return {"name": name, "configuration": configuration}


def group_document(attributes: Mapping[str, Any]) -> bytes:
    """The document of a group."""
    return dump_json({"zarr_format": 3, "node_type": "group", "attributes": dict(attributes)}, 0, "attributes")


def array_document(
    shape: Coords,
    dtype: Any,
    chunks: Coords,
    codecs: Sequence[Codec],
    *,
    order: Coords | None = None,
    fill_value: Any = None,
    attributes: Mapping[str, Any] | None = None,
    dimension_names: Sequence[str | None] | None = None,
    mask_value: Any = None,
) -> bytes:
    """The document of an array.

    Parameters
    ----------
    shape, dtype
        Of the array. The byte order of the dtype becomes the codec "bytes".
    chunks : tuple of int
        Shape of a chunk.
    codecs : sequence of dict
        Those after "bytes"; for texts of any length, all of them.
    order : tuple of int, optional
        The axes in the order in which they are stored, if that is not C order.
    fill_value : scalar, optional
        By default zero.
    attributes : mapping, optional
        Attributes.
    dimension_names : sequence, optional
        Names of the axes.
    mask_value : scalar, optional
        What stands for missing data.

    Returns
    -------
    bytes
        The document, in JSON.
    """
    data_type = parse_dtype(dtype)
    if not data_type.variable:
        codecs = [_bytes_codec(np.dtype(dtype)), *codecs]
    if order is not None:
        codecs = [codec("transpose", order=list(order)), *codecs]
    rest = dict(attributes or {})
    if MASK not in rest:
        rest |= marking(mask_value, data_type, rest)
    fill = default_fill(data_type) if fill_value is None else fill_value
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": to_v3(data_type),
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": fill_to_json(fill, data_type, 3),
        "codecs": list(codecs),
        "attributes": rest,
    }
    if dimension_names is not None:
        document["dimension_names"] = list(dimension_names)
    return dump_json(document, 0, "attributes")


def _bytes_codec(dtype: np.dtype[Any]) -> Codec:
    """The codec that gives elements their byte order. Of structured types, all fields have one."""
    orders = {part.byteorder for part in _parts(dtype) if part.itemsize > 1 and part.kind not in "SV"}
    return codec("bytes", endian="big") if ">" in orders else codec("bytes", endian="little")


def _parts(dtype: np.dtype[Any]) -> list[np.dtype[Any]]:
    if dtype.fields is None:
        return [dtype.base]
    return [part for field in dtype.fields.values() for part in _parts(field[0])]


def has_one_order(dtype: np.dtype[Any]) -> bool:
    """Whether the codec "bytes" can describe a dtype: packed, and of one byte order."""
    parts = _parts(dtype)
    orders = {part.newbyteorder("S").byteorder for part in parts if part.itemsize > 1 and part.kind not in "SV"}
    packed = dtype.fields is None or np.dtype([(name, dtype.fields[name][0]) for name in dtype.names or ()]) == dtype
    return len(orders) <= 1 and packed
