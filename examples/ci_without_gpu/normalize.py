"""The code under test: it normalizes columns on whatever device it is given, without a round trip through the host."""

from __future__ import annotations

from typing import Any

import numpy as np

import gzarr

ROWS = 64


def to_host(values: Any) -> np.ndarray:
    """A NumPy array of values on any device. On a GPU this copies, and waits for the GPU."""
    return values.get() if hasattr(values, "get") else values


def statistics(source: gzarr.Array) -> Any:
    """Mean and standard deviation of each column, where the array is read: float64 (2, columns)."""
    xp = source.xp
    sums = xp.zeros((2, source.shape[1]))
    for start in range(0, source.shape[0], ROWS):
        block = source[start : start + ROWS].astype("f8")
        sums += xp.stack([block.sum(0), (block * block).sum(0)])
    mean, square = sums / source.shape[0]
    return xp.stack([mean, xp.sqrt(square - mean * mean)])


def drift(source: gzarr.Array, before: np.ndarray) -> float:
    """Largest change of the statistics since an earlier run, which left them as a NumPy array."""
    found = statistics(source)
    return float(np.abs(to_host(found) - before).max())


def normalize(source: gzarr.Array, dest: gzarr.Array) -> None:
    """Write all columns with mean 0 and standard deviation 1."""
    mean, std = statistics(source)
    for start in range(0, source.shape[0], ROWS):
        normal = (source[start : start + ROWS] - mean) / std
        dest[start : start + ROWS] = normal
