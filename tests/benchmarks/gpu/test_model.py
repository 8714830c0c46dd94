"""Predictions follow from costs and rates by simple arithmetic; the page shows those of the measured costs."""

import json
from pathlib import Path

from benchmarks.gpu import model
from benchmarks.gpu.model import Costs

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "benchmarks" / "results"
GPU = model.GPUS[0]
CHUNK = Costs("plain", "blosc-lz4", 1 << 20, 1 << 19, 8, 1e-6, 160e-6, 150e-6)


def test_the_page_shows_the_predictions_of_the_measured_costs() -> None:
    page = (ROOT / "docs" / "gpu-speed.md").read_text()
    host, kernels = (json.loads((RESULTS / f"gpu-{name}.json").read_text()) for name in ("host", "kernels"))
    assert model.with_predictions(page, model.tables(host, kernels)) == page, (
        "docs/gpu-speed.md is out of step: run python -m benchmarks.gpu.model"
    )
