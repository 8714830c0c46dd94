"""Logs which locks of files are waited for longer than a few seconds.

A wait for a lock has no time limit, so another thread looks at it once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
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
    """Wait for the lock of a file. One that takes long is logged with its path."""
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
    logger.warning(
        "waiting for the lock %r for more than %g seconds; `lslocks` tells which process holds it",
        path,
        NOTICE_S,
    )
