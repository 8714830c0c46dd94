"""Says which locks of files are waited for longer than a few seconds, and which process holds them.

A wait for a lock has no time limit, so a thread looks at all waits of the process once in a while, until nobody waits.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from gzarr.concurrency import Pool, after_fork, new_lock

T = TypeVar("T")

#: Seconds after which a wait is logged, once.
NOTICE_S = 5.0

_guard = new_lock()
#: When each wait began and the path of what is locked, by a number.
_waits: dict[int, tuple[float, str]] = {}
#: Not empty while a thread looks at them.
_watching: list[bool] = []
_pool = Pool()


def wait_for(path: str, wait: Callable[[], T]) -> T:
    """Wait for the lock of a file. One that takes long is logged with the path and the process that holds it."""
    number = id(wait)
    _waits[number] = time.monotonic(), path
    try:
        with suppress(RuntimeError), _guard:  # no thread can be started at the end of the process
            if not _watching:
                _pool.submit(_watch, 1)
                _watching.append(True)
        return wait()
    finally:
        _waits.pop(number, None)


def _watch() -> None:
    logged: set[tuple[float, str]] = set()
    while True:
        time.sleep(NOTICE_S / 5)
        with _guard:
            if not _waits:
                _watching.clear()
                return
        now = time.monotonic()
        late = {wait for wait in list(_waits.values()) if now - wait[0] > NOTICE_S}
        for _, path in late - logged:
            log_wait(path)
        logged = late


def log_wait(path: str) -> None:
    """Log that a lock is waited for. path: of the file that is locked."""
    import logging  # which nothing else needs

    logger = logging.getLogger("gzarr.storage")
    logger.warning("waiting for the lock %r for more than %g seconds%s", path, NOTICE_S, _holder(path))


def _holder(path: str) -> str:
    """The process that holds the lock of a file, in words, where the system tells."""
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/locks").read_text(encoding="utf-8").splitlines()
        info = os.lstat(path)
        place = f"{os.major(info.st_dev):02x}:{os.minor(info.st_dev):02x}:{info.st_ino}"
        for fields in map(str.split, lines):
            if fields[1] != "->" and fields[5] == place:  # an arrow stands before those who wait, too
                return _named(int(fields[4]))
    return ""


def _named(process: int) -> str:
    if process == os.getpid():
        return "; another thread of this process holds it"
    name = ""
    with suppress(OSError):
        name = f" ({Path(f'/proc/{process}/comm').read_text(encoding='utf-8', errors='replace').strip()!r})"
    return f"; process {process}{name} holds it"


@after_fork
def _forget() -> None:
    """Begin anew in a forked child, in which nobody waits and no thread watches."""
    _waits.clear()
    _watching.clear()
