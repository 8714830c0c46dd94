"""Gathers rows of an array by the compiled loop (`loop/copies.c`), on several threads if there is much to copy."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gzarr.concurrency import Pool, run_in_threads
from gzarr.cpu.compiled import library
from gzarr.cpu.compiled.casts import cast_numbers
from gzarr.cpu.threads import thread_count

#: Bytes that one thread takes at a time: a millisecond's work, beside which waking a thread costs nothing.
_PIECE_NBYTES = 1 << 22

_pool = Pool()


def take(pool: NDArray[Any], slots: NDArray[np.int64], out: NDArray[Any]) -> None:
    """Copy rows of an array into another one; numbers are cast.

    pool, out: contiguous but for the first axis. slots: int64 (n,), which row of ``pool`` every row of ``out`` is.
    """
    cast, loop = cast_numbers(pool.dtype, out.dtype), library.loop()
    if loop is None or cast is None or pool.dtype.hasobject or not _are_plain(pool, slots, out):
        _take_by_numpy(pool, slots, out)
        return
    elements = prod(pool.shape[1:])
    n = max(_PIECE_NBYTES // max(elements * max(pool.itemsize, out.itemsize), 1), 1)

    def take_some(first: int) -> None:
        rows = slice(first, first + n)
        loop.take(source, slots[rows], target[rows], elements, pool.itemsize, out.itemsize, *cast)

    # Not every dtype can be handed over as a buffer.
    source, target = (array.view(np.uint8).reshape(len(array), -1) for array in (pool, out))
    firsts = range(0, len(slots), n)
    if len(firsts) < 2:
        take_some(0)
    else:
        run_in_threads(take_some, firsts, thread_count(), _pool)


def _are_plain(pool: NDArray[Any], slots: NDArray[np.int64], out: NDArray[Any]) -> bool:
    is_native = slots.dtype == np.int64 and slots.flags.c_contiguous and out.shape == (*slots.shape, *pool.shape[1:])
    return bool(is_native and out.size and pool.ndim > 1 and pool.flags.c_contiguous and out.flags.c_contiguous)


def _take_by_numpy(pool: NDArray[Any], slots: NDArray[np.int64], out: NDArray[Any]) -> None:
    if pool.dtype == out.dtype:
        np.take(pool, slots, 0, out, mode="clip")  # the only mode without a buffer
        return
    with np.errstate(all="ignore"):  # as in reads
        np.copyto(out, pool[slots], casting="same_kind")
