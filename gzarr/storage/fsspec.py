"""Objects as files of any file system of `fsspec`: cloud stores, servers, archives within them, chains of these.

Asynchronous file systems are asked for many objects at once, from many threads; others are used by one thread at a
time, since few of them are made for more. Whether replacing an object is atomic is up to the file system: object
stores do it in one step, and files of this machine are written by `LocalStore`.
"""

import os
import pickle
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, Self
from weakref import WeakKeyDictionary

from gzarr.concurrency import Lock, new_lock
from gzarr.errors import MissingExtraError, ReadOnlyError, StoreError
from gzarr.storage.base import R
from gzarr.storage.capabilities import Buffer, Request, TokensBy, Versions
from gzarr.storage.credentials import guard_logs, shown_cause, without_users
from gzarr.storage.extras import require
from gzarr.storage.local import LocalStore
from gzarr.storage.remote import Answer, EntityTags, RemoteStore, lacks_container, remedy, strong
from gzarr.storage.rules import check_key, check_path, children, listing, pickled, refuse_normalizing, without_secrets
from gzarr.storage.s3fs import get_object, is_refused, is_s3

#: Exceptions that mean that there is no such object; all others are errors.
MISSING = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
#: File systems that cannot be written to, with those of archives that are open for reading.
_READ_ONLY = frozenset({"http", "https", "reference", "github", "libarchive", "tar"})
#: Protocols whose paths begin with the name of a bucket or container, also where a slash is written before it.
_BUCKETS = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss"})
#: Of file systems that one thread at a time uses: fsspec gives all stores of a URL the same one.
_locks: WeakKeyDictionary[Any, Lock] = WeakKeyDictionary()
P = ParamSpec("P")


