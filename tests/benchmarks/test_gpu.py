"""The GPU benchmark runs through on the emulated device; the page shows what was measured on a GPU, nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from benchmarks import gpu, gpu_cases, gpu_plot, gpu_questions, gpu_rows, gpu_table
from benchmarks.gpu_goals import GOALS, goals_table
from benchmarks.gpu_peers import PEERS
from gzarr.gpu.detection.detect import find_missing
from gzarr.gpu.device.hostbuild import find_compiler

ROOT = Path(__file__).parents[2]
needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if find_compiler() is None:
        pytest.skip("no C++ compiler: the kernels cannot be built")
    command = "python -m benchmarks.gpu --small"
    path = gpu.run(tmp_path_factory.mktemp("results"), "emulated", 60, small=True, command=command)
    assert path.name == "gpu-emulated-small.json"
    return json.loads(path.read_text())


def test_all_is_measured_and_described(result: dict[str, Any]) -> None:
    assert result["complete"]
    assert (result["device"], result["small"], result["left_out"]) == ("emulated", True, [])
    assert result["machine"]["gpu"] is None
    assert result["machine"]["cores"] >= 1
    assert result["command"] == "python -m benchmarks.gpu --small"
    assert result["date"]
    assert set(result["peers"]) == {*PEERS, "raw KvikIO", "bare nvCOMP"}
    for name in ("zarr-python, GPU mode", "raw KvikIO", "bare nvCOMP"):
        assert result["peers"][name].startswith("absent: ")
    assert all(rate > 0 for rate in result["ceilings"].values())
    # Codecs that a peer lacks; gzarr reads them all.
    assert {row["contender"] for row in result["failed"]} <= set(PEERS) - {"gzarr on the CPU, upload"}


def test_each_case_has_its_rows(result: dict[str, Any]) -> None:
    for case in gpu_cases.cases(small=True):
        fields = asdict(case)
        rows = [row for row in result["rows"] if all(row.get(name) == value for name, value in fields.items())]
        if isinstance(case, gpu_cases.StreamsCase):
            (row,) = rows
            assert row["streams"] >= case.nchunks
            continue
        own = [row for row in rows if row["contender"] == "gzarr"]
        names = [selection.name for selection in gpu_cases.selections(case)]
        assert [r["selection"] for r in own if r["table"] == "file"] == names
        (resident,) = (row for row in own if row["table"] == "resident")
        assert "kernel place_box" in resident["stages"]
        assert (resident["streams"] > 0) == (case.codec != "none")
        assert {"raw pinned upload", "raw read by threads"} <= {row["contender"] for row in rows}
        timed = [row for row in result["rows"] if row["table"] in ("file", "write", "memory")]
        assert all(0 < row["seconds_min"] <= row["seconds"] <= row["seconds_max"] for row in timed)
        if case.full:
            memory = [row for row in own if row["table"] == "memory"]
            assert [row["under_cap"] for row in memory] == [True] * len(gpu.CAP_SHARES)
            writers = {row["contender"] for row in result["rows"] if row["table"] == "write"}
            assert {"gzarr", "gzarr on the CPU, from the host"} <= writers


def test_the_whole_plan_covers_every_codec_size_and_layout() -> None:
    plan = list(gpu_cases.cases(small=False))
    stored = [(c.codec, c.chunk_nbytes, c.layout) for c in plan if isinstance(c, gpu_cases.Case)]
    assert len(stored) == len(set(stored)) == 6 * 5 * 2
    assert {nbytes for _, nbytes, _ in stored} == {k << 10 for k in (64, 256, 1024, 4096, 16384)}
    assert all(c.full for c in plan[:3])  # what the goals are about comes first
    streams = {c.nchunks for c in plan if isinstance(c, gpu_cases.StreamsCase)}
    assert streams == {10**k for k in range(6)}
    for case in plan:
        if isinstance(case, gpu_cases.Case):
            keywords = case.keywords()
            assert case.n % case.side == 0
            assert keywords.get("shards", (case.n,))[0] % case.side == 0
            (many,) = (s for s in gpu_cases.selections(case) if s.name == "100 random chunks")
            assert len(many.key[0]) == min(10, case.n // case.side) * case.side


@needs_compiler
def test_a_run_without_time_says_what_it_left_out(tmp_path: Path) -> None:
    found = json.loads(gpu.run(tmp_path, "emulated", 0, small=True).read_text())
    assert not found["complete"]
    assert found["rows"] == []
    assert len(found["left_out"]) == len(list(gpu_cases.cases(small=True)))
    assert all(left["why"] == "the time was used up" for left in found["left_out"])


@needs_compiler
def test_slow_contenders_are_left_out_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = gpu_cases.Case("zstd", 4096, "plain", 256)
    monkeypatch.setattr(gpu, "cases", lambda *, small: [one])
    monkeypatch.setattr(gpu, "CONTENDER_S", 1e-5)
    found = json.loads(gpu.run(tmp_path, "emulated", 30, small=True).read_text())
    assert ("gzarr", "whole") in {(left["contender"], left["selection"]) for left in found["left_out"]}
    assert all("it would take about" in left["why"] for left in found["left_out"])
    assert "one chunk" in {row.get("selection") for row in found["rows"] if row["contender"] == "gzarr"}


@needs_compiler
def test_a_case_that_fails_takes_no_other_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some = [gpu_cases.Case(codec, 4096, "plain", gpu_cases.TINY) for codec in ("blosc-lz4", "none")]
    monkeypatch.setattr(gpu, "cases", lambda *, small: some)
    reads = gpu.Run.reads

    def fail_first(self: Any, case: Any, *args: Any) -> None:
        if case.codec == "blosc-lz4":
            raise MemoryError("not enough")
        reads(self, case, *args)

    monkeypatch.setattr(gpu.Run, "reads", fail_first)
    found = json.loads(gpu.run(tmp_path, "emulated", 60, small=True).read_text())
    assert [row["error"] for row in found["failed"] if "contender" not in row] == ["MemoryError: not enough"]
    assert {row["codec"] for row in found["rows"] if row["table"] == "file"} == {"none"}


@needs_compiler
def test_a_wrong_answer_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu.Device, "equal", lambda self, one, other: False)
    monkeypatch.setattr(gpu_rows.np, "array_equal", lambda one, other: False)
    monkeypatch.setattr(gpu, "CAP_SHARES", (2,))
    some = [gpu_cases.Case("zstd", 4096, "plain", 256, full=True), gpu_cases.StreamsCase("zstd", 1)]
    monkeypatch.setattr(gpu, "cases", lambda *, small: some)
    found = json.loads(gpu.run(tmp_path, "emulated", 30, small=True).read_text())
    assert {row["contender"] for row in found["rows"]} == {"raw pinned upload", "raw read by threads"}
    assert {row["table"] for row in found["failed"]} == {"resident", "file", "write", "memory", "streams"}
    assert all("wrong" in row["error"] for row in found["failed"])


def test_the_page_shows_the_results_there_are() -> None:
    page = (ROOT / "docs" / "gpu.md").read_text()
    assert gpu_table.with_tables(page, gpu_table.tables(ROOT / "benchmarks" / "results")) == page, (
        "docs/gpu.md is out of step: run python -m benchmarks.gpu_table"
    )


def as_if_on_a_gpu(result: dict[str, Any]) -> dict[str, Any]:
    """The emulated result with what only a GPU measures, and whole numbers to look for."""
    rows = json.loads(json.dumps(result["rows"]))
    for row in rows:
        if row["table"] in ("resident", "streams") and row["streams"]:
            row["bare_nvcomp_seconds"] = row["seconds"] * 0.8
            row["bare_nvcomp_GB_per_s"] = row["GB_per_s"] / 0.8
    for row in [row for row in rows if row["table"] == "file" and row["contender"] == "gzarr"]:
        slow = {**row, "seconds": 20 * row["seconds"], "GB_per_s": row["GB_per_s"] / 20}
        rows.append({**slow, "contender": "zarr-python, GPU mode"})
        rows.append({**row, "contender": "gzarr, small reads on the host"})
    return {**result, "device": "cuda", "small": False, "rows": rows}


def test_only_a_gpu_makes_a_table(result: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "gpu-emulated.json").write_text(json.dumps({**result, "small": False}))
    (tmp_path / "gpu-small.json").write_text(json.dumps({**result, "device": "cuda"}))
    text = gpu_table.tables(tmp_path)
    assert text.startswith(gpu_table.NOT_MEASURED)
    assert text.count("| not measured | not measured | not measured |") == len(GOALS)
    assert gpu_table.plots(tmp_path) == {}
    (tmp_path / "gpu-one.json").write_text(json.dumps(as_if_on_a_gpu(result)))
    text = gpu_table.tables(tmp_path)
    stored = [case for case in gpu_cases.cases(small=True) if isinstance(case, gpu_cases.Case)]
    reads = [line for line in text.splitlines() if line.startswith("| ") and "KiB | " in line]
    assert len(reads) == sum(len(gpu_cases.selections(case)) for case in stored) + len(stored)
    assert "| blosc-lz4 | 4 KiB | plain | whole |" in text
    assert "| 0.80 |" in text
    assert "GPU mode needs a GPU" in text
    assert "](gpu-one-roofline.svg)" in text
    assert "`python -m benchmarks.gpu --small`" in text
    assert set(gpu_table.plots(tmp_path)) == {"gpu-one-roofline.svg"}


def test_failures_and_what_is_left_out_are_told(result: dict[str, Any], tmp_path: Path) -> None:
    measured = as_if_on_a_gpu(result)
    late, slow = {"why": gpu_cases.NO_TIME}, {"why": "it would take about 9 s"}
    wrong = {"table": "memory", "codec": "zstd", "contender": "gzarr", "error": "WrongAnswerError: the answer is wrong"}
    measured |= {"left_out": [late, slow, slow], "failed": [wrong, wrong], "complete": False}
    (tmp_path / "gpu-one.json").write_text(json.dumps(measured))
    text = gpu_table.tables(tmp_path)
    assert "1 rows or arrays are left out" in text
    assert "2 reads for which a contender would take too long" in text
    assert "**Failed**: gzarr, zstd: WrongAnswerError: the answer is wrong (2 times)." in text
    assert next(line for line in text.splitlines() if line.startswith("| memory |")).endswith("| no |")
    (tmp_path / "gpu-one.json").write_text(json.dumps({**measured, "failed": []}))
    text = gpu_table.tables(tmp_path)
    assert next(line for line in text.splitlines() if line.startswith("| memory |")).endswith("| yes |")


def test_goals_are_judged_by_the_worst_case(result: dict[str, Any]) -> None:
    measured = as_if_on_a_gpu(result)
    lines = goals_table(measured).splitlines()
    assert sum("not measured" in line for line in lines) == 0
    (resident,) = (line for line in lines if "bare nvCOMP on the same streams" in line)
    assert "| 0.80 | 0.80 (" in resident
    (gpu_mode,) = (line for line in lines if "GPU mode" in line)
    assert "| >= 10 | 20.00 | 20.00 (" in gpu_mode
    assert gpu_mode.endswith("| yes |")
    worst = next(row for row in measured["rows"] if row["contender"] == "zarr-python, GPU mode"
                 and row["selection"] == "whole")  # fmt: skip
    worst["seconds"] /= 10
    (gpu_mode,) = (line for line in goals_table(measured).splitlines() if "GPU mode" in line)
    assert "| 20.00 | 2.00 (blosc-lz4, 4 KiB, plain) | no |" in gpu_mode
    memory = next(row for row in measured["rows"] if row["table"] == "memory")
    assert goals_table(measured).splitlines()[-1].endswith("| yes |")
    memory["peak_nbytes"] = memory["cap_nbytes"] + 1
    assert goals_table(measured).splitlines()[-1].endswith("| no |")


@pytest.mark.parametrize("complete", [True, False])
def test_the_plot_shows_every_point_within_its_axes(result: dict[str, Any], complete: bool) -> None:
    shown = as_if_on_a_gpu(result) if complete else {**result, "rows": [], "ceilings": {}}
    drawn = ET.fromstring(gpu_plot.plot(shown))
    circles = [c for c in drawn.iter() if c.tag.endswith("circle") and len(c)]
    points = [*gpu_plot.file_points(shown), *gpu_plot.stream_points(shown)]
    assert len(circles) == len(points)
    if not complete:
        return
    assert len(points) == 3 * 2 + (3 + 6 - 1) * 2  # "none" has no streams
    assert all(60 <= float(c.get("cy")) <= 60 + gpu_plot.PANEL_HEIGHT for c in circles)
    assert all(0 <= float(c.get("cx")) <= gpu_plot.WIDTH for c in circles)
    text = "".join(drawn.itertext())
    assert text.count("device copy") == 2
    assert "raw read" in text
    assert "no GPU, speeds mean nothing" in text


def test_a_roof_has_the_slope_of_its_rate() -> None:
    panel = gpu_plot.Panel(0, 0, (0, 1), (0, 2))
    assert panel.at(1, 1) == (0, gpu_plot.PANEL_HEIGHT)
    assert panel.at(10, 100) == (gpu_plot.PANEL_WIDTH, 0)
    assert panel.at(10, 10) == (gpu_plot.PANEL_WIDTH, gpu_plot.PANEL_HEIGHT / 2)
    assert panel.at(10, 1e9) == (gpu_plot.PANEL_WIDTH, 0)


def test_the_plots_are_those_of_the_results() -> None:
    shown = {path.name: path.read_text() for path in (ROOT / "docs").glob("*roofline*")}
    assert shown == gpu_table.plots(ROOT / "benchmarks" / "results")


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
