"""How the samples of one array get into batches: through a pool, straight into them, or out of memory.

A feed plans what is read for some batches (`Feed.step`). Once that is read, it puts them together one by one
(`Feed.gather`), after which it may use the memory again. `gzarr.loader.look_ahead` decides what is read when; this
module has the memory.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Array, Backend
from gzarr.chunk_io.reference import ReadJob
from gzarr.indexing.selection import Indices
from gzarr.loader.arrays import Reader
from gzarr.loader.leases import Lease, Leases
from gzarr.loader.look_ahead import EpochPlan, Planner, PlanStep
from gzarr.loader.pool import Room

Bools: TypeAlias = NDArray[np.bool_]

#: Small batches of arrays in memory are copied so many bytes at a time.
TOGETHER_NBYTES = 1 << 14


class FeedSource(NamedTuple):
    """One array of a loader.

    Attributes
    ----------
    name : str
        Its name in a batch.
    backend : Backend
        Of the device that batches are on.
    reader : Reader or None
        How it is read; None for an array in memory.
    data : Array or None
        All of it, for one that is kept in memory.
    size : tuple of int
        Elements of a sample along each axis of the array.
    sample_shape : tuple of int
        Shape of a sample in a batch.
    stored, dtype : numpy.dtype
        Of the array, and of batches.
    pad : scalar, optional
        What elements of samples are that lie past the end of an array; None if there are none.
    """

    name: str
    backend: Backend
    reader: Reader | None
    data: Array | None
    size: tuple[int, ...]
    sample_shape: tuple[int, ...]
    stored: np.dtype[Any]
    dtype: np.dtype[Any]
    pad: Any = None


class Planned(NamedTuple):
    """A step of a feed.

    Attributes
    ----------
    jobs : dict of ReadJob
        What has to be read, with a `CopyPlan` each, by name of array.
    batches : sequence
        What stands for each batch afterwards; for the feed only.
    opened : int
        Number of chunks that are read.
    checksum : int
        Of the plan, on which the ranks that share memory have to agree.
    fresh : sequence of slice
        Slots of shared memory that are filled up before anything is read into them.
    """

    jobs: Mapping[str, ReadJob]
    batches: Sequence[Indices]
    opened: int
    checksum: int = 0
    fresh: Sequence[slice] = ()


class FeedMemory(NamedTuple):
    """Memory of an array.

    Attributes
    ----------
    leases : Leases or None
        Memory of batches; None for Python objects, which are not lent.
    pool : Array or None
        The pool, if there is one.
    """

    leases: Leases | None
    pool: Array | None


class Feed:
    """The way of one array into batches. Batches are gathered in the order in which they were planned.

    Attributes
    ----------
    source : FeedSource
        The array.
    """

    _planner: Planner

    def __init__(self, source: FeedSource, epoch: EpochPlan, leases: Leases | None, slots: int = 0) -> None:
        self.source = source
        self._leases = leases
        self._shape = epoch.batch_size, *source.size
        self._damaged = np.zeros(slots, np.bool_)

    def capacity(self) -> int:
        """How many batches can be planned now."""
        return self._planner.room()

    def step(self, n: int) -> Planned:
        """Plan the next batches. n: at most `capacity`; fewer are planned at the end of the epoch."""
        raise NotImplementedError

    def gather(self, batch: Indices, valid: Bools | None) -> tuple[Array, Lease | None]:
        """Return a batch, or the samples of it that are valid, and free its memory in the feed."""
        raise NotImplementedError

    def valid(self, batch: Indices) -> Bools | None:
        """Which samples of a batch are undamaged; None for all."""
        if not len(self._damaged) or not self._damaged[batch].any():
            return None
        return ~self._damaged[batch]

    def mark_damaged(self, slots: Indices, *, damaged: bool = True) -> None:
        """Note that the samples in some slots are damaged, or that they are replaced by others."""
        self._damaged[slots] = damaged

    def _take_memory(self) -> tuple[Array, Lease | None]:
        """Memory for a batch."""
        if self._leases is None:
            return self.source.backend.empty(self._shape, self.source.dtype), None
        return self._leases.take()

    def _only(self, out: Array, lease: Lease | None, valid: Bools | None) -> tuple[Array, Lease | None]:
        """A batch as the caller sees it, or what is valid of it."""
        if valid is not None:
            which, whole = np.flatnonzero(valid), out
            out, lease = self._take_memory()
            out = out[: len(which)]
            self.source.backend.take(whole, which, out)
        return self._shaped(out), lease

    def _shaped(self, out: Array) -> Array:
        """A batch as the caller sees it."""
        return out.reshape(len(out), *self.source.sample_shape)


class PoolFeed(Feed):
    """Samples go into the slots of a pool, and batches are gathered out of it."""

    def __init__(self, source: FeedSource, epoch: EpochPlan, room: Room, held: FeedMemory) -> None:
        super().__init__(source, epoch, held.leases, room.slots)
        self._planner = room.planner(epoch)
        self._pool: Any = held.pool

    def step(self, n: int) -> Planned:
        """Plan the next batches."""
        step = self._planner.step(n)
        self.mark_damaged(step.slots, damaged=False)
        return planned(self.source, step, (self._pool,))

    def gather(self, batch: Indices, valid: Bools | None) -> tuple[Array, Lease | None]:
        """Gather a batch out of the pool."""
        slots = batch if valid is None else batch[valid]
        out, lease = self._take_memory()
        out = out[: len(slots)]
        self.source.backend.take(self._pool, slots, out)
        self._planner.free(1)
        return self._shaped(out), lease


class DirectFeed(Feed):
    """Samples go straight into batches; several are begun at once.

    leader: of an array whose samples lie in the same places, so that its plans are those of this one, too.
    """

    def __init__(
        self, source: FeedSource, epoch: EpochPlan, room: Room, leases: Leases | None, leader: "DirectFeed | None"
    ) -> None:
        self._rows = epoch.batch_size
        blocks = room.slots // self._rows
        super().__init__(source, epoch, leases, blocks * self._rows)
        self._planner = room.planner(epoch) if leader is None else leader._planner  # noqa: SLF001 - alike
        self._leader = leader
        self.followers: list[DirectFeed] = []
        self.told = deque[tuple[PlanStep, Any]]()  # by the leader: a step, and the plan of its read
        if leader is not None:
            leader.followers.append(self)
        self._blocks: list[tuple[Array, Lease | None] | None] = [None] * blocks

    def step(self, n: int) -> Planned:
        """Plan the next batches."""
        step, plan = (self._planner.step(n), None) if self._leader is None else self.told.popleft()
        for block in np.flatnonzero(np.bincount(step.slots // self._rows)).tolist():
            if self._blocks[block] is None:
                self._blocks[block] = self._take_block()
        any_block: Any = next(filter(None, self._blocks), None)
        blocks = tuple([(block or any_block)[0] for block in self._blocks if any_block])
        made = planned(self.source, step, blocks, plan)
        for follower in self.followers:
            follower.told.append((step, next((job.plan for job in made.jobs.values()), None)))
        return made

    def _take_block(self) -> tuple[Array, Lease | None]:
        """Memory for a batch, filled up where samples have no elements."""
        memory, lease = self._take_memory()
        if self.source.pad is not None:
            memory[...] = self.source.pad
        return memory, lease

    def gather(self, batch: Indices, valid: Bools | None) -> tuple[Array, Lease | None]:
        """Hand over a block."""
        block = int(batch[0]) // self._rows
        out, lease = self._blocks[block] or self._take_block()  # none where samples have no elements
        self._blocks[block] = None
        if valid is not None:
            self.mark_damaged(batch, damaged=False)
        if self._leader is None:
            self._planner.free(1)
        return self._only(out[: len(batch)], lease, valid)


class KeptFeed(Feed):
    """Samples are taken out of an array in memory, those of several batches at once if they are small."""

    def __init__(self, source: FeedSource, epoch: EpochPlan, leases: Leases | None) -> None:
        super().__init__(source, epoch, leases)
        self._data: Any = source.data
        self._epoch = epoch
        self._at = 0
        self._starts, self._ready = deque[Indices](), deque[tuple[Array, Lease | None]]()

    def capacity(self) -> int:
        """How many batches can be planned now: any number."""
        return 1 << 30

    def step(self, n: int) -> Planned:
        """Plan the next batches."""
        size, lo = self._epoch.batch_size, self._at
        self._at = min(lo + n * size, self._epoch.n)
        starts = self._epoch.boxes(self._epoch.ids(lo, self._at))
        batches = [starts[at : at + size] for at in range(0, len(starts), size)]
        self._starts.extend(batches)
        return Planned({}, batches, 0)

    def gather(self, batch: Indices, valid: Bools | None) -> tuple[Array, Lease | None]:
        """Copy a batch."""
        if not self._ready:
            n = min(batches_together(self._shape, self.source.dtype), len(self._starts))
            starts = [self._starts.popleft() for _ in range(n)]
            out, lease = self._copy(np.concatenate(starts))
            size = len(batch)
            self._ready.extend([(out[at : at + size], lease) for at in range(0, len(out), size)])
        return self._only(*self._ready.popleft(), valid)

    def _copy(self, starts: Indices) -> tuple[Array, Lease | None]:
        out, lease = self._take_memory()
        out = out[: len(starts)]
        source, data = self.source, self._data
        if source.size[1:] == tuple(data.shape[1:]):  # rows, and windows of rows
            rows = starts[:, :1] + np.arange(source.size[0])
            source.backend.take(data, rows.reshape(-1), out.reshape(rows.size, *source.size[1:]))
        else:
            casts = source.stored != source.dtype  # which the backend does
            boxes = source.backend.empty(out.shape, source.stored) if casts else out
            for at, start in enumerate(starts.tolist()):
                boxes[at] = data[tuple(slice(i, i + n) for i, n in zip(start, source.size, strict=True))]
            if casts:
                source.backend.take(boxes, np.arange(len(starts)), out)
        return out, lease


def batches_together(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """How many batches of an array in memory are copied at once. shape: of one."""
    return max(TOGETHER_NBYTES // max(prod(shape) * dtype.itemsize, 1), 1) if not dtype.hasobject else 1


def planned(source: FeedSource, step: PlanStep, blocks: tuple[Array, ...], plan: Any = None) -> Planned:
    """The step as jobs. plan: of the read, if that of another array is the same."""
    if source.reader is None or not len(step.slots):  # samples without elements
        return Planned({}, step.batches, step.opened)
    if plan is not None:
        out = tuple([block.reshape(plan.rows, *plan.shape[1:]) for block in blocks])
        return Planned({source.name: ReadJob(source.reader.io, plan, out)}, step.batches, step.opened)
    return Planned(source.reader.jobs(step.fragments, step.slots, blocks), step.batches, step.opened)
