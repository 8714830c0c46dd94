"""Functions that save and load whole arrays, and groups of arrays, in one call."""

from collections.abc import Iterator, Mapping
from typing import Any, Unpack

import numpy as np

from gzarr.api.create import create_array
from gzarr.api.groups import open_group
from gzarr.api.open import open
from gzarr.devices import backend_for
from gzarr.errors.escaping import escaped
from gzarr.hierarchy import new_nodes
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.keywords import LoadKeywords, SaveArrayKeywords
from gzarr.hierarchy.new_metadata import array_meta
from gzarr.hierarchy.options import check_keywords
from gzarr.hierarchy.reaching import close_if_opened_here, open_place, take_format
from gzarr.hierarchy.values import computed, is_lazy, is_separate
from gzarr.storage.base import Store
from gzarr.tensors import from_tensor

#: Options that may be lists.
_OPTIONS_OF_LISTS = frozenset({"chunks", "shards", "compressors", "filters", "codecs"})
#: Keywords of `save_group` that are for all arrays, instead of being arrays.
_OPTIONS = _OPTIONS_OF_LISTS | {
    *("dtype", "fill_value", "order", "compressor", "serializer", "object_codec", "layout", "write_empty_chunks"),
    *("dimension_separator", "chunk_key_encoding"),
}


def save(store: Any, *args: Any, path: str | None = None, **kwargs: Any) -> None:
    """Save one array as an array, or several as a group, replacing what is stored there.

    Parameters
    ----------
    store : Store, path, URL or mapping
        Where to save.
    *args : array-like
        Arrays. If there are several, or others by keyword, they are named ``arr_0``, ``arr_1``, ...
    path : str, optional
        Path in the store.
    **kwargs
        Arrays by name; without any, the keywords of `save_array`.

    Examples
    --------
    >>> import gzarr
    >>> gzarr.save("one.zarr", [1, 2, 3])
    >>> gzarr.load("one.zarr")
    array([1, 2, 3])
    >>> gzarr.save("several.zarr", speed=[1.5, 2.5], time=[0, 1])
    >>> gzarr.load("several.zarr")["speed"]
    array([1.5, 2.5])
    """
    if len(args) == 1 and not any(_is_array(*item) for item in kwargs.items()):
        save_array(store, args[0], path=path, **kwargs)
    else:
        save_group(store, *args, path=path, **kwargs)


def save_array(store: Any, arr: Any, *, path: str | None = None, **kwargs: Unpack[SaveArrayKeywords]) -> None:
    """Save an array, replacing what is stored there.

    Parameters
    ----------
    store : Store, path, URL or mapping
        Where to save.
    arr : array-like
        The array.
    path : str, optional
        Path of the array in the store.
    **kwargs
        See `create_array`.
    """
    check_keywords(kwargs, SaveArrayKeywords, save_array)
    given: dict[str, Any] = {**kwargs}
    opened, where = open_place(store, path, "w", given)
    given["mode"] = given.get("mode") or "w"
    create_array(opened, name=where, data=arr, **given)
    close_if_opened_here(store, opened)


def save_group(store: Any, *args: Any, path: str | None = None, zarr_format: int | None = None, **kwargs: Any) -> None:
    """Save several arrays in a group, replacing what is stored there.

    Parameters
    ----------
    store : Store, path, URL or mapping
        Where to save.
    *args : array-like
        Arrays, which are named ``arr_0``, ``arr_1``, ...
    path : str, optional
        Path of the group in the store.
    zarr_format : {2, 3}, optional
        By default the setting ``default_zarr_format``, which is 3.
    **kwargs
        Arrays by name. ``chunks``, ``shards``, ``dtype``, ``layout`` and the keywords of codecs are those of
        `create_array`, for all arrays, unless they are arrays; ``storage_options`` are those of a URL.

    Raises
    ------
    ValueError
        If no array is given.
    """
    options = {name: kwargs.pop(name) for name in _OPTIONS & kwargs.keys() if not _is_array(name, kwargs[name])}
    options["zarr_format"] = take_format(zarr_format, kwargs)
    of_url = {"storage_options": kwargs.pop("storage_options", None)}
    if not args and not kwargs:
        raise ValueError("at least one array must be provided")
    opened, where = open_place(store, path, "w", of_url)
    values = {**{f"arr_{i}": a for i, a in enumerate(args)}, **kwargs}
    # Load and check all values before anything is replaced: some may be where they are to be saved.
    values = {name: from_tensor(value) for name, value in values.items()}
    values = {name: value if hasattr(value, "shape") else np.asarray(value) for name, value in values.items()}
    if any(opened.list_dir(where)):
        values = {name: _independent(value, opened, where) for name, value in values.items()}
    for value in values.values():
        dtype = new_nodes.dtype_of(value, {})
        array_meta(new_nodes.options_from({"shape": value.shape, "dtype": dtype, **options}))
    root = open_group(opened, "w", path=where, zarr_format=options["zarr_format"])
    for name, value in values.items():
        root.create_array(name, data=value, **options)
    close_if_opened_here(store, opened)


def _independent(value: Any, store: Store, path: str) -> Any:
    """Return a value that reads nothing from a place: if it may, it is computed."""
    if not is_lazy(value) or is_separate(value, store, path):
        return value
    return computed(value, np.dtype(value.dtype), backend_for("cpu"))


def load(store: Any, path: str | None = None, *, device: str | None = None, **kwargs: Unpack[LoadKeywords]) -> Any:
    """Load an array into memory, or a group as a mapping that loads each array when it is asked for.

    Parameters
    ----------
    store : Store, path, URL or mapping
        Where it is stored.
    path : str, optional
        Path in the store.
    device : str, optional
        Where arrays are loaded to: see `open_array`.
    **kwargs
        See `open_array`. ``allow_pickle=True`` loads pickled objects, of data that you trust only.

    Returns
    -------
    numpy.ndarray, cupy.ndarray or LazyLoader
        The array on the device, or the group's arrays by name.

    Raises
    ------
    NodeNotFoundError
        If nothing is stored there.

    Examples
    --------
    >>> import gzarr
    >>> gzarr.save("loaded.zarr", [1, 2, 3])
    >>> gzarr.load("loaded.zarr")
    array([1, 2, 3])
    """
    if "mode" in kwargs:
        raise TypeError("load takes no mode: it only reads")
    check_keywords(kwargs, LoadKeywords, load)
    store, path = (path, None) if store is None else (store, path)
    node = open(store, "r", path=path, device=device, **kwargs)
    if isinstance(node, Group):
        return LazyLoader(node)
    data = node[...]
    close_if_opened_here(store, node.store)
    return data


class LazyLoader(Mapping[str, Any]):
    """The arrays of a saved group by name; each is loaded once, when it is asked for."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            node = self._group[name]
            if isinstance(node, Group):
                raise KeyError(f"{name!r} is a group, not an array")
            self._loaded[name] = node[...]
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return self._group.array_keys()

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return escaped(f"<LazyLoader: {', '.join(self)}>")


def _is_array(name: str, value: Any) -> bool:
    """Return whether a keyword of `save` is an array to be stored, and no option."""
    has_dtype = hasattr(value, "shape") and hasattr(value, "dtype")
    return has_dtype or (isinstance(value, list) and name not in _OPTIONS_OF_LISTS)
