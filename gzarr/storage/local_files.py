"""Files as objects: reading ranges of them, replacing them atomically, and telling their versions apart."""
# Plain os calls: pathlib costs more than the system calls themselves on small files.
# ruff: noqa: PTH108, PTH110, PTH113, PTH114, PTH115, PTH116, PTH118, PTH120

import contextlib
import errno
import itertools
import os
import stat
import struct
import time
from array import array
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple, TypeAlias

from gzarr.config import config
from gzarr.errors import StoreError
from gzarr.storage.capabilities import Buffer, Files, Target, Versions
from gzarr.storage.file_locks import ATTEMPTS, FULL, FileLock, held_lock, is_lockable, link_or_rename, make_directory
from gzarr.storage.leftover_files import prune
from gzarr.storage.rules import TEMPORARY_PREFIX, byte_range, check_key, check_path, replace_file

# Nobody waits for the other end of a pipe; files are read as without O_NONBLOCK.
READ_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_BINARY", "O_NONBLOCK"))
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)

# What the system says when there is no such file: no entry, or a file where a directory is needed.
MISSING = (FileNotFoundError, NotADirectoryError)

# One system call moves at most 2 GiB (Linux read(2), NOTES; other systems refuse more); calls stay well below.
_CALL_NBYTES = 1 << 28

# Up to here a range is asked for without looking at the file's size first: allocating that much for a range that turns
# out to be shorter is cheaper than a stat. Longer lengths may come from a damaged shard index and are checked.
_UNCHECKED_NBYTES = 1 << 20
_LAST_OFFSET = (1 << 63) - 1

#: Bytes of a copy without the help of the system.
_COPIED_NBYTES = 1 << 20
#: An open file, and a number of its first bytes.
_Start: TypeAlias = tuple[int, int]

# Inode numbers are used again, and clocks of file systems tick every few milliseconds, so a replaced file can look like
# the one before. Files that this process writes therefore also leave a number here, by inode, before they can be seen.
WRITTEN = array("Q", bytes(8 * 1024))
_numbers = itertools.count(1 << 16, 1 << 16)
# Times of a file that was changed so long ago are not those of one that is written now, even if a server's clock is
# late.
_SETTLED_NS = 10 * 10**9


def _seek_and_read(fd: int, nbytes: int, offset: int) -> bytes:
    """What os.pread does, for systems without it; the descriptor belongs to one thread."""
    os.lseek(fd, offset, os.SEEK_SET)
    return os.read(fd, nbytes)


_pread = getattr(os, "pread", _seek_and_read)


def _read_all(fd: int, nbytes: int, offset: int) -> Buffer:
    """Read `nbytes` bytes at an offset, fewer only where the file ends."""
    first: bytes = _pread(fd, min(nbytes, _CALL_NBYTES), offset)
    if len(first) == nbytes or not first:
        return first
    out = bytearray(nbytes)
    done, part = 0, first
    while part:
        out[done : done + len(part)] = part
        done += len(part)
        part = _pread(fd, min(nbytes - done, _CALL_NBYTES), offset + done)
    del out[done:]
    return out


def read_range(fd: int, start: int | None, length: int | None) -> Buffer:
    """Read the range of a request from an open file."""
    if start is None:
        return _read_all(fd, os.lseek(fd, 0, os.SEEK_END), 0)
    if length is not None and 0 <= start <= _LAST_OFFSET - _UNCHECKED_NBYTES and 0 <= length <= _UNCHECKED_NBYTES:
        return _read_all(fd, length, start)
    begin, end = byte_range(start, length, os.fstat(fd).st_size)
    return _read_all(fd, end - begin, begin)


def write_atomically(
    path: str, view: bytes | memoryview, *, only_new: bool = False, start: _Start | None = None
) -> bool:
    """Replace one file under its lock; directories are made.

    only_new: unless it is there. start: an open file, and how many of its bytes come before the others.
    Whatever fails, the old file stays and no temporary file does. Returns: whether it was stored. Raises: OSError.
    """
    if only_new and os.path.isfile(path):
        return False
    lock = held_lock(path) or FileLock(path)
    for attempt in range(ATTEMPTS):
        try:
            taken = lock.take()
            if taken is None:
                return _write_unlocked(path, view, only_new=only_new, start=start)
            taken.is_written = True
            _write(taken.fileno(), view, start)
            WRITTEN[taken.inode % len(WRITTEN)] = next(_numbers)
            if only_new:
                return taken.link()
            taken.rename()
        except FileNotFoundError:  # the directory was removed meanwhile, and the lock with it
            lock.end()
            if attempt == ATTEMPTS - 1:
                raise
        except BaseException:  # an interrupt may also come as the file has just been made
            lock.end()
            raise
        else:
            return True
    raise AssertionError


