"""What a machine lacks for the GPU backend: drivers, devices and packages, all named at once."""

from __future__ import annotations

import importlib.util
import os
import subprocess

import pytest

from gzarr.gpu.detection import detect
from gzarr.gpu.device.hostbuild import find_compiler
from tests.support.processes import ROOT, run_python

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")


@pytest.fixture
def driver(tmp_path):
    """Makes a folder with a libcuda.so.1 that says what it is told to."""

    def make(*, version=13000, count=2, status=0):
        text = (
            f'extern "C" int cuInit(unsigned) {{ return {status}; }}\n'
            f'extern "C" int cuDriverGetVersion(int *v) {{ *v = {version}; return 0; }}\n'
            f'extern "C" int cuDeviceGetCount(int *n) {{ *n = {count}; return 0; }}\n'
        )
        (tmp_path / "driver.cpp").write_text(text)
        command = [find_compiler(), "-shared", "-fPIC", "-o", str(tmp_path / "libcuda.so.1"), "driver.cpp"]
        subprocess.run(command, cwd=tmp_path, check=True)
        return {"LD_LIBRARY_PATH": f"{tmp_path}:{os.environ.get('LD_LIBRARY_PATH', '')}"}

    return make


REFUSED = """
import gzarr
try:
    gzarr.zeros(3, device={!r}, reader={!r})
except gzarr.DeviceError as error:
    print(error)
"""


SOUND = "import gzarr.gpu.detection.detect as p\np._cupy_problem = p._nvcomp_problem = lambda: ''\n"


@needs_compiler
@pytest.mark.parametrize(
    ("driver_says", "words"),
    [
        ({"version": 12080}, "the NVIDIA driver is too old: it runs CUDA 12.8, CUDA 13 is needed: install driver 580"),
        ({"count": 0}, "the NVIDIA driver sees no device (status 0)"),
        ({"status": 100}, "the NVIDIA driver sees no device (status 100)"),
    ],
)
def test_drivers_that_do_not_do(driver, driver_says, words):
    assert words in run_python(REFUSED.format("cuda", "auto"), driver(**driver_says))


@needs_compiler
def test_a_device_that_is_not_there(driver):
    two = run_python(SOUND + REFUSED.format("cuda:7", "host"), driver())
    assert two == "no device 'cuda:7': there are 2 devices, cuda:0 to cuda:1\n"
    one = run_python(SOUND + REFUSED.format("cuda:1", "host"), driver(count=1))
    assert one == "no device 'cuda:1': there is one device, cuda:0\n"


def test_everything_that_is_missing_is_said_at_once(tmp_path):
    if detect.ask_driver().devices:
        pytest.skip("this machine has a usable GPU")
    (tmp_path / "cupy.py").write_text("raise SystemError('imported')")
    said = run_python(REFUSED.format("cuda", "kvikio"), {"PYTHONPATH": f"{tmp_path}:{ROOT}"})
    assert said.startswith("device 'cuda' cannot be used:\n- there is no NVIDIA driver (libcuda.so.1): install driver")
    assert "CuPy is missing" not in said  # it is found, and not imported
    if importlib.util.find_spec("kvikio") is None:
        assert "- KvikIO is missing: pip install 'gzarr[cuda13]' and pip install --no-deps 'kvikio-cu13" in said
    assert said.endswith("Use device='cpu' or 'auto' without them.\n")
    assert "KvikIO" not in run_python(REFUSED.format("cuda", "auto"), {})


@pytest.mark.parametrize(
    ("installed", "words"),
    [
        ({}, "CuPy is missing: pip install 'gzarr[cuda13]'"),
        ({"cupy-cuda13x": "13.6.0"}, "CuPy 13.6.0 is too old, 14.0.1 is needed: pip install 'gzarr[cuda13]'"),
        ({"cupy-cuda12x": "14.2.0"}, "CuPy is built for another CUDA (cupy-cuda12x 14.2.0)"),
        ({"cupy-cuda13x": "14.2.0", "kvikio-cu13": "25.8.0"}, "KvikIO 25.8.0 is too old, 26.10 is needed"),
        ({"cupy": "14.0.1", "kvikio-cu13": "26.10.0"}, ""),
    ],
)
def test_packages_that_do_not_do(monkeypatch, installed, words):
    monkeypatch.setattr(detect, "_version", installed.get)
    monkeypatch.setattr(detect.importlib.util, "find_spec", lambda name: any(name in i for i in installed) or None)
    found = [problem for problem in (detect._cupy_problem(), detect._kvikio_problem()) if problem]
    assert any(problem.startswith(words) for problem in found) if words else found == []
