"""Shares of an epoch: which positions of its order one rank takes, and what is left when the ranks become others.

Exact, sequential and sampled orders are shared by whole batches in turn, so what all ranks have taken is a prefix of
the order. Orders in blocks are shared by contiguous parts, equal runs of positions, so that two ranks meet in one
block at most. What ranks have taken of their parts is noted as (number of ranks, samples taken by each); another number
of ranks puts the rests of the parts together and cuts them anew.

All ranks have equally many samples, so equally many steps of equal batches: uneven ranks would wait for each other
forever. Either the last incomplete step is dropped, or the last step is smaller and its missing samples, fewer than
there are ranks, are taken a second time.
"""

import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np

from gzarr.loader.order import Ints

#: (number of ranks, samples that each of them took), one pair after another.
History: TypeAlias = tuple[tuple[int, int], ...]


class RankShare(NamedTuple):
    """What one rank takes of what is left of an epoch: whole batches in turn, or one of equal contiguous parts.

    Attributes
    ----------
    total : int
        Number of positions in the epoch.
    before : tuple
        What was taken before: of contiguous parts, by other numbers of ranks.
    start : int
        How many samples each rank had taken before, of this part.
    batch_size, rank, world_size : int
        Samples in a batch, number of this rank, number of ranks.
    contiguous : bool
        Whether it is a part.
    drop_last : bool
        Whether the last incomplete step is dropped.
    """

    total: int
    before: History
    start: int
    batch_size: int
    rank: int
    world_size: int
    contiguous: bool
    drop_last: bool

    @property
    def n(self) -> int:
        """Number of samples that this rank takes, those included that are taken twice."""
        rest = nleft(self.total, self.before)
        if self.drop_last:
            return max(rest // self.world_size - self.start, 0) // self.batch_size * self.batch_size
        return max(-(-rest // self.world_size) - self.start, 0)

    def positions(self, lo: int, hi: int) -> Ints:
        """The positions of this rank's samples ``lo`` to ``hi``."""
        if lo >= hi:
            return np.empty(0, np.int64)
        if not self.contiguous:
            return self._in_turn(np.arange(lo, hi))
        runs = left(self.total, self.before)
        lengths = np.cumsum([stop - start for start, stop in runs])
        begin = self.rank * int(lengths[-1]) // self.world_size + self.start
        at = np.arange(begin + lo, begin + hi) % lengths[-1]
        run = np.searchsorted(lengths, at, side="right")
        stops = np.array([stop for _, stop in runs])
        return np.asarray(stops[run] - lengths[run] + at, np.int64)

    def _in_turn(self, at: Ints) -> Ints:
        """The positions of samples if batches are taken in turn."""
        rest = nleft(self.total, self.before)
        whole = rest // (self.world_size * self.batch_size) * self.batch_size  # samples in complete steps
        step, row = np.divmod(at, self.batch_size)
        found = self.total - rest + (step * self.world_size + self.rank) * self.batch_size + row
        if at[-1] >= whole:
            last = self.total - rest + whole * self.world_size + self.rank * (self.n - whole) + at - whole
            found = np.where(at < whole, found, last % self.total)
        return found

    def history(self, taken: int) -> History:
        """What all ranks have taken when each has taken so many samples of this share, in turn whole steps."""
        if self.contiguous:
            return (*self.before, (self.world_size, self.start + taken))
        return ((1, min(self.total - nleft(self.total, self.before) + taken * self.world_size, self.total)),)


def make_share(
    total: int, history: History = (), *, batch_size: int, rank: int, world_size: int, contiguous: bool, drop_last: bool
) -> RankShare:
    """What one rank takes of an epoch.

    Parameters
    ----------
    total : int
        Number of positions in the epoch.
    history : tuple
        What was taken before, as `RankShare.history` says it.
    batch_size, rank, world_size : int
        Samples in a batch, number of this rank, number of ranks.
    contiguous : bool
        Whether ranks take contiguous parts, as they do of an order in blocks, or whole batches in turn.
    drop_last : bool
        Whether the last incomplete step is dropped; else its missing samples are taken a second time.
    """
    before, start = history, 0
    if not contiguous:
        before = ((1, sum(ranks * taken for ranks, taken in history)),)
    elif history and history[-1][0] == world_size:  # the same parts go on
        before, start = history[:-1], history[-1][1]
    return RankShare(total, before, start, batch_size, rank, world_size, contiguous, drop_last)


def left(total: int, history: History) -> list[tuple[int, int]]:
    """The runs of positions that are left of contiguous parts, in the order in which they are cut anew."""
    runs = [(0, total)]
    for ranks, taken in history:
        n = sum(stop - start for start, stop in runs)
        edges = [rank * n // ranks for rank in range(ranks + 1)]
        rests = [(min(lo + taken, hi), hi) for lo, hi in pairwise(edges)]
        runs = cut(runs, [rest for rest in rests if rest[0] < rest[1]])
    return runs


def is_within(total: int, history: History) -> bool:
    """Whether ranks can have taken so much of an epoch."""
    return all(
        taken <= -(-nleft(total, history[:n]) // ranks)  # the last step may take some samples twice
        for n, (ranks, taken) in enumerate(history)
    )


def nleft(total: int, history: History) -> int:
    """How many positions are left of contiguous parts."""
    return sum(stop - start for start, stop in left(total, history))


def cut(runs: Sequence[tuple[int, int]], parts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Parts of a sequence that consists of runs, as runs."""
    found, first = [], 0
    for start, stop in runs:
        inside = [(max(lo - first, 0) + start, min(hi - first + start, stop)) for lo, hi in parts]
        found += [run for run in inside if run[0] < run[1]]
        first += stop - start
    return found


def parse_ranks(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """The rank and the number of ranks: those given, those of torch.distributed or JAX, or 0 of 1."""
    if (rank is None) != (world_size is None):
        raise ValueError(f"rank and world_size belong together, got rank={rank} and world_size={world_size}")
    if rank is None or world_size is None:
        torch, jax = sys.modules.get("torch.distributed"), sys.modules.get("jax")
        if torch is not None and torch.is_available() and torch.is_initialized():
            rank, world_size = torch.get_rank(), torch.get_world_size()
        elif jax is not None and getattr(jax.distributed, "is_initialized", bool)():  # older ones cannot tell
            rank, world_size = jax.process_index(), jax.process_count()
        else:
            return 0, 1
    if not 0 <= rank < world_size:
        raise ValueError(f"rank={rank} of world_size={world_size}; expected 0 <= rank < world_size")
    return int(rank), int(world_size)
