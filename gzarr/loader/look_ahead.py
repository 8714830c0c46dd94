"""Plans what is read for the coming batches: which chunks are opened when, and which samples are taken of each.

Theory of operation. A planner walks through the samples of one epoch, batch by batch. Its `step` says what must be read
for the next batches. Opening a chunk costs its decoding, so whoever opens one takes every sample of it that coming
batches want and memory can hold.

- `Direct`: samples go straight into the batches. As many batches as memory holds are *begun*; whoever opens a chunk
  serves all of them. Each batch is a block of slots.
- `Pool`: samples go into slots of a pool, and batches are gathered out of it. Samples of far batches can be held
  without memory for all the batches before them. It serves samples that lie in one *row of chunks* (the chunks of one
  coordinate on axis 0), which are opened together.

Rules: this is arithmetic, nothing is read and no clock is asked. The slots of a batch belong to it from the step that
plans it until `free`, so the batches of one step may be gathered while those of the next are read. Everything is a
column of numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from gzarr.indexing.copies import Fragments, cut_boxes
from gzarr.indexing.grid import Grid
from gzarr.indexing.selection import Indices

Planner: TypeAlias = "Direct | Pool"

#: Samples that are looked ahead at first, so that the first batch comes soon; each step doubles it.
_FIRST_HORIZON = 8192
#: How far a pool looks ahead, in numbers of its slots.
_HORIZON = 4


class Epoch(NamedTuple):
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
    """

    n: int
    batch_size: int
    ids: Callable[[int, int], Indices]
    boxes: Callable[[Indices], Indices]
    size: tuple[int, ...]
    grid: Grid


