"""Tests of code for a GPU that need none. Each runs on the CPU, on an emulated GPU, and on a GPU where there is one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from normalize import drift, normalize, statistics

import gzarr
from gzarr.testing import damaged_chunk, transfers

VALUES = np.random.default_rng(0).normal(3, 5, (400, 20)).astype("f4")


@pytest.fixture
def source(tmp_path: Path, gzarr_device: str) -> gzarr.Array:
    """An array as the code meets it."""
    gzarr.create_array(tmp_path / "source.zarr", data=VALUES, chunks=(64, 20), device="cpu")
    return gzarr.open_array(tmp_path / "source.zarr", mode="r", device=gzarr_device)


@pytest.fixture
def dest(tmp_path: Path, source: gzarr.Array, gzarr_device: str) -> gzarr.Array:
    """Where the code writes to."""
    return gzarr.create_array(
        tmp_path / "dest.zarr", shape=source.shape, chunks=source.chunks, dtype="f4", device=gzarr_device
    )


def test_columns_become_normal(source: gzarr.Array, dest: gzarr.Array) -> None:
    """Written by the device, read by the CPU."""
    normalize(source, dest)
    values = gzarr.open_array(dest.store, mode="r", device="cpu")[...]
    assert values.mean(0) == pytest.approx(0, abs=1e-5)
    assert values.std(0) == pytest.approx(1, abs=1e-5)


def test_drift_is_the_largest_change(source: gzarr.Array) -> None:
    """CuPy's arrays and NumPy's do not mix: without `to_host` this fails."""
    before = np.stack([VALUES.mean(0), VALUES.std(0)])
    before[1, 7] += 5
    assert drift(source, before) == pytest.approx(5, rel=1e-3)


def test_statistics_stay_on_the_device(source: gzarr.Array) -> None:
    """A ``float(...)`` in the loop would make the GPU wait for the host in each batch."""
    with transfers() as t:
        statistics(source)
    assert not t.to_host
    assert not t.synchronizations


def test_values_stay_on_the_device(source: gzarr.Array, dest: gzarr.Array) -> None:
    """What is written was calculated on the device, and goes from there."""
    with transfers() as t:
        normalize(source, dest)
    assert not t.to_host
    assert not t.to_device


@pytest.mark.gzarr_devices("emulated", "cuda")
def test_every_step_of_reading_runs_on_the_gpu(source: gzarr.Array) -> None:
    """A codec that the GPU lacks would be decoded on the host, and `placement` would say so."""
    assert [step for step in source.placement if step.where == "host"] == []


def test_a_damaged_chunk_is_named(source: gzarr.Array, tmp_path: Path) -> None:
    """Half of a chunk is missing."""
    stored = gzarr.open_array(tmp_path / "source.zarr", mode="r+", device="cpu")
    with damaged_chunk(stored, (3, 0)), pytest.raises(gzarr.ChunkError, match=r"\(3, 0\)"):
        statistics(source)
