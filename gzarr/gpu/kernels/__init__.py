"""The CUDA kernels: numbers and launch sizes, the same on a device and on the host; `sources` has their texts.

Sources are CUDA C++ that includes nothing but the ``.cuh`` files here, which `sources` inlines, so that NVRTC, nvcc and
g++ all compile one self-contained text. Arguments are flat: 64-bit integers, pointers to tables, and addresses of raw
memory. But for the copies of boxes, kernels step by the grid, so any number of threads is correct; the functions below
give the best one.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gzarr.gpu.kernels.sources import UNIT_NBYTES

#: Bytes that one thread of weighted_sums adds up.
PIECE_NBYTES = 1024

#: Values of ``mode``: how the bytes of a decoded chunk are still shuffled (Blosc's filters).
PLAIN, BYTE_SHUFFLED, BIT_SHUFFLED = 0, 1, 2

#: Dtypes of ``source`` and ``target`` of calculate, and its operations; their positions are their numbers there.
NUMBERS = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
OPERATIONS = ("", "add", "subtract", "multiply", "divide", "rint")

#: NumPy type of a table's elements.
TABLE_DTYPES: dict[str, np.dtype[Any]] = {
    "u8": np.dtype(np.uint8),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "u64": np.dtype(np.uint64),
}


def row_threads(n_rows: int, row_nbytes: int) -> int:
    """Threads for find_written: one for each eight units of each row."""
    return n_rows * -(-row_nbytes // (8 * UNIT_NBYTES))


def prefix_sums(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions of consecutive rows of given lengths, and the end of the last one: int64[n + 1]."""
    starts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts


def unit_starts(nbytes: NDArray[np.int64]) -> NDArray[np.int64]:
    """``unit_start`` of kernels that copy rows of ``nbytes``; its last entry is the number of units."""
    return prefix_sums(-(-np.asarray(nbytes, np.int64) // UNIT_NBYTES))


def piece_starts(nbytes: NDArray[np.int64]) -> NDArray[np.int64]:
    """``piece_start`` of weighted_sums for streams of ``nbytes``; its last entry is the number of threads."""
    return prefix_sums(-(-np.asarray(nbytes, np.int64) // PIECE_NBYTES))
