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
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from gzarr.backend import run_ahead
from gzarr.chunk_io import engine
from gzarr.concurrency import Pool
from gzarr.errors import ChunkError
from gzarr.indexing.selection import Indices
from gzarr.loader.batches import BatchItem
from gzarr.loader.feeds import Bools, Feed, Planned, one_by_one
from gzarr.loader.setup import Begun, Setup
from gzarr.loader.sources import nested


class _Read(NamedTuple):
    """A step whose chunks are being read on another thread, and a function that waits for it."""

    steps: Sequence[Planned]
    wait: Callable[[], None]


class _Production:
    """The feeds of an epoch, and the steps whose reads have begun: the oldest is the next to be gathered."""

    def __init__(self, setup: Setup, begun: Begun, first: int) -> None:
        self._setup, self._begun, self._meter = setup, begun, begun.meter
        with self._meter.stage("read"):
            self._feeds = setup.feeds(begun, first)  # which reads small arrays
        self._first = first
        self._left, self._n = -(-begun.share.n // setup.batch_size) - first, 1
        self._reads = deque[_Read]()
        self._readers = Pool()

    def items(self) -> Iterator[BatchItem]:
        """Yield the batches."""
        # Nothing disturbs the read for the first batch, where reads keep processors busy.
        reads, step = self._setup.n_readers + 1, self._first
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
            for batches in zip(*planned, strict=True):
                made = [self._make(batches, step)]
                if made[0] is not None:
                    yield made.pop()  # type: ignore[misc] # nothing but the caller keeps it
                step += 1
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
            self._meter.add("chunks", sum(step.opened for step in steps))
            self._reads.append(_Read(steps, self._start(steps)))

    def _start(self, steps: Sequence[Planned]) -> Callable[[], None]:
        """Begin to read what steps need. Returns: a function that waits for it."""
        setup = self._setup
        wanted = [(feed, step) for feed, step in zip(self._feeds, steps, strict=True) if step.jobs]
        if not wanted:
            return lambda: None
        return run_ahead(setup.backend, self._readers, setup.n_readers, partial(_read, wanted, skip=setup.skip))

    def _make(self, batches: Sequence[Indices], step: int) -> BatchItem | None:
        """Put a batch together. Returns None if all of its samples are damaged."""
        setup, meter, pairs = self._setup, self._meter, list(zip(self._feeds, batches, strict=True))
        with meter.stage("gather"):
            valid = _all_valid([feed.valid(batch) for feed, batch in pairs])
            made = [feed.gather(batch, valid) for feed, batch in pairs]
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
            batch = nested(arrays, setup.names, setup.sparse)
        if setup.transform is not None and self._begun.stream is None:
            with meter.stage("transform"):
                batch = setup.transform(batch)
        leases = tuple([lease for _, lease in made if lease is not None])
        return BatchItem(step, batch, setup.backend.record(), leases, n, nbytes)

    def end(self) -> None:
        """Wait for all reads, whatever becomes of them."""
        for read in self._reads:
            with suppress(Exception):
                read.wait()


def produce(setup: Setup, begun: Begun, first: int) -> Iterator[BatchItem]:
    """Yield the batches of an epoch from one on: to be called by the producer's thread."""
    backend = setup.backend
    with backend.own_stream():
        backend.wait(backend.record(begun.stream))  # arrays may be the work of the caller's stream
        production = _Production(setup, begun, first)
        try:
            yield from production.items()
        finally:
            production.end()
            # Memory of batches that were never handed over is freed in the order of the caller's stream.
            backend.wait(backend.record(), begun.stream)


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
        for plan in one_by_one(job.plan):  # type: ignore[arg-type] # of many boxes
            try:
                engine.read((job._replace(plan=plan),))
            except ChunkError:
                feed.mark_damaged(plan.slots)


def _all_valid(masks: Sequence[Bools | None]) -> Bools | None:
    some = [mask for mask in masks if mask is not None]
    return np.logical_and.reduce(some) if some else None
