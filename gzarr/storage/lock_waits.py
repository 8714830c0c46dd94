"""Logs which locks of files are waited for longer than a few seconds, and which process holds them.

A wait for a lock has no time limit, so another thread looks at it once.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeVar

from gzarr.concurrency import Pool

T = TypeVar("T")

#: Seconds after which a wait is logged, once.
NOTICE_S = 5.0
#: Waits that are looked at at once.
_MOST = 64
_pool = Pool()


def wait_for(path: str, wait: Callable[[], T]) -> T:
    """Wait for the lock of a file. One that takes long is logged with the path and the process that holds it."""
    ended: SimpleQueue[None] = SimpleQueue()

    def watch() -> None:
        try:
            ended.get(timeout=NOTICE_S)
        except Empty:
            log_wait(path)

    try:
        with suppress(RuntimeError):  # no thread can be started at the end of the process
            _pool.submit(watch, _MOST)
        return wait()
    finally:
        ended.put(None)


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
