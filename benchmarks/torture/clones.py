"""Large shards whose files are cloned (reflinks) or copied, while writers are killed: a chunk is whole, old or new.

The file system is Btrfs or XFS in a file, mounted in a mount namespace of the child, which needs root and a loop
device. After the kills, what a write of one chunk added to the disk says whether files were cloned.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import gzarr
from benchmarks.torture.children import apart, found, killed, shared
from benchmarks.torture.disk import CLONE_NEWNS
from benchmarks.torture.scenario import Counts, Scenario, Setting, rounds

DISK_BYTES = 512 << 20
CHUNK, N_CHUNKS = 1 << 13, 256  # of 8-byte elements: 64 KiB each in a shard of 16 MiB
KILLS = 6
#: How file systems that clone are made.
MAKERS = {"btrfs": ("mkfs.btrfs", "-q"), "xfs": ("mkfs.xfs", "-q", "-m", "reflink=1")}


def clones(setting: Setting) -> Counts:
    """Kill writers of single chunks of a shard on a file system that clones files."""
    total = Counts()
    for number, rng in rounds(setting):
        folder = setting.folder / str(number)
        folder.mkdir()
        total += found(apart(_torture, folder, int(rng.integers(1 << 30))))
        shutil.rmtree(folder)
    return total


def absence() -> str | None:
    """Why this machine cannot run it."""
    if os.getuid():
        return "mounting a file system needs root"
    if _kind() is None:
        return "neither mkfs.btrfs nor mkfs.xfs is installed"
    with TemporaryDirectory() as folder:
        outcome = apart(lambda: mounted(Path(folder)) is not None)
    return None if outcome.value else "this machine lets no file system in a file be mounted"


def _kind() -> str | None:
    return next((kind for kind, (program, *_) in MAKERS.items() if shutil.which(program)), None)


def mounted(folder: Path) -> Path | None:
    """A file system that clones files, seen by this process and its children alone; None if it cannot be mounted."""
    kind, image, disk = _kind(), folder / "image", folder / "disk"
    libc = ctypes.CDLL(None, use_errno=True)
    if kind is None or libc.unshare(CLONE_NEWNS):
        return None
    libc.mount(b"none", b"/", None, 1 << 18 | 1 << 14, None)  # MS_PRIVATE | MS_REC
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(DISK_BYTES)
    for command in ([*MAKERS[kind], str(image)], ["mount", "-o", "loop", str(image), str(disk)]):
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return None
    return disk


def _torture(folder: Path, seed: int) -> Any:
    disk, rng, counts = mounted(folder), np.random.default_rng(seed), Counts()
    if disk is None:
        return Counts(raw_errors=1, notes=("the file system cannot be mounted",)).to_json()
    size = CHUNK * N_CHUNKS
    array = gzarr.create_array(disk / "a", shape=size, dtype="i8", chunks=CHUNK, shards=size, compressors=None)
    array[:] = np.repeat(np.arange(N_CHUNKS), CHUNK)
    values, begun = shared((2, N_CHUNKS)), shared(1)  # what is settled, and what is being written
    values[:] = np.arange(N_CHUNKS)
    for _ in range(KILLS):
        begun[0] = 0
        killed(
            _write, disk / "a", values, begun, int(rng.integers(1 << 30)), begun=begun, after_s=float(rng.random() / 4)
        )
        counts += found(apart(_check, disk / "a", values))
    _write(disk / "a", values, begun, 0, most=1)
    os.sync()
    before = os.statvfs(disk).f_bfree
    os.link(disk / "a/c/0", disk / "kept")  # whose blocks stay, so that a copy takes as many again
    _write(disk / "a", values, begun, 1, most=1)
    os.sync()
    about = os.statvfs(disk)
    if (before - about.f_bfree) * about.f_frsize > size * 8 // 2:
        counts += Counts(wrong=1, notes=("the file of the shard was copied, not cloned",))
    (disk / "kept").unlink()
    left = [file.name for file in disk.rglob("*") if file.is_file() and file.name not in ("zarr.json", "0")]
    return (counts + found(apart(_check, disk / "a", values)) + Counts(leftover_files=len(left))).to_json()


def _write(where: Path, values: Any, begun: Any, seed: int, most: int = 1 << 30) -> None:
    """Write chunk after chunk, each full of one value."""
    array, rng = gzarr.open_array(where, mode="r+"), np.random.default_rng(seed)
    for _ in range(most):
        at = int(rng.integers(N_CHUNKS))
        values[1, at] = int(rng.integers(1 << 60))
        begun[0] += 1
        array[at * CHUNK : (at + 1) * CHUNK] = values[1, at]
        values[0, at] = values[1, at]


def _check(where: Path, values: Any) -> Any:
    """Every chunk is full of its settled value, or of the one that was being written, which is then settled."""
    stored = gzarr.open_array(where, mode="r")[:].reshape(N_CHUNKS, CHUNK)
    torn = (stored != stored[:, :1]).any(axis=1)
    known = (stored[:, 0] == values[0]) | (stored[:, 0] == values[1])
    values[:] = stored[:, 0]
    return Counts(operations=N_CHUNKS, damaged=int(torn.sum()), lost=int((~known & ~torn).sum())).to_json()


SCENARIOS = (
    Scenario("clones", "writers of chunks of large shards are killed where files are cloned", clones, absence=absence),
)
