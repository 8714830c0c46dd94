"""Stores: the bytes of arrays and groups, and how a path, a URL or a mapping becomes a store."""
# os.path: URLs and paths are taken apart as text and given back unchanged.
# ruff: noqa: PTH112

import os
import re
import reprlib
from collections.abc import Callable, Mapping, MutableMapping
from importlib import import_module
from pathlib import Path, PosixPath, WindowsPath
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from gzarr.errors import StoreError
from gzarr.storage.base import Store
from gzarr.storage.cache import LRUStoreCache
from gzarr.storage.capabilities import ANY, Buffer, Change, Conditional, Files, Request, Segments, Versions
from gzarr.storage.in_place import ELSEWHERE, ICECHUNK, call, is_instance, open_named, open_object, without_places
from gzarr.storage.local import LocalStore
from gzarr.storage.memory import ManagedMemoryStore, MemoryStore, find_memory, is_mapping, named
from gzarr.storage.rules import DOCUMENTS
from gzarr.storage.store_path import StorePath
from gzarr.storage.synchronizers import ProcessSynchronizer, ThreadSynchronizer, synchronized
from gzarr.storage.v2 import DirectoryStore, NestedDirectoryStore, TempStore
from gzarr.storage.watching import CountingStore, LoggingStore
from gzarr.storage.wrappers import WrapperStore, read_only
from gzarr.storage.zip import ZipStore
from gzarr.storage.zip_format import ZipMode

if TYPE_CHECKING:
    from gzarr.storage.azure import ABSStore
    from gzarr.storage.databases import DBMStore, LMDBStore, MongoDBStore, RedisStore
    from gzarr.storage.disk_cache import DiskCache
    from gzarr.storage.foreign import ZarrStore
    from gzarr.storage.fsspec import FsspecStore, FSStore
    from gzarr.storage.n5 import N5FSStore, N5Store
    from gzarr.storage.objects import ObjectStore
    from gzarr.storage.sqlite import SQLiteStore
    from gzarr.storage.urls import HTTPStore, StoreURL

    GpuMemoryStore: type[MemoryStore]
    contains_array: Callable[..., bool]
    contains_group: Callable[..., bool]
    getsize: Callable[..., int]
    init_array: Callable[..., None]
    init_group: Callable[..., None]
    listdir: Callable[..., list[str]]
    rename: Callable[..., None]
    rmdir: Callable[..., None]

# Names by the module that has them, which is imported when one of them is first asked for: what these stores stand on
# takes time to load. Functions that zarr 2 has in this module make and find nodes, one store needs a device, and files
# of other formats need readers, of which the module for stores must know nothing.
_NAMES = {
    "gzarr.api.gpu_memory": "GpuMemoryStore",
    "gzarr.api.stored": "contains_array contains_group getsize init_array init_group listdir rename rmdir",
    "gzarr.storage.azure": "ABSStore",
    "gzarr.storage.databases": "DBMStore LMDBStore MongoDBStore RedisStore",
    "gzarr.storage.disk_cache": "DiskCache",
    "gzarr.storage.foreign": "ZarrStore",
    "gzarr.storage.fsspec": "FSStore FsspecStore",
    "gzarr.storage.n5": "N5FSStore N5Store",
    "gzarr.storage.objects": "ObjectStore",
    "gzarr.storage.sqlite": "SQLiteStore",
    "gzarr.storage.urls": "HTTPStore StoreURL",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}


if not TYPE_CHECKING:  # a type checker would take every name to exist

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return found


def __dir__() -> list[str]:
    return sorted({*__all__, *_HOMES})


#: Another name of zarr 2.
KVStore = MemoryStore

#: Users assign it, as in zarr 2, and it is read when an array is created: the compressor of arrays that name none.
#: "auto" leaves the choice to gzarr, None means no compressor.
default_compressor: Any = "auto"

