"""Downsampling of blocks: every element of the result is made of a window of a block, on the device that has the block.

Means of integers are exact: they are rounded once, half to even, also those of 64-bit integers. Means of floats are
sums of the windows' elements in C order, of float32 and float64 in their own type and of float16 in float32, divided
by their number; NaN gives NaN. All of these, and those of complex numbers and bools, are those of TensorStore's driver
"downsample", bit for bit. The median of an even number of elements is the mean of the two in the middle, rounded in the
same way. The other methods choose an element of the window: of several most frequent ones the smallest. All of these
leave NaN out unless there is nothing else.

A window at the end of an axis has the elements that exist. Elements that are missing are left out. A window of nothing
else becomes the value that stands for them.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from gzarr.backend import Array, Backend
from gzarr.cpu.windows import METHODS as WINDOW_METHODS
from gzarr.cpu.windows import WindowMethod, reduce_present
from gzarr.hierarchy.missing import Missing
from gzarr.indexing.keys import Coords

#: A method by its name, or a function of a block and factors that returns the downsampled block.
Method: TypeAlias = str | Callable[[Array, tuple[int, ...]], Array]

#: The one method beside those of windows, for which elements around a window count too.
GAUSSIAN = "gaussian"
#: All by name.
METHODS = {**WINDOW_METHODS, GAUSSIAN: WindowMethod("biuf")}
#: Elements of a block from which others are missing that the host reduces at once: they stay in cache.
_PART_SIZE = 1 << 16
#: Elements of a window are fewer: their number and sums of halves of 64-bit integers fit into 64 bits.
_MOST = 1 << 30


def downsample(
    backend: Backend,
    block: Array,
    factors: Sequence[int],
    method: Method,
    missing: Missing | None = None,
    start: Coords = (),
) -> Array:
    """Downsample a block.

    Parameters
    ----------
    backend : Backend
        Of the device that the block is on.
    block : array
        Of any shape and strides.
    factors : sequence of int
        Shape of a window.
    method : str or callable
        One of `METHODS` but "gaussian", or a function of the block and the factors.
    missing : Missing, optional
        Which elements are left out; a function sees them.
    start : tuple of int
        Where the block lies in the array of which elements are missing.

    Returns
    -------
    array
        On the same device, of the same dtype, and of the block's shape divided by the factors, rounded up.

    Raises
    ------
    ValueError, TypeError
        If factors do not fit the block, the method does not fit its dtype, or a function returns another shape or
        dtype.
    """
    sizes = _checked_factors(block.shape, factors)
    shape = tuple(-(-n // factor) for n, factor in zip(block.shape, sizes, strict=True))
    block = resident(backend, block)
    if not isinstance(method, str):
        return resident(backend, _checked_result(method(block, sizes), shape, block.dtype, method))
    check_method(method, block.dtype, labels=False)
    if method == GAUSSIAN:
        raise ValueError('method "gaussian" needs what is around a block: use gzarr.images.build_pyramid')
    if missing is not None and sizes != (1,) * len(sizes):
        gaps = missing.find(backend, block, start)
        if backend.xp is not np or gaps.any():
            return _downsample_present(backend, block, sizes, method, gaps, missing.value)
    if method == "nearest" or sizes == (1,) * len(sizes):
        return backend.xp.ascontiguousarray(block[tuple([slice(None, None, factor) for factor in sizes])])
    out = backend.empty(shape, block.dtype)
    backend.reduce_windows(block, sizes, method, out)
    return out


def _downsample_present(
    backend: Backend, block: Array, factors: Coords, method: str, missing: Array, value: Any
) -> Array:
    """Downsample a block of which some elements are missing. value: stands for them where there are no others."""
    xp, dtype = backend.xp, block.dtype
    out = backend.empty(tuple(-(-n // f) for n, f in zip(block.shape, factors, strict=True)), dtype)
    wide = np.result_type(dtype, "f4")  # NaNs are left out
    as_floats = method not in ("mean", "nearest") and (dtype.kind == "f" or dtype.itemsize < wide.itemsize)
    for inside, target in _parts(out.shape, factors, _PART_SIZE if xp is np else block.size):
        part, gaps = block[inside], missing[inside]
        none = backend.empty(out[target].shape, np.dtype(bool))
        backend.reduce_windows(gaps, factors, "min", none)
        if as_floats:
            made = backend.empty(none.shape, wide)
            backend.reduce_windows(xp.where(gaps, wide.type(math.nan), part), factors, method, made)
            made = made if dtype.kind == "f" else xp.rint(made)
        else:
            made = reduce_present(part, factors, method, gaps, xp)
        out[target] = xp.where(none, dtype.type(value), made).astype(dtype)
    return out


def _parts(shape: Coords, factors: Coords, most: int) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """Cut a block of so many windows into parts of some elements, each with the place of its windows."""
    sizes = list(shape)
    for axis, n in enumerate(shape):
        others = math.prod(sizes) // max(n, 1) * math.prod(factors)
        sizes[axis] = min(max(most // max(others, 1), 1), max(n, 1))
    for corner in product(*(range(0, n, size) for n, size in zip(shape, sizes, strict=True))):
        target = tuple(slice(o, min(o + size, n)) for o, size, n in zip(corner, sizes, shape, strict=True))
        yield tuple(slice(s.start * f, s.stop * f) for s, f in zip(target, factors, strict=True)), target


def resident(backend: Backend, block: Array) -> Array:
    """Return a block where a backend calculates: a NumPy array is copied to the device."""
    if backend.xp is np or not isinstance(block, np.ndarray):
        return block
    return backend.xp.asarray(block.astype(block.dtype.newbyteorder("="), copy=False))


def check_method(method: Method, dtype: np.dtype[Any], *, labels: bool) -> None:
    """Check that a method can downsample elements of a dtype.

    labels: whether the elements are labels of objects. Raises: ValueError, TypeError.
    """
    if callable(method):
        return
    if method not in METHODS:
        names = ", ".join(map(repr, METHODS))
        raise ValueError(f"method must be one of {names}, or a function of a block and factors; got {method!r}")
    if labels and not METHODS[method].for_labels:
        raise ValueError(f'method {method!r} would make labels of no object; use "mode" or "nearest" for labels')
    kinds = METHODS[method].kinds
    if kinds is not None and dtype.kind not in kinds:
        raise TypeError(f'method {method!r} does not work for {dtype}; use "nearest", or a function')


def _checked_factors(shape: tuple[int, ...], factors: Sequence[int]) -> tuple[int, ...]:
    sizes = tuple(map(int, factors))
    if len(sizes) != len(shape) or min(sizes, default=1) < 1:
        raise ValueError(f"factors must be {len(shape)} integers from 1 on, one for each axis; got {tuple(factors)}")
    if math.prod(sizes) > _MOST:
        raise ValueError(f"factors {sizes} make windows of more than {_MOST} elements")
    return sizes


def _checked_result(result: Any, shape: tuple[int, ...], dtype: np.dtype[Any], method: Any) -> Array:
    is_array = hasattr(result, "shape") and hasattr(result, "dtype")
    if not is_array or result.shape != shape or result.dtype != dtype:
        name = getattr(method, "__name__", repr(method))
        got = f"shape {result.shape} and dtype {result.dtype}" if is_array else type(result).__name__
        raise ValueError(f"method {name} must return an array of shape {shape} and dtype {dtype}; got {got}")
    return result
