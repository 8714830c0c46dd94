"""The casts of the compiled loop (`loop/cast.c`): those of NumPy's rule "same_kind" between numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

#: The loop's numbers of types, by kind and size.
_NAMES = ("b1", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8")
_NUMBERS = {name: number for number, name in enumerate(_NAMES)}
#: The loop would round twice.
_UNKNOWN = {("f8", "f2")}
#: No cast: elements are copied as they are.
NO_CAST = -1, -1


def number_of(dtype: np.dtype[Any]) -> int:
    """Return the loop's number of a type of numbers."""
    return _NUMBERS[f"{dtype.kind}{dtype.itemsize}"]


def cast_numbers(source: np.dtype[Any], target: np.dtype[Any]) -> tuple[int, int] | None:
    """Return the loop's numbers of the types of a cast, `NO_CAST` for none; None if the loop cannot do that."""
    if source == target:
        return NO_CAST
    names = f"{source.kind}{source.itemsize}", f"{target.kind}{target.itemsize}"
    if not (source.isnative and target.isnative and np.can_cast(source, target, "same_kind")) or names in _UNKNOWN:
        return None
    numbers = _NUMBERS.get(names[0]), _NUMBERS.get(names[1])
    return None if numbers[0] is None or numbers[1] is None else (numbers[0], numbers[1])
