"""Tells caches of decoded chunks which stored objects this process has changed; costs nothing without caches.

Caches on stores with versions (`Store.versions`) do not need it; the others rely on it.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Protocol
from weakref import WeakSet


class Listener(Protocol):
    """A cache of data derived from stored objects."""

    def forget(self, names: Iterable[Hashable] | None) -> None:
        """Drop what came from the objects with some lock names; from all objects if that is None."""
        ...


_listeners: WeakSet[Listener] = WeakSet()


def listen(listener: Listener) -> None:
    """Tell a listener of all changes from now on, as long as it lives."""
    _listeners.add(listener)


def invalidate(names: Callable[[], Iterable[Hashable]] | None = None) -> None:
    """Tell listeners that objects were changed: after the change, even if it failed midway.

    names: gives their lock names; called only if there are listeners. None if whole nodes were deleted or moved.
    """
    if not _listeners:
        return
    listeners = list(_listeners)
    changed = None if names is None else list(names())
    for listener in listeners:
        listener.forget(changed)
