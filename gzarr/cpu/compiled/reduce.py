"""Reduces windows of arrays by the compiled loop (`loop/reduce.c`), or by NumPy where that cannot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import WINDOW_METHODS
from gzarr.cpu.compiled import library
from gzarr.cpu.windows import reduce_by_numpy

#: The loop's numbers of kinds of numbers. Means of bools are those of 0 and 1.
_KINDS = {"b": 0, "u": 0, "i": 1, "f": 2}


def reduce_windows(block: NDArray[Any], factors: Sequence[int], method: str, out: NDArray[Any]) -> None:
    """Reduce the windows of a block: see `gzarr.backend.Backend.reduce_windows`."""
    if block.dtype.kind == "c" and method == "mean":
        reduce_windows(block.real, factors, method, out.real)
        reduce_windows(block.imag, factors, method, out.imag)
        return
    loop, kind = library.loop(), _KINDS.get(block.dtype.kind)
    plain = kind is not None and block.dtype == out.dtype and block.dtype.isnative and block.ndim and out.size
    if loop is None or not plain or method not in WINDOW_METHODS:
        reduce_by_numpy(block, factors, method, out)
        return
    sizes = np.array(factors, np.int64)
    if not loop.reduce(block, sizes, out, kind, WINDOW_METHODS.index(method)):
        reduce_by_numpy(block, factors, method, out)
