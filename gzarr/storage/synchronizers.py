"""Synchronizers, as in zarr 2, and the store that honours them, so that writers in several processes lose no updates.

Threads of one process need none: `gzarr.storage.locks` covers them. A synchronizer is anything that gives, for the key
of an object, a context manager that excludes others while it is held. Here it is held, besides the locks of the
process, from the reading of an object's old bytes to the storing of its new ones, and while a node's metadata are
changed. Keys are locked in sorted order, so that processes with crossing sets of keys cannot block each other.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Protocol

from gzarr.concurrency import Lock, new_lock
from gzarr.errors import StoreError
from gzarr.storage import locks
from gzarr.storage.base import Store
from gzarr.storage.extras import require
from gzarr.storage.rules import check_path
from gzarr.storage.wrappers import WrapperStore


class Synchronizer(Protocol):
    """Gives a lock for every key."""

    def __getitem__(self, key: str) -> AbstractContextManager[Any]:
        """The lock of an object."""
        ...


class ThreadSynchronizer:
    """Excludes threads that share this object. gzarr needs none for that; it is here for zarr 2's programs.

    Pickled, it starts anew: threads of another process are not excluded.
    """

    def __init__(self) -> None:
        self._locks: dict[str, Lock] = {}

    def __getitem__(self, key: str) -> AbstractContextManager[Any]:
        lock = self._locks.get(key)
        return self._locks.setdefault(key, new_lock()) if lock is None else lock

    def __reduce__(self) -> "tuple[type[ThreadSynchronizer], tuple[()]]":
        return ThreadSynchronizer, ()


class ProcessSynchronizer:
    """Excludes processes that use the same directory of lock files, also those of zarr 2 that write the same array.

    Needs the extra ``sync``. Works where the file system's locks do: between the processes of one machine, and across
    machines on network file systems that support ``fcntl`` locks.

    Parameters
    ----------
    path : str or os.PathLike
        A directory for the lock files, made when the first is needed; not the directory of the data.

    Raises
    ------
    MissingExtraError
        If fasteners is not installed.

    Examples
    --------
    >>> import gzarr
    >>> locks = gzarr.ProcessSynchronizer("shared.sync")
    >>> z = gzarr.open_array("shared.zarr", "w", shape=10, dtype="i4", synchronizer=locks)
    >>> z[:5] = 1
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fsdecode(path)
        require("fasteners", "sync", "ProcessSynchronizer")

    def __getitem__(self, key: str) -> AbstractContextManager[Any]:
        check_path(key)
        return _FastenersLock(os.path.join(self.path, key))  # noqa: PTH118 - a path made of text, as in zarr 2


class _FastenersLock:
    """One lock file. Raises: StoreError naming it, if it cannot be made."""

    __slots__ = ("_lock", "_path")

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = require("fasteners", "sync", "ProcessSynchronizer").InterProcessLock(path)

    def __enter__(self) -> None:
        if os.path.lexists(self._path) and not os.path.isfile(self._path):  # noqa: PTH113 - a path made of text
            # Opening a pipe would wait for its other end.
            raise StoreError(f"ProcessSynchronizer: {self._path!r}, its lock, is no file; delete it")
        try:
            if not self._lock.acquire(timeout=locks.NOTICE_S):
                locks.log_wait(self._path)
                self._lock.acquire()
        except OSError as error:
            raise StoreError(
                f"ProcessSynchronizer: cannot lock the file {self._path!r}: {error.strerror or error}; give it a"
                " directory of its own that can be written"
            ) from error

    def __exit__(self, *exc: object) -> None:
        self._lock.release()


def synchronized(store: Store, synchronizer: Any) -> Store:
    """Return a view of a store whose writers hold the locks of a synchronizer.

    Parameters
    ----------
    store : Store
        The store.
    synchronizer : ThreadSynchronizer, ProcessSynchronizer, or any object that gives a lock for each key
        The locks.

    Returns
    -------
    Store
        The view. Writers through such views with the same synchronizer exclude each other.

    Raises
    ------
    TypeError
        If `synchronizer` gives no locks.

    Examples
    --------
    >>> from gzarr.storage import MemoryStore
    >>> store = synchronized(MemoryStore(), ThreadSynchronizer())
    """
    if not hasattr(type(synchronizer), "__getitem__"):
        raise TypeError(
            f"synchronizer must be a ThreadSynchronizer, a ProcessSynchronizer or an object that gives a lock for each"
            f" key, got {synchronizer!r}"
        )
    return SynchronizedStore(store, synchronizer)


class SynchronizedStore(WrapperStore):
    """Pass everything on to a store; whoever changes an object also holds the lock of the synchronizer.

    Attributes
    ----------
    synchronizer : Synchronizer
        What gives the locks.
    """

    transparent = True

    def __init__(self, store: Store, synchronizer: Synchronizer) -> None:
        super().__init__(store)
        self.synchronizer = synchronizer

    def locked(self, keys: Sequence[str], merged: Sequence[str] | None = None) -> AbstractContextManager[Any]:
        """Lock objects against read-modify-write by others, in this process and under the synchronizer."""
        return self._both(super().locked(keys, merged), keys)

    def node_locked(self, key: str) -> AbstractContextManager[Any]:
        """Lock a node against changes by others, in this process and under the synchronizer."""
        return self._both(super().node_locked(key), (key,))

    def document_locked(self, key: str) -> AbstractContextManager[Any]:
        """Lock one document. Its lock has a separate name, because its node may be locked already."""
        return self._both(super().document_locked(key), (f"{key}.document",))

    @contextmanager
    def _both(self, ours: AbstractContextManager[Any], keys: Iterable[str]) -> Iterator[None]:
        with ExitStack() as held:
            # First: file locks do not exclude threads of one process, and releasing one releases it for all of them.
            held.enter_context(ours)
            for key in sorted(set(keys)):
                held.enter_context(self.synchronizer[key])
            yield
