"""Objects as files of any file system of `fsspec`: cloud stores, servers, archives within them, chains of these.

Asynchronous file systems are asked for many objects at once, from many threads; others are used by one thread at a
time, since few of them are made for more. Whether replacing an object is atomic is up to the file system: object
stores do it in one step, and files of this machine are written by `LocalStore`.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, Self

from gzarr.concurrency import new_lock
from gzarr.errors import ReadOnlyError, ReplacedError, StoreError
from gzarr.storage.capabilities import Buffer, Request, Versioned, Versions
from gzarr.storage.credentials import guard_logs, shown_cause
from gzarr.storage.extras import require
from gzarr.storage.file_systems import open_filesystem, synchronous
from gzarr.storage.local import LocalStore
from gzarr.storage.remote import EntityTags, RemoteStore, strong
from gzarr.storage.rules import byte_range, check_key, check_path, children, cut, listing, pickled, without_secrets
from gzarr.storage.s3fs import get_object, is_refused, is_s3
from gzarr.storage.server_errors import lacks_container, remedy

#: Exceptions that mean that there is no such object; all others are errors.
MISSING = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
#: File systems that cannot be written to, with those of archives that are open for reading.
_READ_ONLY = frozenset({"http", "https", "reference", "github", "libarchive", "tar"})
#: Protocols whose paths begin with the name of a bucket or container, also where a slash is written before it.
_BUCKETS = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss"})
# Offsets beyond the end of any object, which some file systems refuse to put into a request.
_FAR = 1 << 62


class _FsspecVersions(Versions):
    """Entity tags and generations of file systems.

    Times of change are not taken for tokens: an object may be replaced twice within a tick of the server's clock.
    """

    remote = True

    def __init__(self, store: FsspecStore) -> None:
        self._store = store

    def token(self, key: str) -> object | None:
        return self._store._tag(key)  # noqa: SLF001 - one module, two classes

    def tokens(self, keys: Sequence[str]) -> list[object | None]:
        return self._store.together(self.token, keys)


class FsspecStore(RemoteStore):
    """A store on an fsspec file system; needs ``pip install 'gzarr[fsspec]'`` and what the file system needs.

    Parameters
    ----------
    fs : fsspec.spec.AbstractFileSystem
        The file system, synchronous or asynchronous.
    read_only : bool
        Whether to refuse changes; true for file systems that cannot be written to.
    path : str
        Where the store is on it.
    allowed_exceptions : tuple of exception classes
        What a missing object is recognized by.

    Raises
    ------
    MissingExtraError
        If the extra is not installed.
    """

    _errors = Exception  # every file system raises its own errors
    _process_bound = frozenset({"_lock", "_pid"})

    def __init__(
        self,
        fs: Any,
        read_only: bool = False,
        path: str = "/",
        allowed_exceptions: tuple[type[Exception], ...] = MISSING,
    ) -> None:
        require("fsspec", "fsspec", "FsspecStore")
        guard_logs()
        self._fs, self._pid = synchronous(fs), os.getpid()
        protocol = self.fs.protocol
        self._protocol = protocol if isinstance(protocol, str) else protocol[0]
        archive = self._protocol == "zip" and getattr(self.fs, "mode", "r") == "r"
        self.read_only = read_only or archive or self._protocol in _READ_ONLY
        self.path = str(self.fs._strip_protocol(path)).rstrip("/")  # noqa: SLF001  # fsspec has no public name for it
        if self._protocol in _BUCKETS:  # which s3fs's listings do not repeat
            self.path = self.path.lstrip("/")
        self._missing = tuple(allowed_exceptions)
        self._local = LocalStore(self.path or "/", read_only) if self._protocol in ("file", "local") else None
        self._is_s3 = is_s3(self._fs)
        in_files = self._local is not None  # the store itself counts as false without objects, which it would look for
        alone = not (self.fs.async_impl or in_files or self._protocol == "memory")
        self._lock: AbstractContextManager[Any] = new_lock() if alone else nullcontext()
        # Locks of files belong to threads, so the thread that takes them does all the work.
        self.concurrency = 1 if alone or in_files else RemoteStore.concurrency
        self.max_locked = None if self._local is None else self._local.max_locked

    @property
    def fs(self) -> Any:
        """The file system, a new one in a forked child, which has none of its threads and must share no connection."""
        if self._pid != os.getpid():
            if self._local is None and self._protocol != "memory":
                self._fs = pickle.loads(pickle.dumps(self._fs))  # which makes file systems within it anew too
                self._lock = nullcontext() if self.concurrency > 1 else new_lock()
            self._pid = os.getpid()
        return self._fs

    @classmethod
    def from_url(
        cls,
        url: str,
        storage_options: Mapping[str, Any] | None = None,
        read_only: bool = False,
        allowed_exceptions: tuple[type[Exception], ...] = MISSING,
    ) -> Self:
        """The store at a URL, which may be a chain (``zip::s3://bucket/x.zip``).

        Parameters
        ----------
        url : str
            The URL.
        storage_options : mapping, optional
            For the file system; for a chain, by protocol: ``{"s3": {"anon": True}}``.
        read_only, allowed_exceptions
            As of the class.

        Raises
        ------
        MissingExtraError
            If what the file system needs is not installed.
        StoreError
            If the file system cannot be made.
        """
        fs, path = open_filesystem(url, storage_options or {})
        return cls(fs, read_only, path, allowed_exceptions)

    @classmethod
    def from_mapper(
        cls, fs_map: Any, read_only: bool = False, allowed_exceptions: tuple[type[Exception], ...] = MISSING
    ) -> Self:
        """The store that an fsspec ``FSMap`` (``S3Map``, ``GCSMap``, ``HDFSMap``) shows."""
        return cls(fs_map.fs, read_only, fs_map.root, allowed_exceptions)

    @classmethod
    def from_upath(
        cls, upath: Any, read_only: bool = False, allowed_exceptions: tuple[type[Exception], ...] = MISSING
    ) -> Self:
        """The store at a path of ``universal_pathlib``."""
        return cls(upath.fs, read_only, upath.path, allowed_exceptions)

    # -- reading -------------------------------------------------------------------------------------------------

    def _fetch(self, request: Request, version: object | None = None) -> Buffer | None:
        if self._local is not None:
            return self._local.get_one(request)
        found = self._get(request, version)
        return None if found is None else found.data

    def _fetch_versioned(self, request: Request) -> Versioned | None:
        """Fetch one request with its version, as `Versions.get_versioned` says. Raises: StoreError, ReplacedError."""
        if request.start is None:
            return self._get(request, None)
        if self._ranges:
            found = self._get(request, None)
            if found is None or (found.version is not None and self._ranges):
                return found
        whole = self._get(Request(request.key), None)
        return None if whole is None else Versioned(whole.data, None)

    def _get(self, request: Request, version: object | None) -> Versioned | None:
        """Fetch one request, with its version where the answer says it. Raises: StoreError, ReplacedError."""
        key, start, length = request
        if start is not None and length is not None and length <= 0:
            return None if self.getsize(key) is None else Versioned(b"", version)
        path = self._path(key)
        try:
            with self._lock:
                if self._is_s3:
                    return self._get_object(path, request, version)
                return Versioned(self._cat(path, start, length), None)
        except ReplacedError:
            raise
        except self._missing as error:
            self._check_container(f"read {key!r}", error)
            return None
        except Exception as error:  # noqa: BLE001 - every file system raises its own errors
            if start is None:
                raise self._failed(f"read {key!r}", error) from shown_cause(error)
            nbytes = self.getsize(key)
            if nbytes is None:
                return None
            begin, end = byte_range(start, length, nbytes)
            if begin == end:
                return Versioned(b"", version)  # the range lies past the end, which some servers refuse to answer
            if start >= 0:
                raise self._failed(f"read bytes {start} and on of {key!r}", error) from shown_cause(error)
        return self._get(Request(key, begin, end - begin), version)

    def _get_object(self, path: str, request: Request, version: object | None) -> Versioned:
        try:
            data, tag, is_whole = get_object(self.fs, path, request, version)
        except Exception as error:
            if version is not None and is_refused(error):
                raise ReplacedError(f"store {self}: {request.key!r} was replaced while it was read") from shown_cause(
                    error
                )
            raise
        if version is not None and tag != version:  # some servers do not know If-Match
            raise ReplacedError(f"store {self}: {request.key!r} was replaced while it was read")
        if request.start is not None and is_whole:
            return Versioned(self._part_of_answer(data, request.start, request.length), tag)
        if request.start is not None and request.start < 0:
            return Versioned(cut(data, request.start, request.length), tag)
        return Versioned(data, tag)

    def _cat(self, path: str, start: int | None, length: int | None) -> Buffer:
        if start is None:
            return bytes(self.fs.cat_file(path))
        if start < 0:
            data = bytes(self.fs.cat_file(path, start=start))
            # Less than was asked for is the whole object, more than that is too: the server does not know ranges.
            self._ranges = self._ranges and len(data) <= -start
            return cut(data, start, length)
        start = min(start, _FAR)
        data = bytes(self.fs.cat_file(path, start=start, end=None if length is None else min(start + length, _FAR)))
        return data if length is None or len(data) <= length else self._part_of_answer(data, start, length)

    def _part_of_answer(self, whole: bytes, start: int, length: int | None) -> Buffer:
        """Cut a range out of a whole object, which a server that knows ranges sends only if it is all of it."""
        part = cut(whole, start, length)
        self._ranges = self._ranges and len(part) == len(whole)
        return part

    def _info(self, key: str) -> Mapping[str, Any] | None:
        try:
            with self._lock:
                info: Mapping[str, Any] = self.fs.info(self._path(key))
        except self._missing as error:
            self._check_container(f"look up {key!r}", error)
            return None
        except Exception as error:  # noqa: BLE001 - the same
            raise self._failed(f"look up {key!r}", error) from shown_cause(error)
        return None if info.get("type") == "directory" else info

    def getsize(self, key: str) -> int | None:
        """Size of an object in bytes, or None if it is missing."""
        if self._local is not None:
            return self._local.getsize(key)
        info = self._info(key)
        if info is None:
            return None
        if info.get("size") is None:  # a server that does not say
            whole = self._fetch(Request(key))
            return None if whole is None else len(whole)
        return int(info["size"])

    @property
    def versions(self) -> Versions | None:
        """Entity tags or generations, where the file system gives them."""
        if self._local is not None:
            return self._local.versions
        if self._is_s3:
            return EntityTags(self)
        # Where whole objects are sent for ranges, there is nothing to tie together: each of them is read whole.
        return _FsspecVersions(self) if self._ranges else None

    def _tag(self, key: str) -> object | None:
        info = self._info(key) or {}
        tag = next((info[name] for name in ("ETag", "etag", "e_tag", "generation") if info.get(name)), None)
        return strong(tag) if self._is_s3 else tag

    def list_prefix(self, prefix: str = "") -> Iterator[str]:
        """All keys under a path."""
        return iter(sorted(self._found(prefix)))

    def _found(self, prefix: str) -> set[str]:
        check_path(prefix)
        if self._local is not None:
            return set(self._local.list_prefix(prefix))
        start = self._path(prefix)
        with self._listing(prefix):
            names = self.fs.find(start) if not self._is_file(start) else []
            nskip = len(self.path) + 1 if self.path else 0
            return {str(name)[nskip:] for name in names if str(name).startswith(f"{start}/" if start else "")}
        return set()

    def _is_file(self, path: str) -> bool:
        return bool(path) and path != self.path and bool(self.fs.isfile(path))

    def list_dir(self, path: str = "") -> tuple[list[str], list[str]]:
        """Names directly under a path, sorted: (objects, sub-paths)."""
        check_path(path)
        if self._protocol == "memory":  # it keeps empty directories
            return children(self._found(path), path)
        if self._local is not None:
            return self._local.list_dir(path)
        start = self._path(path)
        objects: set[str] = set()
        paths: set[str] = set()
        with self._listing(path):
            for entry in self.fs.ls(start, detail=True):
                name = str(entry["name"]).rstrip("/")
                if name != start and name.startswith(f"{start}/" if start else ""):
                    (paths if entry["type"] == "directory" else objects).add(name.rpartition("/")[2])
        return listing(objects, paths)

    @contextmanager
    def _listing(self, path: str) -> Iterator[None]:
        """List without caches: others write here too."""
        with self._lock, self._failures(f"list {path!r}"):
            self.fs.invalidate_cache()
            try:
                yield
            except self._missing as error:
                self._check_container(f"list {path!r}", error)
            finally:
                self.fs.invalidate_cache()

    def lock_name(self, key: str) -> Hashable:
        """The file system and path, with the key."""
        return self._local.lock_name(key) if self._local is not None else (type(self.fs), self._url(), key)

    def locked(self, keys: Sequence[str], merged: Sequence[str] | None = None) -> AbstractContextManager[Any]:
        """Lock objects; files of this machine as `LocalStore` does."""
        return super().locked(keys, merged) if self._local is None else self._local.locked(keys, merged)

    def node_locked(self, key: str) -> AbstractContextManager[Any]:
        """Lock a node; in a directory of this machine as `LocalStore` does."""
        return super().node_locked(key) if self._local is None else self._local.node_locked(key)

    def document_locked(self, key: str) -> AbstractContextManager[Any]:
        """Lock a document; a file of this machine as `LocalStore` does."""
        return super().document_locked(key) if self._local is None else self._local.document_locked(key)

    # -- writing -------------------------------------------------------------------------------------------------

    def set_if_missing(self, key: str, value: Buffer) -> bool:
        """Store an object unless one is there; a file of this machine as `LocalStore` does."""
        self.check_writable()
        return super().set_if_missing(key, value) if self._local is None else self._local.set_if_missing(key, value)

    def check_writable(self) -> None:
        """Raise `ReadOnlyError` if the store is read-only."""
        if self.read_only and self._protocol in _READ_ONLY | {"zip"}:
            raise ReadOnlyError(
                f"store {self} is read-only: {self._protocol!r} cannot be written to in this way; copy it elsewhere"
            )
        super().check_writable()

    def _put(self, key: str, data: bytes | memoryview) -> None:
        if self._local is not None:
            self._local.set(key, data)
            return
        with self._failures(f"write {key!r}"), self._lock:
            self.fs.pipe_file(self._path(key), bytes(data))

    def _remove(self, key: str) -> None:
        if self._local is not None:
            self._local.delete_many((key,))
            return
        if not self._is_s3 and self._info(key) is None:
            return  # rm would delete all that lies under a path
        with self._failures(f"delete {key!r}"), suppress(*self._missing), self._lock:
            self.fs.rm_file(self._path(key))

    # -- names ---------------------------------------------------------------------------------------------------

    def _path(self, key: str) -> str:
        if not key:
            return self.path
        check_key(key)
        return f"{self.path}/{key}" if self.path or self._protocol == "memory" else key

    def _check_container(self, what: str, error: Exception) -> None:
        """Raise `StoreError` if it is not the object that is missing, but the bucket or container around it."""
        if lacks_container(error):
            raise self._failed(what, error) from shown_cause(error)

    def _failed(self, what: str, error: Exception) -> StoreError:
        said = without_secrets(str(error))[:600]
        text = f"store {self}: cannot {what}: {type(error).__name__}: {said}"
        refused, unreachable = isinstance(error, PermissionError), isinstance(error, OSError) or "onnect" in text
        return StoreError(text + remedy(error, text, is_refused=refused, is_unreachable=unreachable))

    def __str__(self) -> str:
        return without_secrets(self._url())

    def _url(self) -> str:
        return str(self.fs.unstrip_protocol(self.path))

    def __reduce__(self) -> tuple[Any, ...]:
        return pickled(self, FsspecStore, self.fs, self.read_only, self.path, self._missing)
