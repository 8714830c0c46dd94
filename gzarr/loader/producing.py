"""Produces the batches of an epoch: reads under way, batches gathered meanwhile. This runs on the producer's thread.

Theory of operation. An epoch is cut into steps of some batches: one batch at first, so that it comes early, then twice
as many with every step. What a step reads, of all arrays, is one queue of the engine. A reader's thread runs it while
the producer gathers the batches of the step before. On a device, producer and readers have streams of their own; marks
order them.

Rules: nothing here refers to the loader or its iterator. The producer waits for its reads before it ends, however it
ends.
"""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from gzarr.backend import run_ahead
from gzarr.chunk_io import engine
from gzarr.concurrency import Pool
from gzarr.errors import ChunkError
from gzarr.indexing.selection import Indices
from gzarr.loader.arrays import stored_dtype
from gzarr.loader.batches import BatchItem
from gzarr.loader.feeds import Bools, Feed, Planned
from gzarr.loader.node import NodeTurn, TurnOverError, job_name
from gzarr.loader.node_memory import NodeMemory
from gzarr.loader.order import word_of
from gzarr.loader.setup import Setup
from gzarr.loader.shared_feeds import SharedFeed, fill
from gzarr.loader.sources import nested
from gzarr.loader.state import Begun, places_of
from gzarr.tensors import map_arrays


class _Read(NamedTuple):
    """A step whose chunks are being read on another thread, and a function that waits for it."""

    steps: Sequence[Planned]
    wait: Callable[[], None]


