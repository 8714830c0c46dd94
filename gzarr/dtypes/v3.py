"""Converts between the ``data_type`` of Zarr v3 as JSON and `DataType`.

Names are written in the form that zarr-python 3 and TensorStore both read, if one exists. The ``bytes`` codec has the
byte order, so dtypes parsed here are native. Structs are packed, and written in the ``structured`` form, the only one
that zarr-python 3.1, 3.4 and TensorStore all read; the newer ``struct`` is read too. A subarray in a struct has no name
in any registry; it is written as ``gzarr.subarray``, which other readers refuse.

Source: https://zarr-specs.readthedocs.io/en/latest/v3/data-types/index.html and
https://github.com/zarr-developers/zarr-extensions/tree/main/data-types
"""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from gzarr.dtypes.datatype import BYTES, MAX_DEPTH, STRING, DataType, canonical, quote
from gzarr.dtypes.extension import extension_name, find_extension, is_extension, unknown
from gzarr.dtypes.v2 import CODES, subarray
from gzarr.errors import MetadataError

#: NumPy kind and size -> core name.
_CORE = {code: np.dtype(code).name for code in CODES}

# Stored arrays have other names too: those of zarrs for complex numbers, and older ones for bytes.
_NAMED = {name: DataType(np.dtype(code)) for code, name in _CORE.items()} | {
    "string": STRING,
    "variable_length_bytes": BYTES,
    "bytes": BYTES,
    "binary": BYTES,
    "complex_float32": DataType(np.dtype("c8")),
    "complex_float64": DataType(np.dtype("c16")),
}

_RAW = re.compile(r"r([1-9][0-9]{0,9})")
_MAX_LENGTH = 2**31 - 1  # NumPy's limit on the size of an element


def to_v3(dt: DataType) -> Any:
    """The data type as JSON: a string, or an object with ``name`` and ``configuration``.

    Raises UnknownDataTypeError if v3 has no such type (extended floats) or it is not registered, MetadataError for
    arrays of Python objects.
    """
    if dt.variable:
        if dt.variable == "object":
            raise MetadataError(
                "data_type: Zarr v3 has no arrays of Python objects; use zarr_format=2 with an object codec, "
                "or dtype='string' or 'bytes'"
            )
        return "string" if dt.variable == "string" else "variable_length_bytes"
    return _dtype_to_v3(dt.dtype)


def from_v3(json: Any) -> DataType:
    """Parse the ``data_type`` of a ``zarr.json``. The dtype is in native byte order.

    Raises UnknownDataTypeError if the name is unknown, MetadataError if the value is malformed.
    """
    if type(json) is str:
        return _NAMED.get(json) or _other_name(json)
    return DataType(canonical(dtype)) if (dtype := _configured(json, 0)) is not None else from_v3(json["name"])


def is_standard_name(name: str) -> bool:
    """Whether the specification or zarr-python has the name, so that it cannot be registered."""
    return name in _NAMED or name in _CONFIGURED or _RAW.fullmatch(name) is not None


def _other_name(name: str) -> DataType:
    extension = find_extension(name)
    if extension is not None:
        return DataType(extension.dtype.newbyteorder("=")) if not extension.dtype.isnative else extension
    raw = _RAW.fullmatch(name)
    if raw is None:
        if name in _CONFIGURED:
            raise MetadataError(f"data_type: {name!r} needs a configuration, got the name alone")
        raise unknown(name)
    bits = int(raw[1])
    if bits % 8:
        raise MetadataError(f"data_type: expected 'r' and a multiple of 8 bits, got {name!r}")
    return DataType(np.dtype(f"V{_length({'length_bytes': bits // 8})}"))


def _dtype_to_v3(dtype: np.dtype[Any]) -> Any:
    if dtype.names is not None:
        return _configure("structured", fields=[[n, _field_to_v3(dtype.fields[n][0])] for n in dtype.names])  # type: ignore[index]
    if is_extension(dtype):
        return extension_name(dtype)
    name = _CORE.get(dtype.str[1:])
    if name is not None:
        return name
    writer = _WRITERS.get(dtype.kind)
    if writer is None:
        raise unknown(str(dtype))
    return writer(dtype)


def _field_to_v3(item: np.dtype[Any]) -> Any:
    json = _dtype_to_v3(item.base)
    return _configure("gzarr.subarray", data_type=json, shape=list(item.shape)) if item.shape else json


def _time_to_v3(dtype: np.dtype[Any]) -> Any:
    unit, count = np.datetime_data(dtype)
    return _configure("numpy.datetime64" if dtype.kind == "M" else "numpy.timedelta64", unit=unit, scale_factor=count)


def _configure(name: str, **configuration: Any) -> dict[str, Any]:
    return {"name": name, "configuration": configuration}