def delete_file(path: str) -> bool:
    """Delete a file under its lock. Returns: whether there may have been one. Raises: OSError."""
    try:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            return False
    except MISSING:
        return False
    lock = FileLock(path)
    try:
        try:
            lock.take()
        except OSError as error:
            if error.errno not in FULL:  # deleting must also work on a full disk
                raise
        with contextlib.suppress(*MISSING):
            os.unlink(path)
        lock.end()
    except BaseException:  # an interrupt may also come just as it was about to end
        lock.end()
        raise
    return True


def replace_end(path: str, version: "FileVersion", kept: int, tail: bytes) -> bool:
    """Replace a file by a copy of its first bytes and others behind them, under its lock.

    Returns: whether that was done: not if it is another version. Raises: OSError.
    """
    try:
        fd = os.open(path, READ_FLAGS)
    except MISSING:
        return False
    try:
        info = os.fstat(fd)
        if (info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns) != version[:4]:
            return False
        return write_atomically(path, tail, start=(fd, kept))
    finally:
        os.close(fd)


def _copy_start(source: int, nbytes: int, target: int) -> None:
    """Copy the first bytes of an open file to the start of another, which is empty and then stands behind them."""
    copy, done = getattr(os, "copy_file_range", _copy_range), 0  # which shares blocks where the file system can
    while done < nbytes:
        try:
            copied = copy(source, target, min(nbytes - done, _CALL_NBYTES), done, done)
        except OSError as error:
            if copy is _copy_range or error.errno in FULL:
                raise
            copied = 0
        if not copied and copy is _copy_range:
            raise OSError(errno.EIO, f"the file ends after {done} of {nbytes} bytes")
        done, copy = done + copied, copy if copied else _copy_range  # some systems copy nothing and say no error
    os.lseek(target, nbytes, os.SEEK_SET)


def _copy_range(source: int, target: int, nbytes: int, offset: int, at: int) -> int:
    """What os.copy_file_range does, for systems and file systems without it."""
    part = _pread(source, min(nbytes, _COPIED_NBYTES), offset)
    os.lseek(target, at, os.SEEK_SET)
    return os.write(target, part)


def _write(fd: int, view: bytes | memoryview, start: _Start | None = None) -> None:
    if start is not None:
        _copy_start(*start, fd)
    view = view if len(view) <= _CALL_NBYTES else memoryview(view)
    part = view[:_CALL_NBYTES]
    done = 0
    while part:
        done += os.write(fd, part)
        part = view[done : done + _CALL_NBYTES]


def _write_unlocked(path: str, view: bytes | memoryview, *, only_new: bool, start: _Start | None) -> bool:
    """Replace one file where files cannot be locked. only_new: unless it is there. Returns: whether it was stored."""
    directory = os.path.dirname(path)
    temporary = os.path.join(directory, TEMPORARY_PREFIX + os.urandom(8).hex())
    for attempt in range(ATTEMPTS):
        try:
            fd = os.open(temporary, _WRITE_FLAGS, 0o666)
            try:
                _write(fd, view, start)
                WRITTEN[os.fstat(fd).st_ino % len(WRITTEN)] = next(_numbers)
            finally:
                os.close(fd)
            if only_new:
                return link_or_rename(temporary, path)
            replace_file(temporary, path)
        except FileNotFoundError:
            if attempt == ATTEMPTS - 1:
                raise
            make_directory(directory)
        else:
            return True
        finally:  # an interrupt may also come as the file has just been made
            with contextlib.suppress(OSError):
                os.unlink(temporary)
    raise AssertionError


def failure(name: str, verb: str, path: str, error: OSError) -> StoreError:
    """The error to raise when the system refuses something. name: of the store."""
    if isinstance(error, StoreError):
        return error
    if isinstance(error, MISSING):
        refuse_link(path, name, error, verb)
    remedies = {
        errno.ENOTDIR: "; a file is where a directory is needed, so choose another path",
        errno.EXDEV: "; these are different file systems: write on that of the destination, or copy",
    }
    reason = f"{error.strerror or error}{remedies.get(error.errno or 0, '')}"
    return StoreError(f"store {name}: cannot {verb} {path!r}: {reason}")


