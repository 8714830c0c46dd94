"""Locks on stored objects, for changing part of an object: read, modify, write back.

A table says of each name that is held or awaited who asked for it last: nothing grows with the number of chunks, and
different names never wait for each other. Whoever asks for names enters itself for all of them in one step, and then
waits for those whose place it took. So nobody waits for one who asked later: callers with crossing sets of names cannot
block each other, and everyone's turn comes. Nodes have a table of their
own: a thread that resizes an array holds the lock of its node while objects are locked, also by other threads that
work for it. So have metadata documents: a thread that holds a node rewrites its document and those above it, one at a
time.
"""

import threading
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from queue import Empty
from typing import Any, TypeVar

from gzarr.concurrency import Lock, Pool, TimedQueue, after_fork, is_held_here
from gzarr.errors import StoreError

T = TypeVar("T")


class HeldLocks(AbstractContextManager[None]):
    """Some locks, held for one ``with`` statement. An interrupt leaves none taken, and the end may come twice."""

    @abstractmethod
    def _take(self) -> None:
        """Take all locks; noted so that `_release` knows them wherever it is interrupted."""

    @abstractmethod
    def _release(self) -> None:
        """Release what was taken. After an interrupt, another call continues."""

    def __enter__(self) -> None:
        try:
            self._take()
        except BaseException:  # an interrupt while waiting must not leave the first ones locked
            self.__exit__()
            raise

    def __exit__(self, *exc: object) -> None:
        try:
            self._release()
        except BaseException:  # an interrupt
            self._release()
            raise


class _LockTable:
    """Who holds or waits for which names."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin with no locks."""
        #: Who asked for a name last.
        self.holders: dict[Hashable, _HeldNames] = {}
        # Collecting garbage may lock objects while a thread holds it.
        self.guard = threading.RLock()

    def holding(self, names: Iterable[Hashable]) -> AbstractContextManager[None]:
        """A context manager that holds the locks of some names."""
        return _HeldNames(self, set(names))

    def held_here(self, name: Hashable) -> bool:
        """Whether this thread holds a name."""
        return any(is_held_here(holder.lock) for holder in _asked(self.holders.get(name), name))


class _HeldNames(HeldLocks):
    """Some names, locked for one ``with`` statement.

    Attributes
    ----------
    lock
        Held from before it asks for the names until they are free again.
    after : dict
        While it waits: who asked for each name before it.
    ended : bool
        Whether it holds or awaits nothing any more.
    """

    __slots__ = ("_awaited", "_names", "_table", "after", "ended", "lock")

    def __init__(self, table: _LockTable, names: set[Hashable]) -> None:
        self._table = table
        self._names = names
        self.after: dict[Hashable, _HeldNames] = {}
        self.ended = False
        self.lock = threading.RLock()
        self._awaited = self

    def _take(self) -> None:
        table, names = self._table, self._names
        with table.guard:
            taken = names & table.holders.keys()
            for name in taken:
                if table.held_here(name):  # this thread is in the midst of a change
                    raise reentered(f"{name!r}")
            self.lock.acquire()
            self.after = {name: table.holders[name] for name in taken}
            table.holders.update(dict.fromkeys(names, self))
        if self.after:
            for holder in set(self.after.values()):
                self._await(holder)
            self.after = {}

    def _await(self, holder: "_HeldNames") -> None:
        if is_held_here(self._table.guard):  # which the other one needs to end
            raise reentered(f"the lock of {min(map(repr, self._names))}")
        self._awaited = holder  # an interrupt may come before its lock is released
        holder.lock.acquire()
        holder.lock.release()
        for earlier in set(holder.after.values()):  # for which an interrupt has kept it from waiting
            self._await(earlier)

    def _release(self) -> None:
        holders, waiting = self._table.holders, self.after
        with self._table.guard:
            self.ended = True
            for name in self._names:
                if holders.get(name) is self:  # another's after a fork
                    waited = self._waited(name) if waiting else None
                    if waited is None:
                        holders.pop(name, None)
                    else:
                        holders[name] = waited
        for holder in (self, self._awaited):
            while is_held_here(holder.lock):
                holder.lock.release()

    def _waited(self, name: Hashable) -> "_HeldNames | None":
        """Who holds or awaits a name that this one has waited for."""
        return next((holder for holder in _asked(self.after.get(name), name) if not holder.ended), None)


def _asked(holder: _HeldNames | None, name: Hashable) -> Iterator[_HeldNames]:
    """Who asked for a name, the last one first, as far as one waits for the next."""
    while holder is not None:
        yield holder
        holder = holder.after.get(name)


_objects, _nodes, _documents = _LockTable(), _LockTable(), _LockTable()


@after_fork
def _reset() -> None:
    """Start with fresh locks: in a forked child, the threads that held the old ones do not exist."""
    for table in (_objects, _nodes, _documents):
        table.reset()


def reentered(what: str) -> StoreError:
    """Return the error for code that wants to use what its own thread is in the midst of changing."""
    return StoreError(
        f"{what} is in use by this very thread, which this call has interrupted: finalizers, __del__ methods, handlers"
        " of signals and callbacks must not use what they interrupt; make the call after the other one has ended, or"
        " from another thread that nobody waits for"
    )


def entering(lock: Lock, what: str) -> Lock:
    """Return a lock for a ``with`` statement. Raises: StoreError naming `what` if the current thread holds it."""
    if is_held_here(lock):
        raise reentered(what)
    return lock


def holds_document(name: Hashable) -> bool:
    """Whether this thread holds the lock of a document (`document_lock`)."""
    return _documents.held_here(name)


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


def key_locks(names: Iterable[Hashable]) -> AbstractContextManager[None]:
    """Lock objects against read-modify-write by other threads of this process.

    A thread that holds a name and locks it again, as finalizers and handlers of signals may, gets a `StoreError`. It
    must not lock *further* names either: it should ask for all names in one call, or two threads can block each other.

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
        Holds the lock.
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


# -- locks that are waited for -----------------------------------------------------------------------------------------
# A wait for the lock of a file has no time limit, so another thread looks at it once, and logs one that takes long.

#: Seconds after which a wait is logged, once.
NOTICE_S = 5.0
#: Waits that are looked at at once.
_MOST = 64
_pool = Pool()


def wait_for(path: str, wait: Callable[[], T]) -> T:
    """Wait for the lock of a file. One that takes long is logged with its path."""
    ended: TimedQueue[None] = TimedQueue()

    def watch() -> None:
        try:
            ended.get(NOTICE_S)
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
        "waiting for the lock %r for more than %g seconds; `lslocks` tells which process holds it", path, NOTICE_S
    )
