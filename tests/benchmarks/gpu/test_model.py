"""Predictions follow from costs and rates by simple arithmetic; the page shows those of the measured costs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from benchmarks.gpu import model
from benchmarks.gpu.model import Costs, Design, Kernel, Wave

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "benchmarks" / "results"
GPU = model.GPUS[0]
#: 1 MiB that becomes half of it, in eight streams; 1 us under the lock, 160 us of other CPU time, 150 of them floor.
NOW = Design(model.wave_chunks, dict.fromkeys(model.SHOWN, Kernel(40, 0.5, 0.5)))
CHUNK = Costs("plain", "blosc-lz4", 1 << 20, 1 << 19, 8, 1e-6, 160e-6, 150e-6)


def test_the_slowest_resource_sets_the_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "LATENCY_S", 0.0)
    waves = [Wave(0.1, 1.0, 0.2, 0.3)] * 10
    assert model.pipelined(waves, 4) == pytest.approx(0.1 + 10 * 1.0 + 0.2 + 0.3)
    # With one lane nothing overlaps.
    assert model.pipelined(waves, 1) == pytest.approx(10 * 1.6)
    # With two lanes, waves are two at a time.
    assert model.pipelined([Wave(1.0, 1.0, 1.0, 1.0)] * 8, 2) == pytest.approx(4 * 4 + 1)
    assert model.pipelined([], 3) == 0
    # A wave's own wait holds nobody up but its lane.
    monkeypatch.setattr(model, "LATENCY_S", 0.5)
    assert model.pipelined(waves, 4) == pytest.approx(0.1 + 10 * 1.0 + 0.2 + 0.3 + 0.5)
    assert model.pipelined(waves, 1) == pytest.approx(10 * 2.1)


def test_waves_are_those_of_the_code() -> None:
    assert model.waves_of(10, 4) == [4, 4, 2]
    assert sum(model.waves_of(4096, model.wave_chunks(GPU, CHUNK, 4096))) == 4096
    assert model.wave_chunks_before(GPU, CHUNK, 4096) == 561  # of 1 MiB, on a card of 79 GiB
    small = GPU._replace(memory_nbytes=1 << 30)
    assert model.wave_chunks(small, CHUNK, 4096) < model.wave_chunks(GPU, CHUNK, 4096)


def test_rates_are_limited_by_what_is_stated() -> None:
    fast = dataclasses.replace(CHUNK, lock=0.0, other=150e-6)
    found = model.predict(GPU, fast, NOW, 64 << 30, cores=1 << 10)
    assert found.raw == pytest.approx(2 * GPU.link, rel=1e-3)
    assert found.bare == pytest.approx(GPU.decode["blosc-lz4"], rel=1e-3)
    assert found.share == pytest.approx(found.read / found.bare)
    assert 0.9 < found.share < 1
    slow = model.predict(GPU, dataclasses.replace(CHUNK, lock=1e-3), NOW, 1 << 30)
    assert slow.read == pytest.approx((1 << 20) / 1e-3 / 1e9, rel=0.05)
    few = model.predict(GPU, CHUNK, NOW, 1 << 30, cores=1)
    assert few.raw == pytest.approx((1 << 20) / 150e-6 / 1e9, rel=1e-3)
    assert model.predict(GPU, dataclasses.replace(CHUNK, codec="none", streams=0), NOW).bare == float("inf")


def test_few_streams_are_decoded_slowly() -> None:
    one = dataclasses.replace(CHUNK, codec="zstd", streams=1)
    assert model.decode_s(GPU, one, 10) == pytest.approx((1 << 20) / (10 * model.STREAM_RATES["zstd"]) / 1e9)
    assert model.decode_s(GPU, one, 10**6) == pytest.approx((1 << 20) / GPU.decode["zstd"] / 1e9)


def test_placement_is_limited_by_memory_or_by_instructions() -> None:
    issued = model.ISSUE_SHARE * GPU.multiprocessors * 128 * GPU.clock * 1e9
    assert model.placement_rate(GPU, Kernel(1, 0.5, 0.5)) == pytest.approx(model.MEMORY_SHARE * GPU.memory * 1e9 / 2)
    assert model.placement_rate(GPU, Kernel(1e6, 0.5, 0.5)) == pytest.approx(issued * 16 / 1e6)


def test_kernels_are_those_that_load_something() -> None:
    fills, copies = ({"instructions": 40 + n, "load_sectors": n, "store_sectors": 0.6} for n in (0.0, 0.5))
    rows = [{"case": case, **row} for case in model.PLACED.values() for row in (fills, copies)]
    assert model.design_now({"costs": rows}).placing["zstd"] == Kernel(40.5, 0.5, 0.6)


def test_the_goal_is_reached_from_a_size_on() -> None:
    def costs(nbytes: int, lock: float) -> Costs:
        sizes = {"chunk_nbytes": nbytes, "encoded_nbytes": nbytes // 2, "streams": max(8 * nbytes >> 20, 1)}
        return dataclasses.replace(CHUNK, **sizes, lock=lock, other=160e-6 * nbytes / (1 << 20))

    some = [costs(1 << 16, 1e-3), costs(1 << 20, 1e-6), costs(1 << 22, 1e-6)]
    assert model._from_where(some, GPU, NOW, 4 << 30) == "1 MiB"
    assert model._from_where([*some, costs(1 << 24, 1.0)], GPU, NOW, 4 << 30) == "none"


def test_the_page_shows_the_predictions_of_the_measured_costs() -> None:
    page = (ROOT / "docs" / "gpu.md").read_text()
    host, kernels = (json.loads((RESULTS / f"gpu-{name}.json").read_text()) for name in ("host", "kernels"))
    assert model.with_predictions(page, model.tables(host, kernels)) == page, (
        "docs/gpu.md is out of step: run python -m benchmarks.gpu.model"
    )
