"""Objects as files under a directory.

Writing is atomic: an object is written to a temporary file beside it, which then replaces it, so that a reader (in this
process or another) sees all of the old bytes or all of the new. The temporary file is also the lock of the object
(`gzarr.storage.file_locks`), so that processes that change parts of it lose nothing. Nothing is forced to the disk, so
the promise covers readers and failing writers, not a power cut.

Directories appear with their first object and disappear with their last. Reads run one after another: a read of a file
in the page cache costs a few microseconds, and callers that want several at a time use several threads.
"""
# Plain os calls: pathlib costs more than the system calls themselves on small files.
# ruff: noqa: PTH100, PTH104, PTH112, PTH114, PTH116, PTH118, PTH120

import os
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, partial
from typing import Any

from gzarr.config import config
from gzarr.errors import StoreError
from gzarr.storage import local_files
from gzarr.storage.base import Store
from gzarr.storage.capabilities import Buffer, Request
from gzarr.storage.file_holding import Holding
from gzarr.storage.file_locks import has_locks, make_directory, refuse_held
from gzarr.storage.leftover_files import delete_tree, doomed_path, prune, remove_file_or_tree, remove_leftovers
from gzarr.storage.lock_kinds import node_locks
from gzarr.storage.locks import key_locks, while_locked
from gzarr.storage.rules import TEMPORARY_PREFIX, byte_view, check_key, check_move, check_path

_NO_LOCK: AbstractContextManager[None] = nullcontext()
# In the order in which they are locked: whoever holds an array of v2 has its attributes first.
_DOCUMENTS = (".zattrs", ".zarray", ".zgroup", ".zmetadata", "zarr.json")


def _real_directory(path: str) -> str:
    """Path of a directory without symbolic links, with a separator at its end.

    It is cached as long as the path leads to the same directory: looking at every part of a path takes as long as
    encoding a chunk.
    """
    try:
        info = os.stat(path)
        return _real_path(path, info.st_dev, info.st_ino)
    except OSError:  # not there yet; what will be made there may be a link
        return os.path.join(os.path.realpath(path), "")


def _real_file(directory: str, name: str) -> str:
    """Path of a file in a real directory, which ends with a separator, without symbolic links."""
    path = directory + name
    return os.path.normcase(os.path.realpath(path) if os.path.islink(path) else path)


@lru_cache(maxsize=4096)
def _real_path(path: str, device: int, inode: int) -> str:
    return os.path.join(os.path.realpath(path), "")


