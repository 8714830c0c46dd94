"""xarray's conventions for what netCDF has and Zarr lacks: dimension names and the value for missing data.

Dimension names are a field in v3 and the attribute ``_ARRAY_DIMENSIONS`` in v2. The value for missing data
(``_FillValue``) is the array's fill value in v2 and an attribute in v3, with floats as base64 of their eight bytes.
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
    stored = rest.get(ATTRIBUTE)
    if isinstance(stored, list) and len(stored) == ndim and all(isinstance(name, str) for name in stored):
        del rest[ATTRIBUTE]
        names = stored if names is None else names
    return rest, None if names is None else tuple(names)


def in_format(
    meta: ArrayMeta, attributes: Mapping[str, Any], names: Sequence[str | None] | None, mask_value: Any
) -> ArrayMeta:
    """Metadata with attributes, dimension names and the value for missing data in the form of its format."""
    rest, dims = split_names(attributes, names, len(meta.shape))
    if meta.zarr_format == 3:
        if mask_value is not None and MASK not in rest:
            rest[MASK] = encode_mask(mask_value, meta.data_type.dtype)
        return replace(meta, attributes=rest, dimension_names=dims)
    if dims is not None and all(isinstance(name, str) for name in dims):
        rest[ATTRIBUTE] = list(dims)
    if mask_value is not None and not (isinstance(mask_value, (float, np.floating)) and math.isnan(mask_value)):
        rest.setdefault(MASK, as_json(mask_value))  # JSON has no NaN; the fill value says it
    return replace(meta, attributes=rest, dimension_names=None)


def encode_mask(value: Any, dtype: np.dtype[Any]) -> Any:
    """A value for missing data as xarray writes it in a v3 attribute."""
    if dtype.kind not in "fS":
        return as_json(value)
    raw = bytes(value) if dtype.kind == "S" else struct.pack("<d", float(value))
    return base64.standard_b64encode(raw).decode()


def decode_mask(value: Any, dtype: np.dtype[Any]) -> Any:
    """The value that xarray wrote in base64; other values as they are. Raises ValueError."""
    if dtype.kind == "f" and isinstance(value, str):
        return _double(value)
    if dtype.kind == "c" and isinstance(value, list):
        real, imaginary = map(_double, value)
        return complex(real, imaginary)
    return base64.standard_b64decode(value) if dtype.kind == "S" and isinstance(value, str) else value


def _double(text: str) -> float:
    (number,) = np.frombuffer(base64.standard_b64decode(text), "<f8")
    return float(number)


def as_json(value: Any) -> Any:
    """The value of an attribute in JSON: arrays as lists, bytes as text. Raises TypeError, ValueError."""
    if isinstance(value, np.ndarray) and not value.ndim:
        value = value[()]
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, np.generic) and value.dtype.kind in "biufSU":
        return as_json(value.item())
    if isinstance(value, (list, tuple, np.ndarray)):
        return [as_json(item) for item in value]
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise TypeError(f"a value of type {type(value).__name__}")
