"""What killed processes leave in a directory of objects: temporary files, and trees that were being deleted."""
# Plain os calls: pathlib costs more than the system calls themselves.
# ruff: noqa: PTH104, PTH106, PTH108, PTH112, PTH114, PTH118, PTH120, PTH208

import contextlib
import errno
import os
import shutil
import stat
import time
from collections.abc import Iterator

from gzarr.config import config
from gzarr.storage.file_locks import FOUND_FLAGS, NO_LOCKS, temporary_path
from gzarr.storage.lock_kinds import fcntl, file_locker
from gzarr.storage.rules import TEMPORARY_PREFIX

#: Seconds without a change after which a file that cannot be locked counts as abandoned.
_OLD_S = 3600
#: How often a directory is emptied again because others put files into it or remove them.
_ATTEMPTS = 1000


def is_abandoned(path: str) -> bool:
    """Whether no process is using a temporary file: nobody holds its lock.

    Where files cannot be locked, it is abandoned once it has not been changed for an hour.
    """
    with _lock(path) as is_free:
        return is_free is True


def remove_file_or_tree(path: str) -> bool:
    """Remove a temporary file, unless a process is using it, or a tree that was being deleted.

    Returns
    -------
    bool
        Whether it is gone.

    Raises
    ------
    OSError
        If it cannot be removed.
    """
    with _lock(path) as is_free:
        if os.path.isdir(path) and not os.path.islink(path):
            remove_tree(path)
        elif is_free is not False:
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                os.unlink(path)
        return not os.path.lexists(path)


def remove_leftovers(directory: str) -> None:
    """Remove what is directly in a directory and no object, as far as that is possible."""
    with contextlib.suppress(OSError):
        for name in [name for name in os.listdir(directory) if name.startswith(TEMPORARY_PREFIX)]:
            with contextlib.suppress(OSError):
                remove_file_or_tree(os.path.join(directory, name))


def remove_directory(directory: str) -> bool:
    """Remove a directory that holds nothing but abandoned temporary files. Returns: whether it is gone."""
    try:
        os.rmdir(directory)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or _holds_objects(directory):
            return False
    else:
        return True
    remove_leftovers(directory)
    with contextlib.suppress(OSError):
        os.rmdir(directory)
        return True
    return False


def prune(directory: str, prefix: str) -> None:
    """Remove a directory and those above it while they hold nothing but what killed processes left.

    prefix: path of the root, which stays, with a separator.
    """
    while directory.startswith(prefix) and len(directory) > len(prefix):
        if not remove_directory(directory):
            return  # not empty, gone already, or not ours to remove: all of them fine
        directory = os.path.dirname(directory)


def _holds_objects(directory: str) -> bool:
    """Whether a directory holds anything but temporary files; False only if it was listed."""
    try:
        with os.scandir(directory) as entries:
            return any(not entry.name.startswith(TEMPORARY_PREFIX) for entry in entries)
    except OSError:
        return True


def doomed_path(directory: str) -> str:
    """The name under which a directory is deleted. No lock has it: no key begins with the prefix."""
    above, name = os.path.split(directory)
    return temporary_path(os.path.join(above, TEMPORARY_PREFIX + name))


def delete_tree(directory: str) -> None:
    """Delete a directory in one step: under another name, after what is left of an earlier one. Raises: OSError."""
    doomed = doomed_path(directory)
    for attempt in range(_ATTEMPTS):
        try:
            os.rename(directory, doomed)
        except FileNotFoundError:  # another was faster
            break
        except OSError as error:
            known = error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR)
            if not known or attempt == _ATTEMPTS - 1:
                raise
            remove_tree(doomed)
        else:
            break
    remove_tree(doomed)


def remove_tree(path: str) -> None:
    """Delete a directory or a file, while others may be deleting it too, or writing into it. Raises: OSError."""
    for attempt in range(_ATTEMPTS):
        try:
            mode = os.lstat(path).st_mode
            if not stat.S_ISDIR(mode):
                os.unlink(path)
                return
            with _lock(path, shared=True):
                shutil.rmtree(path)
        except FileNotFoundError:
            if not os.path.lexists(path):
                return
        except OSError as error:
            # Without a number: rmtree has opened another directory than it looked at, and takes it for a link.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, None) or attempt == _ATTEMPTS - 1:
                raise
        else:
            return


@contextlib.contextmanager
def _lock(path: str, *, shared: bool = False) -> Iterator[bool | None]:
    """Lock a file or directory without waiting. Yields: whether no process uses it; None if it cannot be opened."""
    descriptors: list[int] = []
    is_free = None
    try:
        with contextlib.suppress(OSError):
            writable = os.O_RDWR if config["locks"] == "fcntl" and not os.path.isdir(path) else 0  # as that lock needs
            descriptors.extend(map(os.open, (path,), (FOUND_FLAGS | writable,)))
            is_free = _try(descriptors[-1], path, shared=shared)
        yield is_free
    finally:
        while descriptors:
            if fcntl is not None:
                with contextlib.suppress(OSError):
                    (file_locker() or fcntl.flock)(descriptors[-1], fcntl.LOCK_UN)  # a forked child may hold it, too
            os.close(descriptors.pop())


def _try(descriptor: int, path: str, *, shared: bool) -> bool:
    """Take the lock of an open file or directory. Returns: whether no process uses what is at the path."""
    here = os.stat(descriptor)
    try:
        lock = None if fcntl is None else fcntl.flock if stat.S_ISDIR(here.st_mode) else file_locker()
        if lock is not None:
            lock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            return os.path.samestat(here, os.lstat(path))  # one that has taken its place meanwhile is not locked
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    return stat.S_ISDIR(here.st_mode) or time.time() - here.st_mtime > _OLD_S
