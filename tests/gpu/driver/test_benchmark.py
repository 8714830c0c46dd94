"""The questions and the benchmark that `make gpu-check` puts to hardware run through. Their figures mean nothing."""

from __future__ import annotations

import collections
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import cases, questions
from benchmarks.gpu import run as benchmark
from benchmarks.gpu.loading import loader_cases
from benchmarks.gpu.peers import PEERS
from benchmarks.gpu.pyramids import pyramid_cases
from benchmarks.gpu.streams import Gpu, Tables
from gzarr.gpu.device import nvcomp_tables


@pytest.fixture
def gpu(cuda: Any) -> Gpu:
    return Gpu(cuda.CudaDevice(), cuda.cupy, cuda.nvcomp)


def test_questions_are_asked_rightly(gpu: Gpu) -> None:
    """The driver decodes with host libraries: their answers to sound streams are known."""
    rows = questions.temp_sizes(gpu)["rows"]
    assert {row[0] for row in rows} == set(nvcomp_tables.CODECS)
    assert all(asked == formula for *_, asked, formula in rows)
    frames = questions.zstd_frames(gpu)
    assert frames["plain"] == {"statuses": [0], "sizes": [65536], "right": [True], "wrote_past_end": False}
    assert frames["checksum"]["right"] == frames["no content size"]["right"] == [True]
    assert frames["wrong checksum"]["statuses"] == [12]
    assert questions.dummy_streams(gpu)["zstd, room 1"]["right"] == [True] * 3
    for codec in ("lz4", "zstd", "deflate"):
        assert questions.damaged(codec)(gpu)["works_afterwards"]
        assert questions.truncated(codec)(gpu)["works_afterwards"]
    tables = Tables(gpu, "deflate", [questions.bare("deflate", questions.TEXT)] * 3, [1 << 16] * 3, shift=4)
    tables.decode(gpu)
    assert tables.result().outputs == [questions.TEXT] * 3


def test_the_benchmark_runs_through(gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some = [
        cases.Case("blosc-lz4", 4 << 10, "sharded", 256, full=True),
        cases.Case("zstd", 4 << 10, "plain", 256),
        cases.StreamsCase("lz4", 70),
        loader_cases(small=True)[1],
        pyramid_cases(small=True)[0],
    ]
    monkeypatch.setattr(benchmark, "cases", lambda *, small: some)
    result = json.loads(benchmark.run(tmp_path, "cuda", 60, small=True).read_text())
    assert "made of software" in result["machine"]["gpu"]
    own = [row for row in result["rows"] if row["contender"] == "gzarr"]
    assert collections.Counter(row["table"] for row in own) == {
        "resident": 2,
        "streams": 1,
        "file": 5 + 3,
        "write": 2,
        "memory": 2,
        "loader": 1,
        "pyramid": 1,
    }
    assert all(row["bare_nvcomp_seconds"] > 0 for row in own if row["table"] in ("resident", "streams"))
    assert all(0 < row["peak_nbytes"] <= row["cap_nbytes"] for row in own if row["table"] == "memory")
    assert sum("small reads" in row["contender"] for row in result["rows"]) == 3 + 2
    assert {row["contender"] for row in result["failed"]} <= set(PEERS) - {"gzarr on the CPU, upload"}
