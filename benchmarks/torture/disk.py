"""A disk that is full: writes fail, what was there stays, and writing goes on when there is room again.

The disk is a small `tmpfs`, mounted in a mount namespace of the child. Where the machine forbids that, no file of the
child may grow beyond a limit (`RLIMIT_FSIZE`), which fails in the same places; the notes say so.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.torture import kills
from benchmarks.torture.children import apart, error_text, found, is_own, shared
from benchmarks.torture.libraries import Gzarr
from benchmarks.torture.scenario import Counts, Scenario, Setting, rounds
from benchmarks.torture.stores import Place, leftover_files

DISK_BYTES = 3 << 20
PAGE = 4096
BALLAST = "ballast"
ROOMS = [*range(0, 15 * PAGE, PAGE), 100_000, 200_000]  # bytes left on the disk when writing begins
LEVELS = 5  # of them on one disk
BATCHES = 8
CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
ON_DISKS = ("local", "zip", "sqlite")


def full_disk(setting: Setting) -> Counts:
    """Fill the disk but for some bytes, write until it is full, make room, and go on."""
    library, total = Gzarr(), Counts()
    for number, rng in rounds(setting):
        folder = setting.folder / str(number)
        folder.mkdir()
        outcome = apart(_fill, library, setting.store, folder, int(rng.integers(1 << 30)))
        if outcome.status == "done":
            total += found(outcome)
        else:
            total += outcome.counts()
    return total


def _fill(library: Gzarr, kind: str, folder: Path, seed: int) -> Any:
    how = limited_disk(folder)
    place = Place(kind, folder)
    rng = np.random.default_rng(seed)
    state = shared((2, 2, kills.ROWS))
    kills.create(library, place, bool(rng.integers(2)))
    kills.write_rows(library, place, state, seed, most=5)
    counts = Counts()
    for room in rng.choice(ROOMS, LEVELS, replace=False).tolist():
        take_room(folder, room, how)
        held: kills.Held = []
        counts += _write_until_full(library, place, state, rng, held)
        counts += found(apart(partial(kills.check_rows, settled=not held), library, place, state))
        give_room(folder, how)
        try:
            for store in held:
                store.close()  # again, as the error says
            kills.write_rows(library, place, state, int(rng.integers(1 << 30)), most=1)
        except Exception as error:  # noqa: BLE001 - any failure is one
            counts += Counts(damaged=1, notes=(f"with room again: {error_text(error)}",))
        counts += found(apart(kills.check_rows, library, place, state))
    counts += leftover_files(place)
    return (counts + Counts(notes=(f"by {how}",) if how != "tmpfs" else ())).to_json()


def _write_until_full(
    library: Gzarr, place: Place, state: kills.Numbers, rng: np.random.Generator, held: kills.Held
) -> Counts:
    counts = Counts()
    for _ in range(BATCHES):
        try:
            kills.write_rows(library, place, state, int(rng.integers(1 << 30)), most=1, held=held)
            counts += Counts(operations=1)
        except Exception as error:  # noqa: BLE001 - which error it is, is the question
            own = is_own(error)
            counts += Counts(refused=int(own), raw_errors=int(not own), notes=() if own else (error_text(error),))
            if held or counts.refused + counts.raw_errors == 2:
                break
    return counts


def limited_disk(folder: Path) -> str:
    """Mount a small disk on a folder, seen by this process alone. Returns: "tmpfs", or "RLIMIT_FSIZE" instead."""
    libc = ctypes.CDLL(None, use_errno=True)
    identity = (os.getuid(), os.getgid())
    if libc.unshare(CLONE_NEWNS | (CLONE_NEWUSER if os.getuid() else 0)) == 0:
        if identity[0]:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{identity[0]} {identity[0]} 1")
            Path("/proc/self/gid_map").write_text(f"{identity[1]} {identity[1]} 1")
        private = 1 << 18 | 1 << 14  # MS_PRIVATE | MS_REC: the mount stays in this namespace
        libc.mount(b"none", b"/", None, private, None)
        if libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, f"size={DISK_BYTES}".encode()) == 0:
            return "tmpfs"
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    return "RLIMIT_FSIZE"


def take_room(folder: Path, room: int, how: str) -> None:
    """Leave so many bytes, or let files grow to so many."""
    if how == "RLIMIT_FSIZE":
        resource.setrlimit(resource.RLIMIT_FSIZE, (PAGE + room, resource.RLIM_INFINITY))
        return
    about = os.statvfs(folder)
    nbytes = max(0, about.f_bavail * about.f_frsize - room)
    with (folder / BALLAST).open("wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, max(1, nbytes))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


def give_room(folder: Path, how: str) -> None:
    """Take the limit away."""
    if how == "RLIMIT_FSIZE":
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    else:
        (folder / BALLAST).unlink()


SCENARIOS = (Scenario("full disk", "the disk is full, and then has room again", full_disk, ON_DISKS),)
