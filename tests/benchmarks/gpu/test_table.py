"""The page shows what was measured on a GPU, nothing else; goals and plots are those of the results."""

from __future__ import annotations

from pathlib import Path

from benchmarks.gpu import table

ROOT = Path(__file__).parents[3]


def test_the_page_shows_the_results_there_are() -> None:
    page = (ROOT / "docs" / "gpu-speed.md").read_text()
    assert table.with_tables(page, table.tables(ROOT / "benchmarks" / "results")) == page, (
        "docs/gpu-speed.md is out of step: run python -m benchmarks.gpu.table"
    )


def test_the_plots_are_those_of_the_results() -> None:
    shown = {path.name: path.read_text() for path in (ROOT / "docs").glob("*roofline*")}
    assert shown == table.plots(ROOT / "benchmarks" / "results")
