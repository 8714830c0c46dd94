"""A disk that fills while something is written: an error that says so, and nothing stored before is lost."""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.support.processes import ROOT, output_of

#: Fills a store with objects until that fails, then reads it, deletes, and writes again.
FILL = """
import os
from gzarr.errors import StoreError
from gzarr.storage import {kind}
open_it = lambda mode: {kind}("disk/x"{mode})
store = open_it("w")
stored = {{}}
try:
    for n in range(500):
        value = os.urandom(20_000 + n)
        store[f"c/{{n}}"] = value
        stored[f"c/{{n}}"] = value
    print("never full")
except StoreError as error:
    print(str(error).replace("\\n", " "))
print(len(stored) > 20 and {{key: bytes(store[key]) for key in stored}} == stored)
os.unlink("disk/filler")
store["c/new"] = stored["c/new"] = bytes(30_000)
store.close()
store = open_it("r")
print(dict(store) == stored)
"""


@cache
def _small_disks() -> bool:
    """Whether this user may mount a small file system of its own."""
    unshare = shutil.which("unshare")
    return unshare is not None and subprocess.run([unshare, "-rm", "true"], check=False).returncode == 0


def run_on_small_disk(code: str, path: Path) -> list[str]:
    """What the code prints, line by line; ``disk/`` is a file system of 2 MiB, with a file of 128 KiB."""
    if not _small_disks():
        pytest.skip("this user may not mount a file system (unshare -rm)")
    (path / "disk").mkdir()
    mount = 'mount -t tmpfs -o size=2m tmpfs disk && head -c 131072 /dev/zero > disk/filler && exec "$@"'
    command = ["unshare", "-rm", "sh", "-c", mount, "sh", sys.executable, "-c", code]
    return output_of(command, cwd=path, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=300).splitlines()


def test_a_full_disk_is_an_error_and_loses_nothing(tmp_path: Path) -> None:
    error, kept, written = run_on_small_disk(FILL.format(kind="SQLiteStore", mode=""), tmp_path)
    assert "c/" in error
    assert "is the disk full?" in error
    assert (kept, written) == ("True", "True")


def test_an_archive_on_a_full_disk_keeps_what_it_held(tmp_path: Path) -> None:
    """The disk fills in the midst of an entry, and then again within the directory."""
    code = """
import os, warnings
from gzarr.errors import StoreError
from gzarr.storage import ZipStore
with ZipStore("disk/x.zip", "w") as store:
    store.update({f"c/{n}": bytes([n]) * 1000 for n in range(100)})
    old = dict(store)
store = ZipStore("disk/x.zip", "a")
stored = dict(old)
value = os.urandom(50_000)
for n in range(1000):
    try:
        store[f"d/{n}"] = value
        stored[f"d/{n}"] = value
    except StoreError as error:
        if len(value) == 1:
            break
        print(error)
        value = value[: len(value) // 2 + 1 if len(value) > 2 else 1]
print(dict(store) == stored)
try:
    store.close()
except StoreError as error:
    print(error)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    with ZipStore("disk/x.zip") as again:
        print(dict(again) == old)
os.unlink("disk/filler")
store.close()
with ZipStore("disk/x.zip") as again:
    print(dict(again) == stored)
"""
    *errors, kept, failed, old, finished = run_on_small_disk(code, tmp_path)
    assert errors
    assert all("No space left" in error for error in errors)
    assert "make room and close the store again" in failed
    assert (kept, old, finished) == ("True", "True", "True")