class LocalFiles(Files):
    """The files of a `LocalStore`: every object is one.

    Parameters
    ----------
    prefix : str
        Absolute path of the root directory, with a separator at its end.
    """

    __slots__ = ("_prefix",)

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def path(self, key: str) -> str:
        """Path of an object's file, whether or not it exists."""
        check_key(key)
        return self._prefix + key

    def prefix(self, path: str) -> str:
        """What the paths of all files under a path begin with."""
        check_path(path)
        return os.path.join(self._prefix + path, "")

    def target(self, path: str) -> Target | None:
        """How files under a path may be replaced by others; None if they cannot be locked."""
        if config["locks"] != "flock" or not is_lockable(self._prefix):
            return None
        return Target(self.prefix(path), TEMPORARY_PREFIX, partial(next, _numbers), self._tidy, self._replace_end)

    def _replace_end(self, key: str, version: object, kept: int, tail: bytes) -> bool:
        path = self._prefix + key
        try:
            return isinstance(version, FileVersion) and replace_end(path, version, kept, tail)
        except OSError as error:
            raise failure(f"file://{self._prefix}", "write", path, error) from error

    def _tidy(self, keys: Iterable[str]) -> None:
        for directory in {os.path.dirname(self._prefix + key) for key in keys}:
            prune(directory, self._prefix)


_pack_version = struct.Struct("5Q").pack
_64_BITS = (1 << 64) - 1


class FileVersion(NamedTuple):
    """A version of a file, which also code that has opened the file can compare with what it has.

    Attributes
    ----------
    inode, nbytes, modified_ns, changed_ns : int
        What the system says.
    number : int
        What stands in `WRITTEN` for the inode.
    """

    inode: int
    nbytes: int
    modified_ns: int
    changed_ns: int
    number: int

    def packed(self) -> bytes:
        """The numbers as 64 bits each: times, which file systems may set to any year, modulo that."""
        inode, nbytes, modified, changed, number = self
        return _pack_version(inode, nbytes, modified & _64_BITS, changed & _64_BITS, number)


#: Instead of a version of a file that never changes.
FIXED = FileVersion(0, 1 << 63, 0, 0, 0)


def is_other(now: object | None, before: object | None) -> bool:
    """Whether an object was replaced. What this process writes does not count, as tokens may share its numbers."""
    if isinstance(now, FileVersion) and isinstance(before, FileVersion):
        return now[:4] != before[:4]
    return now != before


class LocalVersions(Versions):
    """Versions of files: inode, size, times of last change, and a number for those that this process writes.

    Parameters
    ----------
    prefix, name : str
        As of `LocalFiles`.
    """

    __slots__ = ("_name", "_prefix")

    def __init__(self, prefix: str, name: str) -> None:
        self._prefix, self._name = prefix, name

    def token(self, key: str) -> FileVersion | None:
        """What identifies a version of the file; None if it is missing. Raises: StoreError."""
        check_key(key)
        path = self._prefix + key
        info = find_file(path, self._name)
        while info is not None:
            inode, changed = info.st_ino, info.st_ctime_ns
            token = FileVersion(inode, info.st_size, info.st_mtime_ns, changed, WRITTEN[inode % len(WRITTEN)])
            if changed < time.time_ns() - _SETTLED_NS:
                return token
            # If it was replaced since that look, the number may be one of a file that is still to come.
            info = find_file(path, self._name)
            if info is not None and (info.st_ino, info.st_ctime_ns) == (inode, changed):
                return token
        return None


def find_file(path: str, name: str) -> os.stat_result | None:
    """The status of a file; None if it is missing. name: of the store. Raises: StoreError."""
    try:
        info = os.stat(path)
    except MISSING as error:
        refuse_link(path, name, error)
        return None
    except OSError as error:
        raise failure(name, "look at", path, error) from error
    return info if stat.S_ISREG(info.st_mode) else None


def refuse_link(path: str, name: str, error: OSError, verb: str = "read") -> None:
    """Refuse to take an object for missing that is lost.

    Raises: StoreError if the file, or a directory above it, is a link to nothing.
    """
    link = path
    while not os.path.lexists(link) and os.path.dirname(link) != link:
        link = os.path.dirname(link)
    if os.path.islink(link) and not os.path.exists(link):
        it = "it" if link == path else repr(link)
        reason = f"{it} is a symbolic link to {os.readlink(link)!r}, where nothing is; restore that, or delete the link"
        raise StoreError(f"store {name}: cannot {verb} {path!r}: {reason}") from error
