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
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import AbstractContextManager
from itertools import count
from operator import attrgetter, methodcaller
from threading import get_ident
from typing import Any, TypeVar

from gzarr.concurrency import after_fork

T = TypeVar("T")


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
                    while name not in wanted:
                        lock = table.locks.get(name) or _Lock(next(table.numbers))
                        lock.n_users += 1  # foreign code of this thread may have removed it from the table just before
                        wanted[name] = lock
                        if table.locks.setdefault(name, lock) is not lock:
                            wanted.pop(name).n_users -= 1
            locks = sorted(wanted.values(), key=_number)
            regions = _regions.get(get_ident())
            if regions:
                _note_locks(regions, locks)
            # No Python runs between the taking of a lock and its being noted, so no interrupt can come there.
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
                    table.locks.pop(name, None)


_number, _lock = attrgetter("number"), attrgetter("lock")
_acquire, _release = methodcaller("acquire"), methodcaller("release")
_objects, _nodes, _documents = _Table(), _Table(), _Table()


@after_fork
def _reset() -> None:
    """Start with fresh locks: in a forked child, the threads that held the old ones do not exist."""
    for table in (_objects, _nodes, _documents):
        table.reset()
    for thread in list(_regions):
        if thread != get_ident():
            del _regions[thread]


class _Region:
    """A task of `while_holding` that is under way on a thread."""

    __slots__ = ("again", "locks", "within")

    def __init__(self) -> None:
        self.locks: list[Hashable] = []
        self.within: _Region | None = None
        self.again: list[Callable[[], object]] = []


#: The tasks of `while_holding` that are under way, by thread, each within the one before it.
_regions: dict[int, list[_Region]] = {}


def _note_locks(regions: list[_Region], locks: Sequence[Hashable]) -> None:
    """Note the locks that a thread is about to take in its last region, and which region holds one of them already."""
    region = regions[-1]
    region.locks += locks
    for outer in regions[:-1]:
        if not set(locks).isdisjoint(outer.locks):
            region.within = outer


class Noted(AbstractContextManager[None]):
    """Notes names for `while_holding` whose locks are held by other means.

    Parameters
    ----------
    names : sequence of hashable
        The same for all who lock these objects.
    """

    __slots__ = ("_names",)

    def __init__(self, names: Sequence[Hashable]) -> None:
        self._names = names

    def __enter__(self) -> None:
        regions = _regions.get(get_ident())
        if regions:
            _note_locks(regions, self._names)

    def __exit__(self, *exc: object) -> None:
        """Do nothing: `while_holding` forgets them."""


def within_change() -> bool:
    """Whether this thread is foreign code within a task of `while_holding`."""
    return get_ident() in _regions


def while_locked(lock: AbstractContextManager[Any], task: Callable[[], T]) -> T:
    """Carry out a task while a lock is held. No interrupt leaves the lock taken.

    Parameters
    ----------
    lock : context manager
        Of a function of this module, or around one of these; may be left twice.
    task : callable
        The task.

    Returns
    -------
    object
        What the task returns.
    """
    try:
        with lock:
            return task()
    except BaseException:
        lock.__exit__(None, None, None)  # once more: an interrupt may have come just as it began
        raise


def while_holding(
    lock: AbstractContextManager[Any], task: Callable[[], T], again: Callable[[], Callable[[], object]] | None = None
) -> T:
    """Carry out a task that reads, changes and stores what a lock protects. No interrupt leaves the lock taken.

    Foreign code on this thread (`gzarr.concurrency`) may change the same objects between the reading and the storing,
    which would undo its change. So a task within another one that holds its lock is carried out at once, and once more
    at the end of the other one.

    Parameters
    ----------
    lock : context manager
        Of `key_locks` or `document_lock`, or around one of these; may be left twice.
    task : callable
        The task.
    again : callable, optional
        Makes what is to be done at the end of the other task: the same, with copies of what may change until then.
        Not needed for tasks that are never foreign code's.

    Returns
    -------
    object
        What the task returns.
    """
    thread = get_ident()
    regions = _regions.setdefault(thread, [])
    region = _Region()
    regions.append(region)

    def and_again() -> T:
        result = task()
        while region.again:
            region.again.pop(0)()
        if region.within is not None and again is not None:
            region.within.again.append(again())
        return result

    try:
        return while_locked(lock, and_again)
    finally:
        while regions.pop() is not region:  # those of foreign code, if an interrupt ended it
            pass
        if not regions:
            _regions.pop(thread, None)


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
