"""How xarray writes in Zarr what netCDF has and Zarr has not: names of dimensions, the value for missing data.

Dimension names are a field in v3 and the attribute ``_ARRAY_DIMENSIONS`` in v2. The value for missing data
(``_FillValue``) is the array's fill value in v2; in v3 it is an attribute, floats as base64 of their eight bytes.
Source: xarray, "Zarr encoding specification", and ``FillValueCoder`` in its Zarr backend.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gzarr.metadata.model import ArrayMeta

ATTRIBUTE = "_ARRAY_DIMENSIONS"
MASK = "_FillValue"


def split_names(
    attributes: Mapping[str, Any], names: Sequence[str | None] | None, ndim: int
) -> tuple[dict[str, Any], tuple[str | None, ...] | None]:
    """Attributes without dimension names, and the names, from whichever of the two has them."""
    rest = dict(attributes)
    found = rest.get(ATTRIBUTE)
    if isinstance(found, list) and len(found) == ndim and all(isinstance(name, str) for name in found):
        del rest[ATTRIBUTE]
        return rest, tuple(found) if names is None else tuple(names)
    return rest, None if names is None else tuple(names)


def in_format(
    meta: ArrayMeta, attributes: Mapping[str, Any], names: Sequence[str | None] | None, mask_value: Any
) -> ArrayMeta:
    """Metadata with attributes, dimension names and the value for missing data, written as its format has them."""
    rest, found = split_names(attributes, names, len(meta.shape))
    if meta.zarr_format == 3:
        if mask_value is not None and MASK not in rest:
            rest[MASK] = encode_mask(mask_value, meta.data_type.dtype)
        return replace(meta, attributes=rest, dimension_names=found)
    if found is not None and all(isinstance(name, str) for name in found):
        rest[ATTRIBUTE] = list(found)
    if mask_value is not None and not (isinstance(mask_value, (float, np.floating)) and math.isnan(mask_value)):
        rest.setdefault(MASK, as_json(mask_value))  # NaN is no JSON; the fill value says it
    return replace(meta, attributes=rest, dimension_names=None)


def encode_mask(value: Any, dtype: np.dtype[Any]) -> Any:
    """A value for missing data as xarray writes it in a v3 attribute."""
    if dtype.kind == "f":
        return base64.standard_b64encode(struct.pack("<d", float(value))).decode()
    if dtype.kind == "S":
        return base64.standard_b64encode(bytes(value)).decode()
    return as_json(value)


def decode_mask(value: Any, dtype: np.dtype[Any]) -> Any:
    """What `encode_mask` and v2 attributes say. Raises: ValueError."""
    if isinstance(value, str) and dtype.kind == "f":
        return dtype.type(struct.unpack("<d", base64.standard_b64decode(value))[0])
    if isinstance(value, str) and dtype.kind == "S":
        return base64.standard_b64decode(value)
    return value if dtype.kind == "O" else dtype.type(value)


def as_json(value: Any) -> Any:
    """An attribute's value as JSON has it: arrays as lists, bytes as text. Raises: TypeError, ValueError."""
    if isinstance(value, np.ndarray):
        return [as_json(item) for item in value] if value.ndim else as_json(value[()])
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, np.generic) and value.dtype.kind in "biufSU":
        return as_json(value.item())
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise TypeError(f"a value of type {type(value).__name__}")
