"""The GPU benchmark runs through on the emulated device; the page shows what was measured on a GPU, nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu, gpu_questions, gpu_table
from gzarr.gpu.hostbuild import find_compiler
from gzarr.gpu.probe import find_missing

ROOT = Path(__file__).parents[2]
needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if find_compiler() is None:
        pytest.skip("no C++ compiler: the kernels cannot be built")
    path = gpu.run(tmp_path_factory.mktemp("results"), "emulated", 60, small=True)
    assert path.name == "gpu-emulated-small.json"
    return json.loads(path.read_text())


def test_all_is_measured_and_described(result: dict[str, Any]) -> None:
    assert result["complete"]
    assert (result["device"], result["small"], result["left_out"]) == ("emulated", True, [])
    assert result["machine"]["gpu"] is None
    assert result["machine"]["cores"] >= 1
    assert set(result["peers"]) == set(gpu.PEERS)
    assert "absent" in result["peers"]["zarr-python, GPU mode"]
    assert all(rate > 0 for rate in result["ceilings"].values())
    # Codecs that a peer lacks; gzarr reads them all.
    assert {row["contender"] for row in result["failed"]} <= set(gpu.PEERS) - {"gzarr on the CPU, upload"}


def test_each_case_has_its_rows(result: dict[str, Any]) -> None:
    for case in gpu.cases(small=True):
        rows = [r for r in result["rows"] if (r["codec"], r["chunk_nbytes"], r["layout"]) == (
            case.codec, case.chunk_nbytes, case.layout
        )]  # fmt: skip
        own = [row for row in rows if row["contender"] == "gzarr"]
        assert [r["selection"] for r in own if r["table"] == "file"] == ["whole", "rows", "one chunk", "points"]
        (resident,) = (row for row in own if row["table"] == "resident")
        assert "kernel place_box" in resident["stages"]
        assert (resident["streams"] > 0) == (case.codec != "none")
        assert all(row["seconds"] > 0 and row["encoded_nbytes"] > 0 for row in rows)
        assert {"raw pinned upload", "raw read by threads"} <= {row["contender"] for row in rows}


@needs_compiler
def test_a_run_without_time_says_what_it_left_out(tmp_path: Path) -> None:
    found = json.loads(gpu.run(tmp_path, "emulated", 0, small=True).read_text())
    assert not found["complete"]
    assert found["rows"] == []
    assert len(found["left_out"]) == len(list(gpu.cases(small=True)))


@needs_compiler
def test_a_wrong_answer_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu.Device, "equal", lambda self, one, other: False)
    monkeypatch.setattr(gpu, "cases", lambda *, small: [gpu.Case("zstd", 4096, "plain")])
    found = json.loads(gpu.run(tmp_path, "emulated", 30, small=True).read_text())
    assert {row["contender"] for row in found["rows"]} == {"raw pinned upload", "raw read by threads"}
    assert any("the answer is wrong" in row["error"] for row in found["failed"])


def test_the_page_shows_the_results_there_are() -> None:
    page = (ROOT / "docs" / "gpu.md").read_text()
    assert gpu_table.with_tables(page, gpu_table.tables(ROOT / "benchmarks" / "results")) == page, (
        "docs/gpu.md is out of step: run python -m benchmarks.gpu_table"
    )


def test_only_a_gpu_makes_a_table(result: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "gpu-emulated.json").write_text(json.dumps({**result, "small": False}))
    (tmp_path / "gpu-small.json").write_text(json.dumps({**result, "device": "cuda"}))
    assert gpu_table.tables(tmp_path) == gpu_table.NOT_MEASURED
    measured = {**result, "device": "cuda", "small": False}
    for row in measured["rows"]:
        if row["table"] == "resident":
            row["bare_nvcomp_seconds"] = row["seconds"] * 0.8
    (tmp_path / "gpu-one.json").write_text(json.dumps(measured))
    text = gpu_table.tables(tmp_path)
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(lines) == 2 + 4 * len(list(gpu.cases(small=True)))
    assert "| blosc-lz4 | 4 KiB | plain | whole |" in text
    assert "| 0.80 |" in text
    assert "GPU mode needs a GPU" in text


@pytest.mark.skipif(find_missing() is None, reason="this machine has a usable GPU")
def test_questions_that_fail_or_hang_take_no_other_with_them(tmp_path: Path) -> None:
    out = tmp_path / "answers.json"
    answers = gpu_questions.ask_all(["temp_sizes"], out, 60, 60)
    assert "no usable GPU" in answers["temp_sizes"]["error"]
    assert json.loads(out.read_text()) == answers
    assert "no answer within" in gpu_questions.ask("machine", 0.01)["error"]
    assert "time was used up" in gpu_questions.ask_all(["machine"], None, 60, 0)["machine"]["error"]


@needs_compiler
def test_the_program_runs_by_name(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu", "--small", "--device", "emulated", "--budget-s", "0"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_file()
