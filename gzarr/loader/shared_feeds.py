"""The samples that the ranks of a host want together, and their way through memory that all of them have.

`gzarr.loader.node` says how ranks agree on who reads what. Here, a batch of each rank makes one large batch, in the
order of ranks, and a planner works on these. When the slots of a batch are free again is a matter of steps, not of
time, so that all ranks plan the same.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np

from gzarr.backend import Array
from gzarr.chunk_io import engine
from gzarr.chunk_io.reference import ReadJob
from gzarr.indexing.selection import Indices
from gzarr.loader.feeds import Bools, Feed, FeedSource, Planned, planned
from gzarr.loader.leases import Lease, Leases
from gzarr.loader.look_ahead import EpochPlan
from gzarr.loader.node import NodeTurn
from gzarr.loader.pool import Room
from gzarr.loader.ranks import RankShare
from gzarr.loader.sources import on_device


def joint_positions(
    share: RankShare, ranks: Sequence[int], batch_size: int, skipped: int
) -> Callable[[int, int], Indices]:
    """The positions of an epoch that some ranks take, batch by batch, those of one rank after those of the other.

    skipped: samples of each rank that are left out at the beginning.
    """
    shares, n = [share._replace(rank=rank) for rank in ranks], share.n - skipped

    def positions(lo: int, hi: int) -> Indices:
        step, rest = np.divmod(np.arange(lo, hi), batch_size * len(shares))
        rank, row = np.divmod(rest, np.minimum(batch_size, n - step * batch_size))
        own, found = skipped + step * batch_size + row, np.empty(hi - lo, np.int64)
        for number, one in enumerate(shares):
            mine = np.flatnonzero(rank == number)
            if len(mine):
                found[mine] = one.positions(int(own[mine[0]]), int(own[mine[-1]]) + 1)
        return found

    return positions


class SharedFeed(Feed):
    """The way of one array into the batches of one rank, through slots that hold the samples of all.

    Parameters
    ----------
    source : FeedSource
        The array, read on the host.
    epoch : EpochPlan
        What all ranks want.
    room : Room
        What they have for it.
    leases : Leases or None
        Memory of this rank's batches.
    slots : array
        The shared memory.
    turn : NodeTurn
        Of the iteration.
    """

    def __init__(
        self, source: FeedSource, epoch: EpochPlan, room: Room, leases: Leases | None, slots: Any, turn: NodeTurn
    ) -> None:
        local = turn.memory.local
        rows = epoch.batch_size // len(local.ranks)
        super().__init__(source, epoch._replace(batch_size=rows), leases)
        self._planner = room.planner(epoch)
        self._there = turn.memory.mapped(source.name, source.backend)
        self._slots, self._rows, self._local, self._window = slots, epoch.batch_size, local, turn.memory.window
        self._under_way: deque[Sequence[Indices]] = deque()  # batches of steps whose slots are not free
        self._to_gather: deque[int] = deque()  # numbers of batches by step
        self._filled: set[int] = set()  # large batches whose slots were filled up

    def capacity(self) -> int:
        """How many batches can be planned now: any number, or none while too many steps are under way."""
        return 1 << 30 if len(self._to_gather) < self._window else 0

    def step(self, n: int) -> Planned:
        """Plan the next batches of all ranks."""
        if len(self._under_way) == self._window:
            freed = self._under_way.popleft()
            self._planner.free(len(freed))
            self._filled.difference_update(self._blocks(freed))
        step = self._planner.step(n)
        self._under_way.append(step.batches)
        self._to_gather.append(len(step.batches))
        checksum = 0
        for column in (step.slots, *step.fragments, *step.batches):
            checksum = crc32(column.tobytes(), checksum)
        fresh: list[slice] = []
        if self.source.pad is not None:
            wanted = {*np.unique(step.slots // self._rows).tolist(), *self._blocks(step.batches)}
            fresh = [slice(block * self._rows, (block + 1) * self._rows) for block in sorted(wanted - self._filled)]
            self._filled |= wanted
        jobs, _, opened, *_ = planned(self.source, step, (self._slots,))
        mine = [batch.reshape(len(self._local.ranks), -1)[self._local.me] for batch in step.batches]
        return Planned(jobs, mine, opened, checksum, fresh)

    def _blocks(self, batches: Sequence[Indices]) -> list[int]:
        return [int(batch[0]) // self._rows for batch in batches]

    def fill_up(self, slots: slice) -> None:
        """Give slots the value of elements that samples lack."""
        self._slots[slots] = self.source.pad

    def gather(self, batch: Indices, valid: Bools | None) -> tuple[Array, Lease | None]:
        """Copy a batch out of the slots."""
        out, lease = self._take_memory()
        out, backend = out[: len(batch)], self.source.backend
        if self._there is not None:
            backend.take(self._there, batch, out)
            backend.finish()  # before others write to the slots
        else:
            rows = np.empty(out.shape, out.dtype)
            backend.host.take(self._slots, batch, rows)
            backend.take(on_device(rows, backend), np.arange(len(rows)), out)
        self._to_gather[0] -= 1
        if not self._to_gather[0]:
            self._to_gather.popleft()
        return self._shaped(out), lease


def units_of(jobs: Sequence[ReadJob], n: int) -> list[list[ReadJob]]:
    """Jobs in ``n`` parts of equally many chunks."""
    counts = [job.plan.nparts for job in jobs]
    ends, units = np.cumsum(counts, dtype=np.int64), []
    total = int(ends[-1]) if len(ends) else 0
    for unit in range(n):
        lo, hi = total * unit // n, total * (unit + 1) // n
        parts = []
        for job, count, end in zip(jobs, counts, ends.tolist(), strict=True):
            first, last = max(lo - end + count, 0), min(hi - end + count, count)
            if first < last:
                parts.append(job._replace(plan=job.plan.some(first, last)))  # type: ignore[union-attr] # of many boxes
        units.append(parts)
    return units


def fill(turn: NodeTurn, number: int, steps: Sequence[tuple[SharedFeed, Planned]]) -> int:
    """Read a step into the slots, together with the other ranks. Returns: how many chunks this one has read."""
    units = units_of([job for _, step in steps for job in step.jobs.values()], len(turn.memory.local.ranks))

    def prepare() -> None:
        for feed, step in steps:
            for slots in step.fresh:
                feed.fill_up(slots)

    checksum = crc32(repr([step.checksum for _, step in steps]).encode())
    done = turn.fill(number, checksum, prepare, [partial(engine.read, unit) for unit in units])
    return sum(job.plan.nparts for unit in done for job in units[unit])
