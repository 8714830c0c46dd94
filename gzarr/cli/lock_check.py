"""Checks that two hosts, or two mounts of one folder, exclude each other: both change one chunk at the same time."""

import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from gzarr.api.create import create_array
from gzarr.api.open import open_array
from gzarr.config import config
from gzarr.errors import StoreError

_FOLDER, _POLL_S = "gzarr-lock-check", 0.005


def check_locks(path: str, n: int = 300, wait_s: float = 60.0) -> int:
    """Change a chunk at least so many times while another run of this function does so, on another host, say.

    Prints what was seen. Returns: 1 if changes were lost, or 0. Raises: StoreError if no other run came in this time.
    """
    place = Path(path, _FOLDER)
    place.mkdir(exist_ok=True)
    number = _number_in(place)
    other = 1 - number
    print(f"waiting for the same command on another host or mount, for {wait_s:g} s at most", file=sys.stderr)
    try:
        if number == 0:
            create_array(place / "a.zarr", shape=2, chunks=2, dtype="i8")
        _wait(lambda: (place / "a.zarr/zarr.json").exists() and (place / str(other)).exists(), wait_s, path)
        array, lost, count, end = open_array(place / "a.zarr", "r+"), 0, 0, float("inf")
        # Whoever is first goes on until the other one is through: all its changes meet others.
        while count < n or not ((place / f"{other}-changed").exists() or monotonic() > end):
            lost += int(array[number] != count)
            count += 1
            array[number] = count
            if count == n:
                (place / f"{number}-changed").touch()
                end = monotonic() + wait_s
        wait_s *= (place / f"{other}-changed").exists()  # no longer for a run that is missing
        _meet(place, f"{number}-stopped", f"{other}-stopped", wait_s, path)
        lost += int(array[number] != count)
        found = _meet(place, f"{number}-lost-{lost}-{count}", f"{other}-lost-*", wait_s, path)
        lost, count = (own + int(its) for own, its in zip((lost, count), found.split("-")[2:], strict=True))
        if number == 0:
            _wait((place / "1-ended").exists, wait_s, path)
        else:
            (place / "1-ended").touch()
    finally:
        if number == 0:
            shutil.rmtree(place, ignore_errors=True)
    _tell(lost, count, path)
    return int(lost > 0)


def _tell(lost: int, count: int, path: str) -> None:
    """Print what was seen."""
    held = f"with locks={config['locks']!r}"
    if lost:
        print(
            f"{path}: {lost} of {count} changes of one chunk were lost {held}: let processes write whole chunks or "
            "shards alone (Array.regions), or choose other locks; see the documentation of stores"
        )
    else:
        print(f"{count} changes of one chunk from two places, none lost, {held}")


def _number_in(place: Path) -> int:
    """Take the first number that no other run has taken: 0 or 1."""
    for number in range(2):
        with suppress(FileExistsError):
            (place / str(number)).touch(exist_ok=False)
            return number
    raise StoreError(f"{place}: two other runs are using it, or it is left from a killed one: delete it")


def _meet(place: Path, own: str, other: str, wait_s: float, path: str) -> str:
    """Say that this run has come so far, and wait until the other one says so. Returns: what it says."""
    (place / own).touch()
    _wait(lambda: any(place.glob(other)), wait_s, path)
    return next(place.glob(other)).name


def _wait(condition: Callable[[], bool], wait_s: float, path: str) -> None:
    end = monotonic() + wait_s
    while not condition():
        if monotonic() > end:
            raise StoreError(
                f"{path}: no other run came in time, or it has stopped: start the same command on the other host, or "
                "with the path of the other mount, at the same time"
            )
        sleep(_POLL_S)
