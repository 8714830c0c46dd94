"""The functions that users call first: open and create arrays and groups, in zarr's own call styles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gzarr.api.locating import located, opened_at, with_options
from gzarr.backend import Backend
from gzarr.devices import DEVICE_OPTIONS, take_backend
from gzarr.display.info import Tree
from gzarr.errors import (
    ArrayNotFoundError,
    ContainsArrayError,
    GroupNotFoundError,
    MetadataError,
    NodeNotFoundError,
)
from gzarr.hierarchy import new_nodes
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.create import new_group_meta
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.open_options import NAMES as ACCESS
from gzarr.hierarchy.open_options import Access, take_access
from gzarr.hierarchy.options import UNSET
from gzarr.indexing.keys import join_path, normalize_path
from gzarr.metadata.catalog import may_be_consolidated, open_consolidated_node, require_consolidated
from gzarr.metadata.consolidated import DEFAULT_KEY, consolidate
from gzarr.metadata.documents import read_node
from gzarr.metadata.model import ArrayMeta, GroupMeta, NodeMeta
from gzarr.storage.base import Store

# -- arrays ------------------------------------------------------------------------------------------------------


def create_array(
    store: Any = None,
    *,
    name: str | None = None,
    shape: Any = None,
    dtype: Any = None,
    data: Any = None,
    chunks: Any = None,
    shards: Any = None,
    compressor: Any = UNSET,
    compressors: Any = UNSET,
    filters: Any = UNSET,
    serializer: Any = UNSET,
    codecs: Any = UNSET,
    fill_value: Any = UNSET,
    order: str | None = None,
    zarr_format: int | None = None,
    attributes: Mapping[str, Any] | None = None,
    dimension_names: Any = None,
    chunk_key_encoding: Any = None,
    overwrite: bool = False,
    path: str | None = None,
    device: str | None = None,
    **kwargs: Any,
) -> Array:
    """Create an array.

    store: a store, path, URL or mapping; None for memory.
    name: path of the array in the store (``path`` means the same).
    shape: extents. dtype: element type, float64 by default. data: array-like to fill the array with.
    chunks: an int, a tuple (None or -1 for a whole axis), False for one chunk, None or "auto" for a guess, or a list of
        chunk lengths for every axis. shards: shape of the shards, "auto", or None for none.
    compressor, compressors: one or several codecs from bytes to bytes (of numcodecs, gzarr.codecs or zarr), None for
        none. filters: codecs before them. serializer: the codec from array to bytes. codecs: the whole chain instead.
    fill_value: what unwritten elements are. order: "C" or "F" in chunks.
    zarr_format: 2 or 3. attributes: user attributes. dimension_names: a name for every axis (v3).
    chunk_key_encoding: {"name": "default" or "v2", "separator": "/" or "."}.
    overwrite: whether to delete what is stored there.
    device: where reads give their results: "auto", "cpu", "cuda", "cuda:N".
    kwargs: the rest of `gzarr.hierarchy.options.ArrayOptions`: layout ("gpu" for chunks, shards and a compressor that suit
        GPUs), object_codec, dimension_separator, write_empty_chunks; of `gzarr.hierarchy.open_options.Access`: synchronizer,
        chunk_store, meta_array, chunk_cache, allow_pickle; options of the device: stream, max_device_nbytes, strict,
        reader (see `gzarr.devices.backend_for`).
    Raises: MetadataError, ContainsArrayError, ContainsGroupError, ReadOnlyError, TypeError for unknown keywords.

    >>> z = create_array(shape=(100, 100), chunks=(10, 10), dtype="i4")
    >>> z[0, :3] = [1, 2, 3]
    >>> z[0, :5]
    array([1, 2, 3, 0, 0], dtype=int32)
    """
    if name and path:
        raise MetadataError(f"name={name!r} and path={path!r} mean the same; give one of them")
    access, backend = _taken(device, kwargs)
    given = {"shape": shape, "dtype": dtype, "chunks": chunks, "shards": shards, "order": order, **kwargs}
    given |= {"compressor": compressor, "compressors": compressors, "filters": filters, "serializer": serializer}
    given |= {"codecs": codecs, "fill_value": fill_value, "zarr_format": zarr_format, "attributes": attributes}
    given |= {"dimension_names": dimension_names, "chunk_key_encoding": chunk_key_encoding}
    store = with_options(store, given)
    opened, base = opened_at(store, "w" if overwrite else "a")
    where = join_path(base, normalize_path(name or path or ""))
    return new_nodes.make(access.store(opened), where, backend, data=data, overwrite=overwrite, **given)


def create(
    shape: Any = None,
    chunks: Any = True,
    dtype: Any = None,
    compressor: Any = "default",
    fill_value: Any = 0,
    order: str | None = None,
    store: Any = None,
    **kwargs: Any,
) -> Array:
    """Create an array, with the positional arguments of zarr 2. See `create_array`."""
    given = {"shape": shape, "chunks": chunks, "dtype": dtype, "compressor": compressor, "order": order}
    return create_array(store, fill_value=fill_value, **given, **kwargs)


def empty(shape: Any, **kwargs: Any) -> Array:
    """Create an array with nothing stored; what unwritten elements are is undefined in v2, the default in v3."""
    return create_array(**{"fill_value": None, **kwargs, "shape": shape})


def zeros(shape: Any, **kwargs: Any) -> Array:
    """Create an array of zeros; nothing is stored for them. See `create_array`.

    >>> zeros((10000, 10000), chunks=(1000, 1000), dtype="i4").nchunks
    100
    """
    return create_array(**{"fill_value": 0, **kwargs, "shape": shape})


def ones(shape: Any, **kwargs: Any) -> Array:
    """Create an array of ones; nothing is stored for them. See `create_array`."""
    return create_array(**{"fill_value": 1, **kwargs, "shape": shape})


def full(shape: Any, fill_value: Any, **kwargs: Any) -> Array:
    """Create an array filled with a value; nothing is stored for it. See `create_array`."""
    return create_array(**{**kwargs, "shape": shape, "fill_value": fill_value})


def array(data: Any, **kwargs: Any) -> Array:
    """Create an array from data, by default with the chunks of a gzarr or h5py array. See `create_array`.

    >>> array([[1, 2], [3, 4]])[:, 1]
    array([2, 4])
    """
    chunks = getattr(data, "chunks", None)
    if chunks is not None and kwargs.get("chunks") is None and not {"shards", "layout"} & kwargs.keys():
        kwargs["chunks"] = chunks
    return create_array(data=data, **kwargs)


def from_array(store: Any = None, *, data: Any, **kwargs: Any) -> Array:
    """Create an array from data, like it where it is an array of gzarr. See `create_array`."""
    return create_array(store, data=data, **new_nodes.like(data, kwargs))


def empty_like(a: Any, **kwargs: Any) -> Array:
    """`empty` with the shape, dtype, chunks and codecs of another array."""
    return create_array(**new_nodes.like(a, {"fill_value": None, **kwargs}))


def zeros_like(a: Any, **kwargs: Any) -> Array:
    """`zeros` with the shape, dtype, chunks and codecs of another array."""
    return create_array(**new_nodes.like(a, {"fill_value": 0, **kwargs}))


def ones_like(a: Any, **kwargs: Any) -> Array:
    """`ones` with the shape, dtype, chunks and codecs of another array."""
    return create_array(**new_nodes.like(a, {"fill_value": 1, **kwargs}))


def full_like(a: Any, **kwargs: Any) -> Array:
    """`full` with the shape, dtype, chunks, codecs and (unless given) fill value of another array."""
    return create_array(**new_nodes.like(a, kwargs))


def open_like(a: Any, path: Any, **kwargs: Any) -> Array:
    """Open an array at a path; if there is none, create it like another."""
    return open_array(path, **new_nodes.like(a, {"fill_value": getattr(a, "fill_value", 0), **kwargs}))


def open_array(
    store: Any = None,
    mode: str | None = None,
    *,
    path: str | None = None,
    device: str | None = None,
    write_empty_chunks: bool | None = None,
    zarr_format: int | None = None,
    **kwargs: Any,
) -> Array:
    """Open an array, creating it where the mode allows and ``shape`` is given.

    store: a store, path, URL or mapping. path: path of the array in the store.
    mode: "r" read; "r+" read and write; "a" (default) also create if missing; "w" create, deleting what is there;
        "w-" or "x" create, failing if something is there.
    device: where reads give their results: "auto", "cpu", "cuda", "cuda:N".
    kwargs: of `create_array`, used if the array is created, but the options of the device and those of
        `gzarr.hierarchy.open_options.Access` always; ``read_only=True``
        means mode "r".
    Raises: ArrayNotFoundError, ContainsArrayError, ContainsGroupError, MetadataError, TypeError for unknown keywords.
    """
    store, path = with_options(path if store is None else store, kwargs), None if store is None else path
    mode = _asked_mode(mode, kwargs)
    access, backend = _taken(device, kwargs)
    opened, where, mode = located(store, path, mode)
    opened = access.store(opened)
    options = {"zarr_format": zarr_format, "write_empty_chunks": write_empty_chunks, **kwargs}
    if mode in ("w", "w-", "x"):
        if mode == "w":
            kwargs.pop("overwrite", None)
        return new_nodes.make(opened, where, backend, overwrite=mode == "w", **_without(options, "overwrite"))
    meta = read_node(opened, where, _format(zarr_format))
    if meta is None and mode == "a" and (kwargs.get("shape") is not None or kwargs.get("data") is not None):
        return new_nodes.make(opened, where, backend, **_without(options, "overwrite"))
    if not isinstance(meta, ArrayMeta):
        found = "nothing is there" if meta is None else "a group is there"
        raise ArrayNotFoundError(f"no array at {join_path(str(opened), where)!r}: {found}")
    return Array(opened, where, meta, backend, read_only=mode == "r", write_empty_chunks=write_empty_chunks)


# -- groups ------------------------------------------------------------------------------------------------------


def group(
    store: Any = None,
    overwrite: bool = False,
    *,
    path: str | None = None,
    zarr_format: int | None = None,
    attributes: Mapping[str, Any] | None = None,
    device: str | None = None,
    **kwargs: Any,
) -> Group:
    """Open the group in a store, creating it if it is missing; a read-only store is only opened.

    kwargs: of `gzarr.hierarchy.open_options.Access`, for the group and all arrays in it.

    >>> root = group()
    >>> foo = root.create_group("foo")
    >>> baz = foo.zeros("bar/baz", shape=(100, 100), dtype="i4")
    >>> root.tree()
    /
    └── foo
        └── bar
            └── baz (100, 100) int32
    """
    store = with_options(store, kwargs)
    access, backend = _group_access(device, kwargs)
    opened, base = opened_at(store, "w" if overwrite else "a")
    opened, where = access.store(opened), join_path(base, normalize_path(path or ""))
    if not overwrite:
        meta = read_node(opened, where, _format(zarr_format))
        if isinstance(meta, ArrayMeta):
            raise ContainsArrayError(f"an array, not a group, is stored at {join_path(str(opened), where)!r}")
        if meta is not None:
            return Group(opened, where, meta, backend)
        if opened.read_only:
            raise GroupNotFoundError(f"no group at {join_path(str(opened), where)!r}, and the store is read-only")
    made = new_group_meta(opened, where, attributes or {}, zarr_format, overwrite=overwrite)
    return Group(opened, where, made, backend)


def create_group(
    store: Any = None,
    *,
    path: str | None = None,
    zarr_format: int | None = None,
    overwrite: bool = False,
    attributes: Mapping[str, Any] | None = None,
    device: str | None = None,
    **kwargs: Any,
) -> Group:
    """Create a group. For ``kwargs`` see `group`. Raises: ContainsArrayError, ContainsGroupError."""
    store = with_options(store, kwargs)
    access, backend = _group_access(device, kwargs)
    opened, base = opened_at(store, "w" if overwrite else "a")
    opened, where = access.store(opened), join_path(base, normalize_path(path or ""))
    made = new_group_meta(opened, where, attributes or {}, zarr_format, overwrite=overwrite)
    return Group(opened, where, made, backend)


def open_group(
    store: Any = None,
    mode: str | None = None,
    *,
    path: str | None = None,
    zarr_format: int | None = None,
    attributes: Mapping[str, Any] | None = None,
    device: str | None = None,
    use_consolidated: bool | str | None = None,
    **kwargs: Any,
) -> Group:
    """Open a group, creating it where the mode allows. For modes see `open_array`, for ``kwargs`` see `group`.

    use_consolidated: whether members are looked up in the group's consolidated metadata: True, or (v2) the key that
        they are stored under; False for no; None for yes if there are any and the mode is "r".
    Raises: GroupNotFoundError, ContainsArrayError, ContainsGroupError, MetadataError, also if there are no consolidated
        metadata and ``use_consolidated`` asks for them.
    """
    store, path = with_options(path if store is None else store, kwargs), None if store is None else path
    access, backend = _group_access(device, kwargs)
    opened, where, mode = located(store, path, mode)
    opened = access.store(opened)
    if mode in ("w", "w-", "x"):
        made = new_group_meta(opened, where, attributes or {}, zarr_format, overwrite=mode == "w")
        return Group(opened, where, made, backend)
    opened, meta = _with_consolidated(opened, where, _format(zarr_format), mode, use_consolidated)
    if isinstance(meta, ArrayMeta):
        raise ContainsArrayError(f"an array, not a group, is stored at {join_path(str(opened), where)!r}")
    if meta is None and mode == "a":
        meta = new_group_meta(opened, where, attributes or {}, zarr_format)
    if meta is None:
        raise GroupNotFoundError(f"no group at {join_path(str(opened), where)!r}: nothing is there")
    return Group(opened, where, meta, backend, read_only=mode == "r")


def open(store: Any = None, mode: str | None = None, *, path: str | None = None, **kwargs: Any) -> Array | Group:
    """Open an array or group, whichever is there; create an array if ``shape`` is given, else a group.

    For modes see `open_array`; the default is "a". ``open(path="x.zarr")`` alone means ``open("x.zarr")``.
    Raises: NodeNotFoundError, ContainsArrayError, ContainsGroupError, MetadataError.
    """
    if store is None and path is not None:
        store, path = path, None
    store = with_options(store, kwargs)
    use_consolidated = kwargs.pop("use_consolidated", None)
    mode = _asked_mode(mode, kwargs)
    wants_array = kwargs.get("shape") is not None or kwargs.get("data") is not None
    if mode in ("w", "w-", "x"):
        return (
            open_array(store, mode, path=path, **kwargs)
            if wants_array
            else open_group(store, mode, path=path, **kwargs)
        )
    access, backend = _taken(kwargs.get("device"), kwargs)
    opened, where, mode = located(store, path, mode)
    opened = access.store(opened)
    zarr_format = _format(kwargs.get("zarr_format"))
    meta = read_node(opened, where, zarr_format)
    if meta is None and mode == "a":
        make = open_array if wants_array else open_group
        return make(opened, mode, path=where, **kwargs | {"device": backend})
    if meta is None:
        raise NodeNotFoundError(f"neither an array nor a group at {join_path(str(opened), where)!r}")
    if isinstance(meta, GroupMeta):
        if use_consolidated is not None or (mode == "r" and may_be_consolidated(meta)):
            opened, found = _with_consolidated(opened, where, zarr_format, mode, use_consolidated)
            meta = found if isinstance(found, GroupMeta) else meta
        return Group(opened, where, meta, backend, read_only=mode == "r")
    empty_too = kwargs.get("write_empty_chunks")
    return Array(opened, where, meta, backend, read_only=mode == "r", write_empty_chunks=empty_too)


def consolidate_metadata(
    store: Any,
    metadata_key: str = DEFAULT_KEY,
    *,
    path: str | None = None,
    zarr_format: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Array | Group:
    """Store the metadata of a group and of everything below it in one document, so that one read opens them all.

    From then on gzarr keeps it true: what creates, changes, moves or deletes a member updates it. Other programs do
    not; call this again after they have changed something. Many changes in a row are faster before than after this.

    store: a store, path, URL or mapping. path: path of the group in the store.
    metadata_key: (v2) where to store them. Only those under the default key are kept true.
    storage_options: what the server of a URL needs to be told.
    Returns: what `open_consolidated` returns. (An array is its own only document.)
    Raises: NodeNotFoundError, MetadataError, ReadOnlyError.
    """
    opened, base = opened_at(with_options(store, {"storage_options": storage_options}), "a")
    where = join_path(base, normalize_path(path or ""))
    if _format(zarr_format) == 3 and metadata_key != DEFAULT_KEY:
        raise MetadataError(f"metadata_key={metadata_key!r}: Zarr v3 keeps consolidated metadata in zarr.json")
    meta = read_node(opened.live(), where, _format(zarr_format))
    if meta is None or not consolidate(opened, where, metadata_key):
        raise NodeNotFoundError(f"neither an array nor a group at {join_path(str(opened), where)!r}")
    return open_consolidated(opened, metadata_key, path=where, zarr_format=meta.zarr_format)


def open_consolidated(
    store: Any,
    metadata_key: str = DEFAULT_KEY,
    mode: str | None = None,
    *,
    path: str | None = None,
    zarr_format: int | None = None,
    device: str | None = None,
    use_consolidated: bool = True,
    **kwargs: Any,
) -> Array | Group:
    """Open a group out of its consolidated metadata: one read, however many members it has.

    The metadata are read-only: nothing can be created, deleted, resized or given attributes. Data can be written,
    unless mode is "r".

    store: a store, path, URL or mapping. path: path of the group in the store. metadata_key: (v2) where they are.
    kwargs: see `group`.
    Raises: MetadataError if there are none, NodeNotFoundError, ValueError for other modes than "r", "r+" and "a".
    """
    if mode not in (None, "r", "r+", "a"):
        raise ValueError(f"open_consolidated opens what is there: mode must be 'r' or 'r+', got {mode!r}")
    if not use_consolidated:
        raise ValueError("use_consolidated must be True here; use open_group to do without consolidated metadata")
    store, path = with_options(path if store is None else store, kwargs), None if store is None else path
    access, backend = _group_access(device, kwargs)
    opened, where, mode = located(store, path, mode)
    opened = access.store(opened)
    opened, meta = open_consolidated_node(opened, where, _format(zarr_format), metadata_key, frozen=True)
    if meta is None:
        raise NodeNotFoundError(f"neither an array nor a group at {join_path(str(opened), where)!r}")
    require_consolidated(opened, meta, join_path(str(opened), where))
    if isinstance(meta, GroupMeta):
        return Group(opened, where, meta, backend, read_only=mode == "r")
    return Array(opened, where, meta, backend, read_only=mode == "r")


def tree(group_like: Any, level: int | None = None, *, expand: bool = False) -> Tree:
    """The hierarchy of a group, drawn with lines; of an h5py group too. ``expand`` is zarr 2's and changes nothing."""
    if isinstance(group_like, Group):
        return group_like.tree(level=level)
    label = getattr(group_like, "name", "/") or "/"
    return _tree_of(group_like, label if label == "/" else label.rpartition("/")[2], level)


