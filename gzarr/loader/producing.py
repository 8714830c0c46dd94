"""Produces the batches of an epoch: reads under way, batches gathered meanwhile. This runs on the producer's thread.

Theory of operation. An epoch is cut into steps of some batches: one batch at first, so that it comes early, then twice
as many with every step. What a step reads, of all arrays, is one queue of the engine. A reader's thread runs it while
the producer gathers the batches of the step before. On a device, producer and readers have streams of their own; marks
order them.

Rules: nothing here refers to the loader or its iterator. The producer waits for its reads before it ends, however it
ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np

from gzarr.backend import Backend
from gzarr.chunk_io import engine
from gzarr.concurrency import Pool, raise_again
from gzarr.errors import ChunkError
from gzarr.indexing.selection import Indices
from gzarr.loader.batches import BatchItem
from gzarr.loader.feeds import Bools, Feed, Planned, one_by_one
from gzarr.loader.stats import Meter


class Production(NamedTuple):
    """How batches are made.

    Attributes
    ----------
    backend : Backend
        Of the device that they are on.
    named : bool
        Whether a batch is a dict, by the names of the arrays.
    transform : callable or None
        Applied to each batch: here, or on a device by the caller, whose stream then frees the memory of its results.
    skip : bool
        Whether samples of damaged chunks are left out.
    prefetch : int
        Batches that may wait for the caller.
    most : int
        The most batches of one step.
    n_readers : int
        Steps that are read at once.
    meter : Meter
        Counts what happens.
    check : callable
        Raises if the arrays are no longer what they were.
    stream : object
        The stream of the caller; None on the CPU.
    """

    backend: Backend
    named: bool
    transform: Callable[[Any], Any] | None
    skip: bool
    prefetch: int
    most: int
    n_readers: int
    meter: Meter
    check: Callable[[], object]
    stream: object = None


class _Read:
    """A step whose chunks are being read on another thread."""

    def __init__(self, how: Production, feeds: Sequence[Feed], steps: Sequence[Planned], readers: Pool) -> None:
        self.steps = steps
        self._answer: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        # The reader keeps nothing of this object but the queue.
        answer, before = self._answer, how.backend.record()
        wanted = [(feed, step) for feed, step in zip(feeds, steps, strict=True) if step.job is not None]

        def read() -> None:
            mark: object = None
            failure: BaseException | None = None
            try:
                with how.backend.own_stream():
                    how.backend.wait(before)
                    try:
                        _read(wanted, skip=how.skip)
                    finally:
                        mark = how.backend.record()
            except BaseException as error:  # noqa: BLE001 - raised by the producer
                failure = error
            answer.put((mark, failure))

        if wanted:
            context = copy_context()  # a profile, say
            readers.submit(lambda: context.run(read), how.n_readers)
        else:
            answer.put((None, None))

    def wait(self, backend: Backend) -> None:
        """Wait for the end, on the current stream too. Raises: what reading raised."""
        mark, error = self._answer.get()
        backend.wait(mark)
        try:
            raise_again(error)
        finally:
            del error  # no cycle of an error and this frame


class _PendingReads:
    """The steps whose reads have begun: the oldest is the next to be gathered."""

    def __init__(self, how: Production, feeds: Sequence[Feed], n_steps: int) -> None:
        self.reads = deque[_Read]()
        self._how, self._feeds = how, feeds
        self._left, self._n = n_steps, 1
        self._readers = Pool()

    def begin(self, most: int) -> None:
        """Begin reads, as there is room for them. most: how many may be under way."""
        while self._left and len(self.reads) < most:
            n, room = min(self._n, self._left), min(feed.room() for feed in self._feeds)
            if room < n and (self.reads or not room):
                return
            n = min(n, room)
            self._left -= n
            self._n = min(2 * self._n, self._how.most)
            with self._how.meter.stage("plan"):
                steps = [feed.step(n) for feed in self._feeds]
            self._how.meter.add_read(sum(step.opened for step in steps))
            self.reads.append(_Read(self._how, self._feeds, steps, self._readers))

    def end(self) -> None:
        """Wait for all reads, whatever becomes of them."""
        for read in self.reads:
            with suppress(Exception):
                read.wait(self._how.backend)


def produce(how: Production, make: Callable[[], Sequence[Feed]], first: int, n_batches: int) -> Iterator[BatchItem]:
    """Yield the batches of an epoch.

    make: makes the feeds. first: number of the first batch. n_batches: how many there are from it on.
    """
    with how.backend.own_stream():
        how.backend.wait(how.backend.record(how.stream))  # arrays may be the work of the caller's stream
        with how.meter.stage("read"):
            feeds = make()  # which reads small arrays
        under_way = _PendingReads(how, feeds, n_batches)
        try:
            # Nothing disturbs the read for the first batch, where reads keep processors busy.
            reads = how.n_readers + 1
            under_way.begin(reads if how.n_readers > 1 else 1)
            while under_way.reads:
                read = under_way.reads.popleft()
                with how.meter.stage("read"):
                    try:
                        read.wait(how.backend)
                    finally:
                        how.check()  # also where it explains an error
                planned = [step.batches for step in read.steps]
                del read  # which keeps the memory that it was read into
                for batches in zip(*planned, strict=True):
                    made = [_make(how, feeds, batches, first)]
                    if made[0] is not None:
                        yield made.pop()  # type: ignore[misc] # nothing but the caller keeps it
                    first += 1
                    under_way.begin(reads)
        finally:
            under_way.end()
            # Memory of batches that were never handed over is freed in the order of the caller's stream.
            how.backend.wait(how.backend.record(), how.stream)


def _read(wanted: Sequence[tuple[Feed, Planned]], *, skip: bool) -> None:
    jobs = [step.job for _, step in wanted if step.job is not None]
    try:
        engine.read(jobs)
    except ChunkError:
        if not skip:
            raise
        for feed, step in wanted:
            _read_sound(feed, step)


def _read_sound(feed: Feed, step: Planned) -> None:
    """Read chunk by chunk, and note the samples of those that are damaged."""
    job: Any = step.job
    for plan in one_by_one(job.plan):
        try:
            engine.read((job._replace(plan=plan),))
        except ChunkError:
            feed.spoil(plan.slots)


def _make(how: Production, feeds: Sequence[Feed], batches: Sequence[Indices], step: int) -> BatchItem | None:
    """Put a batch together. Returns None if all of its samples are damaged."""
    with how.meter.stage("gather"):
        sound = _all_sound([feed.sound(batch) for feed, batch in zip(feeds, batches, strict=True)])
        made = [feed.gather(batch, sound) for feed, batch in zip(feeds, batches, strict=True)]
    n = len(batches[0])
    if sound is not None:
        n = int(np.count_nonzero(sound))
        how.meter.add_skipped(len(sound) - n)
        if not n:
            return None
    nbytes = sum(int(array.nbytes) for array, _ in made)
    batch: Any = made[0][0]
    if how.named:
        batch = {feed.source.name: array for feed, (array, _) in zip(feeds, made, strict=True)}
    if how.transform is not None and how.stream is None:
        with how.meter.stage("transform"):
            batch = how.transform(batch)
    leases = tuple([lease for _, lease in made if lease is not None])
    return BatchItem(step, batch, how.backend.record(), leases, n, nbytes)


def _all_sound(masks: Sequence[Bools | None]) -> Bools | None:
    some = [mask for mask in masks if mask is not None]
    return np.logical_and.reduce(some) if some else None
