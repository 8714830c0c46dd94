"""Reduces windows of arrays by the compiled loop (`loop/reduce.c`), or by NumPy: its reference, and for what it lacks.

`reduce_present` leaves out what is missing, with NumPy or CuPy (`xp`).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import WINDOW_METHODS
from gzarr.cpu.compiled import library

_Numbers: TypeAlias = Any  # an array

#: Sums of halves of 64-bit integers.
_HALF = 32


def reduce_by_numpy(block: _Numbers, factors: Sequence[int], method: str, out: _Numbers) -> None:
    """Reduce the windows of a block: see `gzarr.backend.Backend.reduce_windows`."""
    if method in ("min", "max"):
        better = np.fmin if method == "min" else np.fmax
        for number, (part, at) in enumerate(_parts(block, factors)):
            out[at] = better(out[at], part) if number else part
    elif out.size:
        out[...] = reduce_present(block, factors, method, None, np)


def reduce_present(block: _Numbers, factors: Sequence[int], method: str, missing: _Numbers | None, xp: Any) -> _Numbers:
    """Reduce the windows of a block, without the elements that are missing; of windows without others to anything.

    method: "mean", "nearest" for the first element that is there, or others, of integers if elements are missing.
    missing: which elements are; None for none.
    """
    if block.dtype.kind == "c" and method == "mean":
        real, imag = [reduce_present(part, factors, method, missing, xp) for part in (block.real, block.imag)]
        made = xp.empty(real.shape, block.dtype.newbyteorder("="))
        made.real[...], made.imag[...] = real, imag
        return made
    if method == "mean":
        there, kept = np.broadcast_to(np.True_, block.shape), block
        if missing is not None:
            there, kept = ~missing, xp.where(missing, block.dtype.type(0), block)
        counts = xp.maximum(_sums(there, factors, np.dtype("i8"), xp), 1)
        with np.errstate(all="ignore"):  # sums may overflow, and NaNs are data
            return _mean(kept, factors, counts, xp)
    made = xp.zeros([-(-n // factor) for n, factor in zip(block.shape, factors, strict=True)], block.dtype)
    if method == "nearest":
        for (part, at), (gaps, _) in reversed([*zip(_parts(block, factors), _parts(missing, factors), strict=True)]):
            made[at] = xp.where(gaps, made[at], part)
        return made
    filled = block if missing is None else xp.where(missing, block.dtype.type(np.iinfo(block.dtype).max), block)
    for inside, target in _alike(block.shape, factors):
        windows = xp.sort(_windows(filled[inside], target), -1)
        there = windows == windows if missing is None else ~_windows(missing[inside], target)  # noqa: PLR0124 - NaNs are last
        made[target] = METHODS[method].choose(windows, there.sum(-1, keepdims=True), xp)
    return made


def _parts(block: _Numbers, factors: Sequence[int]) -> Iterator[tuple[_Numbers, tuple[slice, ...]]]:
    """The first elements of all windows, the second ones, and so on, in C order, each with where it has windows."""
    for first in product(*map(range, factors)):
        part = block[tuple([slice(i, None, factor) for i, factor in zip(first, factors, strict=True)])]
        if part.size:
            yield part, tuple([slice(0, n) for n in part.shape])


def _mean(block: _Numbers, factors: Sequence[int], counts: _Numbers, xp: Any) -> _Numbers:
    """Sums of windows divided by counts. xp: NumPy, or another module of arrays."""
    if block.dtype.kind == "f":
        floats = np.dtype("f4") if block.dtype.itemsize == 2 else block.dtype.newbyteorder("=")
        return np.true_divide(_sums(block, factors, floats, xp), counts.astype(floats))
    wide = np.dtype("u8" if block.dtype.kind in "bu" else "i8")
    if block.dtype.itemsize < wide.itemsize:
        return _divided(_sums(block, factors, wide, xp), counts.astype(wide))
    # Remainders of the sums of upper halves are carried to the sums of lower ones. Nothing exceeds 63 bits.
    numbers = counts.astype(wide)
    upper, rest = np.divmod(_sums(block >> _HALF, factors, wide, xp), numbers)
    lower = _sums(block & wide.type((1 << _HALF) - 1), factors, wide, xp)
    return np.add(upper << _HALF, _divided((rest << _HALF) + lower, numbers))


def _divided(sums: _Numbers, counts: _Numbers) -> _Numbers:
    """Quotients of integers, rounded half to even."""
    quotients, rests = np.divmod(sums, counts)
    twice = rests * 2
    return np.add(quotients, (twice > counts) | ((twice == counts) & (quotients % 2 == 1)))


def _sums(block: _Numbers, factors: Sequence[int], dtype: np.dtype[Any], xp: Any) -> _Numbers:
    sums = xp.zeros([-(-n // factor) for n, factor in zip(block.shape, factors, strict=True)], dtype)
    for part, at in _parts(block, factors):
        sums[at] += part
    return sums


def _alike(shape: Sequence[int], factors: Sequence[int]) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """Parts of a block whose windows all have one shape, each with the place of its windows."""
    axes = []
    for n, factor in zip(shape, factors, strict=True):
        whole = n // factor
        cuts = [(slice(0, whole * factor), slice(0, whole)), (slice(whole * factor, n), slice(whole, whole + 1))]
        axes.append([cut for cut in cuts if cut[0].start < cut[0].stop])
    for some in product(*axes):
        yield tuple([inside for inside, _ in some]), tuple([target for _, target in some])


def _windows(block: _Numbers, target: Sequence[slice]) -> _Numbers:
    """The elements of windows that divide a block evenly, along a last axis. target: the place of the windows."""
    shape, ndim = [s.stop - s.start for s in target], len(target)
    sides = [size for n, whole in zip(shape, block.shape, strict=True) for size in (n, whole // n)]
    apart = block.reshape(sides).transpose([*range(0, 2 * ndim, 2), *range(1, 2 * ndim, 2)])
    return apart.reshape(*shape, math.prod(sides[1::2]))


def _least(windows: _Numbers, numbers: _Numbers, xp: Any) -> _Numbers:
    return windows[..., 0]


def _greatest(windows: _Numbers, numbers: _Numbers, xp: Any) -> _Numbers:
    return xp.take_along_axis(windows, np.maximum(numbers - 1, 0), -1)[..., 0]


def _middle(windows: _Numbers, numbers: _Numbers, xp: Any) -> _Numbers:
    last = np.maximum(numbers - 1, 0)
    first, second = last // 2, np.minimum(numbers // 2, last)
    native = windows.dtype.newbyteorder("=")
    return _between(*(xp.take_along_axis(windows, at, -1)[..., 0].astype(native) for at in (first, second)))


def _between(low: _Numbers, high: _Numbers) -> _Numbers:
    """The mean of two numbers, of which the first is not larger; that of integers is rounded half to even."""
    if low.dtype.kind != "f":
        bits = np.dtype(f"u{low.dtype.itemsize}")  # differences of signed integers may overflow
        below = low.view(bits)
        apart = high.view(bits) - below
        below = below + apart // 2
        return (below + (apart & below & 1)).view(low.dtype)
    wide = np.dtype("f4") if low.dtype.itemsize == 2 else low.dtype
    with np.errstate(all="ignore"):
        sums = np.add(low, high, dtype=wide)
        middle = np.where(np.isinf(sums), np.add(low / 2, high / 2, dtype=wide), sums / 2)
    return np.where(low == high, low, middle).astype(low.dtype)


def _most_frequent(windows: _Numbers, numbers: _Numbers, xp: Any) -> _Numbers:
    best, most = windows[..., 0], xp.ones(windows.shape[:-1], np.int64)
    run, numbers = most, numbers[..., 0]
    for i in range(1, windows.shape[-1]):
        run = xp.where(windows[..., i] == windows[..., i - 1], run + 1, 1)
        longer = (run > most) & (i < numbers)
        best, most = xp.where(longer, windows[..., i], best), xp.where(longer, run, most)
    return best


class WindowMethod(NamedTuple):
    """How windows are reduced.

    Attributes
    ----------
    kinds : str or None
        Of the data types that it works for; None for all.
    choose : callable, optional
        Makes one element of each window: called with the sorted elements of windows along a last axis, how many of
        them count (with a last axis of 1), and NumPy or CuPy. "mean" and "nearest" need no order.
    for_labels : bool
        Whether it makes no values that no label has, or which mean another object.
    """

    kinds: str | None
    choose: Callable[[_Numbers, _Numbers, Any], _Numbers] = _least
    for_labels: bool = False


#: By name. `gzarr.backend.WINDOW_METHODS` are those that the compiled loop and the kernels have too.
METHODS = {
    "mean": WindowMethod("biufc"),
    "nearest": WindowMethod(None, for_labels=True),
    "mode": WindowMethod("biuf", _most_frequent, for_labels=True),
    "min": WindowMethod("biuf", _least, for_labels=True),
    "max": WindowMethod("biuf", _greatest, for_labels=True),
    "median": WindowMethod("biuf", _middle),
}


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
