"""One small run on the emulated device, which the tests of its rows, tables and plots share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import run
from gzarr.gpu.device.hostbuild import find_compiler

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if find_compiler() is None:
        pytest.skip("no C++ compiler: the kernels cannot be built")
    command = "python -m benchmarks.gpu --small"
    path = run.run(tmp_path_factory.mktemp("results"), "emulated", 60, small=True, command=command)
    assert path.name == "gpu-emulated-small.json"
    return json.loads(path.read_text())


@pytest.fixture
def measured(result: dict[str, Any]) -> dict[str, Any]:
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
