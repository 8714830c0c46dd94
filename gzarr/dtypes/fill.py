"""Converts between fill values and JSON, for both formats.

Every form that either specification, zarr-python or TensorStore writes is read; the form that they all read is written.
A scalar survives the round trip bit for bit, except that Zarr v2 has only one NaN: ``"NaN"``.

Source: https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html#fill-value-encoding and
https://zarr-specs.readthedocs.io/en/latest/v3/data-types/index.html
"""

import base64
import json
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from gzarr.dtypes.cast import cast_fill, default_fill, fill_error, struct_of
from gzarr.dtypes.datatype import DataType, packed_little
from gzarr.dtypes.scalars import NAT, component, family, from_bits, from_bytes, time_scalar, to_bits, to_float
from gzarr.errors import MetadataError

_HEX = re.compile("0x([0-9a-fA-F]+)")
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def fill_to_json(value: Any, dt: DataType, zarr_format: int) -> Any:
    """A fill value as JSON. Zarr v2 also has None, for undefined.

    ``value`` is anything that `cast_fill` takes. Raises MetadataError if it does not fit the type or JSON.
    """
    if value is None:
        if zarr_format == 2 or dt.variable == "object":
            return None
        raise fill_error(value, f"a value of {dt.name}, which Zarr v3 requires")
    if dt.variable:
        return _variable_to_json(cast_fill(value, dt), dt)
    dtype = dt.dtype
    if type(value) is not dtype.type or dtype.kind in "mMVSU":
        value = cast_fill(value, dt)
    return _WRITERS[family(dtype)](value, dtype, zarr_format)


def fill_from_json(json: Any, dt: DataType, zarr_format: int) -> Any:
    """Parse the ``fill_value`` of metadata.

    The result is a NumPy scalar of ``dt.dtype`` (`numpy.void` for structs and raw bytes), str or bytes for variable
    lengths, any JSON value for object arrays, or None for Zarr v2's null, which leaves the value undefined. Raises
    MetadataError if the value has the wrong type or is out of range.
    """
    if json is None and zarr_format == 2:
        return None
    dtype = dt.dtype
    if dt.variable:
        return _VARIABLE_READERS[dt.variable](json, dtype, zarr_format)
    return _READERS[family(dtype)](json, dtype, zarr_format)


# -- reading -------------------------------------------------------------------------------------------------------


def _read_bool(value: Any, _dtype: np.dtype[Any], zarr_format: int) -> Any:
    if type(value) is bool or (zarr_format == 2 and type(value) is int and value in {0, 1}):
        return np.bool_(value)
    raise fill_error(value, "true or false")


def _read_int(value: Any, dtype: np.dtype[Any], _zarr_format: int) -> Any:
    number = int(value) if type(value) is float and value.is_integer() else value
    if type(number) is int:
        try:
            scalar = dtype.type(number)
            if int(scalar) == number:  # the small integers of ml_dtypes wrap instead of overflowing
                return scalar
        except OverflowError:
            pass
    raise fill_error(value, f"an integer in the range of {dtype}")


def _read_float(value: Any, dtype: np.dtype[Any], zarr_format: int) -> Any:
    if type(value) is float or type(value) is int:
        scalar = to_float(value, dtype)
    elif type(value) is str:
        scalar = _float_from_text(value, dtype, zarr_format)
    else:
        scalar = None
    if scalar is None:
        raise fill_error(value, f"a number in the range of {dtype}, 'NaN', 'Infinity', '-Infinity' or its bits in hex")
    return scalar


def _float_from_text(text: str, dtype: np.dtype[Any], zarr_format: int) -> Any:
    number = _WORDS.get(text)
    if number is not None:
        return to_float(number, dtype)
    if zarr_format == 2:
        # TensorStore writes this type as base64 in v2
        raw = _from_base64(text) if dtype.type.__name__ == "float4_e2m1fn" else None
        return from_bytes(raw, dtype) if raw is not None and len(raw) == dtype.itemsize else None
    return _from_hex(text, dtype)


