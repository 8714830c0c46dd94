"""The model of threads: what it measures, and what follows from that."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gzarr
from benchmarks.cpu.scaling import measure
from benchmarks.cpu.workloads import Task
from gzarr.cpu.compiled import library


def test_a_task_is_measured_with_the_compiled_code_apart(tmp_path: Path) -> None:
    if library.loop() is None:
        pytest.skip("there is no compiled loop")
    array = gzarr.create_array(tmp_path, shape=(256, 256), chunks=(16, 16), dtype="i4", device="cpu")
    array[:] = 1
    times = measure(Task(lambda: array[:], np.testing.assert_equal), 1, 3)
    assert 0 < times.unlocked_s < times.wall_s
    assert 0 < times.serial_s < times.wall_s
    assert library.extension().__name__ == "gzarr.cpu._loop"
