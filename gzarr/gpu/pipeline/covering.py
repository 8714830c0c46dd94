"""What a write covers whole, and what it covers in part: the objects of a plan, chunks or shards, by tables.

An object that reaches beyond the array is never covered whole: others may have appended to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.cpu.compiled.tables import Windows
from gzarr.indexing.plan import BoxPlan
from gzarr.indexing.selection import Indices
from gzarr.indexing.spans import in_order
from gzarr.layout.chunk_layout import Layout


@dataclass(frozen=True, slots=True, eq=False)
class Wholes:
    """The objects, chunks or shards, that a write covers whole: the product of some rows of every axis.

    Attributes
    ----------
    objects : tuple[Indices, ...]
        Coordinates of the objects on every axis.
    firsts : tuple[Indices, ...]
        The first span of each in the plan.
    inner : NDArray[np.int32]
        int32 (chunks of an object, ndim): spans of its chunks behind the first ones, in the order of its index.
    """

    objects: tuple[Indices, ...]
    firsts: tuple[Indices, ...]
    inner: NDArray[np.int32]

    @property
    def shape(self) -> tuple[int, ...]:
        """Objects on every axis."""
        return tuple(axis.size for axis in self.objects)

    def coords(self, first: int, last: int) -> Indices:
        """Coordinates (n, ndim) of some objects."""
        return self._picked(self.objects, first, last)

    def spans(self, first: int, last: int) -> NDArray[np.int32]:
        """The spans (n, ndim) of the chunks of some objects, one object after the other."""
        starts = self._picked(self.firsts, first, last).astype(np.int32)
        return (starts[:, None] + self.inner).reshape(-1, len(self.objects))

    def names(self, prefix: str, separator: str, first: int, last: int) -> list[str]:
        """The keys of some objects. prefix: of the keys."""
        at = np.unravel_index(np.arange(first, last), self.shape)
        columns = []
        for axis, rows in zip(self.objects, at, strict=True):
            low, high = int(rows.min()), int(rows.max()) + 1
            texts = [f"{prefix}{number}" for number in axis[low:high].tolist()]
            columns.append([texts[row] for row in (rows - low).tolist()])
            prefix = ""
        return columns[0] if len(columns) == 1 else list(map(separator.join, zip(*columns, strict=True)))

    def _picked(self, columns: Sequence[Indices], first: int, last: int) -> Indices:
        at = np.unravel_index(np.arange(first, last), self.shape)
        return np.stack([column[rows] for column, rows in zip(columns, at, strict=True)], axis=1)


class Covered(NamedTuple):
    """What a write covers.

    Attributes
    ----------
    wholes : Wholes
        The objects that it covers whole.
    full : tuple of NDArray[np.bool_]
        For every axis, which spans take all of their chunk. Chunks whose spans all do are covered whole.
    rest : tuple of BoxPlan
        The other chunks, if these are files.
    shards : Indices
        int64, the numbers of the other shards.
    nfull : Indices
        int64, how many chunks of each of these are covered whole.
    """

    wholes: Wholes
    full: tuple[NDArray[np.bool_], ...]
    rest: tuple[BoxPlan, ...]
    shards: Indices
    nfull: Indices


def find_covered(box: BoxPlan, layout: Layout, windows: Windows, steps: Sequence[int]) -> Covered:
    """Find out what a write covers.

    windows: of the plan. steps: entries of a shard's index from one chunk to the next on every axis; 1 for files.
    """
    cut = (layout.cut or layout.find_cut())[0]
    full = tuple([in_order(axis) & (windows.chunks[a] != cut[a]) for a, axis in enumerate(box.axes)])
    if layout.objects is layout.grid:
        rows = [np.flatnonzero(axis) for axis in full]
        chunks = tuple([column[some] for column, some in zip(windows.chunks, rows, strict=True)])
        wholes = Wholes(chunks, tuple(rows), np.zeros((1, len(full)), np.int32))
        return Covered(wholes, full, _rest_of(box, rows), np.arange(0), np.arange(0))
    return _covered_shards(layout, windows, full, steps)


def _covered_shards(
    layout: Layout, windows: Windows, full: tuple[NDArray[np.bool_], ...], steps: Sequence[int]
) -> Covered:
    cut = (layout.cut or layout.find_cut())[1]
    objects, firsts, counts, wholes, nfull = [], [], [], [], []
    for a, axis in enumerate(full):
        n = _ratio(layout, a)
        first = int(windows.axes[a, 2])
        table = windows.table[first : first + windows.shape[a]]
        n_full = np.add.reduceat(axis.astype(np.int64), table[:, 1])
        whole = (n_full == n) & (table[:, 2] == n) & (table[:, 0] != cut[a])
        objects.append(table[whole, 0])
        firsts.append(table[whole, 1])
        counts.append(n)
        wholes.append(whole)
        nfull.append(n_full)
    inner = np.indices(counts, np.int32).reshape(len(counts), -1).T
    inner = np.ascontiguousarray(inner[np.argsort(inner @ np.asarray(steps, np.int64), kind="stable")])
    others = np.flatnonzero(~reduce(np.logical_and.outer, wholes).reshape(-1))
    full_chunks = reduce(np.multiply.outer, nfull).reshape(-1)[others]
    return Covered(Wholes(tuple(objects), tuple(firsts), inner), full, (), others, full_chunks)


def _ratio(layout: Layout, a: int) -> int:
    """Chunks of a shard on an axis."""
    length: int = getattr(layout.objects[a], "length", 0)
    return length // max(int(getattr(layout.grid[a], "length", 1)), 1)


def _rest_of(box: BoxPlan, spans: Sequence[Indices]) -> tuple[BoxPlan, ...]:
    """What of a plan is not in the product of some spans of its axes: plans that have no chunk in common."""
    rest, before = [], list[Any]()
    for a, (axis, some) in enumerate(zip(box.axes, spans, strict=True)):
        others = np.setdiff1d(np.arange(len(axis)), some).tolist()
        if others:
            picked = tuple([axis[number] for number in others])
            rest.append(box._replace(axes=(*before, picked, *box.axes[a + 1 :])))
        before.append(axis if not others else tuple([axis[number] for number in some.tolist()]))
        if not len(some):
            break
    return tuple(rest)