def _from_hex(text: str, dtype: np.dtype[Any]) -> Any:
    digits = _HEX.fullmatch(text)
    # a type of four bits may have one digit
    if digits is None or (len(digits[1]) != 2 * dtype.itemsize and (dtype.itemsize, len(digits[1])) != (1, 1)):
        return None
    return from_bits(int(digits[1], 16), dtype)


def _read_complex(value: Any, dtype: np.dtype[Any], zarr_format: int) -> Any:
    if type(value) is not list or len(value) != 2:
        raise fill_error(value, "a list of the real and the imaginary part")
    part = component(dtype)
    raw = b"".join(_read_float(number, part, zarr_format).tobytes() for number in value)
    return from_bytes(raw, dtype.newbyteorder("="))


def _read_time(value: Any, dtype: np.dtype[Any], _zarr_format: int) -> Any:
    number = NAT if value == "NaT" else value
    if type(number) is float and number.is_integer():
        number = int(number)
    scalar = time_scalar(number, dtype) if type(number) is int else None
    if scalar is None:
        raise fill_error(value, f"an integer of 64 bits that {dtype} has, or 'NaT'")
    return scalar


def _read_bytes(value: Any, dtype: np.dtype[Any], zarr_format: int) -> Any:
    raw = _bytes_from_json(value, zarr_format)
    if len(raw) > dtype.itemsize:
        raise fill_error(value, f"at most {dtype.itemsize} bytes")
    return np.array(raw, dtype)[()]


def _bytes_from_json(value: Any, zarr_format: int) -> bytes:
    raw = None
    if type(value) is str:
        raw = _from_base64(value)
        if raw is None and zarr_format == 2 and value.isascii():
            raw = value.encode()  # zarr-python 2 reads and wrote this
    elif type(value) is list and all(type(item) is int and 0 <= item < 256 for item in value):
        raw = bytes(value)
    elif zarr_format == 2 and _is_zero(value):
        raw = b""  # zarr-python 2 writes 0 if no fill value is given
    if raw is None:
        raise fill_error(value, "bytes in base64, or a list of integers in 0 ... 255")
    return raw


def _read_str(value: Any, dtype: np.dtype[Any], zarr_format: int) -> Any:
    text = _text_from_json(value, dtype, zarr_format)
    if 4 * len(text) > dtype.itemsize:
        raise fill_error(value, f"at most {dtype.itemsize // 4} characters")
    return np.array(text, dtype)[()]


def _text_from_json(value: Any, _dtype: np.dtype[Any], zarr_format: int) -> str:
    if type(value) is str:
        return value
    if zarr_format == 2 and _is_zero(value):
        return ""  # as above
    raise fill_error(value, "a string")


def _read_void(value: Any, dtype: np.dtype[Any], zarr_format: int) -> Any:
    if zarr_format == 2 and _is_zero(value):
        return default_fill(DataType(dtype))
    if dtype.names is not None and type(value) in {dict, list}:
        return _struct_from_json(value, dtype, zarr_format)
    raw = _bytes_from_json(value, 3)
    stored = packed_little(dtype) if zarr_format == 3 else dtype
    if len(raw) != stored.itemsize:
        raise fill_error(value, f"{stored.itemsize} bytes")
    if stored == dtype:
        return from_bytes(raw, dtype)
    struct = np.zeros((), dtype)
    _copy_fields(np.frombuffer(raw, stored).reshape(()), struct)
    return from_bytes(struct.tobytes(), dtype)


def _struct_from_json(value: Any, dtype: np.dtype[Any], zarr_format: int) -> Any:
    names = dtype.names or ()
    if type(value) is list:
        if len(value) != len(names):
            raise fill_error(value, f"a value for each of the {len(names)} fields")
        value = dict(zip(names, value, strict=True))
    if not set(value) <= set(names):
        raise fill_error(value, f"no other fields than {names}")
    # Missing fields are zero, as in zarr-python 3.4.
    return struct_of(value, dtype, lambda item, of: _READERS[family(of)](item, of, zarr_format), spreads=False)


