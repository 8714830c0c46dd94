"""Casts of the compiled loop (`loop/cast.c`), and rows that it gathers (`loop/copies.c`), on threads if there are many.

The casts are those of NumPy's rule "same_kind" between numbers.
"""

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gzarr.concurrency import Pool, run_in_threads
from gzarr.cpu.compiled import library
from gzarr.cpu.threads import thread_count

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
