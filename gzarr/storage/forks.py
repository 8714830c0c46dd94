"""What a fork would copy halfway: databases in use by other threads, and the threads and connections of clients.

A forked child has one thread. Locks that other threads held are never released in it. A library that guards itself by
such locks (SQLite) hangs at its next call, so no thread is inside one of them while the process forks: a thread
holds a lock of its own meanwhile, and a fork takes the locks of all threads.

A client whose threads or connections do not survive a fork raises an error in the child (`ForkGuard.check`).
"""

import os
import threading
import time
from collections.abc import Hashable
from weakref import WeakSet

from gzarr.concurrency import is_held_here
from gzarr.errors import StoreError
from gzarr.storage.locks import entering

#: Seconds that a fork waits for the other threads: longer than any transaction that does not wait itself.
_WAIT_S = 10.0

_locks: WeakSet[threading.RLock] = WeakSet()
#: Held while locks are added, and during a fork. Collecting garbage may add one while it is held.
_adding = threading.RLock()
_held: list[threading.RLock] = []
#: Not empty while a fork waits for threads to leave.
_waiting: list[None] = []


class _Own(threading.local):
    """The lock of the current thread, which it may take several times, and those of the databases that it is in."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.calls: dict[Hashable, threading.RLock] = {}
        with _adding:
            _locks.add(self.lock)


_own = _Own()


def inside_library() -> threading.RLock:
    """A context manager for calls of a library that must not be forked: forks by other threads wait for its end."""
    lock = _own.lock
    if _waiting and not is_held_here(lock):
        with _adding:  # the fork comes first: those who are inside may wait for each other
            pass
    return lock


def one_call(database: Hashable) -> threading.RLock:
    """A context manager for a call of a database, which would wait for ever for another call of the same thread.

    Raises: StoreError if the thread is within one, as finalizers and handlers of signals may be.
    """
    lock = _own.calls.get(database) or _own.calls.setdefault(database, threading.RLock())
    return entering(lock, f"the database {database!r}")


def _before() -> None:
    _adding.acquire()
    _waiting.append(None)
    until = time.monotonic() + _WAIT_S
    _held.extend(lock for lock in list(_locks) if lock.acquire(timeout=max(until - time.monotonic(), 0)))


def _after() -> None:
    while _held:
        _held.pop().release()
    _waiting.clear()
    _adding.release()


class ForkGuard:
    """Whether the client of a server has threads or connections that its process was forked without.

    Parameters
    ----------
    name : str
        What the client is called in errors.
    """

    __slots__ = ("_name", "_pid")

    def __init__(self, name: str) -> None:
        self._name = name
        self._pid = 0

    def check(self, store: object) -> None:
        """Note that the client is used. Raises: StoreError if it was used before this process was forked."""
        pid = os.getpid()
        if self._pid != pid:
            if self._pid:
                raise StoreError(
                    f"store {store}: this process was forked after its parent had used {self._name}, whose threads and"
                    " connections do not survive a fork; start worker processes with the method 'spawn' or"
                    " 'forkserver' (multiprocessing.get_context, DataLoader(multiprocessing_context=...)), or fork"
                    " before the first read"
                )
            self._pid = pid

    def __reduce__(self) -> "tuple[type[ForkGuard], tuple[str]]":
        return ForkGuard, (self._name,)


#: Libraries whose objects share one set of threads.
OBSTORE = ForkGuard("obstore")
ICECHUNK = ForkGuard("icechunk")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
