"""The names of temporary files, the directories that they need, and how they take the place of others."""
# Plain os calls: pathlib costs more than the system calls themselves.
# ruff: noqa: PTH103, PTH105, PTH110, PTH112

from __future__ import annotations

import contextlib
import errno
import os

from gzarr.storage.rules import TEMPORARY_PREFIX

#: Longer names of files (in bytes; file systems allow 255, or 143 if they are encrypted) have a digest in their
#: temporary files' names. The compiled loop leaves such files to Python.
MAX_NAME_NBYTES = 100


def temporary_path(path: str) -> str:
    """Path of the temporary file of a file, which is its lock."""
    start = max(path.rfind("/"), path.rfind(os.sep)) + 1
    name = path[start:]
    if len(name) * 4 > MAX_NAME_NBYTES:
        encoded = os.fsencode(name)
        if len(encoded) > MAX_NAME_NBYTES:
            import hashlib  # takes as long as opening a hundred arrays, and names this long are rare

            name = hashlib.sha256(encoded).hexdigest()
    return path[:start] + TEMPORARY_PREFIX + name


def make_directory(directory: str) -> None:
    """Make a directory and those above it. One that is removed meanwhile may be missing."""
    with contextlib.suppress(FileNotFoundError, FileExistsError):  # makedirs reports it in two ways
        os.makedirs(directory, exist_ok=True)


def link_or_rename(temporary: str, path: str) -> bool:
    """Give a file the name `path` unless something has it. Returns: whether it got it. Raises: OSError."""
    try:
        os.link(temporary, path)
    except FileNotFoundError:
        raise
    except OSError:  # something is there, or links are not supported
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path) from None
        if os.path.exists(path):
            return False
        os.replace(temporary, path)  # a link to nothing
    return True
