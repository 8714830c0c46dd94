"""KvikIO, or what stands in for it, reads straight to the device where that pays and gives the right bytes."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gzarr.gpu.device.hostbuild import find_compiler

HERE = Path(__file__).parent
#: A cuFile that finds no driver can spin forever.
TIMEOUT_S = 120


# It cannot be a test requirement: its Python part requires cupy-cuda13x[ctk], 1.2 GiB of libraries.
@pytest.mark.skipif(importlib.util.find_spec("kvikio") is None, reason="KvikIO is not installed")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc: the stand-in for CUDA cannot be built")
@pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")
def test_kvikio_reads_what_the_cpu_reads(tmp_path: Path) -> None:
    library = tmp_path / "libcuda.so.1"
    command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", str(HERE / "fake_cuda.c"), "-o", str(library)]
    subprocess.run(command, check=True, timeout=60)
    environment = os.environ | {
        "LD_LIBRARY_PATH": f"{tmp_path}:{os.environ.get('LD_LIBRARY_PATH', '')}",
        "KVIKIO_COMPAT_MODE": "ON",
        "PYTHONPATH": str(HERE.parents[2]),
    }
    command = [sys.executable, "-m", "tests.gpu.reading.kvikio_session", str(tmp_path / "arrays")]
    # It runs in a folder of its own, as cuFile leaves a log where it starts.
    result = subprocess.run(
        command, check=False, timeout=TIMEOUT_S, cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert "all read with KvikIO" in result.stdout
