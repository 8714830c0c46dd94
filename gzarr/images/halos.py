"""Blocks with halos: how an axis goes on past its ends, in the modes of scipy.ndimage, and which elements that needs.

Theory of operation. A block with its halo reaches from ``start - before`` to ``stop + after``. Inside of the axis that
is one run of elements. Past an end, `AxisSpan` says which element of the axis lies at each place: usually one of the
same run, so that it is copied within the block; "wrap" takes elements at the other end of the axis, which are a run of
their own. A halo may be deeper than the axis.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from operator import index
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.api.namespaces import array_namespace
from gzarr.backend import Array as AnyArray
from gzarr.backend import Backend
from gzarr.chunk_io.chunk_cache import ChunkCache
from gzarr.indexing.regions import Region

#: As scipy.ndimage names them: abc|cba, abc|ba, abc|cc, abc|abc, abc|kk.
MODES = ("reflect", "mirror", "nearest", "wrap", "constant")


class Depth(NamedTuple):
    """Elements of a halo before and after a block, along one axis."""

    before: int
    after: int


class AxisSpan(NamedTuple):
    """What a block with its halo holds along one axis.

    Attributes
    ----------
    runs : list of slice
        The elements of the axis that are read.
    places : ndarray or None
        Which of these each element of the block is; None if they are in order.
    outside : ndarray or None
        Where the block has the constant.
    """

    runs: list[slice]
    places: NDArray[np.int64] | None = None
    outside: NDArray[np.bool_] | None = None


def span_of(start: int, stop: int, depth: Depth, size: int, mode: str, step: int = 1) -> AxisSpan:
    """What the elements from start to stop of an axis hold with their halo.

    step: how many elements of the axis are one of the array that is read.
    """
    first, last = start - depth.before, stop + depth.after
    if first >= 0 and last <= size and step == 1:
        return AxisSpan([slice(first, last)])
    at = np.arange(first, last)
    outside = (at < 0) | (at >= size) if mode == "constant" else None
    if mode in ("constant", "nearest") or size == 1:
        at = at.clip(0, size - 1)
    elif mode == "wrap":
        at %= size
    else:  # a mirror does not repeat the edge
        period = 2 * size - (2 if mode == "mirror" else 0)
        at %= period
        at = np.minimum(at, period - (1 if mode == "reflect" else 0) - at)
    found, places = np.unique(at // step, return_inverse=True)
    cuts = np.split(found, np.flatnonzero(np.diff(found) > 1) + 1)
    return AxisSpan([slice(int(run[0]), int(run[-1]) + 1) for run in cuts], places, outside)


def boxes_of(spans: Sequence[AxisSpan]) -> list[Region]:
    """What a block needs: a box for each combination of runs."""
    return list(product(*(span.runs for span in spans)))


def joined(spans: Sequence[AxisSpan], parts: Sequence[AnyArray], cval: Any = 0) -> AnyArray:
    """A block with its halo, of the elements of `boxes_of`."""
    block, xp = parts[0], array_namespace(parts[0])
    if len(parts) > 1:
        starts = [np.cumsum([0, *(run.stop - run.start for run in span.runs)]) for span in spans]
        block = xp.empty([int(each[-1]) for each in starts], block.dtype)
        cuts = [[slice(int(a), int(b)) for a, b in pairwise(each)] for each in starts]
        for place, part in zip(product(*cuts), parts, strict=True):
            block[place] = part
    for axis, span in enumerate(spans):
        if span.places is not None:
            block = xp.take(block, xp.asarray(span.places), axis)
            if span.outside is not None:
                block[(slice(None),) * axis + (xp.asarray(span.outside),)] = cval
    return block


def parse_depths(depth: Any, ndim: int, names: Sequence[str | None] | None) -> tuple[Depth, ...]:
    """The halo of every axis.

    Parameters
    ----------
    depth : int, (int, int) for each axis, or mapping
        For all axes, for each in turn (an int, or before and after), or by axis (its name or number), otherwise 0.
    ndim, names
        Of the array.

    Raises
    ------
    ValueError
        If it is negative, or of another number of axes.
    TypeError
        If it is no integer.
    """
    return tuple(_one_depth(d, axis) for axis, d in enumerate(per_axis(depth, "depth", ndim, names, 0)))


def _one_depth(depth: Any, axis: int) -> Depth:
    pair = depth if isinstance(depth, (tuple, list)) else (depth, depth)
    if len(pair) != 2:
        raise ValueError(f"depth {depth!r} of axis {axis} must be an integer, or two: before and after")
    try:
        before, after = map(index, pair)
    except TypeError as error:
        raise TypeError(f"depth {depth!r} of axis {axis} must be of integers") from error
    if before < 0 or after < 0:
        raise ValueError(f"depth {depth!r} of axis {axis} is negative")
    return Depth(before, after)


def parse_modes(boundary: Any, ndim: int, names: Sequence[str | None] | None) -> tuple[str, ...]:
    """The mode of every axis. boundary: for all axes, for each in turn, or by axis, otherwise reflect.

    Raises: ValueError naming the modes.
    """
    modes = per_axis(boundary, "boundary", ndim, names, "reflect")
    for axis, mode in enumerate(modes):
        if mode not in MODES:
            raise ValueError(
                f"boundary {mode!r} of {_name(axis, names)} is unknown; expected one of {', '.join(MODES)}"
            )
    return tuple(modes)


def per_axis(value: Any, what: str, ndim: int, names: Sequence[str | None] | None, default: Any) -> list[Any]:
    """A value for every axis. value: one for all, a sequence, or a mapping of names or numbers. Raises: ValueError."""
    if isinstance(value, Mapping):
        values = [default] * ndim
        for key, one in value.items():
            values[axis_of(key, what, ndim, names)] = one
        return values
    if not isinstance(value, (tuple, list)):
        return [value] * ndim
    if len(value) != ndim:
        raise ValueError(f"{what} {value!r} has {len(value)} items for {ndim} axes")
    return list(value)


def axis_of(key: Any, what: str, ndim: int, names: Sequence[str | None] | None) -> int:
    """The number of an axis given by number or name. what: the argument, for messages. Raises: ValueError."""
    if isinstance(key, str):
        if names is not None and key in names:
            return list(names).index(key)
    elif isinstance(key, int) and -ndim <= key < ndim:
        return key % ndim
    known = ", ".join(repr(name) for name in names or range(ndim))
    raise ValueError(f"{what} names the axis {key!r}; the array has {known}")


def _name(axis: int, names: Sequence[str | None] | None) -> str:
    return f"axis {axis}" if names is None or names[axis] is None else f"axis {names[axis]!r}"


def check_cval(cval: Any, dtypes: Sequence[np.dtype[Any]], modes: Sequence[str]) -> None:
    """Raise ValueError if an array that is continued by a constant cannot hold it."""
    for dtype in dtypes if "constant" in modes else ():
        with np.errstate(all="ignore"):
            cast = np.asarray(cval).astype(dtype)
        if dtype.kind in "iub" and not bool(cast == cval):
            raise ValueError(
                f"cval {cval!r} is no {dtype}, of which the input is; choose another one, or give an input "
                "of another dtype, as by array.astype"
            )


def chunk_cache(backend: Backend) -> ChunkCache | None:
    """What keeps decoded chunks for neighbouring blocks, once it is told how many; None on a device."""
    return ChunkCache(0) if backend is backend.host else None
