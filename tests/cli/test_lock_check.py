"""Locks of local files as the setting ``locks`` chooses them, and the check of two places that change one chunk."""

import os
import subprocess
import sys
from pathlib import Path
from time import monotonic

import pytest

from gzarr.cli.lock_check import check_locks
from gzarr.errors import StoreError

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("locks", ["fcntl", "node", "none"])
def test_two_processes_lose_nothing_with_locks(tmp_path: Path, locks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mount").symlink_to(tmp_path, target_is_directory=True)  # the same folder by another name
    env = {**os.environ, "PYTHONPATH": str(ROOT), "GZARR_LOCKS": locks, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "gzarr", "verify", "--locks"]
    runs = [
        subprocess.Popen([*command, str(path)], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for path in (tmp_path, tmp_path / "mount")
    ]
    told = [run.communicate()[0] for run in runs]
    assert [run.returncode for run in runs] == ([1, 1] if locks == "none" else [0, 0]), told
    assert told[0].replace(str(tmp_path), "") == told[1].replace(str(tmp_path / "mount"), "")
    assert all(("were lost" if locks == "none" else "none lost") in one and locks in one for one in told)
    monkeypatch.setattr("gzarr.cli.lock_check.create_array", lambda *_, **__: 1 / 0)  # a disk that is full, say
    with pytest.raises(ZeroDivisionError):
        check_locks(str(tmp_path))
    (tmp_path / "gzarr-lock-check").mkdir()
    for name in ("0", "1"):
        (tmp_path / "gzarr-lock-check" / name).touch()
    with pytest.raises(StoreError, match="it is left from a killed one: delete it"):
        check_locks(str(tmp_path))
    monkeypatch.undo()
    (tmp_path / "gzarr-lock-check" / "0").unlink()
    begun = monotonic()
    with pytest.raises(StoreError, match="or it has stopped"):
        check_locks(str(tmp_path), n=1, wait_s=2)
    assert monotonic() - begun < 3.5
