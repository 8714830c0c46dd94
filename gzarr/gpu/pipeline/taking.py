"""Takes rows out of an array on the device, in any order, and casts them on the way."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Array
from gzarr.gpu.codecs.dtypes import has_dtype
from gzarr.gpu.codecs.floats import why_not_cast
from gzarr.gpu.device.protocol import Device
from gzarr.gpu.kernels import NUMBERS
from gzarr.gpu.kernels.parts import divisors
from gzarr.gpu.kernels.sources import UNIT_NBYTES

#: Units of a launch are fewer.
_LIMIT = 1 << 31
#: Numbers that a thread casts, if addresses and rows allow it.
_NUMBERS_EACH = 4


def take_rows(
    device: Device, pool: Array, slots: NDArray[np.int64], out: Array, upload: Callable[[NDArray[np.int64]], Array]
) -> None:
    """Copy rows of an array into another one, on the current stream.

    upload: copies a table to the device, without a wait.
    """
    if not slots.size or not out.size:
        return
    numbers = _numbers(pool.dtype, out.dtype)
    if numbers is None or not (_are_rows(pool) and _are_rows(out)):
        _take_by_others(device, pool[upload(slots)], out)
        return
    there = upload(slots)
    nbytes = math.prod(pool.shape[1:]) * pool.dtype.itemsize
    places = device.address(pool), _step(pool), device.address(out), _step(out)
    source, target, log_each, unit_nbytes = _units(numbers, nbytes, places)
    per_row = nbytes // unit_nbytes
    most = max((_LIMIT - 1) // per_row, 1)
    by = [int(column[0]) for column in divisors(np.array([per_row]))]
    for first in range(0, slots.size, most):
        n = min(most, slots.size - first)
        to = places[2] + first * places[3]
        rows = device.address(there) + 8 * first
        args = (n, rows, per_row, *by, pool, places[1], to, places[3], source, target, log_each)
        device.launch("take_rows", n * per_row, args)


def _numbers(source: np.dtype[Any], target: np.dtype[Any]) -> tuple[np.dtype[Any], np.dtype[Any]] | None:
    """The dtypes of the numbers that the kernel copies or casts; None if it cannot."""
    if source == target:
        return source, target
    if why_not_cast(source, target) or target.kind not in "fc" or (source.kind == "c") != (target.kind == "c"):
        return None
    return (source, target) if target.kind == "f" else (_part(source), _part(target))


def _part(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"f{dtype.itemsize // 2}")


def _units(
    numbers: tuple[np.dtype[Any], np.dtype[Any]], nbytes: int, places: tuple[int, int, int, int]
) -> tuple[int, int, int, int]:
    """The last three arguments of the kernel, and bytes of a unit in the pool. places: addresses and steps."""
    source, target = numbers
    inside, outside = places[0] | places[1], places[2] | places[3]
    if source == target:
        every = inside | outside | nbytes | UNIT_NBYTES
        width = every & -every
        return -1, -1, width.bit_length() - 1, width
    each, size = _NUMBERS_EACH, source.itemsize
    fits = nbytes % (each * size) == 0 and inside % min(each * size, UNIT_NBYTES) == 0 and outside % UNIT_NBYTES == 0
    each = each if fits else 1
    return NUMBERS.index(source.str[1:]), NUMBERS.index(target.str[1:]), each.bit_length() - 1, each * size


def _take_by_others(device: Device, rows: Array, out: Array) -> None:
    """Cast rows that the array module has taken; NumPy casts what it would cast to other bits."""
    exact = rows.dtype == out.dtype or out.dtype.kind in "biu"
    exact = exact or (rows.dtype.kind in "biu" and np.can_cast(rows.dtype, out.dtype))
    if has_dtype(out.dtype) and exact:
        out[...] = rows
        return
    with np.errstate(all="ignore"):  # as in reads
        out[...] = device.upload(device.download(rows).astype(out.dtype))


def _are_rows(array: Array) -> bool:
    """Whether each row is contiguous."""
    return bool(array[:1].flags.c_contiguous)


def _step(array: Array) -> int:
    return int(array.strides[0])
