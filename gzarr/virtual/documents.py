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
        codecs = [codec("bytes", endian="big" if ">" in _orders(np.dtype(dtype)) else "little"), *codecs]
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


def _orders(dtype: np.dtype[Any]) -> set[str]:
    """The byte orders of a dtype, or of its fields: "<", ">" or both; none for single bytes."""
    if dtype.fields is None:
        return {dtype.base.str[0]} - {"|"}
    return set().union(*(_orders(field[0]) for field in dtype.fields.values()))


def has_one_order(dtype: np.dtype[Any]) -> bool:
    """Whether the codec "bytes" can describe a dtype: packed, and of one byte order."""
    packed = dtype.fields is None or np.dtype([(name, dtype.fields[name][0]) for name in dtype.names or ()]) == dtype
    return len(_orders(dtype)) <= 1 and packed
