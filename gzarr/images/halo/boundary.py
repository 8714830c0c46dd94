"""How an axis goes on past its ends: the modes of scipy.ndimage, and how much of it a filter needs.

Theory of operation. A block with its halo reaches from ``start - before`` to ``stop + after``. What lies within the
axis is its *span*; the *pads* are the rest. A mode says of which elements of the axis a pad is made. They usually lie
within the span, so that a pad is a copy of a part of the window. Where they do not ("wrap" takes the other end of the
axis), they are read. A halo deeper than the axis has a pad for each repetition of the axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import index
from typing import Any, NamedTuple

import numpy as np

#: As scipy.ndimage names them: abc|cba, abc|ba, abc|cc, abc|abc, abc|kk.
MODES = ("reflect", "mirror", "nearest", "wrap", "constant")


class Depth(NamedTuple):
    """Elements of a halo before and after a block, along one axis."""

    before: int
    after: int


class Pad(NamedTuple):
    """A part of a block that lies past an end of the axis.

    Attributes
    ----------
    start, stop : int
        Where it lies, in coordinates of the axis: below 0, or from the axis's size on.
    source : slice or None
        The elements it is made of, which may be a single one for all; None for a constant.
    reverse : bool
        Whether their order is reversed.
    """

    start: int
    stop: int
    source: slice | None
    reverse: bool


def span_of(start: int, stop: int, depth: Depth, size: int) -> tuple[int, int]:
    """The part of a block with its halo that lies within the axis."""
    return max(start - depth.before, 0), min(stop + depth.after, size)


def pads_of(start: int, stop: int, depth: Depth, size: int, mode: str) -> list[Pad]:
    """The parts of a block with its halo that lie past the ends of an axis."""
    return [*_pads(start - depth.before, 0, size, mode), *_pads(size, stop + depth.after, size, mode)]


def _pads(start: int, stop: int, size: int, mode: str) -> Iterator[Pad]:
    """The pads between two coordinates past an end: one for each time that the axis is gone through."""
    if mode in ("constant", "nearest") or size == 1:
        edge = 0 if start < 0 else size - 1
        if start < stop:
            yield Pad(start, stop, None if mode == "constant" else slice(edge, edge + 1), reverse=False)
        return
    step = size - (mode == "mirror")  # elements between two turns: a mirror does not repeat the edge
    for turn in range(start // step, -(-stop // step)):
        first, last = max(start, turn * step), min(stop, (turn + 1) * step)
        if mode == "wrap" or turn % 2 == 0:
            yield Pad(first, last, slice(first - turn * step, last - turn * step), reverse=False)
        else:
            end = (turn + 1) * step + (mode == "mirror")
            yield Pad(first, last, slice(end - last, end - first), reverse=True)


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
