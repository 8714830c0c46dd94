"""The questions and the benchmark that `make gpu-check` puts to hardware run through. Their figures mean nothing."""

import collections
import json
import math
from pathlib import Path
from typing import Any

import cupy
import pytest

from benchmarks.gpu import cases, deciding, questions, reads, table
from benchmarks.gpu import run as benchmark
from benchmarks.gpu.loading import loader_cases
from benchmarks.gpu.peers import PEERS
from benchmarks.gpu.pyramids import pyramid_cases
from benchmarks.gpu.streams import Gpu, Tables
from gzarr.gpu.device import nvcomp_tables
from tests.gpu.driver import driver


@pytest.fixture
def gpu(cuda: Any) -> Gpu:
    return Gpu(cuda.CudaDevice(), cuda.cupy, cuda.nvcomp)


def test_every_question_is_answered(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver decodes with host libraries: their answers to sound streams are known."""
    monkeypatch.setattr(deciding, "BATCH_NBYTES", deciding.BATCH_NBYTES[:2])
    monkeypatch.setattr(reads, "NCHUNKS", (1, 8))
    answers: dict[str, Any] = {}
    failed: dict[str, str] = {}
    for name, question in questions.QUESTIONS.items():
        try:
            answers[name] = json.loads(json.dumps(question(gpu)))
        except cupy.cuda.runtime.CUDARuntimeError:
            failed[name] = driver.faults()
    assert list(failed) == ["misaligned_deflate"]
    assert "a stream is not aligned to 4 bytes" in failed["misaligned_deflate"]
    rows = answers["temp_sizes"]["rows"]
    assert {row[0] for row in rows} == set(nvcomp_tables.CODECS)
    assert all(asked == formula for *_, asked, formula in rows)
    frames = answers["zstd_frames"]
    assert frames["plain"] == {"statuses": [0], "sizes": [65536], "right": [True], "wrote_past_end": False}
    assert frames["checksum"]["right"] == frames["no content size"]["right"] == [True]
    assert frames["wrong checksum"]["statuses"] == [12]
    assert answers["gzip_members"]["FNAME"]["right"] == [True]
    assert answers["dummy_streams"]["zstd, room 1"]["right"] == [True] * 3
    assert answers["null_statuses"]["lz4"]["right"] == [True] * 3
    assert not any(kind["wrong"] for kind in answers["sums_are_right"].values())
    for codec in questions.HOST_CODECS:
        assert answers[f"damaged {codec}"]["works_afterwards"]
        assert answers[f"truncated {codec}"]["works_afterwards"]
    assert set(answers["placement_rates"]) > set(deciding.PLACED)
    assert all(row["right"] for row in answers["cufile_content"].values())
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
    monkeypatch.setattr(benchmark, "CONTENDER_S", math.inf)  # on a busy machine, a small read may take a second
    result = json.loads(benchmark.run(tmp_path, "cuda", math.inf, small=True).read_text())
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
    assert result["note"].startswith("the figures mean nothing")
    page = table.with_tables(f"{table.START}\n{table.END}", table.tables(tmp_path))
    assert "**no GPU: a driver made of software**" in page
    assert set(table.plots(tmp_path)) == {"gpu-no-gpu-a-driver-made-of-software-small-roofline.svg"}
