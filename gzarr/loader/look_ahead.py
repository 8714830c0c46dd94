"""Plans what is read for the coming batches: which chunks are opened when, and which samples are taken of each.

Theory of operation. A planner goes through the samples of one epoch, batch by batch. Its `step` says what must be read
for the next batches. Opening a chunk costs its decoding, so every sample of an open chunk is taken that
coming batches want and memory can hold.

- `DirectPlanner`: samples go straight into the batches. As many as memory holds are *begun*, and a chunk that is opened
  serves all of them. Each batch is a block of slots.
- `PoolPlanner`: samples go into slots of a pool, and batches are gathered out of it. Samples of far batches can be held
  without memory for all the batches before them. It serves samples that lie in one *row of chunks* (the chunks of one
  coordinate on axis 0), which are opened together.

Rules: this is arithmetic, nothing is read and no clock is asked. The slots of a batch belong to it from the step that
plans it until `free`, so the batches of one step may be gathered while those of the next are read. Everything is a
column of numbers.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.indexing.copies import Fragments, cut_boxes
from gzarr.indexing.grid import Grid, nchunks
from gzarr.indexing.selection import Indices
from gzarr.loader.reach import Prospect, reach_of, within_reach

_Short: TypeAlias = NDArray[np.signedinteger[Any]]
Planner: TypeAlias = "DirectPlanner | PoolPlanner"

#: Samples that are looked ahead at first, so that the first batch comes soon, and how that grows with each step. Where
#: the first steps open all chunks, which would all be opened again beyond the horizon, it is far at once.
_FIRST_HORIZON, _FAR_HORIZON, _GROWTH = 1 << 15, 1 << 18, 4
#: How far a pool looks ahead: in reaches, which vary with the gaps between samples; and at most in numbers of slots,
#: because the memory for what is known of the samples grows with it.
_REACHES, _HORIZON = 4, 16
#: Memory for what is known of a sample within the horizon, doubled while the horizon moves.
KNOWN_NBYTES = 40
#: Batches are begun in runs of this part of all blocks, so that sorting their fragments costs little.
_RUNS = 16


class EpochPlan(NamedTuple):
    """What one rank wants of one array in one epoch.

    Attributes
    ----------
    n : int
        Number of samples.
    batch_size : int
        Samples of a batch; the last batch may be shorter.
    ids : callable
        ``ids(lo, hi)``: the samples at positions ``lo`` to ``hi`` of the epoch.
    boxes : callable
        ``boxes(ids)``: (m, ndim), first element of each sample.
    size : tuple[int, ...]
        Elements of a sample along each axis of the array.
    grid : Grid
        The chunk grid of the array.
    span : int, optional
        Number of positions over which the samples of one chunk are spread; all by default.
    cutter : callable, optional
        From the first elements of samples to `Fragments`; by default `cut_boxes` along the grid.
    """

    n: int
    batch_size: int
    ids: Callable[[int, int], Indices]
    boxes: Callable[[Indices], Indices]
    size: tuple[int, ...]
    grid: Grid
    span: int | None = None
    cutter: Callable[[Indices], Fragments] | None = None

    def cut(self, ids: Indices) -> Fragments:
        """Fragments of samples."""
        boxes = self.boxes(ids)
        return cut_boxes(boxes, self.size, self.grid) if self.cutter is None else self.cutter(boxes)

    @property
    def first_horizon(self) -> int:
        """How many samples are looked ahead at first."""
        few = nchunks(self.grid) <= 16 * self.batch_size
        return _FAR_HORIZON if few else _FIRST_HORIZON

    @property
    def gap(self) -> float:
        """Mean distance, in positions, of two samples that lie in one row of chunks, if each row is a sample."""
        axis = self.grid[0]
        return max(axis.nchunks * (self.span / axis.extent if self.span else 1.0), 1.0)


class PlanStep(NamedTuple):
    """What is read for some batches, and where they are afterwards.

    Attributes
    ----------
    fragments : Fragments
        What is copied out of which chunk.
    slots : Indices
        (f,): the slot that each fragment goes to.
    batches : tuple[Indices, ...]
        For each batch the slots of its samples. Those of a `DirectPlanner` batch are the first rows of one block:
        ``slots[0] // batch_size``.
    opened : int
        Number of chunks that are read.
    """

    fragments: Fragments
    slots: Indices
    batches: tuple[Indices, ...]
    opened: int


def mode_of(size: tuple[int, ...], grid: Grid, span: int, slots: int) -> Literal["direct", "pool"]:
    """Which planner serves an array best.

    Parameters
    ----------
    size : tuple[int, ...]
        Elements of a sample along each axis.
    grid : Grid
        The chunk grid.
    span : int
        Number of positions over which the samples of one chunk are spread: the length of the epoch if they are
        shuffled, the samples of a block if blocks are, those of a chunk if they are in order.
    slots : int
        Number of samples that memory can hold.
    """
    whole_rows = size[0] == 1 and size[1:] == tuple(axis.extent for axis in grid[1:])
    several = grid[0].nchunks < grid[0].extent
    return "pool" if whole_rows and several and span > slots else "direct"


def find_runs(column: _Short, values: _Short) -> tuple[Indices, Indices]:
    """Where a sorted column holds some values, and the number of the value for each place."""
    begin, end = (column.searchsorted(values, side) for side in ("left", "right"))
    counts = end - begin
    number = np.repeat(np.arange(len(values)), counts)
    return np.arange(len(number)) + (begin - (np.cumsum(counts) - counts))[number], number


class DirectPlanner:
    """Plans samples straight into batches.

    Parameters
    ----------
    epoch : Epoch
        What is wanted.
    blocks : int
        Number of batches that there is memory for, those included that are planned but not yet freed.
    """

    def __init__(self, epoch: EpochPlan, blocks: int) -> None:
        self.epoch = epoch
        self._least = max(blocks // _RUNS, 1)
        self._free = deque(range(blocks))
        self._begun: deque[int] = deque()  # blocks of batches that are not planned yet
        self._planned: deque[int] = deque()
        self._at = self._known = 0
        self._horizon = epoch.first_horizon
        none = np.empty(0, np.int64)
        nothing = epoch.cut(none)
        self._table = _FragmentTable(nothing, none, none, none, none > 0)

    def room(self) -> int:
        """How many batches `step` can plan now."""
        return len(self._begun) + len(self._free)

    def step(self, n_batches: int) -> PlanStep:
        """Plan the next batches. n_batches: at most `room`; fewer are planned at the end of the epoch."""
        self._begin(n_batches)
        size, lo = self.epoch.batch_size, self._at
        self._at = min(lo + n_batches * size, self.epoch.n)
        firsts = range(lo, self._at, size)
        chunks, rows = self._table.take(-(-self._at // size))
        blocks = [self._begun.popleft() for _ in firsts]
        self._planned.extend(blocks)
        lengths = [min(size, self._at - first) for first in firsts]
        batches = [block * size + np.arange(n) for block, n in zip(blocks, lengths, strict=True)]
        return PlanStep(self._table.fragments.take(rows), self._table.slots[rows], tuple(batches), len(chunks))

    def free(self, n_batches: int) -> None:
        """Give back the blocks of the oldest batches that were planned."""
        for _ in range(n_batches):
            self._free.append(self._planned.popleft())

    def _begin(self, n_batches: int) -> None:
        """Begin the batches of a step, and others within the horizon if there are blocks for some more."""
        size, left = self.epoch.batch_size, self.epoch.n - self._known
        wanted = max(-(-(self._horizon + self._at - self._known) // size), n_batches - len(self._begun))
        n = min(wanted, len(self._free), -(-left // size))
        self._horizon *= _GROWTH
        if n <= 0 or (n < self._least and len(self._begun) >= n_batches):
            return
        lo, hi = self._known, min(self._known + n * size, self.epoch.n)
        new = self.epoch.cut(self.epoch.ids(lo, hi))
        blocks = np.array([self._free.popleft() for _ in range(n)], np.int64)
        self._begun.extend(blocks.tolist())
        nth, row = np.divmod(new.box, size)
        self._table = self._table.extended(new, blocks[nth] * size + row, lo // size + nth)
        self._known = hi


class _FragmentTable(NamedTuple):
    """The fragments of all batches that are begun, sorted by chunk.

    Attributes
    ----------
    fragments : Fragments
        What is copied out of which chunk.
    slots, batch : Indices
        (f,): the slot that each goes to, and the number of its batch.
    by_batch : Indices
        (f,): the rows of the table in the order of their batches.
    open : NDArray
        (f,): whether each is yet to be read.
    """

    fragments: Fragments
    slots: Indices
    batch: Indices
    by_batch: Indices
    open: NDArray[np.bool_]

    def take(self, end: int) -> tuple[Indices, Indices]:
        """Chunks that batches before ``end`` need, and all rows that are read of them."""
        before = self.by_batch[: np.searchsorted(self.batch, end, sorter=self.by_batch)]
        chunks = np.unique(self.fragments.chunk[before[self.open[before]]])
        rows, _ = find_runs(self.fragments.chunk, chunks)
        rows = rows[self.open[rows]]
        self.open[rows] = False
        return chunks, rows

    def extended(self, new: Fragments, slots: Indices, batch: Indices) -> "_FragmentTable":
        """Forget what was read, and add fragments. Two sorted runs are sorted in linear time."""
        old = np.flatnonzero(self.open)
        by_chunk = np.argsort(new.chunk, kind="stable")
        pairs = zip(self.fragments, new, strict=True)
        fragments = Fragments(*[np.concatenate([mine[old], more[by_chunk]]) for mine, more in pairs])
        slots = np.concatenate([self.slots[old], slots[by_chunk]])
        batch = np.concatenate([self.batch[old], batch[by_chunk]])
        order = np.argsort(fragments.chunk, kind="stable")
        by_batch = np.argsort(batch[order], kind="stable")
        return _FragmentTable(
            fragments.take(order), slots[order], batch[order], by_batch, np.ones(len(order), np.bool_)
        )


class PoolPlanner:
    """Plans samples into the slots of a pool.

    Parameters
    ----------
    epoch : Epoch
        What is wanted. The samples lie each in one row of chunks.
    slots : int
        Number of slots of the pool.
    ahead : int
        The most batches that are planned and not yet freed. The other slots hold samples of later batches.
    horizon : int, optional
        How many samples are looked ahead at most, each of which takes `KNOWN_NBYTES`. By default 16 for each slot,
        which is more than a reach for all but the smallest pools.
    """

    def __init__(self, epoch: EpochPlan, slots: int, ahead: int, horizon: int | None = None) -> None:
        self.epoch = epoch
        self._ahead = ahead
        self._keep = slots - ahead * epoch.batch_size
        self._held = 0  # samples of batches that are not planned yet
        self._free, self._n_free = np.arange(slots)[::-1].copy(), slots
        self._planned: deque[Indices] = deque()
        self._horizon = epoch.first_horizon
        self._per_row = nchunks(epoch.grid[1:])
        self._gap = epoch.gap
        far = _REACHES * reach_of(self._keep, self._gap)
        self._far = int(min(far, _HORIZON * self._keep if horizon is None else horizon))
        self._at = self._opened = 0
        self._known = _Known.nothing(epoch.grid)

    def room(self) -> int:
        """How many batches `step` can plan now."""
        return self._ahead - len(self._planned)

    def step(self, n_batches: int) -> PlanStep:
        """Plan the next batches. n_batches: at most `room`; fewer are planned at the end of the epoch."""
        epoch, size = self.epoch, self.epoch.batch_size
        n = min(n_batches * size, epoch.n - self._at)
        self._look_ahead(n)
        _, ids, slots, _, _ = self._known
        first = self._at - self._known.base
        self._at += n
        must = first + np.flatnonzero(slots[first : first + n] < 0)
        self._held -= n - len(must)
        rows = np.unique(self._rows(ids[must]))
        taken = np.concatenate([must, self._choose(rows, first + n)])
        taken = taken[np.argsort(ids[taken], kind="stable")]
        self._n_free -= len(taken)
        slots[taken] = self._free[self._n_free : self._n_free + len(taken)]
        batches = tuple(np.split(slots[first : first + n].astype(np.int64), range(size, n, size)))
        self._planned.extend(batches)
        fragments = epoch.cut(ids[taken])
        at = slots[taken][fragments.box].astype(np.int64)
        return PlanStep(fragments, at, batches, len(rows) * self._per_row)

    def free(self, n_batches: int) -> None:
        """Give back the slots of the oldest batches that were planned."""
        for _ in range(n_batches):
            slots = self._planned.popleft()
            self._free[self._n_free : self._n_free + len(slots)] = slots
            self._n_free += len(slots)

    def _choose(self, rows: Indices, end: int) -> Indices:
        """Which later samples are taken of the rows that are opened. end: where the batches that are planned end."""
        found, firsts = self._known.find(rows, end)
        epoch, known = self.epoch, self._known
        left, seen = min(epoch.n - self._at, epoch.span or epoch.n), len(known.ids) - end
        prospect = Prospect(self._keep, self._gap, left, seen, self._at, self._opened)
        self._opened += len(rows)
        found = found[within_reach(found - end, firsts, prospect)]
        found = found[known.slots[found] < 0]
        room = self._keep - self._held
        if len(found) > room:
            found = np.partition(found, room)[:room]
        self._held += len(found)
        return found

    def _rows(self, ids: Indices) -> Indices:
        return self.epoch.grid[0].locate_all(self.epoch.boxes(ids)[:, 0])

    def _look_ahead(self, n: int) -> None:
        """Compute the samples within the horizon, many at once: whenever an eighth of it has been planned."""
        end = self._known.base + len(self._known.ids)
        horizon = max(n, min(self._horizon, self._far))
        self._horizon *= _GROWTH
        if end < self.epoch.n and end - self._at < max(n, horizon - horizon // 8):
            ids = self.epoch.ids(end, min(self._at + horizon, self.epoch.n))
            self._known = self._known.moved(self._at, ids, self._rows(ids))


class _Known(NamedTuple):
    """The samples within the horizon: of each position from ``base`` its sample, and its slot or -1; and an index.

    The index holds, sorted by the row of chunks, the rows and the positions (from ``base``) of samples. All but the
    samples are short integers.
    """

    base: int
    ids: Indices
    slots: _Short
    rows: _Short
    positions: _Short

    @classmethod
    def nothing(cls, grid: Grid) -> "_Known":
        """No samples of an array."""
        long, short = np.empty(0, np.int64), np.empty(0, np.int32)
        return cls(0, long, short, short if grid[0].nchunks <= np.iinfo(np.int32).max else long, short)

    def find(self, rows: Indices, first: int) -> tuple[Indices, Indices]:
        """Positions not before ``first`` of the samples in some rows, and where those of each row begin.

        Rows without any are left out.
        """
        at, row = find_runs(self.rows, rows.astype(self.rows.dtype))
        found = self.positions[at].astype(np.int64)
        later = found >= first
        found, row = found[later], row[later]
        return found, np.flatnonzero(np.diff(row, prepend=-1))

    def moved(self, base: int, ids: Indices, rows: Indices) -> "_Known":
        """Forget the positions before ``base`` and add samples. Two sorted runs are sorted in linear time."""
        drop = base - self.base
        later = self.positions >= drop
        order = np.argsort(rows, kind="stable").astype(np.int32)
        short: _Short = np.concatenate([self.rows[later], rows[order].astype(self.rows.dtype)])
        positions = np.concatenate([self.positions[later] - drop, order + (len(self.ids) - drop)])
        merged = np.argsort(short, kind="stable")
        slots = np.concatenate([self.slots[drop:], np.full(len(ids), -1, np.int32)])
        return _Known(base, np.concatenate([self.ids[drop:], ids]), slots, short[merged], positions[merged])
