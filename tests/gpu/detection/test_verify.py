"""``device="auto"`` asks the driver, and remembers what a self-check in a process of its own has found.

A library stands in for the driver. `tests/gpu/driver/test_verify.py` lets real CuPy be checked.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gzarr.gpu.detection import driver, verify
from gzarr.gpu.device.hostbuild import find_compiler
from tests.support.processes import run_python

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")

DRIVER = """
#include <cstring>
extern "C" int cuInit(unsigned) { return 0; }
extern "C" int cuDriverGetVersion(int *v) { *v = 13000; return 0; }
extern "C" int cuDeviceGetCount(int *n) { *n = 1; return 0; }
extern "C" int cuDeviceGet(int *d, int n) { *d = n; return 0; }
extern "C" int cuDeviceGetName(char *s, int, int) { std::strcpy(s, "Stand-in 1"); return 0; }
extern "C" int cuDeviceGetUuid(char *s, int) { std::memset(s, 0xab, 16); return 0; }
extern "C" int cuDeviceGetAttribute(int *n, int, int) { *n = 9; return 0; }
extern "C" int cuDeviceTotalMem_v2(size_t *n, int) { *n = 1; return 0; }
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a driver that stands in for a real one."""
    folder = tmp_path_factory.mktemp("machine")
    (folder / "driver.cpp").write_text(DRIVER)
    command = [find_compiler(), "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), "driver.cpp"]
    subprocess.run(command, cwd=folder, check=True)
    return folder


def kept(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in (folder / "gzarr" / "self-checks").iterdir()]


@pytest.mark.parametrize(
    ("child", "words"),
    [
        ("import os; os.abort()", "the self-check ended with status -6: it wrote no message"),
        ("raise SystemError('no such symbol')", "the self-check ended with status 1: SystemError: no such symbol"),
        ("import time; time.sleep(900)", "the self-check did not end within 1 s"),
        ("print('no JSON')", "the self-check ended with status 0: it wrote no message"),
        ("print('[]', flush=True); import os; os.abort()", "the self-check ended with status -6"),
        ("import sys; print(sys.argv[1][:2]); print('[]')", ""),
        ("import gzarr; print([] if gzarr.config['default_zarr_format'] == 3 else ['a setting'])", ""),
    ],
)
def test_a_check_that_ends_otherwise_is_a_fault(monkeypatch: pytest.MonkeyPatch, child: str, words: str) -> None:
    monkeypatch.setattr(verify, "_CHILD", child)
    monkeypatch.setenv("GZARR_DEFAULT_ZARR_FORMAT", "2")
    start = time.perf_counter()
    faults = verify.run_self_check(1 if "sleep" in child else 300)
    assert (words in "; ".join(faults)) if words else faults == []
    assert time.perf_counter() - start < 600


def test_without_a_driver_the_cpu_is_taken_at_once() -> None:
    if driver.ask_driver().devices:
        pytest.skip("this machine has a GPU")
    code = (
        "import os, sys, warnings, gzarr\nwarnings.simplefilter('error')\n"
        "gzarr.zeros(3, device='cpu')\nbefore = set(sys.modules)\nstart = sum(os.times()[:4])\n"
        "z = gzarr.zeros(3)\nprint(sum(os.times()[:4]) - start, z.device, *sorted(set(sys.modules) - before))"
    )
    seconds, device, *loaded = run_python(code, {"GZARR_DEVICE": "auto"}).split()
    assert device == "cpu"
    assert {name.split(".")[0] for name in loaded} <= {"gzarr", "nvidia"}
    assert {name for name in loaded if name.startswith("gzarr.gpu.")} <= {
        "gzarr.gpu.detection",
        "gzarr.gpu.detection.driver",
    }
    assert float(seconds) < 0.1  # of its processors and its children's: some milliseconds


@needs_compiler
def test_the_driver_is_not_asked_where_cupy_is_missing(machine: Path) -> None:
    code = (
        "import importlib.util as u, gzarr\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'cupy' else find(name, *a)\n"
        "import gzarr.gpu.detection.driver as p\nz = gzarr.zeros(3)\n"
        "print(p.may_be_usable(), z.device, p.ask_driver.cache_info().currsize)"
    )
    assert run_python(code, {"LD_LIBRARY_PATH": str(machine), "GZARR_DEVICE": "auto"}).split() == ["False", "cpu", "0"]


def test_what_is_remembered_depends_on_what_it_was_found_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    answers = iter([["it failed"], [], ["it failed again"], []])
    monkeypatch.setattr(verify, "run_self_check", lambda timeout_s: next(answers))
    assert verify.find_faults() == verify.find_faults() == ["it failed"]
    monkeypatch.setattr(verify.detect, "versions", lambda: {"cupy": "99"})
    assert verify.find_faults() == verify.find_faults() == []
    for path in (tmp_path / "gzarr" / "self-checks").iterdir():
        path.write_text("{")
    assert verify.find_faults() == ["it failed again"]
    monkeypatch.setattr(verify, "FAILURE_S", 0)  # a failure of long ago
    assert verify.find_faults() == []


def test_a_check_anew_replaces_what_passed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    answers = iter([[], ["it fails now"]])
    monkeypatch.setattr(verify, "run_self_check", lambda timeout_s: next(answers))
    assert verify.last_verdict() is None
    assert verify.find_faults() == verify.find_faults() == []
    assert verify.find_faults(anew=True) == verify.find_faults() == ["it fails now"]
    verdict = verify.last_verdict()
    assert verdict is not None
    assert verdict.faults == ["it fails now"]
    assert time.time() - verdict.time < 60


def test_faults_of_one_kind_are_one_sentence() -> None:
    names = ["zstd", "gzip", "lz4", "blosc lz4 byte-shuffled", "zlib"]
    wrong, refused = "the GPU reads other values than the CPU at [...]", "the GPU fails with DeviceError: lz4: no"
    found = verify.sentences([f"{name}: {wrong}" for name in names] + [f"crc32c: {refused}", "it was killed"])
    assert found == [f"zstd, gzip, lz4 and 2 others: {wrong}", f"crc32c: {refused}", "it was killed"]
    assert verify.sentences([f"{name}: {wrong}" for name in names[:2]]) == [f"zstd and gzip: {wrong}"]


def test_where_no_cache_can_be_written_each_process_checks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    answers = iter([["one"], ["two"]])
    monkeypatch.setattr(verify, "run_self_check", lambda timeout_s: next(answers))
    assert (verify.find_faults(), verify.find_faults()) == (["one"], ["two"])


def test_a_failure_does_not_replace_what_passed_meanwhile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def check(timeout_s: float) -> list[str]:
        monkeypatch.setattr(verify, "run_self_check", lambda timeout_s: [])
        assert verify.find_faults() == []  # another process, which found memory enough
        return ["no memory"]

    monkeypatch.setattr(verify, "run_self_check", check)
    assert verify.find_faults() == ["no memory"]
    assert verify.find_faults() == []
    assert [file["faults"] for file in kept(tmp_path)] == [[]]


@pytest.mark.parametrize(
    "text", ["[]", "null", '{"faults": "", "time": 0}', '{"faults": {}, "time": 0}', "[" * 100_000]
)
def test_a_file_that_says_something_else_is_no_answer(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    assert verify.last_verdict(tmp_path / "a.json") is None


def test_a_full_disk_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(verify.json, "dump", lambda *args, **kwargs: (_ for _ in ()).throw(OSError("no space")))
    verify._remember(tmp_path / "a.json", {})
    assert list(tmp_path.iterdir()) == []


def test_whatever_is_in_the_path_the_check_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def start(command: list[str], **kwargs: Any) -> Any:
        started.append(json.loads(command[-1]))
        raise OSError("no process can be started")

    monkeypatch.setattr(verify.subprocess, "Popen", start)
    monkeypatch.setattr(sys, "path", ["a", Path("b"), b"c", None])
    assert verify.run_self_check(1) == ["the self-check could not be started: no process can be started"]
    assert started == [["a", "b", "c"]]


def test_a_program_without_an_interpreter_is_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(verify.subprocess, "Popen", lambda *args, **kwargs: pytest.fail("it was started"))
    assert "needs a Python interpreter" in verify.run_self_check(1)[0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@needs_compiler
def test_a_forked_process_asks_the_driver_anew(machine: Path) -> None:
    code = (
        "import os, gzarr.gpu.detection.driver as p\nprint(p.device_count(), flush=True)\n"
        "if os.fork() == 0:\n    print(p.ask_driver.cache_info().currsize, flush=True)\n    os._exit(0)\nos.wait()"
    )
    assert run_python(code, {"LD_LIBRARY_PATH": str(machine)}).split() == ["1", "0"]