def _read_custom(value: Any, dtype: np.dtype[Any], _zarr_format: int) -> Any:
    scalar = _from_hex(value, dtype) if type(value) is str else None
    if scalar is not None:
        return scalar
    try:
        return dtype.type(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise fill_error(value, f"the bits of {dtype} in hex, or what {dtype.type.__name__} takes") from error


def _from_base64(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return None


def _is_zero(value: Any) -> bool:
    return type(value) in {int, float} and value == 0


_READERS: dict[str, Callable[[Any, np.dtype[Any], int], Any]] = {
    "bool": _read_bool,
    "int": _read_int,
    "float": _read_float,
    "complex": _read_complex,
    "time": _read_time,
    "bytes": _read_bytes,
    "str": _read_str,
    "void": _read_void,
    "custom": _read_custom,
}

_VARIABLE_READERS: dict[str, Callable[[Any, np.dtype[Any], int], Any]] = {
    "string": _text_from_json,
    "bytes": lambda value, _dtype, zarr_format: _bytes_from_json(value, zarr_format),
    "object": lambda value, _dtype, _zarr_format: value,
}


# -- writing -------------------------------------------------------------------------------------------------------


def _write_float(value: Any, dtype: np.dtype[Any], zarr_format: int) -> Any:
    number = float(value)
    if zarr_format == 3 and dtype.type.__name__ == "float8_e8m0fnu":
        return _to_hex(value)  # TensorStore misreads decimal numbers of this type by a factor of 2**64
    if number != number:  # noqa: PLR0124
        canonical = to_bits(value) == to_bits(dtype.type(math.nan))
        return "NaN" if canonical or zarr_format == 2 else _to_hex(value)
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if zarr_format == 2 and dtype.type.__name__ == "float4_e2m1fn":
        return base64.b64encode(value.tobytes()).decode()
    return number


def _write_complex(value: Any, dtype: np.dtype[Any], zarr_format: int) -> list[Any]:
    part = component(dtype)
    return [_write_float(number, part, zarr_format) for number in np.frombuffer(value.tobytes(), part)]


def _write_time(value: Any, dtype: np.dtype[Any], _zarr_format: int) -> Any:
    # a date without a unit can only be NaT, and zarr-python 2 and 3.1 cannot read it as an integer
    return "NaT" if dtype.str[1:] == "M8" else int(value.view(np.int64))


def _write_void(value: Any, dtype: np.dtype[Any], zarr_format: int) -> str:
    if dtype.names is None:
        return base64.b64encode(value).decode()
    struct = np.zeros((), packed_little(dtype) if zarr_format == 3 else dtype)
    _copy_fields(np.array(value, dtype), struct)
    return base64.b64encode(struct.tobytes()).decode()


def _copy_fields(source: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> None:
    """Copy a struct without its padding, which may be uninitialized."""
    for name in source.dtype.names or ():
        if source[name].dtype.names is None:
            target[name] = source[name]
        else:
            _copy_fields(source[name], target[name])


def _to_hex(value: Any) -> str:
    return f"0x{to_bits(value):0{2 * value.nbytes}x}"


def _variable_to_json(value: Any, dt: DataType) -> Any:
    if dt.variable == "bytes":
        return base64.b64encode(value).decode()
    value = value.item() if isinstance(value, np.generic) else value
    try:
        json.dumps(value)
    except (TypeError, ValueError) as error:
        raise MetadataError(f"fill_value: expected a value that JSON can hold, got {value!r}") from error
    return value


_WRITERS: dict[str, Callable[[Any, np.dtype[Any], int], Any]] = {
    "bool": lambda value, _dtype, _zarr_format: bool(value),
    "int": lambda value, _dtype, _zarr_format: int(value),
    "float": _write_float,
    "complex": _write_complex,
    "time": _write_time,
    "bytes": lambda value, _dtype, _zarr_format: base64.b64encode(value).decode(),
    "str": lambda value, _dtype, _zarr_format: str(value),
    "void": _write_void,
    "custom": lambda value, _dtype, _zarr_format: _to_hex(value),
}
