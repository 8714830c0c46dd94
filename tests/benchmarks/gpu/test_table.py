"""The page shows what was measured on a GPU, nothing else; goals and plots are those of the results."""

from pathlib import Path

import pytest

from benchmarks.gpu import model, table

ROOT = Path(__file__).parents[3]


def test_the_page_shows_the_results_there_are() -> None:
    page = (ROOT / "docs" / "gpu-speed.md").read_text()
    assert table.with_tables(page, table.tables(ROOT / "benchmarks" / "results")) == page, (
        "docs/gpu-speed.md is out of step: run python -m benchmarks.gpu.table"
    )


def test_the_plots_are_those_of_the_results() -> None:
    shown = {path.name: path.read_text() for path in (ROOT / "docs").glob("*roofline*")}
    assert shown == table.plots(ROOT / "benchmarks" / "results")


def test_predictions_stand_beside_what_was_measured() -> None:
    row = {"codec": "blosc-lz4", "chunk_nbytes": 64 << 10, "layout": "plain", "n": 16384, "selection": "whole"}
    row |= {"table": "file", "contender": "gzarr", "GB_per_s": 12.5, "seconds": 0.1, "decoded_nbytes": 4 << 30}
    machine = {"gpu": "NVIDIA H100 80GB HBM3", "cores": 16}
    said = table.table({"machine": machine, "ceilings": {}, "rows": [row, {**row, "selection": "one chunk"}]})
    page = (ROOT / "docs" / "gpu-speed.md").read_text()
    (now,) = (line.split(" | ")[5] for line in page.splitlines() if line.startswith("| 64 KiB | plain | blosc-lz4"))
    assert float(now) == pytest.approx(float(said.splitlines()[2].split(" | ")[5]), abs=0.05)
    assert said.splitlines()[3].split(" | ")[5] == ""
    asked = ("blosc-lz4", "plain", 64 << 10, 4 << 30, 16)
    assert model.predicted("no GPU: a driver made of software", *asked) is None
    assert model.predicted("NVIDIA GH200 480GB", *asked) != model.predicted("NVIDIA H200", *asked)
