"""Tests of code for a GPU that need none: ``device="emulated"`` runs the GPU backend on host memory, slowly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from normalize import normalize

import gzarr

DEVICE = "emulated"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """An array as the code meets it."""
    path = tmp_path / "source.zarr"
    gzarr.create_array(path, data=np.arange(200 * 100).reshape(200, 100), chunks=(64, 64), device="cpu")
    return path


def test_the_result_is_normal(source: Path, tmp_path: Path) -> None:
    """Written through the GPU backend, read back on the CPU."""
    normalize(source, tmp_path / "dest.zarr", DEVICE)
    values = gzarr.open_array(tmp_path / "dest.zarr", mode="r", device="cpu")[...]
    assert values.mean() == pytest.approx(0, abs=1e-6)
    assert values.std() == pytest.approx(1, abs=1e-6)


def test_every_step_of_reading_runs_on_the_gpu(source: Path) -> None:
    """A codec that the GPU lacks would be decoded on the host, and `placement` would say so."""
    array = gzarr.open_array(source, mode="r", device=DEVICE)
    assert [step for step in array.placement if step.where == "host"] == []
