"""Turns what callers give as a place (path, URL, store, array or group, with options) into a store and a path in it."""

import os
from collections.abc import Callable
from typing import Any, TypeVar

from gzarr.backend import Backend
from gzarr.devices import take_backend
from gzarr.errors import MetadataError, StoreError
from gzarr.hierarchy.keywords import ConstructorKeywords, GroupKeywords, OpenMode
from gzarr.hierarchy.node import Node
from gzarr.hierarchy.options import HARMLESS, OpenedWith, check_keywords, take_open_options
from gzarr.indexing.keys import join_path, normalize_path
from gzarr.metadata.documents import read_node
from gzarr.metadata.model import NodeMeta
from gzarr.storage import LocalStore, ZipStore, open_store
from gzarr.storage.base import Store
from gzarr.storage.in_place import ELSEWHERE, is_repository
from gzarr.storage.wrappers import read_only

M = TypeVar("M", bound=NodeMeta)
_MODES = {"r", "r+", "a", "w", "w-", "x"}


def open_store_at(store: Any, mode: OpenMode) -> tuple[Store, str]:
    """Return (store, path in it). Raises StoreError."""
    if isinstance(store, Node):
        return read_only(store.store) if store.read_only else store.store, store.path
    if mode in ("w", "w-", "x") and isinstance(store, (str, os.PathLike)):
        # These modes are about the node. Given to a ZIP archive, "w" would empty it before the call has passed its
        # checks, and "w-" would refuse it although the path in it is free.
        try:
            return open_store(store, mode="a")
        except StoreError as error:
            if mode != "w" or isinstance(error.__cause__, OSError):  # locked by another writer, or not readable
                raise  # else it is damaged: nothing to lose
    return open_store(store, mode=mode)


def join_storage_options(store: Any, keywords: dict[str, Any]) -> Any:
    """Take ``storage_options`` and the like out of a call's keywords and join them to the URL that they belong to.

    Raises StoreError if there are options and no URL.
    """
    if not keywords:
        return store
    options = dict(keywords.pop("storage_options", None) or {})
    elsewhere = {name: keywords.pop(name) for name in ELSEWHERE & keywords.keys()}
    options |= {name: value for name, value in elsewhere.items() if value is not None}
    if not options:
        return store
    if not isinstance(store, (str, os.PathLike)):
        if store is not None and (ELSEWHERE.issuperset(options) or is_repository(store)):
            return open_store(store, storage_options=options)[0]
        what = "no store" if store is None else f"a {type(store).__name__}"
        raise StoreError(f"storage_options go with a URL; {what} was given")
    from gzarr.storage.urls import StoreURL

    return StoreURL(os.fspath(store), {**getattr(store, "options", {}), **options})


def open_place(
    store: Any, path: str | None, mode: OpenMode, keywords: dict[str, Any] | None = None
) -> tuple[Store, str]:
    """Return (store, path in it) of a path within a store, whose ``storage_options`` are among a call's keywords."""
    opened, base = open_store_at(join_storage_options(store, keywords or {}), mode)
    return opened, join_path(base, normalize_path(path or ""))


def reach_node(
    store: Any, path: str | None, mode: OpenMode | None, device: str | Backend | None, keywords: dict[str, Any]
) -> tuple[Store, str, OpenMode, OpenedWith]:
    """Return (store, path in it, mode, what goes with it), as a call says.

    The keywords that say how a node is reached, and on which device, are taken out of those of the call.
    """
    for name in HARMLESS & keywords.keys():
        del keywords[name]
    options = take_open_options(keywords)
    opened_with = options.opened_with(OpenedWith(take_backend(options.device(device), keywords)))
    if mode is None:
        mode = "r" if isinstance(store, Store) and store.read_only else "a"
    if mode not in _MODES:
        raise ValueError(f"mode must be 'r', 'r+', 'a', 'w', 'w-' or 'x', got {mode!r}")
    opened, where = open_place(store, path, mode, keywords)
    return options.store(opened), where, mode, opened_with


def reach_group(
    function: Callable[..., Any],
    store: Any,
    path: str | None,
    mode: OpenMode | None,
    device: Any,
    keywords: dict[str, Any],
) -> tuple[Store, str, OpenMode, OpenedWith, Any]:
    """`reach_node` for a group that a function opens, and the Zarr format asked for, or None.

    Raises TypeError for keywords that the function does not take.
    """
    zarr_format = take_format(keywords.pop("zarr_format"), keywords)
    check_keywords(keywords, GroupKeywords, function)
    return *reach_node(store, path, mode, device, keywords), zarr_format


def take_mode(mode: OpenMode | None, keywords: dict[str, Any]) -> OpenMode | None:
    """Return the mode, "r" for ``read_only=True``, which is taken out of the keywords."""
    if keywords.pop("read_only", False):
        if mode not in (None, "r"):
            raise ValueError(f"read_only=True and mode={mode!r} contradict each other")
        mode = "r"
    return mode


def take_format(zarr_format: Any, keywords: dict[str, Any]) -> Any:
    """Return the Zarr format asked for, or None; zarr 2's ``zarr_version`` for it is taken out of the keywords.

    Raises MetadataError if it is not 2 or 3, or the two differ.
    """
    version = keywords.pop("zarr_version", None)
    if None not in (version, zarr_format) and version != zarr_format:
        raise MetadataError(f"zarr_format={zarr_format!r} and zarr_version={version!r} mean the same; give one of them")
    chosen = version if zarr_format is None else zarr_format
    if chosen not in (None, 2, 3):
        raise MetadataError(f"zarr_format must be 2, 3 or None, got {chosen!r}")
    return chosen


def reach_existing(
    function: Callable[..., Any], store: Any, path: str | None, metadata: NodeMeta | None, keywords: dict[str, Any]
) -> tuple[Store, str, NodeMeta | None, OpenedWith]:
    """Return (store, path in it, what is there, what goes with it), as the constructors of zarr 2 are called.

    ``metadata`` are taken for what is there if they are given. Nothing is created, not even an archive.
    """
    check_keywords(keywords, ConstructorKeywords, function)
    zarr_format = take_format(None, keywords)
    opened, where, _, opened_with = reach_node(store, path, "r+", None, keywords)
    return opened, where, read_node(opened, where, zarr_format) if metadata is None else metadata, opened_with


def split_positional(
    node: type[Node[Any]], kind: type[M], metadata: Any, opened_with: Any, read_only: bool
) -> tuple[bool, M | None]:
    """Return (read_only, metadata) of a constructor, whose third and fourth argument zarr 2 gives other meanings.

    Raises TypeError if they have neither meaning.
    """
    if isinstance(metadata, bool):
        metadata, read_only = None, metadata or read_only
    if metadata is not None and not isinstance(metadata, kind):
        raise TypeError(
            f"{node.__name__}: metadata must be {kind.__name__}, got {type(metadata).__name__}; "
            f"use {node.__name__}.from_dict, or pass other arguments by name"
        )
    if opened_with is not None:
        raise TypeError(f"{node.__name__}: pass other arguments by name, got a fourth argument")
    return read_only, metadata


def close_if_opened_here(given: Any, opened: Store) -> None:
    """Close a store that was opened here from a path: a zip file is complete only once it is closed."""
    if not isinstance(given, (Store, Node)) and isinstance(opened, (ZipStore, LocalStore)):
        opened.close()
