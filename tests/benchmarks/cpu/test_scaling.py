"""The model of threads: what it measures, and what follows from that."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gzarr
from benchmarks.cpu.scaling import PREDICTED, Times, futex_calls, measure, predict, row, table
from benchmarks.cpu.workloads import Task
from gzarr.cpu.compiled import library

ONE = Times(wall_s=1.0, serial_s=0.1, unlocked_s=0.85, waits=0)


def test_threads_divide_what_is_not_serial() -> None:
    seconds, limit = predict(ONE, ONE, 2)
    assert seconds == pytest.approx(0.1 + 0.9 / 2)
    assert limit == "threads"


def test_the_lock_of_the_interpreter_and_shared_memory_are_limits() -> None:
    assert predict(ONE, ONE, 64) == (pytest.approx(0.15), "the interpreter's lock")
    crowded = Times(wall_s=0.8, serial_s=0.1, unlocked_s=1.15, waits=3)
    assert predict(ONE, crowded, 64) == (pytest.approx(0.4), "memory or files")


def test_a_task_is_measured_with_the_compiled_code_apart(tmp_path: Path) -> None:
    if library.loop() is None:
        pytest.skip("there is no compiled loop")
    array = gzarr.create_array(tmp_path, shape=(256, 256), chunks=(16, 16), dtype="i4", device="cpu")
    array[:] = 1
    times = measure(Task(lambda: array[:], np.testing.assert_equal), 1, 3)
    assert 0 < times.unlocked_s < times.wall_s
    assert 0 < times.serial_s < times.wall_s
    assert library.extension().__name__ == "gzarr.cpu._loop"


def test_the_calls_of_locks_of_all_threads_are_summed() -> None:
    thread = " python (36), 9 events\n\n   syscall  calls  errors\n   futex       {}      8   1.5\n"
    assert futex_calls(thread.format(46) + thread.format(4)) == 50


def test_the_table_has_a_column_for_every_head() -> None:
    lines = table(
        [row("read", ONE, ONE, ONE), row("write", ONE, ONE, ONE, (3.0, 5.0))],
        {"cpu": "a processor", "cores": 2, "date": "today"},
    ).splitlines()[2:]
    assert len({line.count("|") for line in lines}) == 1
    assert all(f"{n}, model" in lines[0] for n in PREDICTED)
