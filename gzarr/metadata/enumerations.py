"""Enumerations of HDF5 and netCDF: Zarr stores their integers, and their names in attributes, so that both come back.

The attribute ``enum`` maps names to integers. ``flag_values`` and ``flag_meanings`` say the same in the words of the CF
conventions, which readers such as xarray's know. Source: CF conventions, section 3.5, "Flags".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

ENUM = "enum"
_FLAGS = ("flag_values", "flag_meanings")


def enum_attributes(names: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that describe an enumeration, from its integers by name."""
    values = {str(name): int(value) for name, value in names.items()}
    meanings = " ".join(name.replace(" ", "_") for name in values)
    return {ENUM: values, **dict(zip(_FLAGS, (list(values.values()), meanings), strict=True))}


def split_enum(attributes: Mapping[str, Any], dtype: np.dtype[Any]) -> tuple[dict[str, Any], dict[str, int] | None]:
    """Attributes without those of an enumeration, and its integers by name; None if they describe none of the type."""
    rest, names = dict(attributes), attributes.get(ENUM)
    if dtype.kind not in "iu" or not isinstance(names, Mapping) or not names:
        return rest, None
    limits = np.iinfo(dtype)
    if not all(type(value) is int and limits.min <= value <= limits.max for value in names.values()):
        return rest, None
    same = {name: value for name, value in enum_attributes(names).items() if rest.get(name) == value}
    return {name: value for name, value in rest.items() if name not in same}, dict(names)
