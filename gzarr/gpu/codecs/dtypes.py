"""Which data types arrays on a GPU can have."""

from __future__ import annotations

from typing import Any

import numpy as np

#: Kinds and sizes of CuPy's dtypes: bool, integers, floats of 2, 4 and 8 bytes, complex numbers of 8 and 16.
_SIZES = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8), "c": (8, 16)}


def has_dtype(dtype: np.dtype[Any]) -> bool:
    """Whether CuPy has a dtype, in either byte order."""
    return dtype.itemsize in _SIZES.get(dtype.kind, ()) and dtype.names is None and dtype.subdtype is None


def swap_unit(dtype: np.dtype[Any]) -> int:
    """Bytes that must be reversed together to make a dtype native; 0 if it is native."""
    if dtype.isnative or dtype.itemsize == 1:
        return 0
    return dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize
