"""The GPU benchmark as a program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gzarr.gpu.device.hostbuild import find_compiler

ROOT = Path(__file__).parents[3]


@pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")
def test_the_program_runs_by_name(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu", "--small", "--device", "emulated", "--budget-s", "0"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_file()
