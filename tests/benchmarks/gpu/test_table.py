"""The page shows what was measured on a GPU, nothing else; goals and plots are those of the results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.gpu import cases, table
from benchmarks.gpu.goals import GOALS, goals_table
from benchmarks.gpu.loading import loader_cases

ROOT = Path(__file__).parents[3]


def test_the_page_shows_the_results_there_are() -> None:
    page = (ROOT / "docs" / "gpu.md").read_text()
    assert table.with_tables(page, table.tables(ROOT / "benchmarks" / "results")) == page, (
        "docs/gpu.md is out of step: run python -m benchmarks.gpu.table"
    )


def test_only_a_gpu_makes_a_table(result: dict[str, Any], measured: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "gpu-emulated.json").write_text(json.dumps({**result, "small": False}))
    (tmp_path / "gpu-small.json").write_text(json.dumps({**result, "device": "cuda"}))
    text = table.tables(tmp_path)
    assert text.startswith(table.NOT_MEASURED)
    assert goals_table(None).count("| not measured | not measured | not measured |") == len(GOALS)
    assert text.endswith(f"{goals_table(None)}\n\n{table.loader_table(None)}")
    assert table.loader_table(None).count("| not measured") == 7 * len(loader_cases(small=False))
    assert table.plots(tmp_path) == {}
    (tmp_path / "gpu-one.json").write_text(json.dumps(measured))
    text = table.tables(tmp_path)
    stored = [case for case in cases.cases(small=True) if isinstance(case, cases.Case)]
    reads = [line for line in text.splitlines() if line.startswith("| ") and "KiB | " in line]
    assert len(reads) == sum(len(cases.selections(case)) for case in stored) + len(stored)
    assert "| blosc-lz4 | 4 KiB | plain | whole |" in text
    assert "| 0.80 |" in text
    assert "GPU mode needs a GPU" in text
    assert "](gpu-one-roofline.svg)" in text
    assert "`python -m benchmarks.gpu --small`" in text
    assert table.loader_table(measured) in text
    assert "not measured" not in table.loader_table(measured)
    assert table.loader_table(measured).count("\n") == 1 + len(loader_cases(small=True))
    assert set(table.plots(tmp_path)) == {"gpu-one-roofline.svg"}


def test_the_plots_are_those_of_the_results() -> None:
    shown = {path.name: path.read_text() for path in (ROOT / "docs").glob("*roofline*")}
    assert shown == table.plots(ROOT / "benchmarks" / "results")


def test_goals_are_judged_by_the_worst_case(measured: dict[str, Any]) -> None:
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
