"""Locks on stored objects, for changing a part of an object: read it, modify it, write it back.

The locks are a fixed table, and a name picks its lock by hash: nothing grows with the number of chunks, and two names
that meet in one lock only wait for each other needlessly. Several names are locked in the order of the table, so
callers with crossing sets of names cannot block each other. Nodes have a table of their own: who resizes an array holds
its node while objects are locked, also by other threads that work for it. So have metadata documents: who holds a node
rewrites its document and those above it, one at a time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Hashable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

# A power of two, well above the number of threads that write at once: with 64 of them, two that name different objects
# meet with a chance of one in a thousand each.
_NLOCKS = 1024

_locks: list[AbstractContextManager[Any]] = []
_node_locks: list[AbstractContextManager[Any]] = []
_document_locks: list[AbstractContextManager[Any]] = []


def _reset() -> None:
    """Start with fresh locks: in a forked child, the threads that held the old ones do not exist."""
    for table in (_locks, _node_locks, _document_locks):
        table[:] = [threading.RLock() for _ in range(_NLOCKS)]


_reset()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset)


def key_locks(names: Iterable[Hashable]) -> AbstractContextManager[Any]:
    """Lock objects against read-modify-write by other threads of this process.

    The same thread may lock a name again while it holds it, but must not lock *further* names then: it should ask for
    all names in one call, or two threads can block each other.

    It covers the threads of this process; `Store.locked` is where stores with a synchronizer add protection between
    processes.

    Args:
        names: what `Store.lock_name` says of each object, in any order; names may repeat.

    Returns: a context manager, for one ``with`` statement, that holds the locks.

    Example:
        >>> with key_locks([("store", "c/0/0"), ("store", "c/0/1")]):
        ...     pass  # read, modify, write
    """
    positions = {hash(name) % _NLOCKS for name in names}
    if len(positions) == 1:
        return _locks[positions.pop()]
    return _Several([_locks[position] for position in sorted(positions)])


def node_lock(name: Hashable) -> AbstractContextManager[Any]:
    """Lock the metadata of an array or group against read-modify-write by other threads of this process.

    Objects may be locked (`key_locks`) while a node is; a node must not be locked while objects or another node are.

    Args:
        name: what `Store.lock_name` says of the metadata document.

    Returns: a context manager that holds the lock; the same thread may lock the node again.
    """
    return _node_locks[hash(name) % _NLOCKS]


def document_lock(name: Hashable) -> AbstractContextManager[Any]:
    """Lock one metadata document while it is read, changed and stored; hold nothing else of this kind meanwhile.

    Args:
        name: what `Store.lock_name` says of the document.

    Returns: a context manager that holds the lock.
    """
    return _document_locks[hash(name) % _NLOCKS]


class _Several(AbstractContextManager[None]):
    """Locks that are taken in the order given and released in reverse."""

    __slots__ = ("_held", "_wanted")

    def __init__(self, wanted: Sequence[AbstractContextManager[Any]]) -> None:
        self._wanted = wanted
        self._held: list[AbstractContextManager[Any]] = []

    def __enter__(self) -> None:
        try:
            for lock in self._wanted:
                lock.__enter__()
                self._held.append(lock)
        except BaseException:  # an interrupt while waiting must not leave the first ones locked
            self.__exit__()
            raise

    def __exit__(self, *exc: object) -> None:
        while self._held:
            self._held.pop().__exit__(None, None, None)
