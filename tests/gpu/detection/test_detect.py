"""What a machine lacks for the GPU backend: drivers and devices, all named at once; the folder of the cache."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gzarr.gpu.detection import detect, driver
from gzarr.gpu.detection.driver import cache_folder
from gzarr.gpu.device.hostbuild import find_compiler
from tests.support.processes import ROOT, run_python

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")


@pytest.fixture
def asked_driver(tmp_path):
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


SOUND = "import gzarr.gpu.detection.detect as p\np._cupy_problem = p._nvcomp_problem = p._nvrtc_problem = lambda: ''\n"


@needs_compiler
@pytest.mark.parametrize(
    ("driver_says", "words"),
    [
        ({"version": 11080}, "the NVIDIA driver is too old: it runs CUDA 11.8, CUDA 12 or newer is needed: install"),
        ({"count": 0}, "the NVIDIA driver sees no device (status 0)"),
        ({"status": 100}, "the NVIDIA driver sees no device (status 100)"),
    ],
)
def test_drivers_that_do_not_do(asked_driver, driver_says, words):
    assert words in run_python(REFUSED.format("cuda", "auto"), asked_driver(**driver_says))


@needs_compiler
def test_a_device_that_is_not_there(asked_driver):
    two = run_python(SOUND + REFUSED.format("cuda:7", "host"), asked_driver())
    assert two == "no device 'cuda:7': there are 2 devices, cuda:0 to cuda:1\n"
    one = run_python(SOUND + REFUSED.format("cuda:1", "host"), asked_driver(count=1))
    assert one == "no device 'cuda:1': there is one device, cuda:0\n"


def test_everything_that_is_missing_is_said_at_once(tmp_path):
    if driver.ask_driver().devices:
        pytest.skip("this machine has a usable GPU")
    (tmp_path / "cupy.py").write_text("raise SystemError('imported')")
    said = run_python(REFUSED.format("cuda", "kvikio"), {"PYTHONPATH": f"{tmp_path}:{ROOT}"})
    assert said.startswith("device 'cuda' cannot be used:\n- there is no NVIDIA driver (libcuda.so.1): install driver")
    assert "CuPy is missing" not in said  # it is found, and not imported
    if importlib.util.find_spec("kvikio") is None:
        assert "- KvikIO is missing: pip install 'gzarr[cuda13]' and pip install --no-deps 'kvikio-cu13" in said
    assert said.endswith("Use device='cpu' or 'auto' without them.\n")
    assert "KvikIO" not in run_python(REFUSED.format("cuda", "auto"), {})


H100, T4, V100, P100 = (9, 0), (7, 5), (7, 0), (6, 0)
NO_DRIVER = 0
FIRST = "pip install 'gzarr[cuda13]'"


@pytest.fixture
def machine(monkeypatch):
    """Lets packages be installed on a machine with a driver and a device."""

    def make(version, capability, installed, nvcomp=None, nvrtc=12):
        said = driver.Driver(version, int(version > 0), "" if version else "there is no driver")
        monkeypatch.setattr(driver, "ask_driver", lambda: said)
        monkeypatch.setattr(driver, "identify", lambda number: driver.Gpu("GPU", "", "", capability, 0))
        found = {f"{name.partition(' ')[0]}": name.partition(" ")[2] or "26.10" for name in installed}
        there = lambda *names: {name: found[name] for name in names if name in found}  # noqa: E731
        monkeypatch.setattr(driver, "installed", there)
        monkeypatch.setattr(detect.importlib.util, "find_spec", lambda name: any(name in i for i in installed) or None)
        monkeypatch.setattr("gzarr.gpu.device.nvcomp.cuda", lambda: nvcomp or 12)
        compiler = SimpleNamespace(getVersion=lambda: (nvrtc, 5))
        libraries = SimpleNamespace(nvrtc=compiler)
        for name in ("cupy_backends", "cupy_backends.cuda"):
            monkeypatch.setitem(sys.modules, name, SimpleNamespace(__path__=[]))
        monkeypatch.setitem(
            sys.modules, "cupy_backends.cuda.libs", libraries if nvrtc else SimpleNamespace(__path__=[])
        )

    return make


CUDA_12, CUDA_13 = "cupy-cuda12x 14.2.0", "cupy-cuda13x 14.2.0"


@pytest.mark.parametrize(
    ("version", "capability", "installed", "words"),
    [
        # What fits: a driver runs older CUDAs, too.
        (13000, H100, [CUDA_13], ""),
        (13000, H100, [CUDA_12], ""),
        (12020, H100, [CUDA_12], ""),
        (12020, V100, [CUDA_12], ""),
        (13000, (0, 0), [CUDA_13], ""),
        # The driver is older than the wheels.
        (
            12080,
            H100,
            [CUDA_13],
            (
                "CuPy is built for CUDA 13, and the driver runs CUDA 12.8: pip uninstall cupy-cuda13x, then "
                "pip install 'gzarr[cuda12]', or install driver 580 or newer"
            ),
        ),
        # The GPU is too old for the wheels; the driver runs both.
        (
            13000,
            V100,
            [CUDA_13],
            (
                "CuPy is built for CUDA 13, and the GPU has compute capability 7.0, which CUDA 12 is the last to "
                "support: pip uninstall cupy-cuda13x, then pip install 'gzarr[cuda12]'"
            ),
        ),
        # None, and the extra that the driver and the GPU run.
        (13000, H100, [], f"CuPy is missing: {FIRST}"),
        (13000, V100, [], "CuPy is missing: pip install 'gzarr[cuda12]'"),
        (12080, T4, [], "CuPy is missing: pip install 'gzarr[cuda12]'"),
        (NO_DRIVER, H100, [], f"CuPy is missing: {FIRST}, or 'gzarr[cuda12]' for drivers older than 580"),
        # Both, of which the second has overwritten the first.
        (
            12080,
            H100,
            [CUDA_12, CUDA_13],
            (
                "several packages have installed CuPy, one over the other (cupy-cuda12x 14.2.0, cupy-cuda13x 14.2.0): "
                "pip uninstall cupy-cuda12x cupy-cuda13x, then pip install 'gzarr[cuda12]'"
            ),
        ),
        (
            13000,
            H100,
            ["cupy-cuda11x 13.6.0"],
            f"CuPy is built for another CUDA (cupy-cuda11x 13.6.0): pip uninstall cupy-cuda11x, then {FIRST}",
        ),
        (13000, H100, ["cupy-cuda13x 13.6.0"], f"CuPy 13.6.0 is too old, 14.0.1 is needed: {FIRST}"),
        (12020, H100, ["cupy-cuda12x 13.6.0"], "CuPy 13.6.0 is too old, 14.0.1 is needed: pip install 'gzarr[cuda12]'"),
        (13000, P100, [CUDA_12], "the GPU is too old: compute capability 7.0 or newer is needed"),
    ],
)
def test_the_message_names_the_extra_that_fits_driver_and_gpu(machine, version, capability, installed, words):
    machine(version, capability, installed)
    problems = detect.find_problems()[not version :]
    assert problems == ([words] if words else [])


def test_nvcomp_for_another_cuda_is_named(machine):
    machine(12080, H100, [CUDA_12, "nvidia-libnvcomp-cu12", "nvidia-libnvcomp-cu13"], nvcomp=13)
    assert detect.find_problems() == [
        (
            "nvCOMP is built for CUDA 13, and the driver runs CUDA 12.8: pip uninstall nvidia-libnvcomp-cu12 "
            "nvidia-libnvcomp-cu13, then pip install 'gzarr[cuda12]', or install driver 580 or newer"
        )
    ]


def test_a_compiler_for_another_cuda_or_none_is_named(machine):
    """CuPy takes the newest that it finds."""
    machine(12080, H100, [CUDA_12, "nvidia-cuda-nvrtc 13.5.37"], nvrtc=13)
    (problem,) = detect.find_problems()
    assert problem.startswith(
        "NVRTC is built for CUDA 13, and the driver runs CUDA 12.8: pip uninstall nvidia-cuda-nvrtc,"
    )
    machine(13000, H100, [CUDA_13], nvrtc=None)
    (problem,) = detect.find_problems()
    assert problem.startswith("CuPy finds no NVRTC, which compiles kernels (")
    assert problem.endswith("): pip install 'gzarr[cuda13]'")


@pytest.mark.parametrize(
    ("version", "installed", "words"),
    [
        (13000, [CUDA_13, "kvikio-cu13 26.10.0"], ""),
        (13000, [CUDA_12, "kvikio 26.10.0"], ""),
        (13000, [CUDA_13, "kvikio-cu13 25.8.0"], "KvikIO 25.8.0 is too old, 26.10 is needed: "),
        (
            12020,
            [CUDA_12],
            "KvikIO is missing: pip install 'gzarr[cuda12]' and pip install --no-deps 'kvikio-cu12==26.10.*'",
        ),
        (13000, [], "KvikIO is missing: pip install 'gzarr[cuda13]' and pip install --no-deps 'kvikio-cu13==26.10.*'"),
    ],
)
def test_kvikio_is_that_of_the_cuda_of_cupy(machine, version, installed, words):
    machine(version, H100, installed)
    found = detect.kvikio_problem()
    assert found.startswith(words) if words else not found


def test_a_cupy_from_conda_is_asked_what_it_is_built_for(machine, monkeypatch):
    machine(12020, H100, ["cupy 14.2.0"])
    runtime = SimpleNamespace(runtimeGetVersion=lambda: 13000)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))
    assert detect.find_problems()[0].startswith("CuPy is built for CUDA 13, and the driver runs CUDA 12.2: ")
    monkeypatch.setitem(sys.modules, "cupy", None)  # it cannot be imported, which is said when it is
    assert detect.find_problems() == []


def test_a_folder_that_others_can_write_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = cache_folder("self-checks")
    assert folder is not None
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    assert cache_folder("self-checks") is None


@pytest.mark.parametrize("given", ["relative", "", None])
def test_the_cache_does_not_depend_on_where_one_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if given is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", given)
    assert cache_folder("kernels") == tmp_path / "home" / ".cache" / "gzarr" / "kernels"
