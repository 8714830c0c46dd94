"""What OpenTelemetry's own SDK gets of reads, writes, loaders and long operations; and nothing afterwards."""

from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.interop.opentelemetry import instrument

pytest.importorskip("opentelemetry.sdk", reason="OpenTelemetry's SDK is not installed: pip install opentelemetry-sdk")
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


def test_spans_and_metrics(tmp_path: Any) -> None:
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers, meters = TracerProvider(), MeterProvider([reader])
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    z = gzarr.array(np.arange(6000).reshape(60, 100), store=tmp_path / "a", chunks=(10, 10))
    stop = instrument(tracers, meters)
    try:
        z[...]
        z[:10, :10] = 1
        list(gzarr.Loader(z, batch_size=20))
        gzarr.transfer(z, str(tmp_path / "b"), chunks=(20, 20), on=1)
    finally:
        stop()
    found = spans.get_finished_spans()
    z[...]
    assert spans.get_finished_spans() == found
    by_name = {span.name: span for span in found}
    assert by_name.keys() == {"gzarr.read", "gzarr.write", "gzarr.batch", "gzarr.run"}
    parents = {span.context.span_id: span.name for span in found}
    assert {parents[span.parent.span_id] for span in found if span.name == "gzarr.batch" and span.parent} >= {
        "gzarr.read"
    }
    assert by_name["gzarr.run"].attributes["engine"] == "Processes"
    data: Any = reader.get_metrics_data()
    metrics = {m.name: m.data.data_points for m in data.resource_metrics[0].scope_metrics[0].metrics}
    assert metrics.keys() == {
        f"gzarr.{n}" for n in ("stage.duration", "bytes", "chunks", "loader.duration", "run.blocks")
    }
    assert sum(point.value for point in metrics["gzarr.bytes"]) >= z.nbytes
    assert {point.attributes["stage"] for point in metrics["gzarr.loader.duration"]} >= {"read", "gather"}
    assert metrics["gzarr.run.blocks"][0].value == 1
