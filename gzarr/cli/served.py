"""Opens what ``gzarr serve`` shows: an array, a group, or a folder of them, without what links lead to elsewhere."""

from __future__ import annotations

from pathlib import Path

import gzarr
from gzarr.errors import NodeNotFoundError
from gzarr.hierarchy.reaching import open_store_at
from gzarr.storage.base import Store
from gzarr.storage.local import LocalStore
from gzarr.storage.n5 import N5Store


class _ContainedStore(LocalStore):
    """A folder in which links that lead out of a part of it lead nowhere."""

    versions = LocalStore.versions

    def __init__(self, root: str, path: str) -> None:
        super().__init__(root, read_only=True)
        self._inside = Path(root, path).resolve()

    def _path(self, key: str) -> str:
        if not Path(str(self.lock_name(key))).is_relative_to(self._inside):  # which is the real path
            raise NodeNotFoundError(f"{key!r} leads out of {str(self._inside)!r}; --follow-links follows it")
        return super()._path(key)

    def list_dir(self, path: str = "") -> tuple[list[str], list[str]]:
        """Names directly under a path that is inside, sorted: (objects, sub-paths)."""
        if path:
            self._path(path)
        return super().list_dir(path)


def open_served(path: str, *, follow_links: bool = False) -> tuple[Store, str]:
    """Open what is served: an array or a group, or a folder of them. Returns (store, path in it).

    follow_links: whether symbolic links that lead out of a folder are followed.
    """
    try:
        node = gzarr.open(path, mode="r", device="cpu")
        store, prefix = node.store.live(), node.path
    except NodeNotFoundError as error:
        store, prefix = open_store_at(path, "r")
        if not any(map(len, store.list_dir(prefix))):
            raise error from None
    if isinstance(store, LocalStore) and not follow_links:
        store = _ContainedStore(store.root, prefix)
    elif isinstance(store, N5Store) and Path(store.path).is_dir() and not follow_links:
        store = N5Store(_ContainedStore(store.path, prefix))
    return store, prefix