def _by_files(verb: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Let `LocalStore` carry out a verb for the files of this machine."""

    @wraps(verb)
    def call(self: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        local = self._local
        if local is None:
            return verb(self, *args, **kwargs)
        return getattr(local, verb.__name__)(*args, **kwargs)

    return call  # type: ignore[return-value]  # mypy sees a parameter of another name


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
        alone = not (in_files or self._protocol == "memory" or _takes_many(self.fs))
        self._lock: AbstractContextManager[Any] = _locks.setdefault(self._fs, new_lock()) if alone else nullcontext()
        # Locks of files belong to threads, so the thread that takes them does all the work.
        self.concurrency = 1 if alone or in_files else RemoteStore.concurrency
        self.max_locked = None if self._local is None else self._local.max_locked

    @property
    def fs(self) -> Any:
        """The file system, a new one in a forked child, which has none of its threads and must share no connection."""
        if self._pid != os.getpid():
            if self._local is None and self._protocol != "memory":
                self._fs = pickle.loads(pickle.dumps(self._fs))  # which makes file systems within it anew too
                self._lock = nullcontext() if self.concurrency > 1 else _locks.setdefault(self._fs, new_lock())
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

    def _is_missing(self, error: Exception) -> bool:
        return isinstance(error, self._missing) and not lacks_container(error)

    def _is_replaced(self, error: Exception) -> bool:
        return self._is_s3 and is_refused(error)

    def _fetch(self, request: Request, version: object | None = None) -> Buffer | None:
        return super()._fetch(request, version) if self._local is None else self._local.get_one(request)

    def _request(self, key: str, start: int | None, length: int | None, version: object | None) -> Answer:
        path = self._path(key)
        with self._lock:
            if self._is_s3:
                return get_object(self.fs, path, start, length, version)
            end = None if start is None or length is None else start + length
            data = bytes(self.fs.cat_file(path, start=start, end=end))
        # More than was asked for is the whole object: the server does not know ranges.
        most = len(data) if start is None else -start if start < 0 else length
        return Answer(data, None, most is not None and len(data) > most)

    def _info(self, key: str) -> Mapping[str, Any] | None:
        with self._lock:
            info: Mapping[str, Any] | None = self._asked("look up", key, lambda: self.fs.info(self._path(key)))
        return None if info is None or info.get("type") == "directory" else info

    def _look_up(self, key: str) -> tuple[int, object | None] | None:
        info = self._info(key)
        if info is None:
            return None
        tag = next((info[name] for name in ("ETag", "etag", "e_tag", "generation") if info.get(name)), None)
        nbytes = info.get("size")
        if nbytes is None:  # a server that does not say
            nbytes = len(self._fetch(Request(key)) or b"")
        return int(nbytes), strong(tag) if self._is_s3 else tag

    @property
    def versions(self) -> Versions | None:
        """Entity tags or generations, where the file system gives them."""
        if self._local is not None:
            return self._local.versions
        if self._is_s3:
            return EntityTags(self)
        # Where whole objects are sent for ranges, there is nothing to tie together: each of them is read whole. Times
        # of change are no tokens: an object may be replaced twice within a tick of the server's clock.
        return TokensBy(self._tag, self.together) if self._ranges else None

    def _listed(self, path: str) -> Sequence[tuple[str, int | None]]:
        check_path(path)
        start = self._path(path)
        found: Mapping[str, Any] = {}
        with self._listing(path):
            if not path or not self.fs.isfile(start):
                found = self.fs.find(start, detail=True)
        nskip = len(self.path) + 1 if self.path else 0
        inside = f"{start}/" if start else ""
        return [(name[nskip:], info.get("size")) for name, info in sorted(found.items()) if name.startswith(inside)]

    getsize, contains_many = _by_files(RemoteStore.getsize), _by_files(RemoteStore.contains_many)
    list_prefix, nbytes_stored = _by_files(RemoteStore.list_prefix), _by_files(RemoteStore.nbytes_stored)
    locked, node_locked = _by_files(RemoteStore.locked), _by_files(RemoteStore.node_locked)
    document_locked, set_if_missing = _by_files(RemoteStore.document_locked), _by_files(RemoteStore.set_if_missing)

    @_by_files
    def list_dir(self, path: str = "") -> tuple[list[str], list[str]]:
        """Names directly under a path, sorted: (objects, sub-paths)."""
        check_path(path)
        if self._protocol == "memory":  # it keeps empty directories
            return children(self.list_prefix(path), path)
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
                if lacks_container(error):
                    raise
            finally:
                self.fs.invalidate_cache()

    @_by_files
    def lock_name(self, key: str) -> Hashable:
        """The file system and path, with the key."""
        return type(self.fs), self._url(), key

    # -- writing -------------------------------------------------------------------------------------------------

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


def _takes_many(fs: Any) -> bool:
    """Whether many threads may use a file system at once; caches (``filecache::https://``) are for one."""
    inner = vars(fs).get("fs")  # of a directory (``dir::``)
    # Not of the instance: caches pass on what is asked of them.
    return getattr(type(fs), "async_impl", False) and (inner is None or _takes_many(inner))


# -- opening file systems ----------------------------------------------------------------------------------------------

#: The extras that bring what a scheme needs.
EXTRAS = {"http": "http", "https": "http", "s3": "s3", "gs": "gcs", "gcs": "gcs", "az": "azure", "abfs": "azure"}


def open_filesystem(url: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """The file system of a URL, and the path on it. Raises: MissingExtraError, StoreError."""
    shown = without_secrets(url)
    fsspec = require("fsspec", "fsspec", f"{shown!r}")
    url, given = without_users(url, options)
    if "::" not in url:
        # Listings are always asked for anew; see FsspecStore.
        given = {"use_listings_cache": False, **given}
    try:
        fs, path = fsspec.url_to_fs(url, **given)
    except ImportError as error:
        extra = EXTRAS.get(shown.partition(":")[0])
        remedy = f": pip install 'gzarr[{extra}]'" if extra else ""
        raise MissingExtraError(f"{shown!r}: {error}{remedy}") from shown_cause(error)
    except Exception as error:  # noqa: BLE001 - every file system raises its own errors
        said = without_secrets(str(error))[:600]
        raise StoreError(f"cannot open {shown!r}: {type(error).__name__}: {said}") from shown_cause(error)
    return fs, path


def synchronous(fs: Any) -> Any:
    """A file system that ordinary functions may call: zarr-python 3 requires asynchronous ones."""
    inner = getattr(fs, "sync_fs", None)
    if inner is not None:
        return inner
    if getattr(fs, "asynchronous", False):
        return type(fs)(*fs.storage_args, **{**fs.storage_options, "asynchronous": False})
    return fs


# -- zarr 2 ------------------------------------------------------------------------------------------------------------


class FSStore(FsspecStore):
    """`FsspecStore` with the arguments of zarr 2.

    Parameters
    ----------
    url : str or os.PathLike
        URL, or with `fs` a path on it.
    normalize_keys : bool
        Must be False: keys are taken as they are.
    key_separator : {".", "/"}, optional
        Another name for `dimension_separator`.
    mode : str
        ``"r"`` for reading, anything else for writing.
    exceptions : tuple of exception classes
        What a missing object is recognized by. zarr 2 takes every OSError for a missing object; here only those
        that say so, unless others are given.
    dimension_separator : {".", "/"}, optional
        For new Zarr v2 arrays that name none.
    fs : fsspec.spec.AbstractFileSystem, optional
        A file system; then there are no `storage_options`.
    check, create : bool
        Accepted for zarr 2; directories are made when they are needed.
    missing_exceptions : tuple of exception classes, optional
        Further `exceptions`.
    **storage_options
        Arguments of the file system.
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        normalize_keys: bool = False,
        key_separator: Literal[".", "/"] | None = None,
        mode: str = "w",
        exceptions: tuple[type[Exception], ...] = MISSING,
        dimension_separator: Literal[".", "/"] | None = None,
        fs: Any = None,
        check: bool = False,
        create: bool = False,
        missing_exceptions: tuple[type[Exception], ...] | None = None,
        **storage_options: Any,
    ) -> None:
        refuse_normalizing("FSStore", normalize_keys)
        if fs is not None and storage_options:
            raise StoreError(f"FSStore: fs and storage_options {sorted(storage_options)} exclude each other")
        path = os.fspath(url)
        if fs is None:
            fs, path = open_filesystem(path, storage_options)
        super().__init__(fs, mode == "r", path, (*exceptions, *(missing_exceptions or ())))
        self.dimension_separator = dimension_separator or key_separator
