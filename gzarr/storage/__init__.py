"""Stores: where the bytes of arrays and groups live, and how a path, a URL or a mapping becomes one."""
# os.path: URLs and paths are taken apart as text and given back unchanged.
# ruff: noqa: PTH112

from __future__ import annotations

import os
import re
from collections.abc import MutableMapping
from typing import Any, Literal, TypeAlias

from gzarr.errors import StoreError
from gzarr.storage.archive import ZipMode
from gzarr.storage.base import Buffer, Request, Store
from gzarr.storage.cache import LRUStoreCache
from gzarr.storage.local import LocalStore
from gzarr.storage.memory import MemoryStore, find_memory
from gzarr.storage.split import SplitStore
from gzarr.storage.synchronizers import ProcessSynchronizer, ThreadSynchronizer, synchronized
from gzarr.storage.wrap import CountingStore, read_only
from gzarr.storage.zip import ZipStore

#: Names of zarr 2.
DirectoryStore = LocalStore
KVStore = MemoryStore

#: Users assign it, as in zarr 2, and it is read when an array is created: the compressor of arrays that name none.
#: "auto" leaves the choice to gzarr, None means no compressor.
default_compressor: Any = "auto"

StoreLike: TypeAlias = Store | MutableMapping[str, Any] | str | os.PathLike[str] | None
Mode: TypeAlias = Literal["r", "r+", "a", "w", "w-"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)(?:://|::)")
_SUPPORTED = "a path, a path to a .zip file, file://path, zip://path or memory://name"

# What memory:// URLs name: stores made here by name, for the life of the process, and any store by its own str().
_named: dict[str, dict[str, Any]] = {}


def open_store(
    store_like: StoreLike, *, read_only: bool = False, mode: Mode | Literal["x"] | None = None
) -> tuple[Store, str]:
    """Find or make the store that is meant, and the path inside it.

    Args:
        store_like: None for new memory; a path of a directory or of a ZIP archive (``data.zip``, or ``data.zip/foo``
            for something inside); ``file://``, ``zip://`` and ``memory://`` URLs; a mapping; a store.
        read_only: give a store that refuses changes.
        mode: how the node will be opened: ``"r"`` implies `read_only`; the others decide how an archive is opened.

    Returns: (store, path inside it, ``""`` for its root). A store that was given is returned itself, or a view of it
        if it may be written but `read_only` is asked for.

    Raises: StoreError if the URL or the mode is not supported; TypeError if this cannot be a store.
    """
    if mode not in (None, "r", "r+", "a", "w", "w-", "x"):
        raise StoreError(f"mode must be one of 'r', 'r+', 'a', 'w', 'w-'; got {mode!r}")
    read_only = read_only or mode == "r"
    if store_like is None:
        return MemoryStore(read_only=read_only), ""
    if isinstance(store_like, Store):
        return (_read_only_view(store_like) if read_only else store_like), ""
    if isinstance(store_like, (str, os.PathLike)):
        return _open_path(os.fsdecode(store_like), read_only, mode)
    if isinstance(store_like, MutableMapping):
        return MemoryStore(store_like, read_only), ""
    raise TypeError(
        f"cannot use {store_like!r} of type {type(store_like).__name__} as a store; expected a store, a mutable"
        f" mapping, None, or {_SUPPORTED}"
    )


_read_only_view = read_only


def _open_path(path: str, read_only: bool, mode: Mode | Literal["x"] | None) -> tuple[Store, str]:
    match = _SCHEME.match(path)
    scheme = match[1].lower() if match else ""
    if scheme == "memory" and "://" in path:
        return _open_memory(path, read_only)
    if match and (scheme not in ("file", "zip") or not match[0].endswith("://")):
        raise StoreError(f"cannot open {path!r}: expected {_SUPPORTED}; stores across a network are planned")
    if match:
        path = path[match.end() :]
    _check_path(path)
    archive, inner = _split_archive(path, anything=scheme == "zip")
    if archive is None:
        return LocalStore(path, read_only), ""
    return ZipStore(archive, _zip_mode(mode, inner, read_only)), inner


def _check_path(path: str) -> None:
    """Refuse paths that mean something else than a directory of Zarr data."""
    if not path:
        raise StoreError("the path of a store is empty; use '.' for the current directory")
    if path.rstrip("/").lower().endswith(".n5"):
        raise StoreError(f"{path!r} is N5, which this version of gzarr does not read or write")


def _split_archive(path: str, *, anything: bool) -> tuple[str | None, str]:
    """The part of a path that names a ZIP archive (None if no part does), and the path inside the archive.

    A directory is none, whatever its name; with `anything`, a path without any ``.zip`` is one as a whole.
    """
    at = 0
    for segment in re.split(r"(?<=[/\\])" if os.name == "nt" else r"(?<=/)", path):
        at += len(segment)
        name = segment.rstrip("/\\" if os.name == "nt" else "/")
        archive = path[: at - len(segment) + len(name)]
        if name.lower().endswith(".zip") and not os.path.isdir(archive):
            return archive, path[at:].replace(os.sep, "/").strip("/")
    return (path, "") if anything else (None, "")


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
    return MemoryStore(_named.setdefault(name, {}), read_only), inner.strip("/")


__all__ = [
    "Buffer",
    "CountingStore",
    "DirectoryStore",
    "KVStore",
    "LRUStoreCache",
    "LocalStore",
    "MemoryStore",
    "ProcessSynchronizer",
    "Request",
    "SplitStore",
    "Store",
    "StoreLike",
    "ThreadSynchronizer",
    "ZipStore",
    "default_compressor",
    "open_store",
    "read_only",
    "synchronized",
]
