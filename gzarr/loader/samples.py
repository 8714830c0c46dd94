"""What a sample is: a row, a window of rows or a crop, each a box of equal size somewhere in the arrays.

Samples are boxes on the leading axes; the other axes are taken whole. Where boxes may begin along an axis is a table of
spans (`Starts`): the whole axis is one, every episode is one, and so is every run of chunks of a part of a split. The
arrays of a list are spans of axis 0; where their extents differ along another axis, it has as many spans.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from numbers import Real
from typing import Any
from zlib import crc32

import numpy as np

from gzarr.indexing.grid import Axis, RegularAxis
from gzarr.loader.order import GOLDEN, Floats, Ints, Permutation, Runs, Words, chances, draw, mix, word_of
from gzarr.loader.starts import Starts, joined, make_starts
from gzarr.loader.windows import Crops, Window

GROUPS = 1024  # a split draws this many groups of chunks at most: parts are exact to 0.1 % and their tables small


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
    padded : bool
        Whether boxes may reach past the ends of spans.
    odds : array of float, optional
        How often a random box is in each span, as sums up to it. By default all places are equally likely.
    """

    kind: str
    size: tuple[int, ...]
    spans: Ints
    starts: tuple[Starts, ...]
    draws: int = 0
    key: tuple[int, ...] = ()
    episodes: bool = False
    padded: bool = False
    odds: Any = None
    #: Number of samples before each span in which there are any, and of all.
    firsts: Ints = field(init=False, repr=False, compare=False)
    #: Whether spans differ in what there is along other axes.
    varies: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        inner = self.inner
        object.__setattr__(self, "varies", len(inner) > 1)
        counts = self.starts[0].counts * inner
        object.__setattr__(self, "firsts", np.concatenate([[0], np.cumsum(counts)]))

    @property
    def n(self) -> int:
        """Number of samples in an epoch."""
        return self.draws or int(self.firsts[-1])

    def with_odds(self, weights: Floats) -> "Samples":
        """The same samples, of which random ones are in each span in proportion to weights."""
        return replace(self, odds=np.cumsum(weights.astype(np.float64)))

    @property
    def inner(self) -> Ints:
        """Number of samples for a place on axis 0: one for all spans, or one for each."""
        found = np.ones(1, np.int64)
        for starts in self.starts[1:]:
            found = found * starts.counts
        return found

    def at(self, seed: int, epoch: int) -> "Samples":
        """The samples of one epoch: random boxes are others in each."""
        return replace(self, key=(seed, epoch)) if self.draws else self

    def numbers(self, ids: Ints) -> Ints:
        """What users call samples: rows by their places, which are their numbers also in the whole of a split."""
        return self.starts[0](ids) if self.kind == "rows" else ids

    def boxes(self, ids: Ints, ndim: int) -> Ints:
        """First elements of the boxes of samples in an array of ``ndim`` axes: an array of shape (m, ndim)."""
        found = np.zeros((len(ids), ndim), np.int64)
        rest, span = ids, None
        if self.odds is not None:
            span = draw(self.odds, self._words(ids, "array"))
        elif self.varies:
            span = np.searchsorted(self.firsts, ids, side="right") - 1
            rest = ids - self.firsts[span]
        for axis in reversed(range(len(self.starts))):
            starts = self.starts[axis]
            first: Any = 0
            count: Any = starts.n
            if span is not None:
                own = span if len(starts.lows) > 1 else np.zeros_like(span)
                first, count = starts.firsts[own], starts.counts[own]
            if self.draws:
                numbers = (self._words(ids, axis) % np.asarray(count).astype(np.uint64)).astype(np.int64)
            else:
                rest, numbers = np.divmod(rest, count) if axis else (rest, rest)
            found[:, axis] = starts(numbers if span is None else first + numbers)
        return found

    def _words(self, ids: Ints, what: int | str) -> Words:
        return mix(ids.astype(np.uint64) * GOLDEN + np.uint64(word_of(*self.key, what)))

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
        first, inner = self.starts[0], self.inner
        if isinstance(axis, RegularAxis) and len(inner) == 1 and not axis.length % first.stride:
            per_chunk = axis.length // first.stride
            if not (first.lows % axis.length).any() and not (first.firsts[:-1] % per_chunk).any():
                return per_chunk * int(inner[0])
        places = np.unique(first.before(np.array(axis.edges())))
        span = np.minimum(np.searchsorted(first.firsts, places, side="right"), len(first.lows)) - 1
        edges: Ints = self.firsts[span] + (places - first.firsts[span]) * (inner if len(inner) == 1 else inner[span])
        return edges

    def split(self, fractions: Sequence[float], axis: Axis, *, seed: int = 0, shuffle: bool = True) -> "list[Samples]":
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
        if len(self.inner) > 1:
            weights = weights * self.inner
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
            if self.odds is not None and not chances(self.odds)[mine].any():
                raise ValueError(f"split{tuple(fractions)}: a part would have arrays with a weight of zero only")
            draws = max(round(self.draws * fraction), 1) if self.draws else 0
            others = [more if len(more.lows) == 1 else more.only(np.sort(mine)) for more in self.starts[1:]]
            odds = None if self.odds is None else np.cumsum(chances(self.odds)[np.sort(mine)])
            parts.append(replace(self, spans=part, starts=(starts, *others), draws=draws, odds=odds))
        return parts

    def _starts_in(self, spans: Ints) -> Starts:
        whole = self.kind == "tiles"
        return make_starts(spans, self.size[0], self.starts[0].stride, whole=whole, padded=self.padded)

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
        if self.padded:
            told["padded"] = True
        for name, table in (("other axes", [s.lasts for s in self.starts[1:]]), ("odds", [self.odds])):
            if any(column is not None and np.size(column) > 1 for column in table):
                told[name] = crc32(b"".join([np.asarray(column, "<f8").tobytes() for column in table]))
        return told | {"spans": crc32(self.spans.astype("<i8").tobytes())}


