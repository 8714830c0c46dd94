"""Makes exact scalars of every element type, from bits and from numbers, within the limits of the type.

The tables are keyed by scalar type (``dtype.type``). They start with the types of NumPy; those of ml_dtypes and of
registered dtypes are added at first use.
"""

import sys
from typing import Any, Literal, TypeAlias

import numpy as np

#: Scalar types whose fill values are written alike: one entry each in the tables of `fill` and `cast`.
Family: TypeAlias = Literal["bool", "int", "float", "complex", "time", "bytes", "str", "void", "object", "custom"]

#: The integer that stands for "not a time".
NAT = -(2**63)

_KINDS: dict[str, Family] = {"b": "bool", "i": "int", "u": "int", "f": "float", "c": "complex"}
_KINDS |= {"m": "time", "M": "time", "S": "bytes", "U": "str", "V": "void", "O": "object"}
_families: dict[type, Family] = {np.dtype(code).type: _KINDS[np.dtype(code).kind] for code in np.typecodes["All"]}

_COMPONENTS: dict[type, type] = {np.complex64: np.float32, np.complex128: np.float64, np.clongdouble: np.longdouble}

_limits: dict[type, float] = {}


def family(dtype: np.dtype[Any]) -> Family:
    """The family of a dtype's scalar type."""
    known = _families.get(dtype.type)
    if known is None:
        known = _families[dtype.type] = _foreign_family(dtype.type)
    return known


def _foreign_family(kind: type) -> Family:
    if kind.__module__ != "ml_dtypes":
        return "custom"
    name = kind.__name__
    if "complex" in name:
        return "complex"
    return "int" if "int" in name else "float"


def component(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The floating-point dtype of a complex dtype's two parts."""
    known = _COMPONENTS.get(dtype.type)
    if known is None:
        import ml_dtypes  # the dtype is one of its complex types

        known = ml_dtypes.bfloat16 if dtype.type.__name__ == "bcomplex32" else np.float16
    return np.dtype(known)


def limit(kind: type) -> float:
    """The largest number that rounds to a finite value of a floating-point type.

    It lies half a unit in the last place above the largest value, because the shortest decimals that Rust and
    JavaScript print for the largest float32 are slightly above it.
    """
    known = _limits.get(kind)
    if known is None:
        finfo: Any = np.finfo
        if kind.__module__ == "ml_dtypes":
            import ml_dtypes

            finfo = ml_dtypes.finfo
        info = finfo(kind)
        with np.errstate(over="ignore"):
            known = _limits[kind] = float(info.max) * (1 + float(info.eps) / 4)
    return known


def from_bits(bits: int, dtype: np.dtype[Any]) -> Any:
    """The scalar with these bits, as an integer."""
    return from_bytes(bits.to_bytes(dtype.itemsize, sys.byteorder), dtype.newbyteorder("="))


def to_bits(value: Any) -> int:
    """The bits of a NumPy scalar."""
    return int.from_bytes(value.tobytes(), sys.byteorder)


def from_bytes(raw: bytes, dtype: np.dtype[Any]) -> Any:
    """The scalar with these bytes, in the dtype's byte order. ``raw`` has exactly its size.

    A struct keeps its padding, which a copy to a new scalar would leave unset.
    """
    return np.frombuffer(raw, dtype=dtype)[0]


def time_scalar(number: int, dtype: np.dtype[Any]) -> Any:
    """The time at a number of units from the origin; None beyond 64 bits, or for a date without a unit."""
    if not NAT <= number < -NAT or (number != NAT and dtype.kind == "M" and np.datetime_data(dtype)[0] == "generic"):
        return None
    return np.int64(number).view(dtype.newbyteorder("="))


def lacks_unit(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is of times without a unit, whose bytes NumPy does not swap when it casts to them."""
    return dtype.kind in "mM" and np.datetime_data(dtype)[0] == "generic"


def as_times(values: Any, dtype: np.dtype[Any]) -> Any:
    """Cast a NumPy array to a dtype of times without a unit, in native byte order."""
    if values.dtype.kind == dtype.kind and not values.dtype.isnative:
        values = values.byteswap().view(values.dtype.newbyteorder("="))
    return values.astype(dtype.newbyteorder("="))


def as_assigned(value: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return a scalar as an array without axes, converted as by ``array[...] = value``.

    That raises for NumPy's scalars, too, where signed integers cannot hold them; `numpy.asarray` casts them.
    """
    array = np.empty((), dtype)
    array[...] = value
    return array


def to_float(number: Any, dtype: np.dtype[Any]) -> Any:
    """Round a Python or NumPy number to a floating-point type; None if the type has nothing near it.

    That is, the number is too large, or the type lacks zero, negative numbers, infinities or NaN.
    """
    kind = dtype.type
    if -limit(kind) <= number <= limit(kind):
        value = kind(number)
        if value == value or number != number:  # noqa: PLR0124 - the test for NaN that works for every type
            return value
        # float8_e8m0fnu has no zero; its smallest value replaces it, as in TensorStore
        return from_bits(0, dtype) if number == 0 else None
    with np.errstate(over="ignore"):
        infinite = number in {float("inf"), float("-inf")}
        value = kind(number) if infinite or number != number else None  # noqa: PLR0124
    if value is None:
        return None
    same = value != value if number != number else float(value) == number  # noqa: PLR0124
    return value if same else None
