"""The plug-in of pytest, in a process of its own, as it is loaded in the projects of users."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gzarr.gpu.device.hostbuild import find_compiler

ROOT = Path(__file__).parents[2]
TESTS = """
import sys
import pytest

LOADED = sorted(name for name in sys.modules if name.startswith("gzarr.") or name == "numpy")


def test_the_plug_in_is_light():
    assert not {"numpy", "gzarr.hierarchy.array", "gzarr.cpu.backend"} & set(LOADED), LOADED


def test_settings_of_the_conftest_count():
    import gzarr
    assert gzarr.config["array.order"] == "F"


def test_on_each(gzarr_device):
    import gzarr
    z = gzarr.ones(4)
    assert z.device == gzarr_device
    assert type(z[:]).__module__.split(".")[0] == ("numpy" if gzarr_device == "cpu" else "gzarr")


@pytest.mark.parametrize("gzarr_device", ["emulated"], indirect=True)
def test_of_its_own_devices(gzarr_device):
    assert gzarr_device == "emulated"


def test_late(request):
    with pytest.raises(pytest.UsageError, match="name gzarr_device among the arguments"):
        request.getfixturevalue("gzarr_device")


@pytest.mark.gzarr_devices("emulated", "cuda")
class TestMarked:
    def test_marked(self, gzarr_device):
        assert gzarr_device == "emulated"
"""


def run(folder: Path, *options: str) -> str:
    (folder / "test_it.py").write_text(TESTS)
    (folder / "conftest.py").write_text("import os\nos.environ['GZARR_ARRAY__ORDER'] = 'F'\nimport gzarr\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment = {name: value for name, value in environment.items() if not name.startswith("GZARR_")}
    command = [sys.executable, "-m", "pytest", "-v", "-p", "gzarr.testing.plugin", "-p", "no:cacheprovider"]
    command += ["--strict-markers", "-W", "error", *options, str(folder)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")
def test_the_fixture_runs_tests_on_each_device(tmp_path: Path) -> None:
    output = run(tmp_path)
    assert "test_on_each[cpu] PASSED" in output, output
    assert "test_on_each[emulated] PASSED" in output
    assert "TestMarked::test_marked[emulated] PASSED" in output
    assert "test_of_its_own_devices[emulated] PASSED" in output
    assert "7 passed" in output


def test_a_device_that_was_asked_for_must_be_there(tmp_path: Path) -> None:
    output = run(tmp_path, "--gzarr-device", "cpu", "--gzarr-device", "cuda:7")
    assert "test_on_each[cpu] PASSED" in output, output
    assert "test_on_each[cuda:7] ERROR" in output
    assert "TestMarked::test_marked[cuda:7] ERROR" in output
    assert "gzarr.errors.DeviceError" in output


def test_a_device_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    assert "--gzarr-device: 'gpu' is not one of cpu, emulated, cuda" in run(tmp_path, "--gzarr-device", "gpu")
