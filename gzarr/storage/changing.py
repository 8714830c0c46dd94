"""Read-modify-write of stored objects, so that no change by another thread or process is lost.

Stores with conditions (`Store.conditional`) are read and written without waiting: what another replaced meanwhile is
read again and done again. All others have their locks.
"""

import random
import time
from collections.abc import Callable, Iterator

from gzarr.errors import StoreError
from gzarr.storage.base import Store
from gzarr.storage.capabilities import Buffer, Change, Conditional, Request
from gzarr.storage.locks import while_locked

#: How often a change is tried before it is given up. (Measured: of 32 threads that change one object of an S3 server
#: without locks, none needs more than six attempts.)
MAX_ATTEMPTS = 100
#: The longest wait between two attempts, in durations of an attempt.
_MAX_WAIT = 10


def attempts() -> Iterator[None]:
    """Yield once for each attempt to change objects, and wait a little between attempts, at random."""
    for attempt in range(1, MAX_ATTEMPTS + 1):
        began = time.monotonic()
        yield
        time.sleep(random.random() * min(attempt, _MAX_WAIT) * (time.monotonic() - began))  # noqa: S311 - no secret


def given_up(store: Store, key: str) -> StoreError:
    """Return the error for an object that was not changed in any of the `attempts`."""
    return StoreError(
        f"store {store}: {key!r} was replaced by other writers each of the {MAX_ATTEMPTS} times that a change of it"
        " was tried; let fewer processes write to one object at a time, or give each its own chunks or shards"
    )


def change_object(store: Store, key: str, change: Callable[[Buffer | None], Buffer | None]) -> None:
    """Read a document or another small object, change it and store it.

    Parameters
    ----------
    store : Store
        The store.
    key : str
        Key of the object.
    change : callable
        Gives the new bytes from those that are stored; None means a missing object. Nothing is stored if it returns
        its argument. May be called several times.

    Raises
    ------
    StoreError
        If others replaced the object too often meanwhile, or this thread is in the midst of changing it.
    """
    live = store.live()
    conditional = live.conditional

    def task() -> None:
        if conditional is not None:
            _change_tagged(store, conditional, key, change)
            return
        old = live.get_one(Request(key))
        new = change(old)
        if new is None and old is not None:
            store.delete_many((key,))
        elif new is not None and new is not old:
            store.set(key, new)

    while_locked(store.document_locked(key), task)


def _change_tagged(
    store: Store, conditional: Conditional, key: str, change: Callable[[Buffer | None], Buffer | None]
) -> None:
    store.check_writable()
    for _ in attempts():
        found = conditional.get_tagged((key,))[0]
        old, tag = (None, None) if found is None else found
        new = change(old)
        if new is old:
            return
        if new is None and not conditional.deletes:
            new = b"{}"  # an empty document, as good as none
        if conditional.set_if((Change(key, new, tag),))[0]:
            return
    raise given_up(store, key)
