"""Objects as files under a directory.

Writing is atomic: an object is written to a temporary file beside it, which then replaces it, so that a reader (in this
process or another) sees all of the old bytes or all of the new. Nothing is forced to the disk, so the promise covers
readers and failing writers, not a power cut.

Directories appear with their first object and go with their last. Reads run one after the other: with the file in the
page cache a read costs a few microseconds, and whoever wants several at a time calls from several threads.
"""
# Plain os calls: pathlib costs more than the system calls themselves on small files.
# ruff: noqa: PTH100, PTH103, PTH104, PTH105, PTH106, PTH108, PTH112, PTH114, PTH116, PTH118, PTH120

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import secrets
import shutil
import stat
import time
from array import array
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache, partial
from typing import Any, Self

from gzarr.errors import StoreError
from gzarr.storage.base import Buffer, Request, Store, Target, reads_past
from gzarr.storage.locks import key_locks
from gzarr.storage.rules import TEMPORARY_PREFIX, byte_range, byte_view, check_key, check_move, check_path

_READ_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)

# What the system says when there is no such file: no entry, or a file where a directory is needed.
_MISSING = (FileNotFoundError, NotADirectoryError)

# One system call moves at most 2 GiB (Linux read(2), NOTES; other systems refuse more); pieces stay well below.
_PIECE_NBYTES = 1 << 28

# Up to here a range is asked for without looking at the file's size first: allocating that much for a range that turns
# out to be shorter is cheaper than a stat. Longer lengths may come from a damaged shard index and are checked.
_UNCHECKED_NBYTES = 1 << 20
_LAST_OFFSET = (1 << 63) - 1

# How often a write is begun again because another thread removed the directory that it had just made.
_ATTEMPTS = 100
#: How often a directory is emptied again because a late writer put a file into it.
_REMOVE_ATTEMPTS = 20

# Inode numbers are used again, and clocks of file systems tick every few milliseconds, so a replaced file can look like
# the one before. Files that this process writes therefore also leave a number here, by inode, before they can be seen.
_written = array("Q", bytes(8 * 1024))
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
    first: bytes = _pread(fd, min(nbytes, _PIECE_NBYTES), offset)
    if len(first) == nbytes or not first:
        return first
    out = bytearray(nbytes)
    done, piece = 0, first
    while piece:
        out[done : done + len(piece)] = piece
        done += len(piece)
        piece = _pread(fd, min(nbytes - done, _PIECE_NBYTES), offset + done)
    del out[done:]
    return out


def _read_range(fd: int, start: int | None, length: int | None) -> Buffer:
    """Read what a request means from an open file."""
    if start is None:
        return _read_all(fd, os.lseek(fd, 0, os.SEEK_END), 0)
    if length is not None and 0 <= start <= _LAST_OFFSET - _UNCHECKED_NBYTES and 0 <= length <= _UNCHECKED_NBYTES:
        return _read_all(fd, length, start)
    begin, end = byte_range(start, length, os.fstat(fd).st_size)
    return _read_all(fd, end - begin, begin)


def _remove_tree(directory: str) -> None:
    """Delete a directory that has just been renamed: a writer that was on its way in may still add or remove a file."""
    for _ in range(_REMOVE_ATTEMPTS):
        try:
            shutil.rmtree(directory)
        except FileNotFoundError:
            if not os.path.isdir(directory):
                return
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
        else:
            return
    shutil.rmtree(directory)


def _real_directory(path: str) -> str:
    """Path of a directory without symbolic links, with a separator at its end.

    It is kept as long as the path leads to the same directory: looking at every part of a path takes as long as
    encoding a chunk.
    """
    try:
        info = os.stat(path)
    except OSError:  # not there yet; what will be made there may be a link
        return os.path.join(os.path.realpath(path), "")
    return _real_path(path, info.st_dev, info.st_ino)


def _real_file(directory: str, name: str) -> str:
    """Path of a file in a real directory, which ends with a separator, without symbolic links."""
    path = directory + name
    return os.path.normcase(os.path.realpath(path) if os.path.islink(path) else path)


def _folder(key: str) -> str:
    """What stands before the last part of a key, with the slash."""
    return key[: key.rfind("/") + 1]


@lru_cache(maxsize=4096)
def _real_path(path: str, device: int, inode: int) -> str:
    return os.path.join(os.path.realpath(path), "")


