"""What is done with arrays that are on the device: rows are taken out of them, windows of them are reduced."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import WINDOW_METHODS, Array
from gzarr.gpu.codecs.batch import BatchContext
from gzarr.gpu.codecs.floats import cast, why_not_cast
from gzarr.gpu.device.protocol import Device
from gzarr.gpu.kernels.parts import divisors

#: Windows of a launch are fewer.
_LIMIT = 1 << 31
#: Axes along which windows of a launch may be longer than 1.
_N_LONG = 4
#: The kernel's numbers of kinds of numbers. Means of bools are those of 0 and 1.
_KINDS = {"b": 0, "u": 0, "i": 1, "f": 2}


class _Axis(NamedTuple):
    """An axis of a block, or several joined ones. Steps in bytes."""

    length: int
    factor: int
    step: int
    out_step: int

    @property
    def windows(self) -> int:
        return -(-self.length // self.factor)


def take_rows(
    device: Device, pool: Array, slots: NDArray[np.int64], out: Array, upload: Callable[[NDArray[np.int64]], Array]
) -> None:
    """Copy rows of an array into another one, on the current stream; numbers are cast bit for bit as by NumPy.

    upload: copies a table to the device, without a wait.
    """
    if not slots.size or not out.size:
        return
    if pool.dtype == out.dtype:
        device.xp.take(pool, upload(slots), 0, out)
        return
    rows = device.xp.take(pool, upload(slots), 0)
    if pool.dtype.kind in "biu" and np.can_cast(pool.dtype, out.dtype):  # exact, also to 2-byte floats
        out[...] = rows
    elif why_not_cast(pool.dtype, out.dtype):
        with np.errstate(all="ignore"):  # as in reads
            out[...] = device.upload(device.download(rows).astype(out.dtype))
    else:
        numbers = rows.reshape(slots.size, -1).view(np.uint8)
        out[...] = cast(BatchContext(device), numbers, pool.dtype, out.dtype).view(out.dtype).reshape(out.shape)


def reduces(block: Array, factors: Sequence[int], method: str) -> bool:
    """Whether the device can reduce windows of a block; if not, the host has to."""
    kind = block.dtype.kind
    known = kind in _KINDS or (kind == "c" and method == "mean")
    longer = sum(factor > 1 and n > 1 for n, factor in zip(block.shape, factors, strict=True))
    return known and method in WINDOW_METHODS and longer <= _N_LONG and block.dtype.isnative


def reduce_windows(
    device: Device,
    block: Array,
    factors: Sequence[int],
    method: str,
    out: Array,
    upload: Callable[[NDArray[np.int64]], Array],
) -> None:
    """Reduce the windows of a block, of which `reduces` is true, on the current stream.

    upload: copies a table to the device, without a wait.
    """
    if not out.size:
        return
    if out.size >= _LIMIT:
        axis = int(np.argmax(out.shape))
        half = out.shape[axis] // 2
        for some, inside in (
            (slice(0, half), slice(0, half * factors[axis])),
            (slice(half, None), slice(half * factors[axis], None)),
        ):
            before = (slice(None),) * axis
            reduce_windows(device, block[(*before, inside)], factors, method, out[(*before, some)], upload)
        return
    axes = _joined(map(_Axis, block.shape, map(int, factors), block.strides, out.strides))
    long = [axis for axis in axes if axis.factor > 1]
    steps = [0] * (_N_LONG - len(long)) + [axis.step for axis in long]
    table = upload(_table(axes))
    numbers = np.dtype(f"f{block.dtype.itemsize // 2}") if block.dtype.kind == "c" else block.dtype
    for part in range(0, block.dtype.itemsize, numbers.itemsize):
        args = (out.size, table, len(axes), device.address(block) + part, device.address(out) + part, *steps)
        args += (numbers.itemsize, _KINDS[numbers.kind], WINDOW_METHODS.index(method))
        device.launch("reduce_windows", out.size, args)


def _joined(axes: Any) -> list[_Axis]:
    """The axes that count, with those joined that follow each other in both memories and are not reduced."""
    joined: list[_Axis] = []
    for axis in axes:
        if axis.length == 1:
            continue
        before = joined[-1] if joined else None
        if before is not None and before.factor == axis.factor == 1:
            follows = before.step == axis.length * axis.step and before.out_step == axis.length * axis.out_step
            if follows and before.length * axis.length < _LIMIT:
                joined[-1] = axis._replace(length=before.length * axis.length)
                continue
        joined.append(axis)
    return joined or [_Axis(1, 1, 0, 0)]


def _table(axes: Sequence[_Axis]) -> NDArray[np.int64]:
    """What the kernel is told of each axis."""
    magic, shift = divisors(np.array([axis.windows for axis in axes], np.int64))
    is_long = np.array([axis.factor > 1 for axis in axes])
    slots = np.where(is_long, _N_LONG - np.cumsum(is_long[::-1])[::-1], -1)
    rows = [
        (axis.windows, *divisor, axis.step * axis.factor, axis.out_step, axis.length, axis.factor, slot)
        for axis, *divisor, slot in zip(axes, magic, shift, slots, strict=True)
    ]
    return np.array(rows, np.int64)
