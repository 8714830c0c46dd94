"""How CuPy's own kernels change floats on a GPU: subnormal numbers of 4 bytes become zeros, NaNs become all alike.

CuPy appends ``-ftz=true`` to the options of whatever it compiles. A GPU's NaNs of 4 bytes have no bits of the operands;
those of 8 bytes may, but nothing may rely on that.
"""

from typing import Any

import numpy as np


def flushed(value: Any) -> Any:
    """A value as an operation takes it: floats of 4 bytes, complex numbers of 8, without subnormal numbers."""
    if getattr(value, "dtype", None) not in (np.dtype("f4"), np.dtype("c8")):
        return value
    array = np.array(value, order="C")
    bits = array.reshape(-1).view(np.uint32)
    bits[(bits & 0x7F800000) == 0] &= 0x80000000
    return array


def result_of(value: Any) -> Any:
    """A value as an operation gives it."""
    dtype = getattr(value, "dtype", None)
    if dtype is None or dtype.kind not in "fc":
        return value
    array = np.array(flushed(value), order="K")
    if array.ndim:
        parts = (array.real, array.imag) if dtype.kind == "c" else (array,)
        for part in parts:
            nan = np.full(1, (1 << (8 * part.itemsize - 1)) - 1, f"u{part.itemsize}").view(part.dtype)
            part[np.isnan(part)] = nan[0]
    return array
