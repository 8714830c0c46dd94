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
  object (`FileLock.link`). Links, pipes and others that are no files are an error, which names them.
- A thread that holds the lock of a file may store it: it finds its lock by the path, or by the file that the name leads
  to where links give it another one. Re-entrant code (`gzarr.concurrency`) that wants to store what its thread is
  storing gets a `StoreError`.
- Locks are let go by name, not by closing alone: a forked child may have a copy of the descriptor. A child closes its
  copies and holds nothing.
- Several locks are taken in sorted order. A thread that holds some asks for no others that others may hold.
- File objects own the descriptors, and no Python runs between the opening of a file and its being noted, so that an
  interrupt leaves no lock behind. What an interrupt may find half done can be done again.
"""
# Plain os calls: pathlib costs more than the system calls themselves.
# ruff: noqa: PTH103, PTH108, PTH110, PTH112, PTH116, PTH120

import contextlib
import errno
import io
import os
import stat
import warnings
from collections.abc import Iterable
from threading import get_ident
from typing import Any

from gzarr.concurrency import after_fork
from gzarr.storage.lock_kinds import fcntl, file_locker
from gzarr.storage.locks import reentered, wait_for
from gzarr.storage.rules import TEMPORARY_PREFIX, replace_file

#: For what is there already: a pipe is not waited for, a link is not followed.
FOUND_FLAGS = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"))

#: How often a file is looked for again because others remove the directory that was just made.
ATTEMPTS = 100

# What a system says: that a file has no locks, that a directory cannot be written, that a disk has no room for a file.


def _errors(*names: str) -> frozenset[int]:
    return frozenset(getattr(errno, name) for name in names if hasattr(errno, name))


NO_LOCKS = _errors("ENOLCK", "EOPNOTSUPP", "ENOTSUP", "ENOSYS")
FULL = _errors("ENOSPC", "EDQUOT")
UNWRITABLE = FULL | _errors("EACCES", "EPERM", "ENOENT", "EROFS", "ENOTDIR", "ENAMETOOLONG", "EISDIR", "ELOOP")

#: Devices whose files cannot be locked.
_lockless: set[int] = set()
#: The locks of all threads, by thread and path.
_held: "dict[tuple[int, str], FileLock]" = {}


def has_locks() -> bool:
    """Whether all files can be locked, as far as is known."""
    return not _lockless and file_locker() is not None


def is_lockable(path: str) -> bool:
    """Whether a file can be locked, as far as is known."""
    if not _lockless or file_locker() is None:
        return has_locks()
    try:
        return os.stat(os.path.dirname(path)).st_dev not in _lockless
    except OSError:
        return True


def held_lock(path: str) -> "FileLock | None":
    """The lock of a file that this thread holds, or None. Raises: StoreError if the thread is just storing the file."""
    lock = _held.get((get_ident(), path))
    if lock is not None and (lock.is_written or not lock.inode):
        raise reentered(repr(path))
    return lock


def refuse_held(paths: Iterable[str]) -> None:
    """Raise StoreError if this thread holds the lock of one of some files: it is in the midst of a change."""
    if _held:
        thread = get_ident()
        for path in paths:
            if (thread, path) in _held:
                raise reentered(repr(path))


def holds_any() -> bool:
    """Whether this thread holds the lock of a file."""
    thread = get_ident()
    return any(owner == thread and lock.is_open for (owner, _), lock in _held.copy().items())


class FileLock:
    """The lock of a file, of one thread.

    Parameters
    ----------
    path : str
        Path of the file.

    Attributes
    ----------
    inode : int
        Of the temporary file while the lock is held; 0 otherwise.
    is_written : bool
        Whether the thread is writing the file.
    """

    __slots__ = ("_files", "_key", "_lock", "_temporary", "inode", "is_written", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.inode = 0
        self.is_written = False
        self._files: list[io.FileIO] = []  # the temporary file while the lock is held or awaited
        self._temporary = temporary_path(path)
        self._key = get_ident(), path
        self._lock: Any = file_locker()

    def fileno(self) -> int:
        """The descriptor of the temporary file."""
        return self._files[-1].fileno()

    @property
    def is_open(self) -> bool:
        """Whether the lock is held or awaited."""
        return bool(self._files)

    def take(self) -> "FileLock | None":
        """Wait for the lock; directories are made.

        Returns
        -------
        FileLock or None
            This lock, or the one that the thread holds already; None if the file cannot be locked.

        Raises
        ------
        OSError
            If the temporary file cannot be made.
        StoreError
            If the thread is just storing the file.
        """
        held = held_lock(self.path)
        if held is not None:
            return held
        if self._lock is None or (_lockless and not is_lockable(self.path)):
            return None
        _held[self._key] = self
        while True:
            made = self._open()
            if self._files:
                taken = self._wait()
                if taken is not self:
                    self.close()
                    return taken
                if self._is_ours(made=made):
                    return self
                self._close_file()

    def _open(self) -> bool:
        """Open the temporary file, or what is in its place. Returns: whether it was made; if not, it may be gone."""
        for attempt in range(ATTEMPTS):
            try:
                self._files.extend(map(io.FileIO, (self._temporary,), ("x+",)))
            except FileExistsError:
                self._open_found()
                return False
            except FileNotFoundError:
                if attempt == ATTEMPTS - 1:
                    raise
                make_directory(os.path.dirname(self.path))
            else:
                return True
        raise AssertionError

    def _open_found(self) -> None:
        """Open the file that is there already."""
        try:
            if not stat.S_ISREG(os.lstat(self._temporary).st_mode):
                raise OSError(errno.EBUSY, f"{self._temporary!r}, its lock, is no file; delete it")
            try:
                self._files.append(io.FileIO(self._temporary, "r+", opener=_open_found))  # NFS needs it to be writable
            except PermissionError:
                self._files.append(io.FileIO(self._temporary, "r", opener=_open_found))
        except FileNotFoundError:
            pass
        except PermissionError as error:
            raise OSError(
                errno.EBUSY,
                f"its lock {self._temporary!r} is another user's, whom you cannot wait for; delete it if it is left",
            ) from error

    def _wait(self) -> "FileLock | None":
        """Wait for the lock of the open file. Returns: what `take` does."""
        descriptor = self._files[-1].fileno()
        try:
            try:
                self._lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                other = self._held_by_another_name()
                if other is not None:
                    return other
                wait_for(self._temporary, lambda: self._lock(descriptor, fcntl.LOCK_EX))
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            self._note_lockless(error)
            return None
        return self

    def _is_ours(self, *, made: bool) -> bool:
        """Whether the file that was locked is the lock; what a killed process has left is removed."""
        here = os.fstat(self._files[-1].fileno())
        if not self._leads_to(here):
            return False
        if not made or here.st_nlink > 1:
            self._remove(here)
            return False
        self.inode = here.st_ino
        return True

    def _remove(self, found: os.stat_result) -> None:
        """Remove what is at the name of the temporary file, and is nobody's."""
        try:
            os.unlink(self._temporary)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise OSError(
                errno.EBUSY, f"{self._temporary!r}, its lock, is left by user {found.st_uid}; delete it"
            ) from error

    def _held_by_another_name(self) -> "FileLock | None":
        here = os.fstat(self.fileno())
        for (thread, path), lock in _held.copy().items():
            if thread == self._key[0] and lock is not self and lock.is_open:
                there = os.fstat(lock.fileno())
                if (there.st_ino, there.st_dev) == (here.st_ino, here.st_dev):
                    return held_lock(path)
        return None

    def _note_lockless(self, error: OSError) -> None:
        device = os.fstat(self.fileno()).st_dev
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

    def _leads_to(self, here: os.stat_result) -> bool:
        """Whether the name of the temporary file leads to a file."""
        try:
            there = os.lstat(self._temporary)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return there.st_ino == here.st_ino and there.st_dev == here.st_dev

    def rename(self) -> None:
        """Put the temporary file in the place of the file, which ends the lock.

        Raises: FileNotFoundError if the lock is lost, as others replaced the directory; other OSErrors.
        """
        try:
            self._check_place()
            replace_file(self._temporary, self.path)
        except FileNotFoundError:
            self.close()
            raise
        self.close()

    def link(self) -> bool:
        """Put the temporary file in the place of the file unless that exists; ends the lock.

        Returns: whether it was put there. Raises: as `rename`.
        """
        try:
            self._check_place()
            made = link_or_rename(self._temporary, self.path)
        except FileNotFoundError:
            self.close()
            raise
        self.end()
        return made

    def _check_place(self) -> None:
        if os.lstat(self._temporary).st_ino != self.inode:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._temporary)

    def close(self) -> None:
        """Let the lock go; the temporary file stays if it is there."""
        self._close_file()
        self.is_written = False
        if _held.get(self._key) is self:
            _held.pop(self._key, None)

    def _close_file(self) -> None:
        self.inode = 0
        while self._files:
            with contextlib.suppress(OSError):  # there are no locks
                self._lock(self._files[-1].fileno(), fcntl.LOCK_UN)
            self._files.pop().close()

    def abandon(self) -> None:
        """Close the temporary file, which a parent process goes on using."""
        while self._files:
            self._files.pop().close()

    def end(self) -> None:
        """Remove the temporary file, unless another holds the lock, and let it go."""
        try:
            self._end()
        except BaseException:  # an interrupt
            self._end()
            raise

    def _end(self) -> None:
        with contextlib.suppress(OSError):
            if self._files:
                self._lock(self.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._leads_to(os.stat(self.fileno())):
                    os.unlink(self._temporary)
        self.close()


def _open_found(path: str, flags: int) -> int:
    return os.open(path, flags | FOUND_FLAGS)


@after_fork
def _forget() -> None:
    """Close what a forked child has of its parent's locks, without letting them go."""
    for lock in list(_held.values()):
        lock.abandon()
    _held.clear()


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
        replace_file(temporary, path)  # a link to nothing
    return True
