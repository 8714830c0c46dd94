"""Finds what killed writers have left in local directories: temporary files and half-deleted folders.

No store lists them. A temporary file is the lock of whoever writes it (`gzarr.storage.local_files`): it is left over
only if nobody holds the lock. Where files cannot be locked, it is left over once it has not been changed for an hour.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gzarr.indexing.keys import join_path
from gzarr.storage.base import Store
from gzarr.storage.rules import TEMPORARY_PREFIX

#: Seconds without a change after which a file that cannot be locked counts as left over.
_OLD_S = 3600

_fcntl: Any = import_module("fcntl") if find_spec("fcntl") else None


def find_leftovers(store: Store, path: str) -> Iterator[str]:
    """Keys of temporary files, and paths of half-deleted folders with a slash at the end, at a path and below it."""
    root = _directory(store, path)
    for directory, folders, files in os.walk(root) if root else ():
        inner = os.path.relpath(directory, root).replace(os.sep, "/")
        base = path if inner == "." else join_path(path, inner)
        doomed = [name for name in folders if name.startswith(TEMPORARY_PREFIX)]
        folders[:] = [name for name in folders if name not in doomed]
        yield from (join_path(base, name) + "/" for name in sorted(doomed))
        for name in sorted(files):
            if name.startswith(TEMPORARY_PREFIX) and _is_left(Path(directory, name), remove=False):
                yield join_path(base, name)


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
