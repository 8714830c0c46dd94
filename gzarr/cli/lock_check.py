"""Checks that two hosts, or two mounts of one folder, exclude each other: both change one chunk at the same time."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from gzarr.api.create import create_array
from gzarr.api.open import open_array
from gzarr.config import config
from gzarr.errors import StoreError

_FOLDER, _POLL_S = "gzarr-lock-check", 0.05


def check_locks(path: str, n: int = 300, wait_s: float = 60.0) -> str:
    """Change a chunk so many times while another run of this function does so, on another host, say.

    Returns: what was seen. Raises: StoreError if changes were lost, or no other run came in this time.
    """
    place = Path(path, _FOLDER)
    place.mkdir(exist_ok=True)
    for number in range(2):
        with suppress(FileExistsError):
            (place / str(number)).touch(exist_ok=False)
            break
    else:
        raise StoreError(f"{place}: two other runs are using it, or it is left from a killed one: delete it")
    if number == 0:
        create_array(place / "a.zarr", shape=2, chunks=2, dtype="i8")
    other = 1 - number
    try:
        _wait(lambda: (place / "a.zarr/zarr.json").exists() and (place / str(other)).exists(), wait_s, path)
        array, lost = open_array(place / "a.zarr", "r+"), 0
        for count in range(n):
            lost += int(array[number] != count)
            array[number] = count + 1
        (place / f"{number}-lost-{lost}").touch()
        _wait(lambda: any(place.glob(f"{other}-lost-*")), wait_s, path)
        lost += int(next(place.glob(f"{other}-lost-*")).name.rpartition("-")[2]) + int(array[number] != n)
        (place / f"{number}-ended").touch()
        if number == 0:
            _wait((place / "1-ended").exists, wait_s, path)
    finally:
        if number == 0:
            shutil.rmtree(place, ignore_errors=True)
    if lost:
        raise StoreError(
            f"{path}: {lost} of {2 * n} changes of one chunk were lost with locks={config['locks']!r}: let processes "
            "write whole chunks or shards alone (Array.regions), or choose other locks; see the documentation of stores"
        )
    return f"{2 * n} changes of one chunk from two places, none lost, with locks={config['locks']!r}"


def _wait(condition: Callable[[], bool], wait_s: float, path: str) -> None:
    end = monotonic() + wait_s
    while not condition():
        if monotonic() > end:
            raise StoreError(
                f"{path}: no other run came within {wait_s:g} s: start the same command on the other host, or with the "
                "path of the other mount, at the same time"
            )
        sleep(_POLL_S)
