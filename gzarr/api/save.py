"""Whole arrays and groups of arrays saved and loaded in one call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from gzarr.api.create import create_array
from gzarr.api.locating import close_if_opened_here, join_storage_options, open_store_at
from gzarr.api.open import open, open_group
from gzarr.hierarchy import new_nodes
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.new_metadata import array_meta
from gzarr.hierarchy.options import ArrayOptions
from gzarr.indexing.keys import join_path, normalize_path


def save(store: Any, *args: Any, path: str | None = None, **kwargs: Any) -> None:
    """Save one array (as an array), or several (as a group: keywords by name, others as ``arr_0``, ``arr_1``, ...).

    What is stored there is replaced.
    """
    if len(args) == 1 and not any(_is_array(v) for v in kwargs.values()):
        save_array(store, args[0], path=path, **kwargs)
    else:
        save_group(store, *args, path=path, **kwargs)


def save_array(store: Any, arr: Any, *, path: str | None = None, **kwargs: Any) -> None:
    """Save an array. kwargs: of `create_array`."""
    store = join_storage_options(store, kwargs)
    opened, base = open_store_at(store, "w")
    create_array(opened, name=join_path(base, normalize_path(path or "")), data=arr, overwrite=True, **kwargs)
    close_if_opened_here(store, opened)


def save_group(store: Any, *args: Any, path: str | None = None, zarr_format: int | None = None, **kwargs: Any) -> None:
    """Save several arrays in a group: keywords by name, others as ``arr_0``, ``arr_1``, ...

    ``layout="gpu"`` is no array but the layout of all of them: see `create_array`.
    """
    layout = kwargs.pop("layout") if isinstance(kwargs.get("layout"), str) else None
    store = join_storage_options(store, kwargs)
    if not args and not kwargs:
        raise ValueError("at least one array must be given")
    opened, base = open_store_at(store, "w")
    where = join_path(base, normalize_path(path or ""))
    values = {**{f"arr_{i}": a for i, a in enumerate(args)}, **kwargs}
    # Before anything is replaced: arrays may lie where they are to be saved, and values must be storable.
    values = {name: value if hasattr(value, "shape") else np.asarray(value) for name, value in values.items()}
    values = {name: value[...] if isinstance(value, Array) else value for name, value in values.items()}
    for value in values.values():
        dtype = new_nodes.dtype_of(value, {})
        array_meta(ArrayOptions(shape=value.shape, dtype=dtype, zarr_format=zarr_format, layout=layout))
    root = open_group(opened, "w", path=where, zarr_format=zarr_format)
    for name, value in values.items():
        root.create_array(name, data=value, layout=layout)
    close_if_opened_here(store, opened)


def load(store: Any, path: str | None = None, *, device: str | None = None, **options: Any) -> Any:
    """Load an array into memory; of a group, a mapping that loads each array when it is asked for.

    device, options: as in `open_array`; ``allow_pickle=True`` for data that you trust.
    Raises: NodeNotFoundError.
    """
    store, path = join_storage_options(path if store is None else store, options), None if store is None else path
    node = open(store, "r", path=path, device=device, **options)
    if isinstance(node, Group):
        return LazyLoader(node)
    data = node[...]
    close_if_opened_here(store, node.store)
    return data


class LazyLoader(Mapping[str, Any]):
    """The arrays of a saved group, loaded when they are asked for, and kept."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = self._group[name][...]
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return self._group.array_keys()

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"<LazyLoader: {', '.join(self)}>"


def _is_array(value: Any) -> bool:
    return isinstance(value, (np.ndarray, list)) or (hasattr(value, "shape") and hasattr(value, "dtype"))