StoreLike: TypeAlias = Store | StorePath | MutableMapping[str, Any] | str | os.PathLike[str] | None
Mode: TypeAlias = Literal["r", "r+", "a", "w", "w-"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)(?:://|::)")
#: How a segment of a path ends that names an archive or a container.
_ENDING = re.compile(r"\.(?:zip|ozx|n5)", re.IGNORECASE)
_SUPPORTED = "a path, a path to a .zip or .ozx, or a URL (file, zip, memory, s3, gs, az, http(s), others of fsspec)"


def open_store(
    store_like: Any,
    *,
    read_only: bool = False,
    mode: Mode | Literal["x"] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[Store, str]:
    """Find or make the store that is meant, and the path inside it.

    Parameters
    ----------
    store_like : path, URL, mapping, Store or None
        None for new memory; a path of a directory, of a ZIP archive (``data.zip``, or ``data.zip/foo`` for something
        inside) or of an N5 container (``data.n5``); a URL of ``file://``, ``zip://``, ``memory://`` or one that
        `gzarr.storage.urls` knows; a mapping; a store, also one of zarr-python 3 or of obstore, or a `StorePath`; an
        fsspec ``FSMap``; a path of universal_pathlib.
    read_only : bool
        Whether to return a store that refuses changes.
    mode : {"r", "r+", "a", "w", "w-", "x"}, optional
        How the node will be opened: "r" implies ``read_only``, the others decide how an archive is opened.
    storage_options : mapping, optional
        What the server of a URL needs to be told: credentials, region, endpoint, ...

    Returns
    -------
    tuple of (Store, str)
        The store, and the path inside it: "" for its root. A store that was given is returned itself, or as a view that
        refuses changes if ``read_only`` is asked for.

    Raises
    ------
    StoreError
        If the URL or the mode is not supported.
    TypeError
        If ``store_like`` cannot be a store.

    Examples
    --------
    >>> from gzarr.storage import open_store
    >>> open_store("data.zarr")
    (LocalStore('file://data.zarr'), '')
    """
    if mode not in (None, "r", "r+", "a", "w", "w-", "x"):
        raise StoreError(f"mode must be one of 'r', 'r+', 'a', 'w', 'w-'; got {mode!r}")
    read_only = read_only or mode == "r"
    if store_like is None:
        return MemoryStore(read_only=read_only), ""
    if isinstance(store_like, Store):
        return (_read_only_view(store_like) if read_only else store_like), ""
    if type(store_like) in _PLAIN:
        return _open_path(os.fspath(store_like), read_only, mode, storage_options or {})
    is_place = isinstance(store_like, (str, os.PathLike))
    options = {**getattr(store_like, "options", {}), **(storage_options or {})} if is_place else {}
    elsewhere = open_object(store_like, storage_options or {}, read_only=read_only)
    if elsewhere is not None:
        return (_read_only_view(elsewhere) if read_only else elsewhere), ""
    if storage_options and not is_place:
        names = ", ".join(storage_options) if ELSEWHERE.issuperset(storage_options) else "storage_options"
        raise StoreError(f"{names} cannot be given with a {type(store_like).__name__}: it is no path or URL")
    place = getattr(store_like, "store_path", store_like)
    if isinstance(place, StorePath) or is_instance(place, "zarr.storage", "StorePath"):
        sealed = read_only or bool(getattr(store_like, "read_only", False))  # an array may be, in a store that is not
        return open_store(place.store, read_only=sealed)[0], place.path
    brought = _brought(store_like, read_only)
    if brought is not None:
        return brought, ""
    if is_place:
        return _open_path(os.fsdecode(store_like), read_only, mode, options)
    if is_mapping(store_like):
        return MemoryStore(store_like, read_only), ""
    raise TypeError(
        f"cannot use {reprlib.repr(store_like)} of type {type(store_like).__name__} as a store; expected a store, "
        f"a mutable mapping, None, or {_SUPPORTED}"
    )


_read_only_view = read_only

#: Types of paths that no other library brings.
_PLAIN = (str, PosixPath, WindowsPath)
#: Stores of obstore that can be written to.
_OBSTORE = ("AzureStore", "GCSStore", "LocalStore", "MemoryStore", "S3Store")


def _brought(value: Any, read_only: bool) -> Store | None:
    """The store over an object of another library, which must be imported already."""
    if is_instance(value, "zarr.abc.store", "Store"):
        from gzarr.storage.foreign import ZarrStore

        if is_instance(value, "zarr.storage", "LocalStore"):
            return LocalStore(value.root, read_only or value.read_only)  # the same files, with fewer steps
        return ZarrStore(value, read_only)
    if is_instance(value, "obstore.store", "HTTPStore"):
        from gzarr.storage.urls import HTTPStore

        return HTTPStore(value, url=value.url)
    if is_instance(value, "obstore.store", *_OBSTORE):
        from gzarr.storage.objects import ObjectStore

        return ObjectStore(value, read_only=read_only)
    if is_instance(value, "fsspec.mapping", "FSMap"):
        from gzarr.storage.fsspec import FsspecStore

        return FsspecStore.from_mapper(value, read_only)
    if is_instance(value, "upath", "UPath") and getattr(value, "protocol", "") not in ("", "file", "local"):
        from gzarr.storage.fsspec import FsspecStore

        return FsspecStore.from_upath(value, read_only)
    return None


def _open_path(
    path: str, read_only: bool, mode: Mode | Literal["x"] | None, options: Mapping[str, Any]
) -> tuple[Store, str]:
    match = _SCHEME.match(path)
    scheme = match[1].lower() if match else ""
    if scheme == ICECHUNK:
        return call("open_icechunk", path, **options)
    options, places = without_places(path, options) if options else (options, None)
    if match and (scheme not in ("file", "zip", "memory") or not match[0].endswith("://") or "::" in path):
        from gzarr.storage.urls import open_url

        in_place = open_named(path, options, places, is_url=True)
        if in_place is not None:
            return in_place
        opened: Store = open_url(path, options, read_only=read_only)
        return (_n5(opened) if path.rstrip("/").lower().endswith(".n5") else opened), ""
    if set(options) - {"auto_mkdir"}:  # directories are made when they are needed
        raise StoreError(f"{path!r} takes no storage_options, got {sorted(options)}; they go with URLs of servers")
    if scheme == "memory":
        return _open_memory(path, read_only)
    if match:
        path = path[match.end() :]
    if not path:
        raise StoreError("the path of a store is empty; use '.' for the current directory")
    if scheme == "zip" or _ENDING.search(path):
        archive, inner = _split(path, ".zip", ".ozx")
        if archive is None and scheme == "zip":
            archive = path
        if archive is not None:
            return ZipStore(archive, _zip_mode(mode, inner, read_only)), inner
        container, inner = _split(path, ".n5")
        if container is not None and not _is_zarr(path, container):
            return _n5(LocalStore(container, read_only)), inner
    return open_named(path, options, places, is_url=False) or (LocalStore(path, read_only), "")


def _is_zarr(path: str, container: str) -> bool:
    """Whether the node at a path, or the nearest above it in a folder that is named as a container of N5, is Zarr's."""
    for folder in (Path(path), *Path(path).parents):
        if any((folder / name).is_file() for name in DOCUMENTS):
            return True
        if (folder / "attributes.json").is_file() or folder == Path(container):
            break
    return False


def _n5(store: Store) -> Store:
    from gzarr.storage.n5 import N5Store

    return N5Store(store)


def _split(path: str, *endings: str) -> tuple[str | None, str]:
    """The part of a path that names an archive or a container by an ending (None if no part does), and the rest.

    A directory is no archive, whatever its name.
    """
    at = 0
    for segment in re.split(r"(?<=[/\\])" if os.name == "nt" else r"(?<=/)", path):
        name = segment.rstrip("/\\" if os.name == "nt" else "/")
        found = path[: at + len(name)]
        at += len(segment)
        if name.lower().endswith(endings) and (".n5" in endings or not os.path.isdir(found)):
            return found, path[at:].replace(os.sep, "/").strip("/")
    return None, ""


def _zip_mode(mode: Mode | Literal["x"] | None, inner: str, read_only: bool) -> ZipMode:
    """How to open an archive for a node in it; only a node that is the whole archive may begin a new one."""
    if read_only:
        return "r"
    if mode == "r+":
        return "r+"
    if mode in ("w", "w-", "x") and not inner:
        return "w" if mode == "w" else "x"
    return "a"


def _open_memory(url: str, read_only: bool) -> tuple[Store, str]:
    name, _, inner = url.partition("://")[2].partition("/")
    if not name:
        return MemoryStore(read_only=read_only), inner.strip("/")
    if name.isdigit():
        found = find_memory(int(name))
        if found is None:
            raise StoreError(
                f"cannot open {url!r}: the store of that name is not in this process, or not any more; keep a reference"
                " to it, or choose a name of letters, which lives as long as the process"
            )
        return (_read_only_view(found) if read_only else found), inner.strip("/")
    return MemoryStore(named.setdefault(name, {}), read_only), inner.strip("/")


__all__ = [
    "ANY",
    "ABSStore",
    "Buffer",
    "Change",
    "Conditional",
    "CountingStore",
    "DBMStore",
    "DirectoryStore",
    "DiskCache",
    "FSStore",
    "Files",
    "FsspecStore",
    "GpuMemoryStore",
    "HTTPStore",
    "KVStore",
    "LMDBStore",
    "LRUStoreCache",
    "LocalStore",
    "LoggingStore",
    "ManagedMemoryStore",
    "MemoryStore",
    "MongoDBStore",
    "N5FSStore",
    "N5Store",
    "NestedDirectoryStore",
    "ObjectStore",
    "ProcessSynchronizer",
    "RedisStore",
    "Request",
    "SQLiteStore",
    "Segments",
    "Store",
    "StoreLike",
    "StorePath",
    "StoreURL",
    "TempStore",
    "ThreadSynchronizer",
    "Versions",
    "WrapperStore",
    "ZarrStore",
    "ZipStore",
    "default_compressor",
    "open_store",
    "read_only",
    "synchronized",
]