_WRITERS: dict[str, Callable[[np.dtype[Any]], Any]] = {
    "S": lambda dtype: _configure("null_terminated_bytes", length_bytes=dtype.itemsize),
    "U": lambda dtype: _configure("fixed_length_utf32", length_bytes=dtype.itemsize),
    "V": lambda dtype: _configure("raw_bytes", length_bytes=dtype.itemsize),
    "M": _time_to_v3,
    "m": _time_to_v3,
}


def _configured(json: Any, depth: int) -> np.dtype[Any] | None:
    """The dtype of an object; None if it has only a name."""
    if type(json) is not dict or type(json.get("name")) is not str:
        raise MetadataError(
            f"data_type: expected a name or an object with a name and a configuration, got {quote(json)}"
        )
    name, configuration = json["name"], json.get("configuration", {})
    if type(configuration) is not dict:
        raise MetadataError(
            f"data_type: {name}: expected the configuration to be an object, got {quote(configuration)}"
        )
    reader = _CONFIGURED.get(name)
    if reader is None:
        from_v3(name)  # raises if it is unknown
        if configuration:
            raise MetadataError(f"data_type: {name} has no configuration, got {quote(configuration)}")
        return None
    return reader(name, configuration, depth)


def _length(configuration: dict[str, Any]) -> int:
    length = configuration.get("length_bytes")
    if type(length) is not int or not 1 <= length <= _MAX_LENGTH:
        raise MetadataError(f"data_type: length_bytes: expected an integer in 1 ... {_MAX_LENGTH}, got {quote(length)}")
    return length


def _read_u(_name: str, configuration: dict[str, Any], _depth: int) -> np.dtype[Any]:
    length = _length(configuration)
    if length % 4:
        raise MetadataError(f"data_type: fixed_length_utf32: length_bytes: expected a multiple of 4, got {length}")
    return np.dtype(f"U{length // 4}")


def _read_time(name: str, configuration: dict[str, Any], _depth: int) -> np.dtype[Any]:
    unit, count = configuration.get("unit"), configuration.get("scale_factor")
    if type(unit) is not str or type(count) is not int or not 1 <= count <= _MAX_LENGTH:
        raise MetadataError(
            f"data_type: {name}: expected a unit and a scale_factor in 1 ... {_MAX_LENGTH}, got {quote(configuration)}"
        )
    code = "M8" if name == "numpy.datetime64" else "m8"
    if unit == "generic" and count == 1:
        return np.dtype(code)
    try:
        if re.fullmatch("[a-zA-Zμ]{1,2}", unit):
            return np.dtype(f"{code}[{count}{unit.replace('μ', 'u')}]")
    except (TypeError, ValueError):
        pass
    raise MetadataError(f"data_type: {name}: expected a unit of NumPy (such as 's' or 'ns'), got {count} {unit!r}")


def _read_struct(name: str, configuration: dict[str, Any], depth: int) -> np.dtype[Any]:
    fields = configuration.get("fields")
    if type(fields) is not list or depth == MAX_DEPTH:
        raise MetadataError(
            f"data_type: {name}: expected a list of fields, nested at most {MAX_DEPTH} deep, got {quote(fields)}"
        )
    try:
        return np.dtype([_field_from_v3(field, depth) for field in fields])
    except (TypeError, ValueError) as error:
        if isinstance(error, MetadataError):
            raise
        raise MetadataError(f"data_type: {name}: {quote(fields)} is not a struct: {error}") from error


def _field_from_v3(field: Any, depth: int) -> tuple[str, np.dtype[Any]]:
    """Parse {"name": ..., "data_type": ...} (``struct``) or [name, data_type] (``structured``)."""
    pair = [field.get("name"), field.get("data_type")] if type(field) is dict else field
    if type(pair) is not list or len(pair) != 2 or type(pair[0]) is not str or not pair[0]:
        raise MetadataError(f"data_type: expected a field with a name and a data type, got {quote(field)}")
    return pair[0], _inner(pair[1], depth)


def _inner(json: Any, depth: int) -> np.dtype[Any]:
    dtype = None if type(json) is str else _configured(json, depth + 1)
    return from_v3(json).dtype if dtype is None else dtype


def _read_subarray(name: str, configuration: dict[str, Any], depth: int) -> np.dtype[Any]:
    if depth >= MAX_DEPTH:
        raise MetadataError(f"data_type: {name}: expected types nested at most {MAX_DEPTH} deep")
    item = _inner(configuration.get("data_type"), depth)
    return subarray(item, configuration.get("shape"), "data_type", name)


_CONFIGURED: dict[str, Callable[[str, dict[str, Any], int], np.dtype[Any]]] = {
    "null_terminated_bytes": lambda _name, configuration, _depth: np.dtype(f"S{_length(configuration)}"),
    "raw_bytes": lambda _name, configuration, _depth: np.dtype(f"V{_length(configuration)}"),
    "fixed_length_utf32": _read_u,
    "numpy.datetime64": _read_time,
    "numpy.timedelta64": _read_time,
    "structured": _read_struct,
    "struct": _read_struct,
    "gzarr.subarray": _read_subarray,
}
