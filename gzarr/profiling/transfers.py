"""Tells observers what crosses between host and device: copies, waits of the host, and device memory.

Device code calls `notify`; tests observe (`gzarr.testing`). Without an observer, that costs a look at an empty tuple.
Observers are those of the process, as reads run on many threads. A library that does not call `notify` is watched while
someone observes (`watched_by`).

There are two kinds of transfers. Those of *arrays* are of the calling code: results, values to write, scalars that
Python asks for. Those *inside* are of gzarr at work: encoded chunks, tables and statuses of kernels.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Literal, Protocol, TypeAlias

from gzarr.concurrency import new_lock

#: "synchronize" has no bytes: the host waits for a device. "free" gives back what "allocate" took.
Transfer: TypeAlias = Literal["to_device", "to_host", "synchronize", "allocate", "free"]


class Observer(Protocol):
    """Receives transfers, on the threads that caused them."""

    def crossed(self, what: Transfer, nbytes: int, *, inside: bool) -> None:
        """Note a transfer. What it raises goes to the code that crosses, before anything has happened."""


_observers: tuple[Observer, ...] = ()
#: Contexts that call `notify` for a library, by its name.
_watchers: dict[str, Callable[[], AbstractContextManager[None]]] = {}
_changing = new_lock()
_local = threading.local()


def is_observed() -> bool:
    """Whether anyone observes, so that transfers need to be counted."""
    return bool(_observers)


def notify(what: Transfer, nbytes: int = 0, *, inside: bool = False) -> None:
    """Tell the observers of a transfer that is about to happen."""
    for observer in _observers:
        observer.crossed(what, nbytes, inside=inside or is_inside())


def is_inside() -> bool:
    """Whether transfers of this thread are gzarr's own now."""
    return getattr(_local, "inside", False)


def freeing(nbytes: int, *, inside: bool) -> Callable[[], None]:
    """Return what tells of the end of memory that is allocated now: those who were told of its allocation."""
    told = _observers

    def tell() -> None:
        for observer in _observers:
            if any(observer is other for other in told):
                observer.crossed("free", nbytes, inside=inside)

    return tell


@contextmanager
def inside() -> Iterator[None]:
    """A context in which all transfers of this thread are gzarr's own."""
    before = getattr(_local, "inside", False)
    _local.inside = True
    try:
        yield
    finally:
        _local.inside = before


def watched_by(library: str, watch: Callable[[], AbstractContextManager[None]]) -> None:
    """Enter a context, which calls `notify` for a library, whenever someone begins to observe from now on.

    The contexts of several observers, also of several threads, may overlap in any order.
    """
    _watchers[library] = watch


@contextmanager
def observed_by(observer: Observer) -> Iterator[None]:
    """A context in which an observer is told of the transfers of all threads."""
    global _observers  # noqa: PLW0603 - one assignment of an immutable tuple, which other threads read without a lock
    with ExitStack() as stack:
        for watch in list(_watchers.values()):
            stack.enter_context(watch())
        with _changing:
            _observers = (*_observers, observer)
        try:
            yield
        finally:
            with _changing:
                _observers = tuple(other for other in _observers if other is not observer)