def make_samples(
    shapes: Mapping[str, tuple[int, ...]], *, window: Window | None = None, crops: Crops | None = None
) -> Samples:
    """The samples of arrays of these shapes: their rows, unless windows or crops are asked for."""
    check_kinds(window, crops)
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


def check_kinds(window: Any, crops: Any) -> None:
    """Refuse what says no samples. Raises: ValueError, TypeError."""
    if window is not None and crops is not None:
        raise ValueError("window= and crops= exclude each other: Crops((n, None)) takes n rows of axis 0 at random")
    if window is not None and not isinstance(window, Window):
        raise TypeError(f"window must be a gzarr.Window, such as gzarr.Window(8); got {window!r}")
    if crops is not None and not isinstance(crops, Crops):
        raise TypeError(f"crops must be gzarr.Crops, such as gzarr.Crops((64, 64)); got {crops!r}")


def crop_steps(extents: Sequence[int | None], crops: Crops) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Extents of boxes, and the steps between them. extents: of the arrays; None where they differ."""
    size = [extent if s is None else s for s, extent in zip(crops.size, extents, strict=True)]
    if None in size:
        raise ValueError(
            f"size {crops.size} of Crops takes all of axis {size.index(None)}, along which arrays differ; give a number"
        )
    wanted = crops.stride or (None,) * len(size)
    stride = size if crops.n is None else [1] * len(size)
    steps = [default if s is None else s for s, default in zip(wanted, stride, strict=True)]
    return tuple(size), tuple(steps)  # type: ignore[arg-type] # None is refused


def make_crops(extents: tuple[int, ...], crops: Crops) -> Samples:
    """Random boxes or tiles on the leading axes, which have these extents."""
    size, stride = crop_steps(extents, crops)
    if any(s > extent for s, extent in zip(size, extents, strict=True)):
        raise ValueError(
            f"crops of {size} are larger than the arrays, which have {extents} elements on these axes; use smaller ones"
        )
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
            raise ValueError(f"samples are cut along {naxes} axes, array {name!r} of shape {shape} has {len(shape)}")
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