def _temporary(directory: str) -> str:
    """An unused name in a directory that listings pass over."""
    return os.path.join(directory, TEMPORARY_PREFIX + secrets.token_hex(8))


def _write_atomically(path: str, view: bytes | memoryview) -> None:
    """Replace one file; whatever fails, the old file stays and no temporary file does."""
    temporary = _temporary(os.path.dirname(path))
    try:
        fd = os.open(temporary, _WRITE_FLAGS, 0o666)
        try:
            written = os.write(fd, view[:_PIECE_NBYTES])
            while written < len(view):
                written += os.write(fd, memoryview(view)[written : written + _PIECE_NBYTES])
            _written[os.fstat(fd).st_ino % len(_written)] = next(_numbers)
        finally:
            os.close(fd)
        os.replace(temporary, path)
    except BaseException:  # an interrupt may also come as the file has just been made
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


class _OpenFile:
    """A file opened for reading parts of it."""

    __slots__ = ("_fd", "_path", "nbytes")

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = os.open(path, _READ_FLAGS)
        info = os.fstat(self._fd)
        self.nbytes = info.st_size
        if stat.S_ISDIR(info.st_mode):
            os.close(self._fd)
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)

    def read(self, start: int, nbytes: int) -> Buffer:
        """The bytes from an offset on, fewer where the file ends. Raises: StoreError."""
        try:
            return _read_all(self._fd, min(nbytes, max(self.nbytes - start, 0)), start)
        except OSError as error:
            raise StoreError(f"cannot read {self._path!r}: {error.strerror or error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._fd)


class LocalStore(Store):
    """A store of files under a directory, which is made when the first object is written.

    A subclass that reads in its own way overrides both ``get_one`` and ``get_many``; it is then asked for whole objects
    unless it has an ``opened`` of its own.

    Args:
        root: the directory; relative to the working directory at this moment.
        read_only: refuse to change anything.
    """

    opens = True

    def __init__(self, root: str | os.PathLike[str], read_only: bool = False) -> None:
        if reads_past(type(self), "opened"):
            self.opens = False
        self._given = os.fsdecode(root)
        self._root = os.path.abspath(self._given)
        self._prefix = os.path.join(self._root, "")
        self.read_only = read_only

    @property
    def root(self) -> str:
        """Absolute path of the directory."""
        return self._root

    # -- reading -------------------------------------------------------------------------------------------------

    def get_one(self, request: Request) -> Buffer | None:
        """Fetch one request. Raises: StoreError naming the file if it is there and cannot be read."""
        key, start, length = request
        path = self._path(key)
        try:
            fd = os.open(path, _READ_FLAGS)
            try:
                return _read_range(fd, start, length)
            finally:
                os.close(fd)
        except _MISSING:
            return None
        except OSError as error:
            if os.path.isdir(path):
                return None
            raise self._failed("read", path, error) from error

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        """Fetch every request, in order. A file is opened once, so its ranges come from one version of it."""
        if len({request[0] for request in requests}) == len(requests):
            # Not self.get_one: a subclass may have made that of get_many.
            return [LocalStore.get_one(self, request) for request in requests]
        by_key: dict[str, list[int]] = {}
        for position, request in enumerate(requests):
            by_key.setdefault(request[0], []).append(position)
        found: list[Buffer | None] = [None] * len(requests)
        for key, positions in by_key.items():
            ranges = self._get_ranges(key, [requests[position] for position in positions])
            for position, value in zip(positions, ranges, strict=True):
                found[position] = value
        return found

    def _get_ranges(self, key: str, requests: Sequence[Request]) -> list[Buffer | None]:
        path = self._path(key)
        try:
            fd = os.open(path, _READ_FLAGS)
            try:
                return [_read_range(fd, start, length) for _, start, length in requests]
            finally:
                os.close(fd)
        except _MISSING:
            return [None] * len(requests)
        except OSError as error:
            if os.path.isdir(path):
                return [None] * len(requests)
            raise self._failed("read", path, error) from error

    def opened(self, key: str) -> _OpenFile | None:
        """Open a file to read parts of it. Raises: StoreError naming the file if it is there and cannot be read."""
        path = self._path(key)
        try:
            return _OpenFile(path)
        except _MISSING:
            return None
        except OSError as error:
            if os.path.isdir(path):
                return None
            raise self._failed("read", path, error) from error

    def getsize(self, key: str) -> int | None:
        """Size of an object in bytes, or None if it is missing."""
        info = self._stat(key)
        return None if info is None else info.st_size

    def contains_many(self, keys: Sequence[str]) -> list[bool]:
        """Whether there is a file with each key; a subclass that reads in its own way is asked to."""
        if reads_past(type(self), "contains_many"):
            return super().contains_many(keys)
        found = []
        for key in keys:
            path = self._path(key)
            try:
                found.append(stat.S_ISREG(os.stat(path).st_mode))
            except _MISSING:
                found.append(False)
            except OSError as error:
                raise self._failed("look at", path, error) from error
        return found

    def generation(self, key: str) -> object | None:
        """What identifies a version of the file: inode, size, times of last change; None if it is missing."""
        info = self._stat(key)
        while info is not None:
            inode, changed = info.st_ino, info.st_ctime_ns
            token = inode, info.st_size, info.st_mtime_ns, changed, _written[inode % len(_written)]
            if changed < time.time_ns() - _SETTLED_NS:
                return token
            # If it was replaced since that look, the number may be one of a file that is still to come.
            info = self._stat(key)
            if info is not None and (info.st_ino, info.st_ctime_ns) == (inode, changed):
                return token
        return None

    def local_file(self, key: str) -> str | None:
        """Path of an object's file; None in a subclass that reads in its own way."""
        return None if reads_past(type(self), "local_file") else self._path(key)

    def local_prefix(self, path: str) -> str | None:
        """What the paths of all files under a path begin with; None in a subclass that has files in its own way."""
        cls = type(self)
        if reads_past(cls, "local_prefix") or (cls.local_file, cls._path) != (LocalStore.local_file, LocalStore._path):
            return None
        check_path(path)
        return os.path.join(self._prefix + path, "")

    def local_target(self, path: str) -> Target | None:
        """How files under a path may be written by others; None in a subclass that writes in its own way."""
        cls = type(self)
        prefix = self.local_prefix(path)
        if prefix is None or (cls.set, cls.set_many) != (LocalStore.set, LocalStore.set_many):
            return None
        return Target(prefix, _temporary(""), _written, partial(next, _numbers))

    def lock_name(self, key: str) -> Hashable:
        """The real absolute path of the file, so that stores with different roots agree."""
        directory, name = os.path.split(self._prefix + key)
        return _real_file(_real_directory(directory), name)

    def locked(self, keys: Sequence[str]) -> AbstractContextManager[Any]:
        """Hold files against read-modify-write by others; of every directory the real path is found once."""
        if type(self).lock_name is not LocalStore.lock_name:
            return super().locked(keys)
        real = {folder: _real_directory(self._prefix + folder) for folder in set(map(_folder, keys))}
        return key_locks([_real_file(real[_folder(key)], key.rpartition("/")[2]) for key in keys])

    def enclosing(self) -> tuple[Store, str] | None:
        """A store over the directory above, and the name of this one's in it."""
        above, name = os.path.split(self._root)
        return (LocalStore(above), name) if name else None

    def list_prefix(self, prefix: str = "") -> Iterator[str]:
        """All keys under a path; what others add or remove meanwhile may or may not be among them."""
        check_path(prefix)
        return self._walk(prefix)

    def _walk(self, path: str) -> Iterator[str]:
        prefix = f"{path}/" if path else ""
        objects, paths = self._scan(path)
        for name in objects:
            yield prefix + name
        for name in paths:
            yield from self._walk(prefix + name)

    def list_dir(self, path: str = "") -> tuple[list[str], list[str]]:
        """Names directly under a path, sorted: (objects, sub-paths)."""
        check_path(path)
        objects, paths = self._scan(path)
        return sorted(objects), sorted(paths)

    def _scan(self, path: str) -> tuple[list[str], list[str]]:
        """Names of the files and of the directories in a directory that belong to the store."""
        directory = self._prefix + path
        objects: list[str] = []
        paths: list[str] = []
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.name.startswith(TEMPORARY_PREFIX):
                        continue
                    if entry.is_dir():
                        # A link to a directory above would be walked without end.
                        if not (entry.is_symlink() and _leads_up(entry.path)):
                            paths.append(entry.name)
                    elif entry.is_file():
                        objects.append(entry.name)
        except _MISSING:
            pass
        except OSError as error:
            raise self._failed("list", directory, error) from error
        return objects, paths

    # -- writing -------------------------------------------------------------------------------------------------

    def set(self, key: str, value: Buffer) -> None:
        """Store one object atomically. Raises: StoreError naming the file; the old object is then still there."""
        self.check_writable()
        path, view = self._path(key), byte_view(key, value)
        try:
            for _ in range(_ATTEMPTS):
                try:
                    return _write_atomically(path, view)
                except FileNotFoundError:
                    self._make_directory(os.path.dirname(path))
            _write_atomically(path, view)
        except OSError as error:
            self._prune(os.path.dirname(path))
            raise self._failed("write", path, error) from error

    def set_many(self, items: Iterable[tuple[str, Buffer]]) -> None:
        """Store every (key, bytes) pair; each replaces its object atomically."""
        for key, value in items:
            self.set(key, value)

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete the keys, and directories that become empty; missing keys are ignored."""
        self.check_writable()
        emptied = set()
        try:
            for key in keys:
                path = self._path(key)
                try:
                    os.unlink(path)
                except _MISSING:
                    continue
                except OSError as error:
                    if os.path.isdir(path):
                        continue
                    raise self._failed("delete", path, error) from error
                emptied.add(os.path.dirname(path))
        finally:
            for directory in emptied:
                self._prune(directory)

    def clear(self) -> None:
        """Delete everything; the root directory stays."""
        self.delete_prefix()

    def delete_prefix(self, path: str = "") -> None:
        """Delete every key under a path, which vanishes in one step; the root itself loses its entries one by one."""
        self.check_writable()
        check_path(path)
        if not path:
            objects, paths = self.list_dir()
            self.delete_many(objects)
            for name in paths:
                self.delete_prefix(name)
            return
        directory = self._prefix + path
        if not os.path.isdir(directory):
            return
        doomed = _temporary(os.path.dirname(directory))
        try:
            os.rename(directory, doomed)
            if os.path.islink(doomed):
                os.unlink(doomed)
            else:
                _remove_tree(doomed)
        except FileNotFoundError:
            pass  # another thread was faster
        except OSError as error:
            raise self._failed("delete", directory, error) from error
        self._prune(os.path.dirname(directory))

    def move_prefix(self, source: str, dest: str) -> None:
        """Rename the directory of a path. Raises: StoreError if anything lies at the destination."""
        self.check_writable()
        check_move(source, dest)
        old, new = self._prefix + source, self._prefix + dest
        if not os.path.isdir(old):
            return
        try:
            self._make_directory(os.path.dirname(new))
            os.rename(old, new)
        except OSError as error:
            self._prune(os.path.dirname(new))
            raise self._failed(f"move {old!r} to", new, error) from error
        self._prune(os.path.dirname(old))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LocalStore) and self.lock_name("") == other.lock_name("")

    __hash__ = Store.__hash__

    def __str__(self) -> str:
        return f"file://{self._given}"

    # -- paths ---------------------------------------------------------------------------------------------------

    def _path(self, key: str) -> str:
        check_key(key)
        return self._prefix + key

    def _stat(self, key: str) -> os.stat_result | None:
        path = self._path(key)
        try:
            info = os.stat(path)
        except _MISSING:
            return None
        except OSError as error:
            raise self._failed("look at", path, error) from error
        return info if stat.S_ISREG(info.st_mode) else None

    def _make_directory(self, directory: str) -> None:
        # A parent may be removed meanwhile, which makedirs reports in two ways; the caller tries again.
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            os.makedirs(directory, exist_ok=True)

    def _prune(self, directory: str) -> None:
        """Remove a directory and its parents below the root as far as they are empty."""
        while directory.startswith(self._prefix) and len(directory) > len(self._prefix):
            try:
                os.rmdir(directory)
            except OSError:
                return  # not empty, gone already, or not ours to remove: all of them fine
            directory = os.path.dirname(directory)

    def _failed(self, verb: str, path: str, error: OSError) -> StoreError:
        return StoreError(f"store {self}: cannot {verb} {path!r}: {error.strerror or error}")


def _leads_up(link: str) -> bool:
    """Whether a symbolic link points to a directory that contains it."""
    target = os.path.join(os.path.realpath(link), "")
    return os.path.join(os.path.realpath(os.path.dirname(link)), "").startswith(target)
