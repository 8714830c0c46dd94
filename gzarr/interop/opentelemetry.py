"""Spans and metrics of OpenTelemetry of what gzarr does: reads, writes, the loader's stages, long operations.

Theory of operation. The stages that `gzarr.profile` records are handed to OpenTelemetry as they end, and nothing is
kept. Until `instrument` is called, a read or a write looks at one name of a module more.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from gzarr.profiling import recorder as recording
from gzarr.profiling.recorder import Recorder
from gzarr.storage.extras import require

__all__ = ["instrument"]


def instrument(tracer_provider: Any = None, meter_provider: Any = None) -> Callable[[], None]:
    """Send spans and metrics of this process to OpenTelemetry from now on.

    Spans are ``gzarr.read`` and ``gzarr.write``, with a ``gzarr.batch`` for each batch of chunks, on whatever thread,
    and ``gzarr.run`` of long operations on engines. Metrics are ``gzarr.stage.duration`` (s, by stage: see
    `gzarr.profile`), ``gzarr.bytes`` and ``gzarr.chunks`` (by stage), ``gzarr.loader.duration`` (s, by stage) and
    ``gzarr.run.blocks``. Workers of engines need a call of their own.

    Parameters
    ----------
    tracer_provider, meter_provider : optional
        By default the global ones, which the environment and ``opentelemetry-instrument`` configure.

    Returns
    -------
    callable
        Ends it.

    Examples
    --------
    >>> import gzarr.interop.opentelemetry
    >>> stop = gzarr.interop.opentelemetry.instrument()
    >>> stop()
    """
    trace = require("opentelemetry.trace", "opentelemetry", "gzarr.interop.opentelemetry")
    metrics = require("opentelemetry.metrics", "opentelemetry", "gzarr.interop.opentelemetry")
    tracer = trace.get_tracer("gzarr", tracer_provider=tracer_provider)
    recording.listener = _OpenTelemetryRecorder(tracer, metrics.get_meter("gzarr", meter_provider=meter_provider))
    return _stop


def _stop() -> None:
    recording.listener = None


class _OpenTelemetryRecorder(Recorder):
    """A recorder that keeps nothing."""

    def __init__(self, tracer: Any, meter: Any) -> None:
        super().__init__()
        self._tracer, self._context = tracer, require("opentelemetry.context", "opentelemetry", "tracing")
        self._seconds = meter.create_histogram("gzarr.stage.duration", "s")
        self._loader = meter.create_histogram("gzarr.loader.duration", "s")
        self._counters = {name: meter.create_counter(f"gzarr.{name}") for name in ("bytes", "chunks", "run.blocks")}

    def span(self, name: str, **attributes: Any) -> AbstractContextManager[Any]:
        """A span around what happens in a ``with`` statement."""
        return self._tracer.start_as_current_span(name, attributes=attributes)

    def carry(self, first: str, task: Callable[[Any], object], marker: Any) -> Callable[[Any], None]:
        """A task in a span of its own, within that of its read or write."""
        carried, context = super().carry(first, task, marker), self._context.get_current()

        def traced(batch: Any) -> None:
            with self._tracer.start_as_current_span("gzarr.batch", context=context, attributes={"stage": first}):
                carried(batch)

        return traced

    def count(self, stage: str, chunks: int, bytes_in: int, bytes_out: int) -> None:
        """Add to what went through a stage."""
        self._counters["chunks"].add(chunks, {"stage": stage})
        self._counters["bytes"].add(max(bytes_in, bytes_out), {"stage": stage})

    def call(self, stage: str, batch: int) -> None:
        """Nothing: durations are counted."""

    def note(self, row: tuple[str, int, float, float], marks: Any) -> None:
        """Record how long a stage took."""
        self._seconds.record(row[3] - row[2], {"stage": row[0]})

    def loader(self, stage: str, seconds: float) -> None:
        """Record how long a stage of a loader took."""
        self._loader.record(seconds, {"stage": stage})

    def ran(self, span: Any, report: Any) -> None:
        """Say how a long operation went."""
        span.set_attributes({"engine": report.engine, "units": report.n_units, "repeated": len(report.repeated)})
        self._counters["run.blocks"].add(report.n_blocks, {"engine": report.engine})
