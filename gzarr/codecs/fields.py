"""Checks of configuration fields that the codec specs share."""

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from gzarr.dtypes import DataType, cast_fill
from gzarr.dtypes.scalars import from_bits
from gzarr.errors import MetadataError

_HEX = re.compile("0[xX]([0-9a-fA-F]+)")


def check_fields(
    codec: str, configuration: Mapping[str, Any], allowed: Collection[str], required: Collection[str] = ()
) -> None:
    """Raise `MetadataError` if the configuration is not an object, has a field that is unknown, or lacks one."""
    if not isinstance(configuration, Mapping):
        raise MetadataError(f"codec {codec!r}: configuration must be an object, got {configuration!r}")
    for field in configuration:
        if field not in allowed:
            known = ", ".join(repr(name) for name in sorted(allowed)) or "none"
            raise MetadataError(f"codec {codec!r}: unknown configuration field {field!r}; known fields: {known}")
    for field in required:
        if field not in configuration:
            raise MetadataError(f"codec {codec!r}: configuration field {field!r} is missing")


def check_integer(codec: str, field: str, value: Any, low: int, high: int | None = None) -> int:
    """The value as an int, if it is an integer (not a bool) within ``low`` and ``high`` inclusive."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise MetadataError(f"codec {codec!r}: {field} must be an integer, got {value!r}")
    if value < low or (high is not None and value > high):
        limits = f"at least {low}" if high is None else f"between {low} and {high}"
        raise MetadataError(f"codec {codec!r}: {field} must be {limits}, got {value!r}")
    return int(value)


def check_boolean(codec: str, field: str, value: Any) -> bool:
    """The value as a bool, if it is one."""
    if not isinstance(value, bool | np.bool_):
        raise MetadataError(f"codec {codec!r}: {field} must be true or false, got {value!r}")
    return bool(value)


def check_choice(codec: str, field: str, value: Any, allowed: Sequence[str]) -> str:
    """The value, if it is one of the allowed strings."""
    if not isinstance(value, str) or value not in allowed:
        names = ", ".join(repr(name) for name in allowed)
        raise MetadataError(f"codec {codec!r}: {field} must be one of {names}; got {value!r}")
    return allowed[allowed.index(value)]  # a plain string, also for a member of an enumeration


def check_integers(codec: str, field: str, value: Any, low: int) -> tuple[int, ...]:
    """The value as a tuple of ints, if it is a sequence of integers of at least ``low``."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence | np.ndarray):
        raise MetadataError(f"codec {codec!r}: {field} must be a list of integers, got {value!r}")
    return tuple(check_integer(codec, f"{field}[{i}]", item, low) for i, item in enumerate(value))


def changed_fields(spec: Any) -> dict[str, Any]:
    """The fields of a spec that are not the defaults."""
    values = ((field, getattr(spec, field.name)) for field in dataclasses.fields(spec))
    return {field.name: value for field, value in values if value != field.default}


def scalar_from_json(codec: str, field: str, value: Any, dtype: np.dtype[Any]) -> Any:
    """A scalar of an integer or floating-point dtype, from Zarr v3's JSON form of fill values.

    ``codec`` and ``field`` are named in errors. ``value`` is a JSON number, "NaN", "Infinity", "-Infinity", a decimal,
    or a hexadecimal bit pattern. ``dtype`` is native. Raises MetadataError if the dtype has no such value.
    """
    is_number = isinstance(value, int | float | str | np.integer | np.floating) and not isinstance(value, bool)
    bits = _HEX.fullmatch(value) if isinstance(value, str) else None
    if is_number and bits is not None and len(bits[1]) == 2 * dtype.itemsize:
        return from_bits(int(bits[1], 16), dtype)
    with suppress(MetadataError):
        if is_number and bits is None:
            return cast_fill(value, DataType(dtype))
    digits = "" if bits is None else f", whose bits have {2 * dtype.itemsize} hexadecimal digits"
    raise MetadataError(f"codec {codec!r}: {field} {value!r} is not a value of data type {dtype}{digits}")