class Step(NamedTuple):
    """What is read for some batches, and where they are afterwards.

    Attributes
    ----------
    fragments : Fragments
        What is copied out of which chunk.
    slots : Indices
        (f,): the slot that each fragment goes to.
    batches : tuple[Indices, ...]
        For each batch the slots of its samples. Those of a `Direct` batch are the first rows of one block:
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


class Direct:
    """Plans samples straight into batches.

    Parameters
    ----------
    epoch : Epoch
        What is wanted.
    blocks : int
        Number of batches that there is memory for, those included that are planned but not yet freed.
    """

    def __init__(self, epoch: Epoch, blocks: int) -> None:
        self.epoch = epoch
        self._free = deque(range(blocks))
        self._begun: deque[int] = deque()  # blocks of batches that are not planned yet
        self._planned: deque[int] = deque()
        self._at = self._known = 0
        self._horizon = _FIRST_HORIZON
        self._fragments = cut_boxes(np.empty((0, len(epoch.grid)), np.int64), epoch.size, epoch.grid)
        self._slots = np.empty(0, np.int64)
        self._batch = np.empty(0, np.int64)

    def room(self) -> int:
        """How many batches `step` can plan now."""
        return len(self._begun) + len(self._free)

    def step(self, n_batches: int) -> Step:
        """Plan the next batches. n_batches: at most `room`; fewer are planned at the end of the epoch."""
        self._begin(n_batches)
        size, lo = self.epoch.batch_size, self._at
        hi = min(lo + n_batches * size, self.epoch.n)
        chunk = self._fragments.chunk
        wanted = np.unique(chunk[self._batch < -(-hi // size)])
        taken = np.isin(chunk, wanted)
        fragments, slots = self._fragments.take(taken), self._slots[taken]
        self._fragments = self._fragments.take(~taken)
        self._slots, self._batch = self._slots[~taken], self._batch[~taken]
        self._at = hi
        batches = []
        for first in range(lo, hi, size):
            block = self._begun.popleft()
            self._planned.append(block)
            batches.append(block * size + np.arange(min(size, hi - first)))
        return Step(fragments, slots, tuple(batches), len(wanted))

    def free(self, n_batches: int) -> None:
        """Give back the blocks of the oldest batches that were planned."""
        for _ in range(n_batches):
            self._free.append(self._planned.popleft())

    def _begin(self, n_batches: int) -> None:
        """Begin as many batches as there are blocks for, within the horizon."""
        size = self.epoch.batch_size
        while self._free and self._known < self.epoch.n:
            if len(self._begun) >= n_batches and self._known - self._at >= self._horizon:
                break
            lo, hi = self._known, min(self._known + size, self.epoch.n)
            new = cut_boxes(self.epoch.boxes(self.epoch.ids(lo, hi)), self.epoch.size, self.epoch.grid)
            block = self._free.popleft()
            self._begun.append(block)
            self._fragments = Fragments(*map(np.concatenate, zip(self._fragments, new, strict=True)))
            self._slots = np.concatenate([self._slots, block * size + new.box])
            self._batch = np.concatenate([self._batch, np.full(len(new.box), lo // size)])
            self._known = hi
        self._horizon *= 2


class Pool:
    """Plans samples into the slots of a pool.

    Parameters
    ----------
    epoch : Epoch
        What is wanted. The samples lie each in one row of chunks.
    slots : int
        Number of slots of the pool.
    ahead : int
        The most batches that are planned and not yet freed. The other slots hold samples of later batches.
    """

    def __init__(self, epoch: Epoch, slots: int, ahead: int) -> None:
        self.epoch = epoch
        self._ahead = ahead
        self._keep = slots - ahead * epoch.batch_size
        self._free = np.arange(slots)
        self._planned: deque[Indices] = deque()
        self._at = 0
        self._horizon = _FIRST_HORIZON
        self._held = 0  # samples of batches that are not planned yet
        self._ids = self._rows = self._slots = np.empty(0, np.int64)  # of the positions from _at

    def room(self) -> int:
        """How many batches `step` can plan now."""
        return self._ahead - len(self._planned)

    def step(self, n_batches: int) -> Step:
        """Plan the next batches. n_batches: at most `room`; fewer are planned at the end of the epoch."""
        size, epoch = self.epoch.batch_size, self.epoch
        n = min(n_batches * size, epoch.n - self._at)
        self._look_ahead(n)
        missing = self._slots[:n] < 0
        opened = np.unique(self._rows[:n][missing])
        wanted = np.flatnonzero((self._slots < 0) & np.isin(self._rows, opened))
        must = int(np.count_nonzero(missing))
        self._held -= n - must
        more = min(self._keep - self._held, len(wanted) - must)
        self._held += more
        wanted = wanted[: must + more]
        self._slots[wanted], self._free = self._free[: len(wanted)], self._free[len(wanted) :]
        wanted = wanted[np.argsort(self._ids[wanted], kind="stable")]
        fragments = cut_boxes(epoch.boxes(self._ids[wanted]), epoch.size, epoch.grid)
        slots = self._slots[wanted][fragments.box]
        batches = tuple(np.split(self._slots[:n], range(size, n, size)))
        self._planned.extend(batches)
        self._at += n
        self._ids, self._rows, self._slots = self._ids[n:], self._rows[n:], self._slots[n:]
        return Step(fragments, slots, batches, len(np.unique(fragments.chunk)))

    def free(self, n_batches: int) -> None:
        """Give back the slots of the oldest batches that were planned."""
        self._free = np.concatenate([self._free, *[self._planned.popleft() for _ in range(n_batches)]])

    def _look_ahead(self, n: int) -> None:
        """Compute the samples at the positions within the horizon."""
        epoch, known = self.epoch, self._at + len(self._ids)
        far = min(max(n, min(self._horizon, _HORIZON * self._keep)), epoch.n - self._at) + self._at
        self._horizon *= 2
        if far <= known:
            return
        ids = epoch.ids(known, far)
        self._ids = np.concatenate([self._ids, ids])
        self._rows = np.concatenate([self._rows, epoch.grid[0].locate_all(epoch.boxes(ids)[:, 0])])
        self._slots = np.concatenate([self._slots, np.full(far - known, -1)])
