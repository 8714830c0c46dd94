"""`Array.stats`: the least and greatest element, mean, standard deviation and histogram of arrays of any size."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Array as AnyArray
from gzarr.display.progress import ProgressLike
from gzarr.errors import MetadataError
from gzarr.hierarchy.missing import fold_present, missing_by_convention
from gzarr.hierarchy.node import GzarrArray
from gzarr.hierarchy.reductions import fill_of

#: The number behind NaT, and that of the last time.
_NAT, _LAST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
#: Elements that are reduced at once: with what is made of them, they stay in cache.
_PART_SIZE = 1 << 13
#: Elements whose values are counted at once: as many as there may be different ones.
_COUNTED_SIZE = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class Stats:
    """What `Array.stats` returns.

    Attributes
    ----------
    count : int
        Number of elements, without NaN and those that are missing.
    n_nan : int
        Number of elements that are NaN, or NaT.
    min, max : int, float, bool, datetime64 or timedelta64
        The least and the greatest element; NaN if there is none.
    mean, std : float, datetime64 or timedelta64
        The mean, and the standard deviation of all elements from it; for times, to their unit.
    histogram : tuple or None
        Number of elements in each bin, and the edges of the bins, as of `numpy.histogram`.
    n_missing : int
        Number of elements that are missing.
    """

    count: int
    n_nan: int
    min: Any
    max: Any
    mean: Any
    std: Any
    histogram: tuple[NDArray[np.int64], NDArray[Any]] | None = None
    n_missing: int = 0


def stats_of(
    array: GzarrArray,
    bins: int | None,
    limits: Any,
    max_nbytes: int,
    progress: ProgressLike,
    skip: Any = None,
    on: Any = None,
) -> Stats:
    """The statistics of an array: see `gzarr.Array.stats`."""
    dtype, time = array.dtype, None
    if dtype.kind in "mM" and (skip is None or skip is False):
        time, skip = dtype.newbyteorder("="), _NAT
        array = array.view(dtype=f"{dtype.byteorder}i8")
        dtype = array.dtype
        if limits is not None:
            limits = tuple(int(np.array(end).astype(time).astype("i8")) for end in limits)
    if dtype.kind not in "biuf":
        raise MetadataError(
            f"{array.store_path}: statistics need real numbers, or times without skip=, but the elements "
            f"are {array.metadata.data_type.name}"
        )
    missing = missing_by_convention(skip, array)
    if missing is not None and missing.value != missing.value and missing.mask is None and missing.others is None:
        missing = None  # n_nan says it
    fold_all = partial(fold_present, array, missing, max_nbytes=max_nbytes, progress=progress, on=on)
    fill, xp = fill_of(array), array.backend.xp
    if dtype.kind in "biu" and dtype.itemsize <= 2:
        # So few different values that each is counted.
        counts = fold_all(partial(_counts, xp=xp), np.add, of_fill=partial(_counts_of_fill, fill))
        found = _from_counts(dtype, np.zeros(1, np.int64) if counts is None else counts, bins, limits)
        return replace(found, n_missing=array.size - found.count)
    part = fold_all(partial(_part, xp=xp), _joined, of_fill=partial(_part_of_fill, fill)) or _NOTHING
    histogram = None if bins is None else _histogram(array, fold_all, fill, part, bins, limits, time)
    std = math.sqrt(part.squares / part.n) if part.n else math.nan
    n_missing = array.size - part.n - part.n_nan
    found = Stats(part.n, part.n_nan, part.low, part.high, _mean(part.total, part.n), std, histogram, n_missing)
    return found if time is None else _as_times(time, found, part)


def _as_times(dtype: np.dtype[Any], found: Stats, part: "_Moments") -> Stats:
    """Statistics of the numbers behind times as those of the times."""
    times = {"min": part.low, "max": part.high, "mean": Fraction(part.total, part.n) if part.n else math.nan}
    made: Any = {n: np.array(round(time) if part.n else _NAT, "i8").view(dtype)[()] for n, time in times.items()}
    std = np.array(min(round(found.std), _LAST) if part.n else _NAT, "i8").view(dtype.str.replace("M", "m"))[()]
    return replace(found, n_nan=found.n_missing, n_missing=0, std=std, **made)


def _finite(array: GzarrArray, limits: tuple[Any, Any]) -> tuple[Any, Any]:
    """The limits of a histogram. Raises: ValueError if they are not finite."""
    if all(map(math.isfinite, limits)):
        return limits
    raise ValueError(f"{array.store_path}: elements reach from {limits[0]} to {limits[1]}; give range= for a histogram")


# -- of values that are counted ----------------------------------------------------------------------------------------


def _counts(block: AnyArray, *, xp: Any) -> NDArray[np.int64]:
    """How often every value occurs, the least first."""
    counts = np.zeros(1 << (8 * block.dtype.itemsize), np.int64)
    for elements in _parts(block, _COUNTED_SIZE):
        found = _on_host(xp.bincount(elements.astype("i4") - _least(block.dtype)))
        counts[: len(found)] += found
    return counts


def _counts_of_fill(fill: Any, n: int) -> NDArray[np.int64]:
    counts = np.zeros(1 << (8 * fill.dtype.itemsize), np.int64)
    counts[int(fill) - _least(fill.dtype)] = n
    return counts


def _least(dtype: np.dtype[Any]) -> int:
    return int(np.iinfo(dtype).min) if dtype.kind == "i" else 0


def _from_counts(
    dtype: np.dtype[Any], counts: NDArray[np.int64], bins: int | None, limits: tuple[float, float] | None
) -> Stats:
    (present,) = np.nonzero(counts)
    numbers = counts[present].tolist()
    values = (present + _least(dtype)).tolist()
    n, total = sum(numbers), sum(value * k for value, k in zip(values, numbers, strict=True))
    squares = sum(value * value * k for value, k in zip(values, numbers, strict=True))
    variance = (squares * n - total * total) / (n * n) if n else math.nan
    low, high = (dtype.type(values[at]).item() if n else math.nan for at in (0, -1))
    histogram = None
    if bins is not None:
        limits = limits or ((int(low), int(high)) if n else (0, 1))  # NumPy does not subtract booleans
        weighted, edges = np.histogram(np.asarray(values, "f8"), bins, limits, weights=numbers)
        histogram = weighted.astype(np.int64), edges
    return Stats(n, 0, low, high, _mean(total, n), math.sqrt(variance), histogram)


# -- of others ---------------------------------------------------------------------------------------------------------


class _Moments(NamedTuple):
    """What is known of some elements.

    Attributes
    ----------
    n, n_nan : int
        How many there are, and how many NaNs besides.
    low, high : int or float
        The least and the greatest.
    total : int or float
        Their sum, exact for integers.
    squares : float
        The sum of their squared distances from their mean.
    """

    n: int
    n_nan: int
    low: Any
    high: Any
    total: Any
    squares: float


_NOTHING = _Moments(0, 0, math.nan, math.nan, 0, 0.0)


def _part(block: AnyArray, *, xp: Any) -> _Moments:
    part = _NOTHING
    with np.errstate(all="ignore"):
        for elements in _parts(block):
            part = _joined(part, _part_of(elements, xp))
    return part


def _part_of(elements: AnyArray, xp: Any) -> _Moments:
    size = elements.size
    if elements.dtype.kind == "f":
        nan = xp.isnan(elements)
        if bool(nan.any()):
            elements = elements[~nan]
        if not elements.size:
            return _NOTHING._replace(n_nan=size)
    n, total = elements.size, _total(elements)
    low, high = elements.min().item(), elements.max().item()
    if elements.dtype.kind != "f" and elements.dtype.itemsize == 8:  # floats do not have all of these
        apart = _distances(elements, low).astype("f8") - (total - low * n) / n
    else:
        apart = elements.astype("f8") - _mean(total, n)
    return _Moments(n, size - n, low, high, total, float(xp.dot(apart, apart)))


def _distances(elements: AnyArray, origin: int) -> AnyArray:
    """How far integers of 8 bytes are above one of them, modulo 2⁶⁴."""
    return elements.astype("u8") - np.uint64(origin % (1 << 64))


def _total(values: AnyArray) -> Any:
    """The sum of some elements, exact for integers."""
    if values.dtype.kind == "f":
        return float(values.sum(dtype="f8"))
    if values.dtype.itemsize < 8:
        return int(values.sum(dtype="i8"))
    return (int((values >> 32).sum(dtype="i8")) << 32) + int((values & 0xFFFFFFFF).sum(dtype="i8"))


def _part_of_fill(fill: Any, n: int) -> _Moments:
    value = fill.item()
    return _NOTHING._replace(n_nan=n) if value != value else _Moments(n, 0, value, value, value * n, 0.0)  # noqa: PLR0124


def _joined(one: _Moments, two: _Moments) -> _Moments:
    """What is known of the elements of both.

    Source: Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
    """
    n, n_nan = one.n + two.n, one.n_nan + two.n_nan
    if not one.n or not two.n:
        return (two if two.n else one)._replace(n_nan=n_nan)
    apart = _mean(two.total, two.n) - _mean(one.total, one.n)
    if isinstance(one.total, int):
        apart = (two.total * one.n - one.total * two.n) / (one.n * two.n)  # exact until it is divided
    squares = one.squares + two.squares + apart * apart * one.n * two.n / n
    return _Moments(n, n_nan, min(one.low, two.low), max(one.high, two.high), one.total + two.total, squares)


def _histogram(
    array: GzarrArray, fold_all: Any, fill: Any, part: _Moments, bins: int, limits: Any, time: Any
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """The histogram of the elements, or of the times that they stand for."""
    # The same numbers for edges and bins: with limits of another type, NumPy rounds the places of bins otherwise.
    scalar = array.dtype.type
    limits = _finite(array, limits or ((scalar(part.low), scalar(part.high)) if part.n else (0, 1)))
    origin = None if time is None else int(limits[0])
    if origin is not None:  # nanoseconds of today are too many for edges in floats, unless they begin with 0
        limits = 0.0, float(int(limits[1]) - origin or 1)
    edges: NDArray[Any] = np.histogram_bin_edges(np.empty(0, array.dtype), bins, limits)
    if origin is not None:
        edges = np.array([min(origin + round(edge), _LAST) for edge in edges.tolist()], "i8").view(time)
    how = {"xp": array.backend.xp, "bins": bins, "limits": limits, "origin": origin}
    made = fold_all(partial(_binned, **how), np.add, of_fill=partial(_binned_fill, fill, how))
    return (np.zeros(bins, np.int64) if made is None else made), edges


def _binned(block: AnyArray, *, xp: Any, bins: int, limits: tuple[Any, Any], origin: int | None) -> NDArray[np.int64]:
    """How many elements, or their distances from the origin, are in each bin."""
    counts = np.zeros(bins, np.int64)
    for elements in _parts(block):
        counts += _on_host(xp.histogram(elements if origin is None else _distances(elements, origin), bins, limits)[0])
    return counts


def _binned_fill(fill: Any, how: dict[str, Any], n: int) -> NDArray[np.int64]:
    return _binned(np.asarray([fill]), **{**how, "xp": np}) * n


def _mean(total: Any, n: int) -> float:
    return total / n if n else math.nan


def _parts(block: AnyArray, size: int = _PART_SIZE) -> Iterator[AnyArray]:
    """A block as one axis, on the host in parts that stay in cache."""
    flat = block.reshape(-1)
    if not isinstance(block, np.ndarray):
        size = max(flat.size, 1)
    return (flat[at : at + size] for at in range(0, flat.size, size))


def _on_host(values: AnyArray) -> NDArray[np.int64]:
    return values.get() if hasattr(values, "get") else values
