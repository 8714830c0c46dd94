"""Waits for the locks of files: those that take long are logged."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import gzarr
from gzarr.storage import locks
from gzarr.storage.file_locks import temporary_path

pytest.importorskip("fcntl")


@pytest.mark.parametrize("native", [True, False])
def test_a_long_wait_is_logged(
    native: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    z = gzarr.create_array(tmp_path, shape=4, dtype="i4", chunks=2, fill_value=0)
    (tmp_path / "c").mkdir()
    monkeypatch.setattr(locks, "NOTICE_S", 0.1)
    path = temporary_path(str(tmp_path / "c" / "0"))
    script = f"import fcntl, sys; f = open({path!r}, 'w'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); input()"
    with (
        gzarr.config.set({"cpu.native": native}),
        subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder,
    ):
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdout.readline()
        writer = threading.Thread(target=z.__setitem__, args=(slice(None), 1))
        writer.start()
        wait_until(lambda: caplog.messages)
        time.sleep(0.3)
        holder.stdin.close()
        writer.join(60)
    (message,) = caplog.messages
    assert repr(path) in message
    assert z[:].tolist() == [1, 1, 1, 1]


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