class _Production:
    """The feeds of an epoch, and the steps whose reads have begun: the oldest is the next to be gathered.

    Attributes
    ----------
    step : int
        Number of the next batch.
    """

    def __init__(self, setup: Setup, begun: Begun, first: int, turn: NodeTurn | None) -> None:
        self._setup, self._begun, self._meter, self._turn = setup, begun, begun.meter, turn
        with self._meter.stage("read"):
            self._feeds = setup.feeds(begun, first, turn)  # which reads small arrays
        self.step = first
        self._n_begun = self._n_gathered = 0  # steps
        self._left, self._n = -(-begun.share.n // setup.batch_size) - first, 1
        self._reads = deque[_Read]()
        self._readers = Pool()

    def items(self) -> Iterator[BatchItem]:
        """Yield the batches."""
        # Nothing disturbs the read for the first batch, where reads keep processors busy.
        reads = self._setup.n_readers + 1
        self._begin(reads if reads > 2 else 1)
        while self._reads:
            read = self._reads.popleft()
            with self._meter.stage("read"):
                try:
                    read.wait()
                finally:
                    self._setup.watch.check([name for step in read.steps for name in step.jobs])  # explains errors, too
            planned = [each.batches for each in read.steps]
            del read  # which keeps the memory that it was read into
            for left, batches in zip(reversed(range(len(planned[0]))), zip(*planned, strict=True), strict=True):
                made = [self._make(batches, self.step, left)]
                self.step += 1
                if made[0] is not None:
                    yield made.pop()  # type: ignore[misc] # nothing but the caller keeps it
                self._begin(reads)

    def _begin(self, most: int) -> None:
        """Begin reads, as far as memory reaches. most: how many may be under way."""
        while self._left and len(self._reads) < most:
            n, capacity = min(self._n, self._left), min(feed.capacity() for feed in self._feeds)
            if capacity < n and (self._reads or not capacity):
                return
            n = min(n, capacity)
            self._left -= n
            self._n = min(2 * self._n, self._setup.most)
            with self._meter.stage("plan"):
                steps = [feed.step(n) for feed in self._feeds]
            start = self._start if self._turn is None else self._start_together
            self._reads.append(_Read(steps, start(steps)))

    def _start(self, steps: Sequence[Planned]) -> Callable[[], None]:
        """Begin to read what steps need. Returns: a function that waits for it."""
        setup = self._setup
        self._meter.add("chunks", sum(step.opened for step in steps))
        wanted = [(feed, step) for feed, step in zip(self._feeds, steps, strict=True) if step.jobs]
        if not wanted:
            return lambda: None
        return run_ahead(setup.backend, self._readers, setup.n_readers, partial(_read, wanted, skip=setup.skip))

    def _start_together(self, steps: Sequence[Planned]) -> Callable[[], None]:
        """Begin to read what ranks need, together with them. Returns: a function that waits for it."""
        setup, turn, number, counts = self._setup, self._turn, self._n_begun, list[int]()
        self._n_begun += 1
        shared = [(feed, step) for feed, step in zip(self._feeds, steps, strict=True) if isinstance(feed, SharedFeed)]

        def read() -> None:
            counts.append(fill(turn, number, shared))  # type: ignore[arg-type] # there is one

        wait = run_ahead(setup.backend.host, self._readers, setup.n_readers, read)

        def wait_and_count() -> None:
            wait()
            self._meter.add("chunks", sum(counts))

        return wait_and_count

    def _gathered(self, left: int) -> None:
        """Let other ranks have the slots of a step, once no batch is left in them. Raises: TurnOverError."""
        if self._turn is not None and left:
            self._turn.check()
        elif self._turn is not None:
            self._turn.release(self._n_gathered)
            self._n_gathered += 1

    def _make(self, batches: Sequence[Indices], step: int, left: int) -> BatchItem | None:
        """Put a batch together. Returns None if all of its samples are damaged. left: batches of the read after it."""
        setup, meter, pairs = self._setup, self._meter, list(zip(self._feeds, batches, strict=True))
        with meter.stage("gather"):
            valid = _all_valid([feed.valid(batch) for feed, batch in pairs])
            made = [feed.gather(batch, valid) for feed, batch in pairs]
        self._gathered(left)  # before transform: the batch of a rank that was expelled may be of any samples
        n = len(batches[0])
        if valid is not None:
            n = int(np.count_nonzero(valid))
            meter.add("skipped", len(valid) - n)
            if not n:
                return None
        nbytes = sum(int(array.nbytes) for array, _ in made)
        batch: Any = made[0][0]
        if setup.names is not None:
            arrays = {feed.source.name: array for feed, (array, _) in zip(self._feeds, made, strict=True)}
            batch = nested(arrays, setup.names, setup.makers, packed=not setup.skip)
        if setup.transform is not None and self._begun.stream is None:
            with meter.stage("transform"):
                batch = setup.transform(batch)
        if setup.target is not setup.backend:
            batch = map_arrays(self._upload, batch)
        leases = tuple([lease for _, lease in made if lease is not None])
        return BatchItem(step, batch, setup.target.record(), leases, n, nbytes)

    def _upload(self, item: Any) -> Any:
        stays = not isinstance(item, np.ndarray) or isinstance(item, np.ma.MaskedArray)  # a device has no masks
        return item if stays else self._setup.target.upload(item, self._begun.to_stream)

    def end(self) -> None:
        """Wait for all reads, whatever becomes of them."""
        if self._turn is not None:
            self._turn.stop()
        for read in self._reads:
            with suppress(Exception):
                read.wait()


def produce(setup: Setup, begun: Begun, first: int) -> Iterator[BatchItem]:
    """Yield the batches of an epoch from one on: to be called by the producer's thread."""
    backend, uploads = setup.backend, setup.target is not setup.backend
    with backend.own_stream(), setup.target.own_stream() if uploads else nullcontext():
        backend.wait(backend.record(begun.stream))  # arrays may be the work of the caller's stream
        try:
            step = yield from _together(setup, begun, first)
            if step is not None:
                alone = setup if setup.local is None else setup.alone()
                yield from _items(_Production(alone, begun, step, None))
        finally:
            # Memory of batches that were never handed over is freed in the order of the caller's stream.
            backend.wait(backend.record(), begun.stream)
            if uploads:
                setup.target.wait(setup.target.record(), begun.to_stream)


def _together(setup: Setup, begun: Begun, first: int) -> Generator[BatchItem, None, int | None]:
    """Yield batches that are read together with other ranks. Returns: the first that is not; None at the end."""
    step = first
    with suppress(TurnOverError):
        turn = _turn_of(setup, begun, first)
        if turn is None:
            return first
        try:
            production = _Production(setup, begun, first, turn)
            try:
                yield from _items(production)
                return None
            finally:
                step = production.step
        finally:
            turn.end()
    return step


def _turn_of(setup: Setup, begun: Begun, first: int) -> NodeTurn | None:
    """Begin an iteration together with the other ranks of the host. Raises: TurnOverError if that cannot be."""
    if setup.local is None:
        return None
    memory: NodeMemory | None = setup.reused.get(None)
    if memory is None or memory.pid != os.getpid():
        given = setup.seed, setup.batch_size, setup.world_size, setup.drop_last, setup.memory, setup.rooms, setup.most
        places = [places_of(setup.arrays[name]) for name in setup.rooms]
        name = repr((job_name(), setup.identity(anew=False), given, places, setup.pads))
        slots = {}
        for each, room in setup.rooms.items():
            array = setup.arrays[each]
            dtype = stored_dtype(array) if room.mode == "pool" else setup.dtypes[each]
            slots[each] = (room.slots, *setup.samples.box(tuple(array.shape))), dtype
        ahead = min(room.ahead for room in setup.rooms.values())
        window = max(min(setup.n_readers + 2, ahead // setup.most), 1)
        try:
            memory = setup.reused[None] = NodeMemory(setup.local, name, slots, window)
        except OSError as error:
            if not setup.local.asked:
                return None
            raise OSError(
                f"share: ranks cannot share memory, as /dev/shm, /proc or memory does not allow it ({error}); "
                "mend that, or use share='none'"
            ) from error
    key = word_of(begun.epoch, repr(begun.share._replace(rank=0)), first) >> 1
    return NodeTurn(memory, key, begun.meter)


def _items(production: _Production) -> Iterator[BatchItem]:
    try:
        yield from production.items()
    finally:
        production.end()


def _read(wanted: Sequence[tuple[Feed, Planned]], *, skip: bool) -> None:
    try:
        engine.read([job for _, step in wanted for job in step.jobs.values()])
    except ChunkError:
        if not skip:
            raise
        for feed, step in wanted:
            _read_valid(feed, step)


def _read_valid(feed: Feed, step: Planned) -> None:
    """Read chunk by chunk, and note the samples of those that are damaged."""
    for job in step.jobs.values():
        for row in range(job.plan.nparts):
            plan = job.plan.some(row, row + 1)  # type: ignore[union-attr] # of many boxes
            try:
                engine.read((job._replace(plan=plan),))
            except ChunkError:
                feed.mark_damaged(plan.slots)


def _all_valid(masks: Sequence[Bools | None]) -> Bools | None:
    some = [mask for mask in masks if mask is not None]
    return np.logical_and.reduce(some) if some else None
