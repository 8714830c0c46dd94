"""Counts what an epoch of a loader has cost, and where the producer of its batches and the caller have waited.

Rules: a `Meter` belongs to one iteration, so the producer of an earlier one cannot write into it. Each counter has one
writer, the producer's thread or the caller's, so no lock is needed; anybody may take a snapshot.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from gzarr.display.info import Report, size_text
from gzarr.profiling import recorder

#: What the producer does, one after the other. Only "stall" is of the caller's thread.
_PRODUCING = ("plan", "read", "gather", "transform")
_STAGES = (*_PRODUCING, "caller", "stall")
_COUNTS = ("batches", "samples", "nbytes", "skipped", "chunks")
#: Share of the epoch that the caller must have waited before a stage of the producer is said to limit it.
_NOTICED = 0.02


@dataclass(frozen=True, slots=True)
class LoaderStats:
    """What one epoch of a loader has cost so far. It prints as a table.

    Attributes
    ----------
    epoch : int
        Number of the epoch.
    batches, samples : int
        Handed out.
    nbytes : int
        Size of the batches handed out.
    skipped : int
        Samples left out because their chunks are damaged (``on_error="skip"``).
    chunks : int
        Chunks that were decoded, each as often as that happened. Reading is ahead of what was handed out.
    decodes : float
        `chunks` over the number of chunks of the arrays: how often each is decoded in an epoch.
    elapsed_s : float
        Seconds from the start of the iteration until the last batch was handed out, or the wait for its end was over.
    plan_s, read_s, gather_s, transform_s : float
        Seconds in which the producer of the batches chose what to read, waited for reads, put batches together, and ran
        ``transform``. On a GPU, the last two are only what it takes to launch the work.
    caller_s : float
        Seconds in which batches were ready and waited for the caller.
    stall_s : float
        Seconds in which the caller waited for a batch.
    """

    epoch: int
    batches: int
    samples: int
    nbytes: int
    skipped: int
    chunks: int
    decodes: float
    elapsed_s: float
    plan_s: float
    read_s: float
    gather_s: float
    transform_s: float
    caller_s: float
    stall_s: float

    @property
    def samples_per_s(self) -> float:
        """Samples handed out each second."""
        return self.samples / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def nbytes_per_s(self) -> float:
        """Bytes handed out each second."""
        return self.nbytes / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def limited_by(self) -> str:
        """The stage that limits the epoch: "plan", "read", "gather" or "transform"; "caller" if it hardly waits."""
        if self.stall_s <= _NOTICED * self.elapsed_s:
            return "caller"
        return max(_PRODUCING, key=lambda stage: float(getattr(self, stage + "_s")))

    def _report(self) -> Report:
        producer = ", ".join(f"{stage} {getattr(self, stage + '_s'):.2f} s" for stage in _PRODUCING)
        rows = [
            ("Epoch", f"{self.epoch}: {self.samples:,} samples in {self.batches:,} batches"),
            ("Rate", f"{self.samples_per_s:,.0f} samples/s, {size_text(int(self.nbytes_per_s))}/s"),
            ("Decodes a chunk", f"{self.decodes:.2f} ({self.chunks:,} decoded)"),
            ("Caller waited", f"{self.stall_s:.2f} s of {self.elapsed_s:.2f} s; limited by: {self.limited_by}"),
            ("Producer", f"{producer}, waited for the caller {self.caller_s:.2f} s"),
        ]
        return Report(rows + [("Skipped", f"{self.skipped:,} samples of damaged chunks")] * (self.skipped > 0))

    def __str__(self) -> str:
        return repr(self._report())

    def _repr_html_(self) -> str:
        return self._report()._repr_html_()


class Meter:
    """The counters of one iteration.

    Parameters
    ----------
    epoch : int
        Its number.
    n_chunks : float
        Chunks of the arrays that are read, those of one rank.
    clock : callable
        Seconds.

    Attributes
    ----------
    seconds : dict of str to float
        Seconds by stage.
    """

    def __init__(self, epoch: int, n_chunks: float, clock: Callable[[], float] = perf_counter) -> None:
        self.seconds = dict.fromkeys(_STAGES, 0.0)
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._epoch, self._n_chunks, self._clock = epoch, n_chunks, clock
        self._start = self._last = clock()
        self._waits_since: float | None = None

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the seconds of a ``with`` statement. name: one of the stages."""
        start = self._clock()
        if name == "stall":
            self._waits_since = start
        try:
            yield
        finally:
            now = self._clock()
            self.seconds[name] += now - start
            if recorder.listener is not None:
                recorder.listener.loader(name, now - start)
            if name == "stall":
                self._last, self._waits_since = now, None

    def waited_s(self) -> float:
        """For how long the caller has been waiting for a batch, on any thread."""
        since = self._waits_since
        return 0.0 if since is None else self._clock() - since

    def add(self, name: str, n: int) -> None:
        """Count chunks that are decoded, or samples that are left out ("skipped"): the producer's."""
        self._counts[name] += n

    def add_batch(self, samples: int, nbytes: int) -> None:
        """Count a batch that is handed out: the caller's."""
        for name, n in (("batches", 1), ("samples", samples), ("nbytes", nbytes)):
            self._counts[name] += n
        self._last = self._clock()

    def stats(self) -> LoaderStats:
        """Take a snapshot, on any thread."""
        seconds: dict[str, Any] = {f"{name}_s": s for name, s in self.seconds.items()}
        decodes = self._counts["chunks"] / self._n_chunks if self._n_chunks else 0.0
        return LoaderStats(self._epoch, decodes=decodes, elapsed_s=self._last - self._start, **self._counts, **seconds)
