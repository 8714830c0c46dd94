"""Private names that the tests of zarr 2 use but do not test, in terms of gzarr."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from gzarr import Array, Group, storage
from gzarr.hierarchy.node import Node


def oindex(a: Any, selection: Any) -> Any:
    """NumPy's answer to an orthogonal selection."""
    return a[_orthogonal(a, selection)].squeeze(_dropped(a, selection))


def oindex_set(a: Any, selection: Any, value: Any) -> None:
    """What NumPy makes of an orthogonal assignment."""
    dropped = _dropped(a, selection)
    if not np.isscalar(value) and dropped:
        value = np.expand_dims(np.asanyarray(value), dropped)
    a[_orthogonal(a, selection)] = value


def replace_ellipsis(selection: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """A selection with an item for every axis."""
    items = selection if isinstance(selection, tuple) else (selection,)
    if not any(item is Ellipsis for item in items):
        items = (*items, ...)
    at = next(n for n, item in enumerate(items) if item is Ellipsis)
    return (*items[:at], *[slice(None)] * (len(shape) - len(items) + 1), *items[at + 1 :])


def _dropped(a: Any, selection: Any) -> tuple[int, ...]:
    return tuple(
        n for n, item in enumerate(replace_ellipsis(selection, a.shape)) if isinstance(item, (int, np.integer))
    )


def _orthogonal(a: Any, selection: Any) -> Any:
    def indices(item: Any, extent: int) -> Any:
        if isinstance(item, slice):
            return range(*item.indices(extent))
        return [item] if isinstance(item, (int, np.integer)) else np.asanyarray(item)

    return np.ix_(*map(indices, replace_ellipsis(selection, a.shape), a.shape))


def _with_one_store(function: Callable[..., Any]) -> Callable[..., Any]:
    """Take the chunk_store=None that most tests pass. Any other is refused, as everywhere."""

    @wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        if keywords.get("chunk_store", ...) is None:
            del keywords["chunk_store"]
        return function(*args, **keywords)

    return call


NAMES: dict[str, dict[str, Any]] = {
    "zarr.storage": {
        "init_array": _with_one_store(storage.init_array),
        "init_group": _with_one_store(storage.init_group),
        "normalize_store_arg": lambda store, **_: storage.open_store(store)[0],
    },
    "zarr.indexing": {"oindex": oindex, "oindex_set": oindex_set},
}


def add_to_nodes() -> None:
    """Give nodes the private attributes of zarr 2 that its tests read."""
    store: Any = storage.Store
    store._store_version = 2
    kinds: Any = (Array, Group)
    for kind in kinds:
        kind.__init__ = _with_one_store(kind.__init__)
    added: Any = Node
    added._version = property(lambda node: node.zarr_format)
    added._store = property(lambda node: node.store)
    added._chunk_store = property(lambda node: node.chunk_store)
    added._synchronizer = property(lambda node: node.synchronizer)
    added._cache_metadata = True
    added._dimension_separator = property(lambda node: node.metadata.keys.separator)
    added._key_prefix = property(lambda node: node.path and f"{node.path}/")
    added._chunk_key = lambda node, coords: node._io.layout.key(coords)
