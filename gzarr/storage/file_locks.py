"""Locks of files, which exclude other processes: the temporary file of a file is its lock.

Theory of operation. A file is replaced by writing another one beside it, which then takes its name. That temporary file
has one fixed name for each file, and whoever wants to change the file holds an exclusive ``flock`` on it: for the
duration of one write, or from reading old bytes to storing new ones (`Holding`). Taking its place ends the lock, as
does removing it: whoever waited for it finds another file under the name, or none, and begins again. So the files of a
store are its objects alone, unless a process is killed; the next writer of the same object then removes what it left.

Rules

- A temporary file is written, renamed or removed only under its lock, and a lock counts only if the name still leads to
  the file that is locked. Renaming goes by names, so that is looked at again before: directories may be replaced too.
- A process writes only to a file that it has made itself for this lock. What is there already is a lock that somebody
  holds, and is waited for; or it is left, and is removed under its own lock: another user's file, a link to a finished
  object (`FileLock.link`). A pipe and others that cannot be locked are removed under the lock of the directory, so that
  nobody removes what another has made in their place.
- A thread that holds the lock of a file may change it again: it finds its lock by the path, or by the file that the
  name leads to where links give it another one.
- Locks are let go by name, not by closing alone: a forked child may have a copy of the descriptor. A child closes its
  copies and holds nothing.
- Several locks are taken in sorted order. A thread that holds some asks for no others that others may hold.
- No Python runs between the opening of a file and its being noted, nor between forgetting and closing it, so that an
  interrupt leaves no lock behind. What an interrupt may find half done can be done again.
"""
# Plain os calls: pathlib costs more than the system calls themselves.
# ruff: noqa: PTH103, PTH105, PTH108, PTH110, PTH112, PTH116, PTH120

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from operator import methodcaller
from threading import get_ident
from typing import Any, NoReturn

from gzarr.concurrency import after_fork
from gzarr.storage.lock_waits import wait_for
from gzarr.storage.rules import TEMPORARY_PREFIX

try:
    import fcntl
    import resource
except ImportError:  # Windows
    fcntl = resource = None  # type: ignore[assignment]

_CLOEXEC = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
_NEW_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | _CLOEXEC
_READ_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _CLOEXEC
_FOUND_FLAGS = _READ_FLAGS | os.O_RDWR  # NFS locks only what is open for writing

#: Longer names of files (in bytes; file systems allow 255, or 143 if they are encrypted) have a digest in their
#: temporary files' names. The compiled loop leaves such files to Python.
MAX_NAME_NBYTES = 100

#: How often a file is looked for again because others remove the directory that was just made.
ATTEMPTS = 100

# What a system says: that a file has no locks, that a directory cannot be written, that a disk has no room for a file.


def _errors(*names: str) -> frozenset[int]:
    return frozenset(getattr(errno, name) for name in names if hasattr(errno, name))


NO_LOCKS = _errors("ENOLCK", "EOPNOTSUPP", "ENOTSUP", "ENOSYS")
FULL = _errors("ENOSPC", "EDQUOT")
UNWRITABLE = FULL | _errors("EACCES", "EPERM", "ENOENT", "EROFS", "ENOTDIR", "ENAMETOOLONG", "EISDIR", "ELOOP")

# At most half of the descriptors that a process may have, or so many, are held by threads that hold several locks.
_MOST_DESCRIPTORS = 512

#: Devices whose files cannot be locked.
_lockless: set[int] = set()
#: The locks of all threads, by thread and path.
_held: dict[tuple[int, str], FileLock] = {}
# How many descriptors the holders of several locks may use, in the order in which they asked.
_claims: dict[int, int] = {}
# How long a holder sleeps before it looks again whether there are descriptors for it.
_CLAIM_WAIT_S = 0.001

_pop = methodcaller("pop")


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


def has_locks() -> bool:
    """Whether all files can be locked, as far as is known."""
    return fcntl is not None and not _lockless


def is_lockable(path: str) -> bool:
    """Whether a file can be locked, as far as is known."""
    if fcntl is None:
        return False
    if not _lockless:
        return True
    try:
        return os.stat(os.path.dirname(path)).st_dev not in _lockless
    except OSError:
        return True


