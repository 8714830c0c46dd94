"""Casts of numbers to another dtype by value, with the rounding and range rules of the ``cast_value`` codec.

NumPy rounds to nearest, ties to even, between floats; it truncates from floats to integers, and wraps or saturates
silently. The other roundings start from NumPy's result and take one step to a neighbour. That is exact, because the
value and the candidate are compared in the wider type. A result is out of range if it would be with an unbounded
exponent, so rounding towards zero never overflows below the next power of two.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

ROUNDINGS = ("nearest-even", "towards-zero", "towards-positive", "towards-negative", "nearest-away")
OUT_OF_RANGE = ("error", "clamp", "wrap")
_INTEGRAL = {
    "nearest-even": np.rint,
    "towards-zero": np.trunc,
    "towards-positive": np.ceil,
    "towards-negative": np.floor,
}


def cast_values(
    array: Array,
    dtype: np.dtype[Any],
    *,
    rounding: str = "nearest-even",
    out_of_range: str = "error",
    mapping: Sequence[tuple[Any, Any]] = (),
) -> Array:
    """Cast integers or floats (16 to 64 bits) of any shape and byte order to a native dtype, by value.

    ``out_of_range`` is "error", "clamp" (integers to the nearest limit, floats to infinity) or "wrap" (integers only).
    ``mapping`` has pairs (value before, value after) that take precedence; NaN equals NaN. The result is C-contiguous.
    Raises ValueError naming a value that cannot be cast.
    """
    source = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")).reshape(-1)
    with np.errstate(all="ignore"):
        if not mapping:
            return _cast(source, dtype, rounding, out_of_range).reshape(array.shape)
        hits = [(source != source if key != key else source == key, value) for key, value in mapping]  # noqa: PLR0124
        rest = source.copy()
        for hit, _ in hits:
            rest[hit] = 0
        result = _cast(rest, dtype, rounding, out_of_range)
        for hit, value in hits:
            result[hit] = value
    return result.reshape(array.shape)


def _cast(source: Array, dtype: np.dtype[Any], rounding: str, out_of_range: str) -> Array:
    # NumPy calls the cast of 64-bit integers to doubles safe, although it rounds
    exact = dtype.kind != "f" or source.dtype.kind == "f" or source.dtype.itemsize < dtype.itemsize
    if exact and np.can_cast(source.dtype, dtype, "safe"):
        return source.astype(dtype)
    if dtype.kind == "f":
        if source.dtype.kind == "f":
            return _float_to_float(source, dtype, rounding, out_of_range)
        return _float_to_float(_int_to_double(source, dtype, rounding), dtype, rounding, out_of_range)
    if source.dtype.kind == "f":
        return _float_to_int(source, dtype, rounding, out_of_range)
    return _int_to_int(source, dtype, out_of_range)


def _refuse(values: Array, dtype: np.dtype[Any], remedy: str) -> ValueError:
    return ValueError(f"value {values[0]!s} is out of range of data type {dtype}; {remedy}")


def _int_to_int(source: Array, dtype: np.dtype[Any], out_of_range: str) -> Array:
    info = np.iinfo(dtype)
    if source.size == 0 or (int(source.min()) >= info.min and int(source.max()) <= info.max) or out_of_range == "wrap":
        return source.astype(dtype)  # NumPy keeps the low bits, which is the wrap of two's complement
    own = np.iinfo(source.dtype)
    low, high = max(int(info.min), int(own.min)), min(int(info.max), int(own.max))
    if out_of_range == "clamp":
        return np.clip(source, low, high).astype(dtype)
    raise _refuse(source[(source < low) | (source > high)], dtype, "set out_of_range to 'clamp' or 'wrap'")


def round_to_integer(values: Array, rounding: str) -> Array:
    """Round floats to integral floats of the same dtype."""
    if rounding in _INTEGRAL:
        return np.asarray(_INTEGRAL[rounding](values))
    whole = np.trunc(values)
    return np.asarray(np.where(np.abs(values - whole) >= 0.5, whole + np.copysign(values.dtype.type(1), values), whole))


def _float_to_int(source: Array, dtype: np.dtype[Any], rounding: str, out_of_range: str) -> Array:
    finite = np.isfinite(source)
    if not finite.all():
        raise _refuse(source[~finite], dtype, "give it a value with scalar_map")
    info = np.iinfo(dtype)
    rounded = round_to_integer(source, rounding).astype(np.float64)
    # both limits are exact doubles: -2**k or 0, and 2**k
    below, above = rounded < float(info.min), rounded >= float(int(info.max) + 1)
    outside = below | above
    if not outside.any():
        return rounded.astype(dtype)
    if out_of_range == "clamp":
        result = np.where(outside, 0.0, rounded).astype(dtype)
        result[below], result[above] = info.min, info.max
        return result
    if out_of_range == "wrap":
        low_bits = np.fmod(np.abs(rounded), 2.0**info.bits).astype(np.uint64)
        return np.where(rounded < 0, np.uint64(0) - low_bits, low_bits).astype(dtype)
    raise _refuse(source[outside], dtype, "set out_of_range to 'clamp' or 'wrap'")


def _round_bits(value: int, bits: int, rounding: str) -> float:
    """An integer rounded to a float of ``bits`` significant bits."""
    magnitude = abs(value)
    shift = magnitude.bit_length() - bits
    if shift <= 0:
        return float(value)
    significant, rest = magnitude >> shift, magnitude & ((1 << shift) - 1)
    half = 1 << (shift - 1)
    up = {
        "nearest-even": rest > half or (rest == half and significant & 1 == 1),
        "nearest-away": rest >= half,
        "towards-zero": False,
        "towards-positive": rest > 0 and value > 0,
        "towards-negative": rest > 0 and value < 0,
    }[rounding]
    result = float((significant + up) << shift)
    return -result if value < 0 else result


def _int_to_double(source: Array, dtype: np.dtype[Any], rounding: str) -> Array:
    """Integers as doubles, exact up to 2**53 and beyond that already rounded to the precision of ``dtype``."""
    doubles = source.astype(np.float64)
    if source.dtype.itemsize < 8:
        return doubles
    bits = np.finfo(dtype).nmant + 1
    for i in np.flatnonzero(np.abs(doubles) >= 2.0**53):
        doubles[i] = _round_bits(int(source[i]), bits, rounding)
    return doubles


def _float_to_float(source: Array, dtype: np.dtype[Any], rounding: str, out_of_range: str) -> Array:
    """Floats to narrower floats, or doubles to doubles."""
    result = source.astype(dtype)
    if result.dtype == source.dtype:
        return result
    infinity = dtype.type(np.inf)
    wide = result.astype(source.dtype)
    if rounding == "towards-positive":
        result = np.where(wide < source, np.nextafter(result, infinity), result)
    elif rounding == "towards-negative":
        result = np.where(wide > source, np.nextafter(result, -infinity), result)
    elif rounding == "towards-zero":
        result = np.where(np.abs(wide) > np.abs(source), np.nextafter(result, dtype.type(0)), result)
    elif rounding == "nearest-away":
        outer = np.nextafter(result, np.copysign(infinity, source.astype(dtype)))
        tie = (np.abs(source) > np.abs(wide)) & (source - wide == outer.astype(source.dtype) - source)
        result = np.where(tie, outer, result)
    beyond = np.isfinite(source) & (np.isinf(result) | (np.abs(source) >= 2.0 ** np.finfo(dtype).maxexp))
    if beyond.any():
        if out_of_range != "clamp":
            raise _refuse(source[beyond], dtype, "set out_of_range to 'clamp' to make it infinite")
        result[beyond] = np.copysign(infinity, source[beyond]).astype(dtype)
    return result
