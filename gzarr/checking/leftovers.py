"""Finds what killed writers have left in local directories: temporary files and half-deleted folders.

No store lists them. `gzarr.storage.leftover_files` says which are abandoned, and removes them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from gzarr.indexing.keys import join_path
from gzarr.storage.base import Store
from gzarr.storage.leftover_files import is_abandoned, remove_file_or_tree
from gzarr.storage.rules import TEMPORARY_PREFIX

#: Seconds after which what was seen must still be there.
_WAIT_S = 0.1


def find_leftovers(store: Store, path: str) -> list[str]:
    """Keys of temporary files, and paths of half-deleted folders with a slash at the end, at a path and below it."""
    root = _directory(store, path)
    seen = [] if root is None else list(_temporary(root, path))
    if seen:  # a writer may be about to lock its file, or a deletion about to end
        time.sleep(_WAIT_S)
    return [
        key
        for key, file, inode in seen
        if inode is not None and _inode(file) == inode and (key.endswith("/") or is_abandoned(str(file)))
    ]


def _temporary(root: str, path: str) -> Iterator[tuple[str, Path, int | None]]:
    """The temporary files and folders below a directory: (key, where, inode)."""
    for directory, folders, files in os.walk(root):
        inner = os.path.relpath(directory, root).replace(os.sep, "/")
        base = path if inner == "." else join_path(path, inner)
        doomed = [name for name in folders if name.startswith(TEMPORARY_PREFIX)]
        folders[:] = [name for name in folders if name not in doomed]
        for name in sorted(name for name in files if name.startswith(TEMPORARY_PREFIX)):
            yield join_path(base, name), Path(directory, name), _inode(Path(directory, name))
        for name in sorted(doomed):
            yield join_path(base, name) + "/", Path(directory, name), _inode(Path(directory, name))


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def remove_leftover(store: Store, key: str) -> bool:
    """Delete what `find_leftovers` has found, unless it is being written. Returns: whether it is gone."""
    above, _, name = key.rstrip("/").rpartition("/")
    directory = _directory(store, above)
    if not directory or not name.startswith(TEMPORARY_PREFIX):
        return False
    with suppress(OSError):
        return remove_file_or_tree(os.path.join(directory, name))  # noqa: PTH118 - a path made of text
    return False


def _directory(store: Store, path: str) -> str | None:
    """The local directory of a path."""
    files = store.files
    return None if files is None else files.prefix(path)