def make_directory(directory: str) -> None:
    """Make a directory and those above it. One that is removed meanwhile may be missing."""
    with contextlib.suppress(FileNotFoundError, FileExistsError):  # makedirs reports it in two ways
        os.makedirs(directory, exist_ok=True)


def _raise_lost(path: str) -> NoReturn:
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def held_lock(path: str) -> FileLock | None:
    """The lock of a file that this thread holds, or None."""
    lock = _held.get((get_ident(), path))
    return lock if lock is not None and lock.inode and lock.descriptors else None


class FileLock:
    """The lock of a file, of one thread.

    Parameters
    ----------
    path : str
        Path of the file.

    Attributes
    ----------
    descriptors : list of int
        That of the temporary file while the lock is held or awaited; empty otherwise.
    inode : int
        Of the temporary file while the lock is held; 0 otherwise.
    turn : int
        How often somebody has begun to write to it. Foreign code (`gzarr.concurrency`) may store the same file while it
        is written.
    """

    __slots__ = ("_key", "_removed", "_temporary", "descriptors", "inode", "path", "turn")

    def __init__(self, path: str) -> None:
        self.path = path
        self.descriptors: list[int] = []
        self.inode = 0
        self.turn = 0
        self._temporary = temporary_path(path)
        self._removed: os.stat_result | None = None  # what was in its place
        self._key = get_ident(), path

    def take(self) -> FileLock | None:
        """Wait for the lock; directories are made.

        Returns
        -------
        FileLock or None
            This lock, or the one that the thread holds already; None if the file cannot be locked.

        Raises
        ------
        OSError
            If the temporary file cannot be made.
        """
        held = _held.get(self._key)
        if held is not None:
            if held.inode and held.descriptors:
                return held
            held.close()  # this is foreign code within its `take`, which begins again
        if (_lockless or fcntl is None) and not is_lockable(self.path):
            return None
        _held[self._key] = self
        while True:
            try:
                lock, taken = self._try()
            except IndexError:  # foreign code has closed the descriptor
                lock, taken = self, False
            if taken:
                return lock
            self.close()
            if lock is not self:
                return lock
            _held[self._key] = self

    def _try(self) -> tuple[FileLock | None, bool]:
        """Wait for the lock of the file that is there. Returns: what `take` does, and whether this lock is taken."""
        made = True
        try:
            self.descriptors.extend(map(os.open, (self._temporary,), (_NEW_FLAGS,), (0o666,)))
        except OSError as error:
            made = self._open(error)
        _held[self._key] = self  # foreign code may have removed it, and waits for a lock that is not noted
        try:
            fcntl.flock(self.descriptors[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            other = self._wait(error)
            if other is not self:
                return other, False
        here = os.fstat(self.descriptors[-1])
        try:
            there = os.lstat(self._temporary)
        except FileNotFoundError:
            return self, False
        if there.st_ino == here.st_ino and there.st_dev == here.st_dev:
            if made and here.st_nlink == 1:
                self.inode, self.turn = here.st_ino, self.turn + (here.st_size > 0)
                if self._removed is not None:
                    self._warn_of(self._removed, here)
                return self, bool(self.descriptors)
            self._remove(there)
        elif stat.S_ISDIR(here.st_mode) and not stat.S_ISREG(there.st_mode):
            self._remove(there)
        return self, False

    def _open(self, error: OSError) -> bool:
        """Open the temporary file in spite of an error. Returns: whether it was made; if not, it may also be gone."""
        for _ in range(ATTEMPTS):
            if isinstance(error, FileExistsError):
                self._open_found()
                return False
            if not isinstance(error, FileNotFoundError):
                raise error
            make_directory(os.path.dirname(self.path))
            try:
                self.descriptors.extend(map(os.open, (self._temporary,), (_NEW_FLAGS,), (0o666,)))
            except OSError as again:
                error = again
            else:
                return True
        raise error

    def _open_found(self) -> None:
        """Open the file that is there already, or the directory if what is there can have no lock."""
        path = self._temporary
        try:
            if not stat.S_ISREG(os.lstat(path).st_mode):
                path = os.path.dirname(path)
            try:
                self.descriptors.extend(map(os.open, (path,), (_FOUND_FLAGS,)))
            except (PermissionError, IsADirectoryError):
                self.descriptors.extend(map(os.open, (path,), (_READ_FLAGS,)))
        except FileNotFoundError:
            pass
        except PermissionError as error:
            raise OSError(
                errno.EBUSY,
                f"its lock {self._temporary!r} is another user's, whom you cannot wait for; delete it if it is left",
            ) from error

    def _remove(self, found: os.stat_result) -> None:
        """Remove what has the name of the temporary file, and is nobody's."""
        try:
            os.unlink(self._temporary)
        except FileNotFoundError:
            pass
        except OSError as error:
            what = f"left by user {found.st_uid}" if stat.S_ISREG(found.st_mode) else "no file"
            raise OSError(errno.EBUSY, f"{self._temporary!r}, its lock, is {what}; delete it") from error
        self._removed = found

    def _warn_of(self, found: os.stat_result, here: os.stat_result) -> None:
        """Warn of what was removed, unless it was as this process would have left it."""
        self._removed = None
        expected, was = (
            f"{stat.filemode(info.st_mode)} of user {info.st_uid} with {info.st_nlink} link(s)"
            for info in (here, found)
        )
        if expected != was:
            warnings.warn(
                f"removed {self._temporary!r}, which was in the place of a lock: expected {expected}, found {was}; none"
                " of it was used",
                RuntimeWarning,
                stacklevel=2,
            )

    def _wait(self, error: OSError) -> FileLock | None:
        """Wait for the lock of the file that was opened, after an error. Returns: what `take` does."""
        try:
            if not isinstance(error, BlockingIOError):
                raise error
            other = self._held_by_another_name()
            if other is not None:
                return other
            wait_for(self._temporary, lambda: fcntl.flock(self.descriptors[-1], fcntl.LOCK_EX))
        except OSError as last:
            if last.errno not in NO_LOCKS:
                raise
            self._note_lockless(last)
            return None
        return self

    def _held_by_another_name(self) -> FileLock | None:
        here = os.fstat(self.descriptors[-1])
        for (thread, _), lock in list(_held.items()):
            if thread == self._key[0] and lock is not self and lock.descriptors:
                there = os.fstat(lock.descriptors[-1])
                if (there.st_ino, there.st_dev) == (here.st_ino, here.st_dev):
                    return lock
        return None

    def _note_lockless(self, error: OSError) -> None:
        device = os.fstat(self.descriptors[-1]).st_dev
        with contextlib.suppress(OSError):
            os.unlink(self._temporary)
        if device not in _lockless:
            _lockless.add(device)
            warnings.warn(
                f"the file system of {os.path.dirname(self.path)!r} has no file locks ({error.strerror}): processes"
                " that change the same chunks, shards or metadata at the same time can lose updates there; pass"
                " synchronizer=gzarr.ProcessSynchronizer(path), with a path on another file system, or let one process"
                " write",
                RuntimeWarning,
                stacklevel=2,
            )

    def _leads_to(self, inode: int, device: int) -> bool:
        """Whether the name of the temporary file leads to a file."""
        try:
            there = os.lstat(self._temporary)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return there.st_ino == inode and there.st_dev == device

    def rename(self, turn: int) -> None:
        """Put the temporary file in the place of the file, which ends the lock.

        Raises: FileNotFoundError if the lock is lost, as others replaced the directory or have had a turn; other
        OSErrors.
        """
        try:
            if os.lstat(self._temporary).st_ino != self.inode or self.turn != turn:
                _raise_lost(self._temporary)
            self.inode = 0  # foreign code does not use the file any more that is about to get its place
            os.replace(self._temporary, self.path) if self.descriptors else _raise_lost(self._temporary)
        except FileNotFoundError:
            self.close()
            raise
        self.close()

    def link(self, turn: int) -> bool:
        """Put the temporary file in the place of the file unless that exists; ends the lock.

        Returns: whether it was put there. Raises: as `rename`.
        """
        try:
            if os.lstat(self._temporary).st_ino != self.inode or self.turn != turn:
                _raise_lost(self._temporary)
            self.inode = 0
            made = link_or_rename(self._temporary, self.path) if self.descriptors else _raise_lost(self._temporary)
        except FileNotFoundError:
            self.close()
            raise
        self.end()
        return made

    def close(self) -> None:
        """Let the lock go; the temporary file stays if it is there."""
        self.inode = 0
        while self.descriptors:
            try:
                try:  # noqa: SIM105 - suppress takes as long as the call
                    fcntl.flock(self.descriptors[-1], fcntl.LOCK_UN)
                except OSError:
                    pass  # there are no locks
                deque(map(os.close, map(_pop, (self.descriptors,))), 0)
            except IndexError:
                break  # foreign code was faster
        if _held.get(self._key) is self:
            _held.pop(self._key, None)

    def end(self) -> None:
        """Remove the temporary file, unless another holds the lock, and let it go."""
        if fcntl is None:
            return
        try:
            self._end()
        except BaseException:  # an interrupt
            self._end()
            raise

    def _end(self) -> None:
        with contextlib.suppress(OSError):
            if not self.descriptors:  # it was not got, or an interrupt came as it was
                self.descriptors.extend(map(os.open, (self._temporary,), (_READ_FLAGS,)))
            descriptor = self.descriptors[-1]
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            here = os.stat(descriptor)
            if self._leads_to(here.st_ino, here.st_dev):
                os.unlink(self._temporary)
        self.close()


def close_last(descriptors: list[int]) -> None:
    """Close the last one of some descriptors, and forget it."""
    deque(map(os.close, map(_pop, (descriptors,))), 0)


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


class Holding(AbstractContextManager[None]):
    """The locks of some files, held for one ``with`` statement besides a lock of this process.

    Parameters
    ----------
    inner : context manager
        The lock of this process, which is taken first. Its end may be asked for twice.
    paths : sequence of str
        Paths of the files, in the order in which they are to be locked.
    fail : callable
        Makes the error to raise of a path and an OSError.
    tidy : callable
        Called with directories that may have been made for a lock alone.
    lenient : bool
        Whether to go on without a lock where the directory cannot be written.
    """

    __slots__ = ("_fail", "_inner", "_lenient", "_locks", "_paths", "_tidy")

    def __init__(
        self,
        inner: AbstractContextManager[Any],
        paths: Sequence[str],
        fail: Callable[[str, OSError], Exception],
        tidy: Callable[[str], None],
        *,
        lenient: bool = False,
    ) -> None:
        self._inner = inner
        self._paths = paths
        self._fail = fail
        self._tidy = tidy
        self._lenient = lenient
        self._locks: list[FileLock] = []

    def __enter__(self) -> None:
        try:
            self._inner.__enter__()
            if len(self._paths) > 1:
                _claim(id(self), len(self._paths))
            for path in self._paths:
                lock = FileLock(path)
                self._locks.append(lock)
                try:
                    lock.take()
                except OSError as error:
                    if not (self._lenient and error.errno in UNWRITABLE):
                        raise self._fail(path, error) from error
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *exc: object) -> None:
        try:
            self._end()
        except BaseException:  # an interrupt
            self._end()
            raise
        self._inner.__exit__(None, None, None)

    def _end(self) -> None:
        while self._locks:
            lock = self._locks[-1]
            if lock.descriptors:
                lock.end()
                self._tidy(os.path.dirname(lock.path))
            lock.close()
            self._locks.pop()
        _claims.pop(id(self), None)

    def __del__(self) -> None:
        if getattr(self, "_locks", ()):  # an interrupt came as it was about to end
            self._end()


def _claim(holder: int, n: int) -> None:
    """Wait until a thread may use `n` more descriptors. One that holds locks does not wait: others wait for it.

    Claims are served in their order. They need no lock, which an interrupt could leave taken.
    """
    thread = get_ident()
    limit = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2, _MOST_DESCRIPTORS) if resource else n
    _claims[holder] = n
    if any(owner == thread and lock.descriptors for (owner, _), lock in list(_held.items())):
        return
    while (total := _total_up_to(holder)) > limit and total > n:
        time.sleep(_CLAIM_WAIT_S)


def _total_up_to(holder: int) -> int:
    """Number of descriptors of a claim and of those made before it."""
    total = 0
    for other, n in list(_claims.items()):
        total += n
        if other == holder:
            break
    return total


@after_fork
def _forget() -> None:
    """Close what a forked child has of its parent's locks, without letting them go."""
    for lock in list(_held.values()):
        while lock.descriptors:
            with contextlib.suppress(OSError):
                close_last(lock.descriptors)
    _held.clear()
    _claims.clear()
