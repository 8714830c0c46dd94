"""Locks on stored objects, for changing part of an object: read, modify, write back.

A name has a lock while it is held or awaited: nothing grows with the number of chunks, and different
names never wait for each other. Several names are locked in the order in which their locks were made, which is the same
for all who wait for them, so callers with crossing sets of names cannot block each other. Nodes have a table of their
own: a thread that resizes an array holds the lock of its node while objects are locked, also by other threads that
work for it. So have metadata documents: a thread that holds a node rewrites its document and those above it, one at a
time.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Hashable, Iterable
from contextlib import AbstractContextManager
from itertools import count
from operator import attrgetter, methodcaller

from gzarr.concurrency import after_fork


class _Lock:
    """The lock of one name.

    Attributes
    ----------
    lock
        Which one thread may take several times.
    n_users
        How many hold it or wait for it.
    number : int
        In the order in which locks were made.
    """

    __slots__ = ("lock", "n_users", "number")

    def __init__(self, number: int) -> None:
        self.lock = threading.RLock()
        self.n_users = 0
        self.number = number


class _Table:
    """The locks of all names that are held or waited for."""

    def __init__(self) -> None:
        self.numbers = count()
        self.reset()

    def reset(self) -> None:
        """Begin with no locks."""
        self.locks: dict[Hashable, _Lock] = {}
        # Collecting garbage may lock objects while a thread holds it.
        self.guard = threading.RLock()

    def holding(self, names: Iterable[Hashable]) -> AbstractContextManager[None]:
        """A context manager that holds the locks of some names."""
        return _Held(self, set(names))


class _Held(AbstractContextManager[None]):
    """Some names, locked for one ``with`` statement."""

    __slots__ = ("_held", "_names", "_releases", "_table", "_wanted")

    def __init__(self, table: _Table, names: set[Hashable]) -> None:
        self._table = table
        self._names = names
        self._wanted: dict[Hashable, _Lock] = {}
        self._held: list[threading.RLock] = []
        self._releases = map(_release, self._held)

    def __enter__(self) -> None:
        table, wanted = self._table, self._wanted
        try:
            with table.guard:
                for name in self._names:
                    lock = table.locks.get(name)
                    if lock is None:
                        lock = table.locks[name] = _Lock(next(table.numbers))
                    lock.n_users += 1
                    wanted[name] = lock
            # No Python runs between the taking of a lock and its being noted, so no interrupt can come there.
            locks = sorted(wanted.values(), key=_number)
            self._held.extend(filter(_acquire, map(_lock, locks)))
        except BaseException:  # an interrupt while waiting must not leave the first ones locked
            self.__exit__()
            raise

    def __exit__(self, *exc: object) -> None:
        try:
            self._end()
        except BaseException:  # an interrupt
            self._end()
            raise

    def _end(self) -> None:
        """Release the locks and forget their names. After an interrupt, another call continues."""
        deque(self._releases, 0)
        table, wanted = self._table, self._wanted
        with table.guard:
            while wanted:
                name, lock = wanted.popitem()
                lock.n_users -= 1
                if not lock.n_users and table.locks.get(name) is lock:  # another's after a fork
                    del table.locks[name]


_number, _lock = attrgetter("number"), attrgetter("lock")
_acquire, _release = methodcaller("acquire"), methodcaller("release")
_objects, _nodes, _documents = _Table(), _Table(), _Table()


@after_fork
def _reset() -> None:
    """Start with fresh locks: in a forked child, the threads that held the old ones do not exist."""
    for table in (_objects, _nodes, _documents):
        table.reset()


def key_locks(names: Iterable[Hashable]) -> AbstractContextManager[None]:
    """Lock objects against read-modify-write by other threads of this process.

    A thread may lock a name again while it holds it, but must not lock *further* names then: it should ask for all
    names in one call, or two threads can block each other.

    This covers the threads of one process. `Store.locked` is where stores with a synchronizer add protection between
    processes.

    Parameters
    ----------
    names : iterable of hashable
        What `Store.lock_name` says of each object, in any order; names may repeat.

    Returns
    -------
    context manager
        Holds the locks, for one ``with`` statement.

    Examples
    --------
    >>> with key_locks([("store", "c/0/0"), ("store", "c/0/1")]):
    ...     pass  # read, modify, write
    """
    return _objects.holding(names)


def node_lock(name: Hashable) -> AbstractContextManager[None]:
    """Lock the metadata of an array or group against read-modify-write by other threads of this process.

    Objects may be locked (`key_locks`) while a node is; a node must not be locked while objects or another node are.

    Parameters
    ----------
    name : hashable
        What `Store.lock_name` says of the metadata document.

    Returns
    -------
    context manager
        Holds the lock; the same thread may lock the node again.
    """
    return _nodes.holding((name,))


def document_lock(name: Hashable) -> AbstractContextManager[None]:
    """Lock one metadata document while it is read, changed and stored; hold nothing else of this kind meanwhile.

    Parameters
    ----------
    name : hashable
        What `Store.lock_name` says of the document.

    Returns
    -------
    context manager
        Holds the lock.
    """
    return _documents.holding((name,))