class LocalStore(Store):
    """A store of files under a directory, which is made when the first object is written.

    A subclass that overrides no verb that bytes pass through inherits `files` and `versions`; see `Store`.

    Parameters
    ----------
    root : str or os.PathLike
        The directory; relative to the working directory at this moment.
    read_only : bool
        Whether to refuse to change anything.

    Attributes
    ----------
    root : str
        Absolute path of the directory.

    Examples
    --------
    >>> import gzarr
    >>> z = gzarr.create_array(gzarr.LocalStore("local.zarr"), shape=4, dtype="i4")
    >>> gzarr.open_array("local.zarr", "r").shape
    (4,)
    """

    max_locked = 64

    def __init__(self, root: str | os.PathLike[str], read_only: bool = False) -> None:
        given = os.fsdecode(root)
        if "\0" in given:
            raise StoreError(f"path {given!r} holds NUL, which no file system can keep; check it")
        self._name = f"file://{given}"
        self.root = os.path.abspath(given)
        self._prefix = self.root if self.root.endswith(os.sep) else self.root + os.sep
        self.read_only = read_only

    @property
    def files(self) -> local_files.LocalFiles | None:
        """Every object is a separate file."""
        return local_files.LocalFiles(self._prefix)

    @property
    def versions(self) -> local_files.LocalVersions | None:
        """A file's version: inode, size, times of last change."""
        return local_files.LocalVersions(self._prefix, self._name)

    # -- reading -------------------------------------------------------------------------------------------------

    def get_one(self, request: Request) -> Buffer | None:
        """Fetch one request. Raises: StoreError naming the file if it is there and cannot be read."""
        return self._get_ranges(request[0], (request,))[0]

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        """Fetch every request, in order. A file is opened once, so its ranges come from one version of it."""
        if len({request[0] for request in requests}) == len(requests):
            # Not self.get_one, which a subclass may have made of this.
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
            fd = os.open(path, local_files.READ_FLAGS)
            try:
                return [local_files.read_range(fd, start, length) for _, start, length in requests]
            finally:
                os.close(fd)
        except local_files.MISSING as error:
            local_files.refuse_link(path, self._name, error)
            return [None] * len(requests)
        except OSError as error:
            if os.path.isdir(path):
                return [None] * len(requests)
            raise self._failed("read", path, error) from error

    def getsize(self, key: str) -> int | None:
        """Size of an object in bytes, or None if it is missing."""
        info = local_files.find_file(self._path(key), self._name)
        return None if info is None else info.st_size

    def contains_many(self, keys: Sequence[str]) -> list[bool]:
        """Whether a file exists for each key."""
        return [local_files.find_file(self._path(key), self._name) is not None for key in keys]

    def lock_name(self, key: str) -> Hashable:
        """The real absolute path of the file, so that stores with different roots agree."""
        start = key.rfind("/") + 1
        return _real_file(_real_directory(self._prefix + key[:start]), key[start:])

    def locked(self, keys: Sequence[str], merged: Sequence[str] | None = None) -> AbstractContextManager[Any]:
        """Lock files against read-modify-write by others, in other processes too.

        Whole objects are locked as they are stored, unless others are merged: locks of several files must be taken in
        one order.
        """
        if not has_locks():
            names = list(map(self.lock_name, keys))
            return node_locks(names) if config["locks"] == "node" else key_locks(names)
        if merged is not None and not merged:
            refuse_held([self._prefix + key for key in keys])
            return _NO_LOCK
        if len(keys) > 1:
            keys = sorted(keys, key=lambda key: str(self.lock_name(key)))
        paths = [self._prefix + key for key in keys]
        return self._holding(_NO_LOCK, paths)  # locks of files exclude threads, too

    def node_locked(self, key: str) -> AbstractContextManager[Any]:
        """Lock a node against changes by others, in other processes too.

        The lock has a name of its own, as the documents of the node are locked and stored meanwhile. Any path can be
        locked, also that of the node itself and the root (``""``).
        """
        return self._lenient(super().node_locked(key), f"{key}.node")

    def document_locked(self, key: str) -> AbstractContextManager[Any]:
        """Lock one document against read-modify-write by others, in other processes too, until it is stored."""
        return self._lenient(super().document_locked(key), key)

    def _lenient(self, inner: AbstractContextManager[Any], key: str) -> AbstractContextManager[Any]:
        """Lock a document, unless it cannot be stored anyway."""
        check_path(key)
        return inner if self.read_only else self._holding(inner, (self._prefix + key,), lenient=True)

    def _holding(self, inner: AbstractContextManager[Any], paths: Sequence[str], *, lenient: bool = False) -> Holding:
        return Holding(inner, paths, partial(self._failed, "lock"), self._prune, lenient=lenient)

    def _documents_locked(self, path: str) -> AbstractContextManager[Any]:
        """Lock the documents of a node whose directory is about to go: a change under way would come back after it."""
        directory = self._prefix + path
        paths = [] if os.path.islink(directory) else [f"{directory}/{name}" for name in _DOCUMENTS]
        return self._holding(_NO_LOCK, paths, lenient=True)

    def enclosing(self) -> tuple[Store, str] | None:
        """A store over the parent directory, and the name of this directory in it."""
        above, name = os.path.split(self.root)
        return (LocalStore(above), name) if name else None

    def list_prefix(self, prefix: str = "") -> Iterator[str]:
        """All keys under a path, with or without those that others add or remove meanwhile."""
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
                    elif entry.is_file() or entry.is_symlink():  # a link to nothing is a lost object
                        objects.append(entry.name)
        except local_files.MISSING:
            pass
        except OSError as error:
            raise self._failed("list", directory, error) from error
        return objects, paths

    # -- writing -------------------------------------------------------------------------------------------------

    def set(self, key: str, value: Buffer) -> None:
        """Store one object atomically. Raises: StoreError naming the file; the old object is then still there."""
        self._store_file(key, value, only_new=False)

    def set_many(self, items: Iterable[tuple[str, Buffer]]) -> None:
        """Store every (key, bytes) pair; each replaces its object atomically."""
        for key, value in items:
            self._store_file(key, value, only_new=False)  # not self.set, which a subclass may have made of this

    def set_if_missing(self, key: str, value: Buffer) -> bool:
        """Store an object unless one is there; of several processes that try, one succeeds. Raises: StoreError."""
        return self._store_file(key, value, only_new=True)

    def _store_file(self, key: str, value: Buffer, *, only_new: bool) -> bool:
        self.check_writable()
        path, view = self._path(key), byte_view(key, value)
        try:
            return local_files.write_atomically(path, view, only_new=only_new)
        except OSError as error:
            self._prune(os.path.dirname(path))
            raise self._failed("write", path, error) from error

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete the keys, and directories that become empty; missing keys are ignored."""
        self.check_writable()
        emptied = set()
        try:
            for key in keys:
                path = self._path(key)
                try:
                    if local_files.delete_file(path):
                        emptied.add(os.path.dirname(path))
                except OSError as error:
                    raise self._failed("delete", path, error) from error
        finally:
            for directory in emptied:
                self._prune(directory)

    def delete_prefix(self, path: str = "") -> None:
        """Delete every key under a path, in one step; the entries of the root are deleted one by one.

        What killed processes left there goes too.
        """
        self.check_writable()
        check_path(path)
        if not path:
            objects, paths = self.list_dir()
            self.delete_many(objects)
            for name in paths:
                self.delete_prefix(name)
            remove_leftovers(self.root)
            return
        directory = self._prefix + path
        try:
            if os.path.isdir(directory):
                while_locked(self._documents_locked(path), lambda: delete_tree(directory))
            else:
                remove_file_or_tree(doomed_path(directory))
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
            make_directory(os.path.dirname(new))
            while_locked(self._documents_locked(source), lambda: os.rename(old, new))
        except OSError as error:
            self._prune(os.path.dirname(new))
            raise self._failed(f"move {old!r} to", new, error) from error
        remove_leftovers(new)  # the locks have moved along
        self._prune(os.path.dirname(old))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LocalStore) and self.lock_name("") == other.lock_name("")

    __hash__ = Store.__hash__

    def __str__(self) -> str:
        return self._name

    # -- paths ---------------------------------------------------------------------------------------------------

    def _path(self, key: str) -> str:
        check_key(key)
        return self._prefix + key

    def _prune(self, directory: str) -> None:
        prune(directory, self._prefix)

    def _failed(self, verb: str, path: str, error: OSError) -> StoreError:
        return local_files.failure(self._name, verb, path, error)


def _leads_up(link: str) -> bool:
    """Whether a symbolic link points to a directory that contains it."""
    target = os.path.join(os.path.realpath(link), "")
    return os.path.join(os.path.realpath(os.path.dirname(link)), "").startswith(target)
