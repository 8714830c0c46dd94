"""Values to write, and what NumPy makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np

import gzarr


def check_as_numpy(array: gzarr.Array, key: Any, value: Any) -> None:
    """Write a value to an array, and compare it with NumPy's array into which the same was written."""
    model = np.asarray(array)
    model[key] = value
    array[key] = value
    np.testing.assert_array_equal(np.asarray(array), model)


def floats_out_of_range(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """Floats of which no integer holds many, with NaNs and infinities."""
    rng = np.random.default_rng(0)
    numbers = np.asarray(rng.normal(size=shape) * 10.0 ** rng.integers(0, 20, shape))
    numbers.flat[::7], numbers.flat[1::11] = np.nan, -np.inf
    with np.errstate(over="ignore"):
        return np.asarray(numbers.astype(dtype))
