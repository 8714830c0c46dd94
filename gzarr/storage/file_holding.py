"""Holds the locks of several files for one ``with`` statement, within the descriptors that a process may have."""
# Plain os calls: pathlib costs more than the system calls themselves.
# ruff: noqa: PTH120

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from gzarr.concurrency import after_fork
from gzarr.storage.file_locks import UNWRITABLE, FileLock, holds_any
from gzarr.storage.locks import HeldLocks, reentered

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

# At most half of the descriptors that a process may have, or so many, are held by threads that hold several locks.
_MOST_DESCRIPTORS = 512


# How many descriptors the holders of several locks may use, in the order in which they asked.
_claims: dict[int, int] = {}
# How long a holder sleeps before it looks again whether there are descriptors for it.
_CLAIM_WAIT_S = 0.001


class Holding(HeldLocks):
    """The locks of some files, held for one ``with`` statement besides a lock of this process.

    Parameters
    ----------
    inner : context manager
        The lock of this process, which is taken first. Its end may be asked for twice.
    paths : sequence of str
        Paths of the files, in the order in which they are to be locked.
    fail : callable
        Makes the error to raise of a path and an OSError.
    tidy : callable
        Called with directories that may have been made for a lock alone.
    lenient : bool
        Whether to go on without a lock where the directory cannot be written, and where the thread holds it already.
    """

    __slots__ = ("_fail", "_inner", "_lenient", "_locks", "_paths", "_tidy")

    def __init__(
        self,
        inner: AbstractContextManager[Any],
        paths: Sequence[str],
        fail: Callable[[str, OSError], Exception],
        tidy: Callable[[str], None],
        *,
        lenient: bool = False,
    ) -> None:
        self._inner = inner
        self._paths = paths
        self._fail = fail
        self._tidy = tidy
        self._lenient = lenient
        self._locks: list[FileLock] = []

    def _take(self) -> None:
        self._inner.__enter__()
        if len(self._paths) > 1:
            _claim(id(self), len(self._paths))
        for path in self._paths:
            lock = FileLock(path)
            self._locks.append(lock)
            try:
                taken = lock.take()
            except OSError as error:
                if not (self._lenient and error.errno in UNWRITABLE):
                    raise self._fail(path, error) from error
                lock.close()
            else:
                if not (self._lenient or taken is lock or taken is None):
                    raise reentered(repr(path))

    def _release(self) -> None:
        self._end()
        self._inner.__exit__(None, None, None)

    def _end(self) -> None:
        while self._locks:
            lock = self._locks[-1]
            if lock.is_open:
                lock.end()
                self._tidy(os.path.dirname(lock.path))
            lock.close()
            self._locks.pop()
        _claims.pop(id(self), None)

    def __del__(self) -> None:
        if getattr(self, "_locks", ()):  # an interrupt came as it was about to end
            self._end()


def _claim(holder: int, n: int) -> None:
    """Wait until a thread may use `n` more descriptors. One that holds locks does not wait: others wait for it.

    Claims are served in their order. They need no lock, which an interrupt could leave taken.
    """
    limit = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2, _MOST_DESCRIPTORS) if resource else n
    _claims[holder] = n
    if holds_any():
        return
    while (total := _total_up_to(holder)) > limit and total > n:
        time.sleep(_CLAIM_WAIT_S)


def _total_up_to(holder: int) -> int:
    """Number of descriptors of a claim and of those made before it."""
    total = 0
    for other, n in _claims.copy().items():
        total += n
        if other == holder:
            break
    return total


after_fork(_claims.clear)