# -- inside ------------------------------------------------------------------------------------------------------


def _asked_mode(mode: str | None, keywords: dict[str, Any]) -> str | None:
    """The mode, "r" for ``read_only=True``; the keywords must be of those that creation knows.

    Raises: TypeError for unknown keywords, also where an array exists and none of them would be used.
    """
    if keywords.pop("read_only", False):
        if mode not in (None, "r"):
            raise ValueError(f"read_only=True and mode={mode!r} contradict each other")
        mode = "r"
    elsewhere = ("data", "overwrite", "device", "write_data", *ACCESS, *DEVICE_OPTIONS)
    given = {name: value for name, value in keywords.items() if name not in elsewhere}
    if given:
        new_nodes.options_from(given)
    return mode


def _format(zarr_format: Any) -> Any:
    if zarr_format not in (None, 2, 3):
        raise MetadataError(f"zarr_format must be 2, 3 or None, got {zarr_format!r}")
    return zarr_format


def _without(options: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {k: v for k, v in options.items() if k != name}


def _taken(device: str | Backend | None, keywords: dict[str, Any]) -> tuple[Access, Backend]:
    """How a node is reached, and with what it is read; the keywords that say so are taken out of a call's."""
    access = take_access(keywords)
    return access, access.backend(take_backend(access.device(device), keywords))


def _group_access(device: str | Backend | None, keywords: dict[str, Any]) -> tuple[Access, Backend]:
    """`_taken` of a group. A few keywords of zarr that change nothing are taken too; others are an error."""
    taken = _taken(device, keywords)
    for name, value in keywords.items():
        if name != "cache_attrs":
            raise TypeError(f"unknown keyword {name!r}")
        if value not in (None, True, False):
            raise MetadataError(f"the keyword {name!r} is not supported by this version of gzarr; leave it out")
    return taken


def _with_consolidated(
    store: Store, path: str, zarr_format: Any, mode: str, use_consolidated: bool | str | None
) -> tuple[Store, NodeMeta | None]:
    """What is at a path, and a store that serves its consolidated metadata if they are there and asked for."""
    if use_consolidated is False or (use_consolidated is None and mode != "r"):
        return store, read_node(store, path, zarr_format)
    key = use_consolidated if isinstance(use_consolidated, str) else DEFAULT_KEY
    opened, meta = open_consolidated_node(store, path, zarr_format, key)
    if use_consolidated:
        require_consolidated(opened, meta, join_path(str(store), path))
    return opened, meta


def _tree_of(node: Any, label: str, level: int | None) -> Tree:
    if not hasattr(node, "keys"):
        return Tree(f"{label} {node.shape} {node.dtype}")
    below = None if level is None else level - 1
    children = [] if level == 0 else [_tree_of(node[name], name, below) for name in sorted(node.keys())]
    return Tree(label, children)
