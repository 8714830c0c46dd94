"""KvikIO itself, where it is installed, reads into a stand-in for a device's memory; files are kept open, but few."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gzarr.gpu.device.hostbuild import find_compiler
from gzarr.gpu.reading import files as files_module
from gzarr.gpu.reading.kvikio import FileCache
from tests.gpu.direct_files import DirectFiles

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


def test_file_handles_are_bounded_and_closed(tmp_path) -> None:
    direct = DirectFiles()
    cache = FileCache(direct, max_files=3)
    paths = [tmp_path / str(i) for i in range(10)]
    for path in paths:
        path.write_bytes(b"x")
    versions = {str(path): files_module.file_version(path.stat()) for path in paths}
    with cache.open(versions) as found:
        assert len(found) == 10
        assert direct.closed == 0  # all are in use
        cache.close()
        assert direct.closed == 0
    assert (direct.opened, direct.closed, len(cache)) == (10, 10, 0)
    for _ in range(2):
        with cache.open(dict(list(versions.items())[:3])):
            pass
    assert (direct.opened, direct.closed, len(cache)) == (13, 10, 3)
    with cache.open({str(paths[9]): versions[str(paths[9])]}):
        pass
    assert (direct.opened, direct.closed, len(cache)) == (14, 11, 3)
    paths[9].write_bytes(b"another")
    another = {str(paths[9]): (*versions[str(paths[9])][:2], 0, 0)}
    with pytest.raises(OSError, match="replaced"), cache.open(another):
        pass
    cache.close()
    assert direct.opened == direct.closed
