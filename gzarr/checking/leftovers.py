"""Finds what killed writers have left in local directories: temporary files and half-deleted folders.

No store lists them. A temporary file is the lock of whoever writes it (`gzarr.storage.local_files`): it is left over
only if nobody holds the lock. Where files cannot be locked, it is left over once it has not been changed for an hour.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gzarr.indexing.keys import join_path
from gzarr.storage.base import Store
from gzarr.storage.rules import TEMPORARY_PREFIX

#: Seconds without a change after which a file that cannot be locked counts as left over.
_OLD_S = 3600
#: Seconds after which what was seen must still be there.
_WAIT_S = 0.1

_fcntl: Any = import_module("fcntl") if find_spec("fcntl") else None


def find_leftovers(store: Store, path: str) -> list[str]:
    """Keys of temporary files, and paths of half-deleted folders with a slash at the end, at a path and below it."""
    root = _directory(store, path)
    seen = [] if root is None else list(_temporary(root, path))
    if seen:  # a writer may be about to lock its file, or somebody about to be done with deleting
        time.sleep(_WAIT_S)
    return [
        key
        for key, file, inode in seen
        if inode is not None and _inode(file) == inode and (key.endswith("/") or _is_left(file, remove=False))
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
    """Delete what `find_leftovers` has found, unless somebody writes it now. Returns: whether it is gone."""
    above, _, name = key.rstrip("/").rpartition("/")
    directory = _directory(store, above)
    if not directory or not name.startswith(TEMPORARY_PREFIX):
        return False
    path = Path(directory, name)
    if key.endswith("/"):
        shutil.rmtree(path, ignore_errors=True)
    else:
        _is_left(path, remove=True)
    return not path.exists()


def _directory(store: Store, path: str) -> str | None:
    """The local directory of a path."""
    files = store.files
    return None if files is None else files.prefix(path)


def _is_left(path: Path, *, remove: bool) -> bool:
    """Whether nobody writes a temporary file. remove: whether to delete it then, under its lock."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:  # gone, or not ours to read
        return False
    try:
        left = _is_idle(fd) and os.path.samestat(os.fstat(fd), path.stat())
        if left and remove:
            path.unlink()
    except FileNotFoundError:  # renamed or deleted meanwhile
        return False
    finally:
        if _fcntl is not None:
            with suppress(OSError):
                _fcntl.flock(fd, _fcntl.LOCK_UN)  # a forked child may hold it, too
        os.close(fd)
    return left


def _is_idle(fd: int) -> bool:
    """Take the lock of a file, if nobody holds it."""
    if _fcntl is not None:
        try:
            _fcntl.flock(fd, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # the file system has no such locks
            pass
        else:
            return True
    return time.time() - os.fstat(fd).st_mtime > _OLD_S
