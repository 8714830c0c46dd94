"""What users say about samples: windows of rows, and crops."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gzarr.loader.order import Ints


class Window:
    """Samples of ``n`` consecutive rows.

    Parameters
    ----------
    n : int
        Number of rows.
    ends : sequence of int, optional
        Where episodes end: one past the last row of each, ascending. No window crosses an end. Rows after the last end
        belong to no episode and are left out; so are episodes shorter than a window.
    stride : int
        From the first row of a window to that of the next one.

    Examples
    --------
    >>> import gzarr
    >>> gzarr.Window(8, ends=[100, 250], stride=4)
    Window(8, ends=[... 2 of them, up to 250], stride=4)
    """

    __slots__ = ("ends", "n", "stride")

    def __init__(self, n: int, *, ends: Any = None, stride: int = 1) -> None:
        self.n = positive(n, "n of Window")
        self.stride = positive(stride, "stride of Window")
        self.ends = None if ends is None else parse_ends(ends)

    def __repr__(self) -> str:
        ends = "" if self.ends is None else f", ends=[... {len(self.ends)} of them, up to {self.ends[-1]}]"
        return f"Window({self.n}{ends}, stride={self.stride})"


@dataclass(frozen=True, slots=True)
class Crops:
    """Samples that are boxes of equal size: ``n`` random ones an epoch, or tiles.

    Parameters
    ----------
    size : tuple of int or None
        Extents of a box on the leading axes; None, and axes that are not named, stand for the whole axis.
    n : int, optional
        Number of random boxes an epoch; every epoch has others, which depend on its number and the loader's seed.
        Without it, the boxes are tiles.
    stride : tuple of int, optional
        From tile to tile along each axis of ``size``; by default the size. The last tile of an axis ends where the
        array ends, so that tiles cover all of it.
    pad : scalar, dict or "skip", optional
        What is done at edges. A value, or one by name of array, stands for elements that are missing: those of the last
        tile of an axis, which then begins at a multiple of the stride, and of arrays that are smaller than a box.
        "skip" leaves out arrays that are smaller. Without it, smaller arrays are an error.

    Examples
    --------
    >>> import gzarr
    >>> gzarr.Crops((64, 64, 64), n=10_000)
    Crops(size=(64, 64, 64), n=10000, stride=None, pad=None)
    """

    size: tuple[int | None, ...]
    n: int | None = None
    stride: tuple[int | None, ...] | None = None
    pad: Any = None

    def __post_init__(self) -> None:
        size = tuple([None if s is None else positive(s, "size of Crops") for s in sequence(self.size)])
        object.__setattr__(self, "size", size)
        if self.n is not None:
            object.__setattr__(self, "n", positive(self.n, "n of Crops"))
        if isinstance(self.pad, str) and self.pad != "skip":
            raise ValueError(f'pad of Crops must be a value, one by name of array, or "skip", got {self.pad!r}')
        if self.stride is None:
            return
        if self.n is not None:
            raise ValueError("Crops are random with n=, or tiles with stride=; give one of them")
        stride = tuple([None if s is None else positive(s, "stride of Crops") for s in sequence(self.stride)])
        object.__setattr__(self, "stride", stride)
        if len(stride) != len(size):
            raise ValueError(f"stride {stride} of Crops has {len(stride)} axes, size {size} has {len(size)}")
        if any(s is not None and t is not None and s < t for s, t in zip(size, stride, strict=True)):
            raise ValueError(f"stride {stride} of Crops is larger than size {size}: tiles would not cover the array")

    @property
    def is_padded(self) -> bool:
        """Whether boxes may reach past the ends of arrays."""
        return self.pad is not None and not isinstance(self.pad, str)


def parse_ends(ends: Any) -> Ints:
    """Ends of episodes, as a table of ascending integers."""
    found = np.asarray(ends)
    if found.ndim != 1 or found.dtype.kind not in "iu" or not len(found):
        raise TypeError(f"ends of Window must be integers, one for each episode, got {found.dtype} {found.shape}")
    found = found.astype(np.int64)
    bad = np.flatnonzero(np.diff(found, prepend=0) < 0)
    if len(bad):
        raise ValueError(f"ends of Window must ascend from 0; end {bad[0]} is {found[bad[0]]}: sort them")
    return found


def positive(value: Any, what: str) -> int:
    """An integer above 0."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} must be an integer above 0, got {value!r}") from None
    if number < 1:
        raise ValueError(f"{what} must be an integer above 0, got {number}")
    return number


def sequence(value: Any) -> tuple[Any, ...]:
    """A tuple of what was given, which may be a single extent."""
    return tuple(value) if isinstance(value, Sequence) else (value,)
