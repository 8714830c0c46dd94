"""Data types from outside NumPy: those of ml_dtypes, which is imported when one is named, and registered ones.

Both formats write them by name, as TensorStore does: ``"bfloat16"``. An element of less than eight bits takes one byte
in memory and in chunks, with its value in the low bits.
"""

import importlib
from typing import Any

import numpy as np

from gzarr.dtypes.datatype import DataType
from gzarr.errors import MissingExtraError, UnknownDataTypeError

#: Zarr name -> name in ml_dtypes. The names are those of https://github.com/zarr-developers/zarr-extensions.
ML_NAMES = {"complex_bfloat16": "bcomplex32", "complex_float16": "complex32"} | {
    name: name
    for name in (
        *("bfloat16", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3"),
        *("float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
        *("float8_e8m0fnu", "int2", "int4", "uint2", "uint4"),
    )
}

#: NumPy's names of long doubles, which have other bytes on other machines.
_LONG_DOUBLES = frozenset({"float96", "float128", "longdouble", "complex192", "complex256", "clongdouble"})

_ML_ZARR_NAMES = {theirs: zarr for zarr, theirs in ML_NAMES.items()}

# find_extension and add_extension fill them.
_by_name: dict[str, DataType] = {}
_names: dict[type, str] = {}


def add_extension(name: str, known: DataType) -> None:
    """Add a data type under a name; `gzarr.dtypes.parse` has checked both."""
    if is_extension(known.dtype):
        _names[known.dtype.type] = name
    _by_name[name] = known


def is_extension(dtype: np.dtype[Any]) -> bool:
    """Whether the dtype's scalar type is not one of NumPy's own."""
    return dtype.type.__module__ != "numpy"


def find_extension(name: str) -> DataType | None:
    """The registered or ml_dtypes data type of that name, or None.

    Raises MissingExtraError if the name needs ml_dtypes, which is not installed or too old.
    """
    known = _by_name.get(name)
    if known is None and name in ML_NAMES:
        known = _by_name[name] = _load_ml(name)
    return known


def extension_name(dtype: np.dtype[Any]) -> str:
    """Name of a dtype for which `is_extension` holds. Raises UnknownDataTypeError if it is not registered."""
    kind = dtype.type
    name = _names.get(kind)
    if name is None and kind.__module__ == "ml_dtypes":
        name = _ML_ZARR_NAMES.get(kind.__name__)
    if name is None:
        raise unknown(str(dtype))
    return name


def unknown(name: Any) -> UnknownDataTypeError:
    """The error for an unknown data type."""
    from difflib import get_close_matches

    if name in _LONG_DOUBLES:
        instead = "complex128" if str(name)[0] == "c" else "float64"
        return UnknownDataTypeError(
            f"data type {name!r}: long doubles are no data type of Zarr v3, as machines differ in them; convert the "
            f"values to {instead!r}; zarr_format=2 stores those that this machine has"
        )
    codes = (np.dtype(code).str[1:] for code in np.typecodes["AllInteger"] + "efdFD")
    known = {str(name) for name in np.sctypeDict if str(name).isalnum()} - _LONG_DOUBLES
    names = [*codes, "string", "bytes", *ML_NAMES, *sorted(known)]
    near = get_close_matches(str(name), names, 1, 0.5 if len(str(name)) < 4 else 0.75)
    hint = f"did you mean {near[0]!r}? Otherwise " if near else ""
    return UnknownDataTypeError(
        f"data type {name!r} is unknown; {hint}register the NumPy dtype that stands for it with "
        "gzarr.register_data_type(name, dtype)"
    )


def _load_ml(name: str) -> DataType:
    try:
        kind = getattr(importlib.import_module("ml_dtypes"), ML_NAMES[name])
    except (ImportError, AttributeError) as error:
        raise MissingExtraError(
            f"data type {name!r} needs a current ml_dtypes; install it with: pip install 'gzarr[ml]'"
        ) from error
    return DataType(np.dtype(kind))
