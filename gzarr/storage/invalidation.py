"""Tells caches of decoded chunks which stored objects this process has just changed; costs nothing while there is none.

Caches on stores with tokens of versions (`Store.versions`) do without; for the others this is what keeps them true.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable
from typing import Protocol
from weakref import WeakSet


class Listener(Protocol):
    """Something that keeps what it derived from stored objects."""

    def forget(self, names: Iterable[Hashable] | None) -> None:
        """Drop what came from the objects with some lock names; from all objects if that is None."""
        ...


_listeners: WeakSet[Listener] = WeakSet()
_guard = threading.Lock()


def listen(listener: Listener) -> None:
    """Tell a listener of all changes from now on, as long as it lives."""
    with _guard:
        _listeners.add(listener)


def announce(names: Callable[[], Iterable[Hashable]] | None = None) -> None:
    """Say that objects have been changed: after the change, also if it failed midway.

    names: gives their lock names; it is only called if somebody listens. None if whole nodes were deleted or moved.
    """
    if not _listeners:
        return
    with _guard:
        listeners = list(_listeners)
    changed = None if names is None else list(names())
    for listener in listeners:
        listener.forget(changed)
