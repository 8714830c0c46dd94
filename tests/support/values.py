"""Values to write, and what NumPy makes of them."""

from typing import Any

import numpy as np

import gzarr


def check_as_numpy(array: gzarr.Array, key: Any, value: Any) -> None:
    """Write a value to an array, and compare it with NumPy's array into which the same was written."""
    model = np.asarray(array)
    model[key] = value
    array[key] = value
    np.testing.assert_array_equal(np.asarray(array), model)


def host(values: Any) -> np.ndarray:
    """Values of a device, or what NumPy makes an array of, in the host's memory."""
    return np.asarray(values.get() if hasattr(values, "get") else values)
