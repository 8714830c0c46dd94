"""Kernels compiled for the host: the library is made once, in the user's cache, and compilers that fail are named."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from gzarr.errors import DeviceError
from gzarr.gpu.device import hostbuild
from tests.gpu.kernels.launching import DEVICE


def copy_arguments() -> list:
    return [1, np.zeros(1, np.uint64), np.zeros(1, np.uint64), np.zeros(1, np.int64), np.zeros(2, np.int64)]


@pytest.mark.parametrize(
    ("position", "value", "message"),
    [
        (1, np.zeros(1, np.int64), "copy_streams, argument src: expected a C-contiguous array of uint64, got int64"),
        (3, np.zeros(4, np.int64)[::2], "copy_streams, argument nbytes: expected a C-contiguous array of int64"),
        (0, "x", "invalid literal"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(position: int, value: object, message: str) -> None:
    arguments = copy_arguments()
    arguments[position] = value
    with pytest.raises((TypeError, ValueError), match=message):
        DEVICE.launch("copy_streams", 1, arguments)


def test_wrong_launches_are_refused() -> None:
    with pytest.raises(TypeError, match="copy_streams takes 5 arguments, got 4"):
        DEVICE.launch("copy_streams", 1, copy_arguments()[:4])
    with pytest.raises(ValueError, match="the number of threads must be >= 0, got -1"):
        DEVICE.launch("copy_streams", -1, copy_arguments())
    out = np.zeros(4, np.uint8)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="find_written, argument written: the array is written"):
        DEVICE.launch("find_written", 1, [0, 16, out, 1, out, out])


def test_tables_may_be_addresses() -> None:
    source, target = np.arange(20, dtype=np.uint8), np.zeros(20, np.uint8)
    tables = [np.array([x], np.uint64) for x in (source.ctypes.data, target.ctypes.data)]
    tables += [np.array([20]), np.array([0, 2])]
    DEVICE.launch("copy_streams", 2, (1, *(table.ctypes.data for table in tables)))
    assert np.array_equal(source, target)


def test_the_library_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostbuild, "_cache_folder", lambda: tmp_path)
    monkeypatch.setattr(hostbuild, "host_source", lambda: 'extern "C" void nothing() {}')
    made = hostbuild.build()
    when = made.stat().st_mtime_ns
    assert hostbuild.build() == made
    assert made.stat().st_mtime_ns == when
    monkeypatch.setattr(hostbuild, "host_source", lambda: 'extern "C" void nothing() { }')
    assert hostbuild.build() != made
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".so", ".so"]


def test_a_source_that_does_not_compile_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostbuild, "_cache_folder", lambda: tmp_path)
    monkeypatch.setattr(hostbuild, "host_source", lambda: '#line 1 "some.cu"\nint broken(')
    with pytest.raises(DeviceError, match=r"could not compile the kernels for the host:\nsome\.cu:1"):
        hostbuild.build()
    assert list(tmp_path.iterdir()) == []


def test_the_library_of_the_package_is_taken_if_it_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostbuild, "_FOLDER", tmp_path)
    assert hostbuild.find_built() is None
    there = tmp_path / "_host_kernels.abi3.so"
    there.write_bytes(b"built from other sources")
    assert hostbuild.find_built() is None
    shutil.copy(hostbuild.build(), there)
    assert hostbuild.find_built() == there
    load = hostbuild._library.__wrapped__
    assert load(sanitize=False)._name == str(there)
    there.unlink()
    # One of another system.
    damaged = tmp_path / "_host_kernels.so"
    damaged.write_bytes(hostbuild.host_digest().encode())
    assert hostbuild.find_built() == damaged
    assert load(sanitize=False)._name == str(hostbuild.build())


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(DeviceError, match=r"needs a C\+\+17 compiler: install g\+\+, or name one in CXX"):
        hostbuild.build()
    assert hostbuild.sanitizer_preload() is None


@pytest.fixture
def fresh_cache_folder() -> object:
    hostbuild._cache_folder.cache_clear()
    yield hostbuild._cache_folder
    hostbuild._cache_folder.cache_clear()


def test_the_cache_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_cache_folder: object) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert hostbuild._cache_folder() == tmp_path / "gzarr" / "kernels"


def test_without_a_cache_the_library_lies_in_a_private_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_cache_folder: object
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    folder = hostbuild._cache_folder()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.is_relative_to(tmp_path)
