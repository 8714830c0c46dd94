"""How the samples of one array get into batches: through a pool, straight into them, or out of memory.

A feed plans what is read for some batches (`Feed.step`). Once that is read, it puts them together one by one
(`Feed.gather`), after which it may use the memory again. `gzarr.loader.look_ahead` decides what is read when; this
module has the memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Array, Backend
from gzarr.chunk_io.array_io import ArrayIO
from gzarr.chunk_io.waves import ReadJob
from gzarr.indexing.copies import CopyPlan, make_copies
from gzarr.indexing.selection import Indices
from gzarr.loader.leases import Lease, Leases
from gzarr.loader.look_ahead import DirectPlanner, EpochPlan, PlanStep, PoolPlanner
from gzarr.loader.pool import Room

Bools: TypeAlias = NDArray[np.bool_]


class FeedSource(NamedTuple):
    """One array of a loader.

    Attributes
    ----------
    name : str
        Its name in a batch.
    backend : Backend
        Of the device that batches are on.
    io : ArrayIO or None
        How it is read; None for an array in memory.
    data : Array or None
        All of it, for one that is kept in memory.
    size : tuple of int
        Elements of a sample along each axis of the array.
    sample_shape : tuple of int
        Shape of a sample in a batch.
    stored, dtype : numpy.dtype
        Of the array, and of batches.
    """

    name: str
    backend: Backend
    io: ArrayIO | None
    data: Array | None
    size: tuple[int, ...]
    sample_shape: tuple[int, ...]
    stored: np.dtype[Any]
    dtype: np.dtype[Any]

    @property
    def slot_nbytes(self) -> int:
        """Size of a sample in a pool."""
        return math.prod(self.size) * self.stored.itemsize

    @property
    def sample_nbytes(self) -> int:
        """Size of a sample in a batch."""
        return math.prod(self.size) * self.dtype.itemsize


class Planned(NamedTuple):
    """A step of a feed.

    Attributes
    ----------
    job : ReadJob or None
        What has to be read, with a `CopyPlan`; None for nothing.
    batches : sequence
        What stands for each batch afterwards; for the feed only.
    opened : int
        Number of chunks that are read.
    """

    job: ReadJob | None
    batches: Sequence[Indices]
    opened: int


class Feed(Protocol):
    """The way of one array into batches. Batches are gathered in the order in which they were planned."""

    source: FeedSource

    def room(self) -> int:
        """How many batches can be planned now."""
        ...

    def step(self, n: int) -> Planned:
        """Plan the next batches. n: at most `room`; fewer are planned at the end of the epoch."""
        ...

    def sound(self, batch: Indices) -> Bools | None:
        """Which samples of a batch are undamaged; None for all."""
        ...

    def spoil(self, slots: Indices) -> None:
        """Note that the samples in some slots are damaged."""
        ...

    def gather(self, batch: Indices, sound: Bools | None) -> tuple[Array, Lease | None]:
        """Return a batch, or the samples of it that are sound, and free its memory in the feed."""
        ...


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


class PoolFeed:
    """Samples go into the slots of a pool, and batches are gathered out of it."""

    def __init__(self, source: FeedSource, epoch: EpochPlan, room: Room, held: FeedMemory) -> None:
        self.source = source
        self._planner = PoolPlanner(epoch, room.slots, room.ahead, room.horizon)
        self._pool: Any = held.pool
        self._outs = _Outs(source, epoch.batch_size, held.leases)
        self._damage = _Damage(room.slots)

    def room(self) -> int:
        """How many batches can be planned now."""
        return self._planner.room()

    def step(self, n: int) -> Planned:
        """Plan the next batches."""
        step = self._planner.step(n)
        self._damage.refill(step.slots)
        return _planned(self.source, step, (self._pool,))

    def sound(self, batch: Indices) -> Bools | None:
        """Which samples of a batch are undamaged."""
        return self._damage.sound(batch)

    def spoil(self, slots: Indices) -> None:
        """Note damaged samples."""
        self._damage.spoil(slots)

    def gather(self, batch: Indices, sound: Bools | None) -> tuple[Array, Lease | None]:
        """Gather a batch out of the pool."""
        slots = batch if sound is None else batch[sound]
        out, lease = self._outs.take()
        out = out[: len(slots)]
        self.source.backend.take(self._pool, slots, out)
        self._planner.free(1)
        return self._outs.shaped(out), lease


class DirectFeed:
    """Samples go straight into batches; several are begun at once."""

    def __init__(self, source: FeedSource, epoch: EpochPlan, room: Room, leases: Leases | None) -> None:
        blocks = room.slots // epoch.batch_size
        self.source = source
        self._planner = DirectPlanner(epoch, blocks)
        self._rows = epoch.batch_size
        self._outs = _Outs(source, epoch.batch_size, leases)
        self._blocks: list[tuple[Array, Lease | None] | None] = [None] * blocks
        self._damage = _Damage(blocks * self._rows)

    def room(self) -> int:
        """How many batches can be planned now."""
        return self._planner.room()

    def step(self, n: int) -> Planned:
        """Plan the next batches."""
        step = self._planner.step(n)
        for block in np.unique(step.slots // self._rows).tolist():
            if self._blocks[block] is None:
                self._blocks[block] = self._outs.take()
        if not len(step.slots):
            return Planned(None, step.batches, 0)
        any_block: Any = self._blocks[int(step.slots[0]) // self._rows]
        return _planned(self.source, step, tuple([(block or any_block)[0] for block in self._blocks]))

    def sound(self, batch: Indices) -> Bools | None:
        """Which samples of a batch are undamaged."""
        return self._damage.sound(batch)

    def spoil(self, slots: Indices) -> None:
        """Note damaged samples."""
        self._damage.spoil(slots)

    def gather(self, batch: Indices, sound: Bools | None) -> tuple[Array, Lease | None]:
        """Hand over a block."""
        block = int(batch[0]) // self._rows
        held = self._blocks[block] or self._outs.take()  # none where samples have no elements
        self._blocks[block] = None
        self._damage.refill(batch)
        self._planner.free(1)
        if sound is not None:
            which, whole = np.flatnonzero(sound), held[0]
            held = self._outs.take()
            self.source.backend.take(whole, which, held[0][: len(which)])
            return self._outs.shaped(held[0][: len(which)]), held[1]
        return self._outs.shaped(held[0][: len(batch)]), held[1]


class KeptFeed:
    """Samples are taken out of an array in memory."""

    def __init__(self, source: FeedSource, epoch: EpochPlan, leases: Leases | None) -> None:
        self.source = source
        self._data: Any = source.data
        self._epoch = epoch
        self._at = 0
        self._outs = _Outs(source, epoch.batch_size, leases)

    def room(self) -> int:
        """How many batches can be planned now: any number."""
        return 1 << 30

    def step(self, n: int) -> Planned:
        """Plan the next batches."""
        size, lo = self._epoch.batch_size, self._at
        self._at = min(lo + n * size, self._epoch.n)
        ids = self._epoch.ids(lo, self._at)
        return Planned(None, np.split(ids, range(size, len(ids), size)) if len(ids) else (), 0)

    def sound(self, batch: Indices) -> Bools | None:
        """All samples are undamaged."""
        return None

    def spoil(self, slots: Indices) -> None:
        """Do nothing: nothing is read."""

    def gather(self, batch: Indices, sound: Bools | None) -> tuple[Array, Lease | None]:
        """Copy a batch."""
        starts = self._epoch.boxes(batch if sound is None else batch[sound])
        out, lease = self._outs.take()
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
        return self._outs.shaped(out), lease


class _Outs:
    """Memory for the batches of one array."""

    def __init__(self, source: FeedSource, batch_size: int, leases: Leases | None) -> None:
        self._source, self._leases = source, leases
        self._shape = batch_size, *source.size

    def take(self) -> tuple[Array, Lease | None]:
        if self._leases is None:
            return self._source.backend.empty(self._shape, self._source.dtype), None
        return self._leases.take()

    def shaped(self, out: Array) -> Array:
        """A batch as the caller sees it."""
        return out.reshape(len(out), *self._source.sample_shape)


class _Damage:
    """Which slots hold damaged samples. It takes no memory before there is one."""

    def __init__(self, slots: int) -> None:
        self._n = slots
        self._bad: Bools | None = None

    def spoil(self, slots: Indices) -> None:
        if self._bad is None:
            self._bad = np.zeros(self._n, np.bool_)
        self._bad[slots] = True

    def refill(self, slots: Indices) -> None:
        if self._bad is not None:
            self._bad[slots] = False

    def sound(self, slots: Indices) -> Bools | None:
        if self._bad is None or not self._bad[slots].any():
            return None
        sound: Bools = ~self._bad[slots]
        return sound


def _planned(source: FeedSource, step: PlanStep, blocks: tuple[Array, ...]) -> Planned:
    """The step as a job: `make_copies` for an array that is read."""
    if source.io is None or not len(step.slots):
        return Planned(None, step.batches, step.opened)
    layout = source.io.layout
    shape = (len(blocks) * len(blocks[0]), *source.size)
    plan = make_copies(step.fragments, step.slots, shape, len(blocks[0]), layout.grid, layout.objects)
    return Planned(ReadJob(source.io, plan, blocks), step.batches, step.opened)


def one_by_one(plan: CopyPlan) -> list[tuple[CopyPlan, Indices]]:
    """A plan chunk by chunk, with the slots that each chunk has a part in."""
    plans = []
    for row in range(plan.nparts):
        copies = slice(*plan.firsts[row : row + 2].tolist())
        firsts = np.array([0, copies.stop - copies.start])
        some = plan._replace(
            coords=plan.coords[row : row + 1],
            firsts=firsts,
            inside=plan.inside[copies],
            counts=plan.counts[copies],
            place=plan.place[copies],
            slots=plan.slots[copies],
        )
        plans.append((some, some.slots))
    return plans
