"""Turns a user's ``fill_value=`` into a scalar of the array's type, and refuses what the type cannot represent."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gzarr.dtypes.datatype import DataType, quote
from gzarr.dtypes.scalars import component, family, from_bytes, time_scalar, to_float
from gzarr.errors import MetadataError
from gzarr.tensors import from_tensor


def fill_error(got: Any, expected: str) -> MetadataError:
    """The error for a fill value that does not fit."""
    return MetadataError(f"fill_value: expected {expected}, got {quote(got)}")


def default_fill(dt: DataType) -> Any:
    """The fill value of a new array if none is given: zero, False, an empty string; NaT for times.

    Times in structs are zero, as in zarr-python 3.
    """
    if dt.variable:
        return {"string": "", "bytes": b"", "object": 0}[dt.variable]
    if dt.dtype.names is not None:
        return from_bytes(bytes(dt.dtype.itemsize), dt.dtype)
    if dt.dtype.kind in "mM":
        return np.array("NaT", dt.dtype)[()]
    return np.zeros((), dt.dtype)[()]


def cast_fill(value: Any, dt: DataType) -> Any:
    """A user's fill value as a scalar of the data type.

    Floating-point types round; every other type must represent the value exactly. Zero for strings, bytes and structs
    means empty: it is the default of ``zeros``. The value is a Python or NumPy scalar, also as an array without
    dimensions; text for numbers and times; tuples, lists or dicts for structs. None means undefined and is returned.

    The result is a NumPy scalar of ``dt.dtype``, or a str, bytes or any object for variable lengths. Raises
    MetadataError if the type cannot represent the value.
    """
    if dt.variable == "object" or value is None:
        return value
    value = from_tensor(value)
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    cast = _VARIABLE_CASTS[dt.variable] if dt.variable else _CASTS[family(dt.dtype)]
    try:
        scalar = cast(value, dt.dtype)
    except MetadataError:
        raise  # of a field
    except (TypeError, ValueError, OverflowError) as error:
        raise _misfit(value, dt.dtype) from error
    if scalar is None:
        raise _misfit(value, dt.dtype)
    return scalar


def _misfit(value: Any, dtype: np.dtype[Any]) -> MetadataError:
    return fill_error(value, f"a value that {dtype} can represent")


# -- one function a family; None, and errors of conversions, say that the type cannot represent the value ----------


def _cast_bool(value: Any, dtype: np.dtype[Any]) -> Any:
    fits = isinstance(value, (bool, np.bool_, int, float, np.number)) and value in {0, 1}
    return np.bool_(value) if fits else None


def _cast_int(value: Any, dtype: np.dtype[Any]) -> Any:
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return None
    number = int(value)
    if not isinstance(value, (str, bytes)) and number != value:
        return None
    scalar = dtype.type(number)
    return scalar if scalar == number else None


def _cast_float(value: Any, dtype: np.dtype[Any]) -> Any:
    if type(value) is dtype.type:
        return value
    if isinstance(value, (complex, np.complexfloating, np.datetime64, np.timedelta64)):
        return None
    return to_float(value if isinstance(value, np.longdouble) else float(value), dtype)


def _cast_complex(value: Any, dtype: np.dtype[Any]) -> Any:
    if type(value) is dtype.type:
        return value
    number = value if isinstance(value, np.complexfloating) else complex(value)
    parts = [_cast_float(part, component(dtype)) for part in (number.real, number.imag)]
    if any(part is None for part in parts):
        return None
    return from_bytes(b"".join(part.tobytes() for part in parts), dtype.newbyteorder("="))


def _cast_time(value: Any, dtype: np.dtype[Any]) -> Any:
    if isinstance(value, (bool, np.bool_)):
        return None
    if isinstance(value, (int, np.integer)) and not isinstance(value, np.timedelta64):
        return time_scalar(int(value), dtype)
    given = value if isinstance(value, dtype.type) else dtype.type(value)
    scalar = given.astype(dtype.newbyteorder("="))
    # a coarser unit cuts something off, a finer one overflows
    exact = np.isnat(given) or np.datetime_data(given.dtype)[0] == "generic" or scalar.astype(given.dtype) == given
    return scalar if exact else None


def _cast_bytes(value: Any, dtype: np.dtype[Any]) -> Any:
    raw = _as_bytes(value, dtype)
    return None if raw is None or len(raw) > dtype.itemsize else np.array(raw, dtype)[()]


def _as_bytes(value: Any, dtype: np.dtype[Any]) -> bytes | None:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    text = _as_text(value, dtype)
    return None if text is None else text.encode("ascii")


def _cast_str(value: Any, dtype: np.dtype[Any]) -> Any:
    text = _as_text(value, dtype)
    return None if text is None or 4 * len(text) > dtype.itemsize else np.array(text, dtype)[()]


def _as_text(value: Any, dtype: np.dtype[Any]) -> str | None:
    if isinstance(value, (bytes, str)):
        return str(value, "ascii") if isinstance(value, bytes) else str(value)
    if isinstance(value, (int, float, complex, np.number, np.bool_)):
        return "" if value == 0 else str(value)
    return None


def _cast_void(value: Any, dtype: np.dtype[Any]) -> Any:
    if dtype.names is not None:
        return _cast_struct(value, dtype)
    if isinstance(value, (int, float, np.number)) and value == 0:
        return np.zeros((), dtype)[()]
    if isinstance(value, np.void) and value.dtype.names is None:
        value = value.tobytes()
    if not isinstance(value, (bytes, bytearray, memoryview)) or len(value) > dtype.itemsize:
        return None
    return np.void(bytes(value).ljust(dtype.itemsize, b"\0"))


def _cast_struct(value: Any, dtype: np.dtype[Any]) -> Any:
    names = dtype.names or ()
    if isinstance(value, (bytes, bytearray)) and len(value) <= dtype.itemsize:
        return from_bytes(bytes(value).ljust(dtype.itemsize, b"\0"), dtype)  # as NumPy and zarr 2: the memory
    if isinstance(value, np.void) and value.dtype.names is not None:
        value = tuple(value[name] for name in value.dtype.names)
    if isinstance(value, dict):
        if set(value) != set(names):
            return None
        value = [value[name] for name in names]
    if not isinstance(value, (tuple, list)):
        value = [value] * len(names)  # one value for every field
    if len(value) != len(names):
        return None
    return struct_of(dict(zip(names, value, strict=True)), dtype, _cast_field, spreads=True)


def _cast_field(value: Any, dtype: np.dtype[Any]) -> Any:
    return cast_fill(value, DataType(dtype))


def struct_of(
    values: Mapping[str, Any], dtype: np.dtype[Any], element: Callable[[Any, np.dtype[Any]], Any], *, spreads: bool
) -> Any:
    """A struct of the values of some fields, of which `element` makes scalars; other fields are zero.

    spreads: whether one value stands for all elements of an array.
    """
    struct = np.zeros((), dtype)
    for name, value in values.items():
        field = dtype.fields[name][0]  # type: ignore[index]
        struct[name] = _nested(value, field.base, field.shape, element, spreads=spreads)
    return from_bytes(struct.tobytes(), dtype)


def _nested(value: Any, dtype: np.dtype[Any], shape: tuple[int, ...], element: Any, *, spreads: bool) -> Any:
    if not shape:
        return element(value, dtype)
    is_array = isinstance(value, list | np.ndarray) or (isinstance(value, tuple) and dtype.names is None)
    if is_array and len(value) == shape[0]:
        array = np.empty(shape, dtype)
        for index, item in enumerate(value):
            array[index] = _nested(item, dtype, shape[1:], element, spreads=spreads)
        return array
    if is_array or not spreads:
        raise fill_error(value, f"a list of length {shape[0]}")
    return element(value, dtype)  # one value for every element


def _cast_custom(value: Any, dtype: np.dtype[Any]) -> Any:
    return value if type(value) is dtype.type else dtype.type(value)


_CASTS: dict[str, Callable[[Any, np.dtype[Any]], Any]] = {
    "bool": _cast_bool,
    "int": _cast_int,
    "float": _cast_float,
    "complex": _cast_complex,
    "time": _cast_time,
    "bytes": _cast_bytes,
    "str": _cast_str,
    "void": _cast_void,
    "custom": _cast_custom,
}
_VARIABLE_CASTS: dict[str, Callable[[Any, np.dtype[Any]], Any]] = {"string": _as_text, "bytes": _as_bytes}
