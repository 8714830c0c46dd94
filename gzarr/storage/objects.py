"""Objects of object stores (Amazon S3, Google Cloud Storage, Azure Blob Storage, HTTP servers) through `obstore`.

Reads can be tied to an entity tag, so shards are read in ranges that the server itself keeps to one version.
"""

import os
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from gzarr.errors import StoreError
from gzarr.storage.capabilities import ANY, Buffer, Change, Conditional, Segments, Versioned
from gzarr.storage.credentials import shown_cause
from gzarr.storage.extras import require
from gzarr.storage.forks import OBSTORE
from gzarr.storage.remote import Answer, EntityTags, RemoteStore, lacks_container, remedy, strong
from gzarr.storage.rules import byte_view, check_key, check_path, listing, pickled, without_secrets

#: Keys listed at a time; a page of S3 has 1,000.
_PAGE = 1000
#: Keys in one request to delete: what S3 takes.
_DELETE_PAGE = 1000
#: The largest object that is stored by one request in any case. Parts cost two requests more than there are parts.
_PUT_NBYTES = 12 << 20
#: The largest one that is, where other objects are stored beside it on all connections, so that parts gain nothing.
_BUSY_PUT_NBYTES = 64 << 20
#: Bytes of each part of a larger one: S3 takes no smaller ones, and no more than 10,000.
_MIN_PART_NBYTES, _MAX_PART_NBYTES = 5 << 20, 16 << 20
#: Parts of one object that are sent at once. 64 MiB take 0.17 s over 12 connections of 50 MB/s, and 1.4 s over one.
_PARTS_AT_ONCE = 12
#: Smaller objects are copied rather than read where they are.
_COPIED_NBYTES = 1000
#: Stores of obstore whose connections are slower than the network.
_BUCKETS = frozenset({"S3Store", "GCSStore", "AzureStore"})
#: What obstore says of servers that do not know ranges, or do not say that they sent one.
_NO_RANGES = ("non-partial", "Range request not supported")


