"""What a sample is: a row, a window of rows or a crop, each a box of equal size somewhere in the arrays.

Samples are boxes on the leading axes; the other axes are taken whole. Where boxes may begin along an axis is a table of
spans (`Starts`): the whole axis is one, every episode is one, and so is every run of chunks of a part of a split.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from numbers import Real
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from gzarr.indexing.grid import Axis, RegularAxis
from gzarr.loader.order import GOLDEN, Ints, Permutation, Runs, mix, word_of

GROUPS = 1024  # a split draws this many groups of chunks at most: parts are exact to 0.1 % and their tables small


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

    Examples
    --------
    >>> import gzarr
    >>> gzarr.Crops((64, 64, 64), n=10_000)
    Crops(size=(64, 64, 64), n=10000, stride=None)
    """

    size: tuple[int | None, ...]
    n: int | None = None
    stride: tuple[int | None, ...] | None = None

    def __post_init__(self) -> None:
        size = tuple([None if s is None else positive(s, "size of Crops") for s in sequence(self.size)])
        object.__setattr__(self, "size", size)
        if self.n is not None:
            object.__setattr__(self, "n", positive(self.n, "n of Crops"))
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


class Starts(NamedTuple):
    """Where boxes may begin along an axis: every ``stride`` elements in each of some spans.

    Attributes
    ----------
    lows, lasts : array of int64
        First and last place in each span.
    firsts : array of int64
        Number of places before each span, and of all places.
    stride : int
        From place to place; the last place of a span may be nearer to the one before it.
    """

    lows: Ints
    lasts: Ints
    firsts: Ints
    stride: int

    @property
    def n(self) -> int:
        """Number of places."""
        return int(self.firsts[-1])

    def __call__(self, numbers: Ints) -> Ints:
        """The places with these numbers."""
        span: Any = 0 if len(self.lows) == 1 else np.searchsorted(self.firsts, numbers, side="right") - 1
        found: Ints = np.minimum(self.lows[span] + (numbers - self.firsts[span]) * self.stride, self.lasts[span])
        return found

    def before(self, elements: Ints) -> Ints:
        """How many places are before each of some elements."""
        if not self.n:
            return np.zeros_like(elements)
        span = np.searchsorted(self.lows, elements, side="right") - 1
        steps = -((self.lows[span] - elements) // self.stride)
        found = self.firsts[span] + np.where(elements > self.lasts[span], np.diff(self.firsts)[span], steps)
        return np.where(span < 0, 0, found)


def make_starts(spans: Ints, size: int, stride: int, *, whole: bool) -> Starts:
    """Where boxes of a size may begin within spans, the rows of a table; tiles cover the whole of each span."""
    spans = spans[spans[:, 1] - spans[:, 0] >= size]
    lows, lasts = spans[:, 0], spans[:, 1] - size
    if not whole:
        lasts = lasts - (lasts - lows) % stride
    counts = -((lows - lasts) // stride) + 1
    return Starts(lows, lasts, np.concatenate([[0], np.cumsum(counts)]), stride)


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples of some arrays, by number.

    Attributes
    ----------
    kind : str
        "rows", "window", "tiles" or "crops"; the last are at random places.
    size : tuple of int
        Extents of a box on the leading axes.
    spans : array of int64, (n, 2)
        Spans of axis 0 that no box crosses.
    starts : tuple of Starts
        Where boxes may begin on each of these axes.
    draws : int
        Number of random boxes in an epoch.
    key : tuple of int
        What random boxes depend on.
    episodes : bool
        Whether the spans are episodes, which a split keeps whole.
    """

    kind: str
    size: tuple[int, ...]
    spans: Ints
    starts: tuple[Starts, ...]
    draws: int = 0
    key: tuple[int, ...] = ()
    episodes: bool = False

    @property
    def n(self) -> int:
        """Number of samples in an epoch."""
        return self.draws or prod([starts.n for starts in self.starts])

    def at(self, seed: int, epoch: int) -> Samples:
        """The samples of one epoch: random boxes are others in each."""
        return replace(self, key=(seed, epoch)) if self.draws else self

    def boxes(self, ids: Ints, ndim: int) -> Ints:
        """First elements of the boxes of samples in an array of ``ndim`` axes: an array of shape (m, ndim)."""
        found = np.zeros((len(ids), ndim), np.int64)
        rest = ids
        for axis in reversed(range(len(self.starts))):
            starts = self.starts[axis]
            if self.draws:
                words = mix(ids.astype(np.uint64) * GOLDEN + np.uint64(word_of(*self.key, axis)))
                numbers = (words % np.uint64(starts.n)).astype(np.int64)
            else:
                rest, numbers = np.divmod(rest, starts.n) if axis else (rest, rest)
            found[:, axis] = starts(numbers)
        return found

    def box(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the box that a sample takes of an array."""
        return *self.size, *shape[len(self.size) :]

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of a sample of an array: a row has no axis 0."""
        return self.box(shape)[self.kind == "rows" :]

    def runs(self, axis: Axis) -> Runs:
        """What samples lie together in chunks of axis 0."""
        if self.draws:
            raise ValueError(
                "shuffle='blocks' needs samples that lie in order, random crops do not; leave n= of Crops out, "
                "which gives tiles, or use shuffle=False: random crops need no shuffling"
            )
        first, inner = self.starts[0], prod([starts.n for starts in self.starts[1:]])
        if isinstance(axis, RegularAxis) and not axis.length % first.stride:
            per_chunk = axis.length // first.stride
            if not (first.lows % axis.length).any() and not (first.firsts[:-1] % per_chunk).any():
                return per_chunk * inner
        edges: Ints = np.unique(first.before(np.array(axis.edges()))) * inner
        return edges

    def split(self, fractions: Sequence[float], axis: Axis, *, seed: int = 0, shuffle: bool = True) -> list[Samples]:
        """Disjoint parts that share no chunk of axis 0, or no episode.

        Parameters
        ----------
        fractions : sequence of float
            What share of the samples each part gets, to the nearest group of chunks or episode.
        axis : Axis
            How axis 0 is cut into chunks.
        seed : int
            What the parts depend on.
        shuffle : bool
            Whether each part is drawn from everywhere, or parts follow each other.
        """
        check_fractions(fractions)
        spans = self.spans if self.episodes else self._groups(axis, len(fractions), shuffle=shuffle)
        weights = self._starts_in(spans).before(spans[:, 1]) - self._starts_in(spans).before(spans[:, 0])
        order = Permutation(len(spans), seed, "split")(np.arange(len(spans))) if shuffle else np.arange(len(spans))
        parts = []
        for fraction, mine in zip(fractions, cut_groups(order, weights, fractions), strict=True):
            part = spans[np.sort(mine)]
            starts = self._starts_in(part if self.episodes else (part := joined(part)))
            if not starts.n:
                raise ValueError(
                    f"split{tuple(fractions)}: a part would have no sample, as there are {len(spans)} groups of chunks "
                    f"or episodes of axis 0; use fewer parts or smaller chunks"
                )
            draws = max(round(self.draws * fraction), 1) if self.draws else 0
            parts.append(replace(self, spans=part, starts=(starts, *self.starts[1:]), draws=draws))
        return parts

    def _starts_in(self, spans: Ints) -> Starts:
        return make_starts(spans, self.size[0], self.starts[0].stride, whole=self.kind == "tiles")

    def _groups(self, axis: Axis, nparts: int, *, shuffle: bool) -> Ints:
        """Spans of whole chunks. Boxes that would cross the borders of spans are lost: large boxes want long spans."""
        most = GROUPS if shuffle else GROUPS**2
        lost = axis.nchunks * 16 * (self.size[0] - 1) // max(axis.extent, 1)
        step = max(-(-axis.nchunks // most), min(lost, axis.nchunks // (4 * nparts)) if shuffle else 1, 1)
        if isinstance(axis, RegularAxis):
            edges = np.append(np.arange(0, axis.extent, axis.length * step), axis.extent)
        else:
            edges = np.array([*axis.edges()[:-1:step], axis.extent])
        edges = np.unique(np.append(edges, self.spans))
        span = np.searchsorted(self.spans[:, 0], edges[:-1], side="right") - 1
        inside = (span >= 0) & (edges[1:] <= self.spans[span, 1])
        groups: Ints = np.stack([edges[:-1], edges[1:]], 1)[inside]
        return groups

    def describe(self) -> dict[str, Any]:
        """What tells these samples from others of the same arrays, as JSON."""
        told: dict[str, Any] = {"kind": self.kind, "n": self.n}
        if self.kind != "rows":
            told |= {"size": list(self.size), "stride": [starts.stride for starts in self.starts]}
        return told | {"spans": crc32(self.spans.astype("<i8").tobytes())}


def make_samples(
    shapes: Mapping[str, tuple[int, ...]], *, window: Window | None = None, crops: Crops | None = None
) -> Samples:
    """The samples of arrays of these shapes: their rows, unless windows or crops are asked for."""
    if window is not None and crops is not None:
        raise ValueError("window= and crops= exclude each other: Crops((n, None)) takes n rows of axis 0 at random")
    if window is not None and not isinstance(window, Window):
        raise TypeError(f"window must be a gzarr.Window, such as gzarr.Window(8); got {window!r}")
    if crops is not None and not isinstance(crops, Crops):
        raise TypeError(f"crops must be gzarr.Crops, such as gzarr.Crops((64, 64)); got {crops!r}")
    extents = equal_extents(shapes, 1 if crops is None else len(crops.size))
    if crops is not None:
        return make_crops(extents, crops)
    spans = np.array([[0, extents[0]]])
    if window is None:
        return Samples("rows", (1,), spans, (make_starts(spans, 1, 1, whole=False),))
    if window.ends is not None:
        if window.ends[-1] > extents[0]:
            raise ValueError(f"ends of Window reach to row {window.ends[-1]}, but the arrays have {extents[0]} rows")
        spans = np.stack([np.concatenate([[0], window.ends[:-1]]), window.ends], 1)
    starts = make_starts(spans, window.n, window.stride, whole=False)
    if not starts.n:
        longest = int((spans[:, 1] - spans[:, 0]).max())
        raise ValueError(f"windows of {window.n} rows fit nowhere: the longest episode has {longest} rows")
    return Samples("window", (window.n,), spans, (starts,), episodes=window.ends is not None)


def make_crops(extents: tuple[int, ...], crops: Crops) -> Samples:
    """Random boxes or tiles on the leading axes, which have these extents."""
    size = tuple([extent if s is None else s for s, extent in zip(crops.size, extents, strict=True)])
    if any(s > extent for s, extent in zip(size, extents, strict=True)):
        raise ValueError(
            f"crops of {size} are larger than the arrays, which have {extents} elements on these axes; use smaller ones"
        )
    wanted = crops.stride or (None,) * len(size)
    stride = size if crops.n is None else (1,) * len(size)
    stride = tuple([default if s is None else s for s, default in zip(wanted, stride, strict=True)])
    axes = [np.array([[0, extent]]) for extent in extents]
    each = zip(axes, size, stride, strict=True)
    starts = tuple([make_starts(axis, s, step, whole=crops.n is None) for axis, s, step in each])
    return Samples("tiles" if crops.n is None else "crops", size, axes[0], starts, crops.n or 0)


def equal_extents(shapes: Mapping[str, tuple[int, ...]], naxes: int) -> tuple[int, ...]:
    """The extents of arrays on their leading axes, which must be equal."""
    if not shapes:
        raise ValueError("no arrays to load from")
    for name, shape in shapes.items():
        if len(shape) < naxes:
            raise ValueError(f"array {name!r} has shape {shape}; samples are cut along {naxes} axes, which it lacks")
    found = {name: shape[:naxes] for name, shape in shapes.items()}
    extents = next(iter(found.values()))
    if len(set(found.values())) > 1:
        listed = ", ".join(f"{name!r} {shape}" for name, shape in found.items())
        raise ValueError(f"arrays differ in extent where samples are cut: {listed}; expected equal ones")
    if 0 in extents:
        raise ValueError(f"array {next(iter(shapes))!r} of shape {shapes[next(iter(shapes))]} has no samples")
    return extents


def check_fractions(fractions: Sequence[float]) -> None:
    """Refuse what is no division of a whole."""
    if not all(isinstance(f, Real) for f in fractions):
        raise TypeError(f"split{tuple(fractions)}: expected fractions, as in split(0.9, 0.1)")
    if not fractions or not all(0 < f <= 1 for f in fractions) or sum(fractions) > 1 + 1e-9:
        raise ValueError(
            f"split{tuple(fractions)}: expected fractions above 0 that add up to 1 at most, as in split(0.9, 0.1)"
        )


def cut_groups(order: Ints, weights: Ints, fractions: Sequence[float]) -> list[Ints]:
    """The groups of each part: of all in order, cut where the weight comes nearest to each fraction."""
    sums = np.concatenate([[0], np.cumsum(weights[order])])
    targets = np.cumsum([0.0, *fractions]) * sums[-1]
    borders = np.abs(sums - targets[:, None]).argmin(1)
    return [order[lo:hi] for lo, hi in pairwise(borders.tolist())]


def joined(spans: Ints) -> Ints:
    """Spans with those joined that follow each other without a gap."""
    new = np.append(True, spans[1:, 0] != spans[:-1, 1])[: len(spans)]
    return np.stack([spans[new, 0], spans[np.roll(new, -1), 1]], 1)


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