class ObjectStore(RemoteStore):
    """A store in a bucket or container, or in any other store of obstore; needs ``pip install 'gzarr[s3]'``.

    Parameters
    ----------
    store : obstore.store.ObjectStore
        A store of obstore, such as ``obstore.store.S3Store("bucket", prefix="data.zarr", region="eu-west-1")``.
        `gzarr.open` makes one from ``s3://``, ``gs://`` and ``az://`` URLs.
    read_only : bool
        Whether to refuse changes.
    url : str, optional
        What to call the store; by default made from the class and prefix of `store`.
    path : str
        Where this store is in `store`, which may be one of a whole bucket or server, so that its connections are
        shared.

    Raises
    ------
    MissingExtraError
        If the extra is not installed.
    """

    _process_bound = frozenset({"_library", "_exceptions", "_errors", "_missing", "_place"})

    def __init__(self, store: Any, *, read_only: bool = False, url: str | None = None, path: str = "") -> None:
        self._library = require("obstore", "s3", "ObjectStore")
        exceptions = require("obstore.exceptions", "s3", "ObjectStore")
        self._exceptions = exceptions
        self._errors = (exceptions.BaseError, OSError, ValueError)
        self._missing = (FileNotFoundError, NotADirectoryError, IsADirectoryError, exceptions.NotFoundError)
        self.store = store
        self.read_only = read_only
        self._url = url
        self._path = path
        self._below = f"{path}/" if path else ""  # what keys begin with in `store`
        self._name = without_secrets(url or "/".join(filter(None, (_described(store), path))))
        # A store in memory has no name that another would not have too.
        self._in_memory = type(store).__name__.startswith("Memory")
        self._in_bucket, self._in_folder = type(store).__name__ in _BUCKETS, type(store).__name__ == "LocalStore"
        self._place = url or ((id(store), path) if self._in_memory else self._name)

    @property
    def _obstore(self) -> Any:
        """The library. Raises: StoreError in a forked child that would wait for its threads for ever."""
        if not self._in_memory:
            OBSTORE.check(self)
        return self._library

    def _failed(self, what: str, error: Exception) -> StoreError:
        text = without_secrets(str(error).partition("\n\nDebug source")[0].strip())
        refused = (self._exceptions.PermissionDeniedError, self._exceptions.UnauthenticatedError, PermissionError)
        unreachable = isinstance(error, (self._exceptions.GenericError, OSError))
        advice = remedy(error, text, is_refused=isinstance(error, refused), is_unreachable=unreachable)
        return StoreError(f"store {self}: cannot {what}: {text[:600]}{advice}")

    def _is_missing(self, error: Exception) -> bool:
        # What cannot be a key has no object.
        return isinstance(error, (*self._missing, self._exceptions.InvalidPathError)) and not lacks_container(error)

    def _is_replaced(self, error: Exception) -> bool:
        return isinstance(error, self._exceptions.PreconditionError)

    # -- reading -------------------------------------------------------------------------------------------------

    def _request(self, key: str, start: int | None, length: int | None, version: object | None) -> Answer:
        options: dict[str, Any] = {} if version is None else {"if_match": version}
        if start is not None:
            options["range"] = _range(start, length)
        try:
            result = self._obstore.get(self.store, self._below + key, options=options)
            return Answer(memoryview(result.bytes()), strong(result.meta["e_tag"]))
        except self._errors as error:
            if start is None or not any(words in str(error) for words in _NO_RANGES):
                raise
        return self._request(key, None, None, version)._replace(is_whole=True)

    def _look_up(self, key: str) -> tuple[int, object | None] | None:
        head = self._asked("look up", key, lambda: self._obstore.head(self.store, self._below + key))
        return None if head is None else (int(head["size"]), strong(head["e_tag"]))

    @property
    def versions(self) -> EntityTags | None:
        """The entity tags, which the server changes with every write."""
        return EntityTags(self)

    @property
    def conditional(self) -> Conditional | None:
        """Changes on the condition that an object still has its entity tag or, on Google's servers, its generation.

        None once the server has said that it does not know such conditions.
        """
        return None if self._unconditional else _TaggedWrites(self)

    def _get_tagged(self, key: str) -> Versioned | None:
        def get() -> Versioned:
            result = self._obstore.get(self.store, self._below + key)
            found = {"e_tag": strong(result.meta["e_tag"]), "version": result.meta["version"]}
            tag = {name: value for name, value in found.items() if value is not None}
            return Versioned(memoryview(result.bytes()), tag)

        return self._asked("read", key, get)

    def _put_if(self, key: str, data: bytes | memoryview | None, tag: Any, *, retried: bool = False) -> bool:
        """Store one object if it has a tag, or if it is missing and the tag is None. Returns: whether that was done."""
        if data is None:
            raise StoreError(f"store {self}: cannot delete {key!r} on a condition")
        if tag == {}:
            self._go_on_without_conditions("it gives objects no entity tags")
            self._put(key, data)
            return True
        library = self._obstore
        try:
            payload = self._payload((data,), len(data))
            library.put(self.store, self._below + key, payload, mode="create" if tag is None else tag)
        except (self._exceptions.AlreadyExistsError, self._exceptions.PreconditionError):
            return retried and self.get(key) == bytes(data)
        except NotImplementedError as error:
            self._go_on_without_conditions(error)
            self._put(key, data)
        except self._errors as error:
            if not retried and "ConnectionReset" in repr(error):  # it is not known whether the server has stored it
                return self._put_if(key, data, tag, retried=True)
            if tag is not None and isinstance(error, self._missing) and not lacks_container(error):
                return False
            if "501 Not Implemented" not in str(error):
                raise self._failed(f"write {key!r}", error) from shown_cause(error)
            self._go_on_without_conditions(error)
            self._put(key, data)
        return True

    def _listed(self, path: str) -> Sequence[tuple[str, int | None]]:
        check_path(path)
        start, nskip = self._start(path), len(self._below)
        with self._failures(f"list {path!r}"):
            pages = self._obstore.list(self.store, start.rstrip("/") or None, chunk_size=_PAGE)
            # Names that end in a slash are what consoles make of folders.
            return [(o["path"][nskip:], o["size"]) for page in pages for o in page if o["path"].startswith(start)]

    def list_dir(self, path: str = "") -> tuple[list[str], list[str]]:
        """Names directly under a path, sorted: (objects, sub-paths)."""
        check_path(path)
        start = self._start(path)
        nskip = len(start)
        with self._failures(f"list {path!r}"):
            found = self._obstore.list_with_delimiter(self.store, start.rstrip("/") or None)
            paths = {name for name in found["common_prefixes"] if not self._in_folder or self._holds_any(name)}
        objects = {o["path"][nskip:] for o in found["objects"] if o["path"] != start.rstrip("/")}
        return listing(objects - {""}, {name.rstrip("/")[nskip:] for name in paths} - {""})

    def _holds_any(self, path: str) -> bool:
        """Whether an object is under a path of `store`: folders that deletions emptied are listed too."""
        return any(len(page) for page in self._obstore.list(self.store, path, chunk_size=1))

    def _start(self, path: str) -> str:
        """What the names of all objects under a path begin with."""
        return f"{self._below}{path}/" if path else self._below

    # -- writing -------------------------------------------------------------------------------------------------

    @property
    def segments(self) -> Segments:
        """Objects sent from the buffers that they are made of."""
        return _ObjectSegments(self)

    def _put(self, key: str, data: bytes | memoryview) -> None:
        self._send(key, (data,), 1)

    def _put_all(self, items: Sequence[tuple[str, bytes | memoryview]]) -> None:
        self._send_all([(key, (data,)) for key, data in items])

    def _send_all(self, items: Sequence[tuple[str, Sequence[bytes | memoryview]]]) -> None:
        """Store objects of one or more buffers, many at once. Raises: StoreError."""
        idle = self._at_once // max(len(items), 1)
        self.together(lambda item: self._send(*item, idle), items)

    def _send(self, key: str, data: Sequence[bytes | memoryview], idle: int) -> None:
        """Store an object by one request, or by several if it is large. idle: connections that it may use."""
        nbytes = sum(map(len, data))
        if nbytes > _BUSY_PUT_NBYTES:
            idle = self._at_once
        at_once = max(min(nbytes // _MIN_PART_NBYTES, _PARTS_AT_ONCE, idle), 1)
        part = min(max(-(-nbytes // at_once), _MIN_PART_NBYTES), _MAX_PART_NBYTES)
        whole = nbytes <= (_PUT_NBYTES if at_once > 1 and self._in_bucket else _BUSY_PUT_NBYTES)
        parts = {"use_multipart": False} if whole else {"chunk_size": part, "max_concurrency": at_once}
        put = partial(self._obstore.put, self.store, self._below + key, self._payload(data, nbytes))
        with self._failures(f"write {key!r}"):
            try:
                put(**parts)
            except self._errors as error:
                if whole or not self._is_upload_lost(error):
                    raise
                put(use_multipart=False)

    def _is_upload_lost(self, error: Exception) -> bool:
        """Whether a server no longer knows an upload in parts.

        The answer to the request that ended it was lost, or another writer of the object ended his first (on Azure).
        """
        gone = isinstance(error, self._missing) and not lacks_container(error)
        return gone or "InvalidBlockList" in str(error)

    def _payload(self, data: Sequence[bytes | memoryview], nbytes: int) -> Any:
        """What obstore takes: buffers that it reads where they are, or a copy of what is small or stays in memory."""
        if nbytes < _COPIED_NBYTES or self._in_memory:
            return b"".join(data)
        return data[0] if len(data) == 1 else data

    def _remove(self, key: str) -> None:
        try:
            self._asked("delete", key, lambda: self._obstore.delete(self.store, self._below + key))
        except StoreError:
            # Where a name is both an object's and a path's, file systems refuse what object stores ignore.
            if self._look_up(key) is not None:
                raise

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete the keys, a thousand per request if the server accepts that; missing ones are ignored."""
        self.check_writable()
        names = list(dict.fromkeys(keys))
        pages = [names[i : i + _DELETE_PAGE] for i in range(0, len(names), _DELETE_PAGE)]
        try:
            self.together(lambda page: self._obstore.delete(self.store, [self._below + key for key in page]), pages)
        except self._errors:
            super().delete_many(names)  # one is missing and the server minds, or it takes only one at a time

    def _copy(self, source: str, dest: str) -> None:
        with self._failures(f"copy to {dest!r} the object {source!r}"):
            self._obstore.copy(self.store, self._below + source, self._below + dest)

    def __reduce__(self) -> tuple[Any, ...]:
        return pickled(self, ObjectStore, self.store, read_only=self.read_only, url=self._url, path=self._path)


class _TaggedWrites(Conditional):
    """Changes that a server carries out if an object still has its tag (HTTP ``If-Match``), many at once."""

    deletes = False

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def get_tagged(self, keys: Sequence[str]) -> list[Versioned | None]:
        """Fetch whole objects; the answers bring the tags."""
        return self._store.together(self._store._get_tagged, keys)  # noqa: SLF001 - one module, two classes

    def set_if(self, changes: Sequence[Change]) -> list[bool]:
        """Carry out changes."""
        self._store.check_writable()
        for change in changes:
            check_key(change.key)
        return self._store.together(self._change, changes)

    def _change(self, change: Change) -> bool:
        key, value, tag = change
        data = None if value is None else byte_view(key, value)
        if tag is not ANY and not self._store._unconditional:  # noqa: SLF001
            return self._store._put_if(key, data, tag)  # noqa: SLF001
        if data is None:
            self._store._remove(key)  # noqa: SLF001
        else:
            self._store._put(key, data)  # noqa: SLF001
        return True


class _ObjectSegments(Segments):
    """Objects of several buffers in a store, whose class it is part of."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def set_many(self, items: Iterable[tuple[str, Sequence[Buffer]]]) -> None:
        """Store every object, many at once."""
        self._store.check_writable()
        checked = []
        for key, segments in items:
            check_key(key)
            checked.append((key, [byte_view(key, segment) for segment in segments]))
        self._store._send_all(checked)  # noqa: SLF001 - one module, two classes


def _described(store: Any) -> str:
    """A URL-like name of an obstore store."""
    kind = type(store).__name__.removesuffix("Store").lower()
    if kind == "local":  # the same for all stores of a folder: their locks are found by it
        return f"file://{os.path.abspath(store.prefix or os.sep)}"  # noqa: PTH100 - links are kept
    config = getattr(store, "config", None) or {}
    bucket = config.get("bucket") or config.get("container_name") or getattr(store, "url", "") or f"{id(store):#x}"
    prefix = getattr(store, "prefix", None)
    scheme = {"s3": "s3", "gcs": "gs", "azure": "az"}.get(kind, f"obstore-{kind}")
    return "/".join(filter(None, (f"{scheme}://{bucket}", str(prefix or "").strip("/"))))


def _range(start: int, length: int | None) -> Any:
    if start < 0:
        return {"suffix": -start}
    return {"offset": start} if length is None else (start, start + length)
