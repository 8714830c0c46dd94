"""Puts new arrays and groups into stores, one or many, with the groups above them that are missing."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from gzarr.errors import (
    OVERWRITE,
    RESUME,
    ContainsArrayError,
    ContainsGroupError,
    ContainsNodeError,
    GroupNotFoundError,
    MetadataError,
    NodeNotFoundError,
)
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.new_metadata import array_meta, checked_format
from gzarr.hierarchy.options import UNSET, ArrayOptions, OpenedWith
from gzarr.hierarchy.values import Separate, broadcast_value, check_names, is_lazy, stored_names
from gzarr.indexing.keys import join_path, normalize_path
from gzarr.indexing.selection import normalize_basic
from gzarr.metadata.consolidated import refresh
from gzarr.metadata.conventions import with_names
from gzarr.metadata.documents import NAMES, as_meta, delete_node, documents, expect_group, read_node
from gzarr.metadata.model import ArrayMeta, GroupMeta, NodeMeta, ZarrFormat
from gzarr.metadata.occupied import MARK, occupant, unfinished_copy, unfinished_run
from gzarr.storage.base import Store
from gzarr.storage.locks import while_locked

T = TypeVar("T")


def new_array(
    store: Store,
    path: str,
    options: ArrayOptions,
    opened_with: OpenedWith,
    *,
    data: Any = None,
    names: Sequence[str | None] = (),
    overwrite: bool = False,
) -> Array:
    """Create an array, filled with ``data`` if they are given, and the groups above it that are missing.

    names: of the axes, unless the options name them.
    Everything is checked before anything is written or deleted. Raises MetadataError, ContainsArrayError,
    ContainsGroupError, ReadOnlyError, and ValueError for data of another shape.
    """
    options = _for_store(options, store)
    meta = array_meta(options)
    is_said = meta.zarr_format == 3 or None not in names  # for v2, xarray's attribute has names only
    if is_said and len(names) == len(meta.shape) > 0 and not stored_names(meta):
        meta = with_names(meta, names)
        if meta.zarr_format == 2 and options.fill_value is UNSET:
            meta = replace(meta, fill_value=None)  # which xarray would take for missing data
    if any(spec.name == "numcodecs.pickle" for spec in meta.codecs) and not opened_with.allow_pickle:
        raise MetadataError(
            "object_codec: loading pickles can run any code, so gzarr stores and loads them only with"
            " allow_pickle=True; use numcodecs.JSON() or MsgPack()"
        )
    usage: dict[str, Any] = {
        "write_empty_chunks": options.write_empty_chunks,
        "read_missing_chunks": options.read_missing_chunks,
    }
    array = Array(store, path, meta, opened_with, **usage)
    array.require_codecs()
    if data is not None:
        whole = normalize_basic((), array.shape)
        check_names(data, whole, array)
        if is_lazy(data) and not (overwrite and any(store.list_dir(path))):
            data = Separate(data)  # nothing is there that it could read
        data = broadcast_value(data, array.dtype, whole, array)
    put_node(store, path, meta, overwrite=overwrite)
    if store.zarr_format is not None:  # the store may have put its own codecs into the document, as N5 does
        stored = read_node(store, path, store.zarr_format)
        if isinstance(stored, ArrayMeta):
            array = Array(store, path, stored, opened_with, **usage)
    if data is not None:
        array[...] = data
    return array


def _for_store(options: ArrayOptions, store: Store) -> ArrayOptions:
    """Return options with what the store says of new arrays, where they leave it open."""
    if options.zarr_format is None and store.zarr_format is not None:
        options = replace(options, zarr_format=store.zarr_format)
    named = options.dimension_separator is not None or options.chunk_key_encoding is not None
    if store.dimension_separator is not None and not named and checked_format(options.zarr_format) == 2:
        options = replace(options, dimension_separator=store.dimension_separator)
    return options


def new_group_meta(
    store: Store, path: str, attributes: Mapping[str, Any], zarr_format: Any, *, overwrite: bool = False
) -> GroupMeta:
    """Create a group, and the groups above it that are missing.

    Raises ContainsArrayError, ContainsGroupError, ReadOnlyError.
    """
    meta = GroupMeta(dict(attributes), checked_format(store.zarr_format if zarr_format is None else zarr_format))
    put_node(store, path, meta, overwrite=overwrite)
    return meta


def require_group_meta(store: Store, path: str, attributes: Mapping[str, Any], zarr_format: Any) -> GroupMeta:
    """Read the metadata of a group; create it if nothing is there. Several processes get the same group.

    Raises ContainsArrayError, ReadOnlyError.
    """
    wanted = None if zarr_format is None else checked_format(zarr_format)
    create = partial(new_group_meta, store, path, attributes, zarr_format)
    return expect_group(store, path, found_or_created(store, path, wanted, GroupNotFoundError, create))


def found_or_created(
    store: Store, path: str, zarr_format: Any, error: type[NodeNotFoundError], create: Callable[[], T]
) -> NodeMeta | T:
    """Return the metadata of what is at a path, or what is created if nothing is there. Several processes get the same.

    Raises ``error`` if data of another kind are in the way, and what ``create`` raises.
    """
    found = read_node(store, path, zarr_format)
    if found is None:
        check_vacant(store, path, error)
        try:
            return create()
        except ContainsNodeError:  # another process was faster, or something else is in the way
            found = read_node(store, path, zarr_format)
            if found is None:
                raise
    return found


def put_node(store: Store, path: str, meta: NodeMeta, *, overwrite: bool) -> None:
    """Store the documents of a new node. Of several that create it without ``overwrite``, one succeeds."""
    documents_of = documents(meta, path)  # before anything is deleted: they may have no JSON

    def put() -> None:
        make_room(store, path, overwrite=overwrite, zarr_format=meta.zarr_format)
        if overwrite:
            store.set_many(documents_of)
        elif not _put_first(store, documents_of):
            check_free(store, path)
            raise ContainsGroupError(f"something is stored at {join_path(str(store), path)!r} since a moment ago")

    # The name of the lock lies beside the node, not below it: overwriting may rename the directory of the node.
    while_locked(store.node_locked(f"{path}.creating"), put)
    refresh(store, path, meta.zarr_format)


def _put_first(store: Store, documents_of: Sequence[tuple[str, bytes]]) -> bool:
    """Store the documents of a node unless another process was faster. Returns: whether they were stored."""
    *others, (key, deciding) = documents_of
    if store.conditional is None:  # the place is locked: the node appears when it is complete
        store.set_many(others)
        return store.set_if_missing(key, deciding)
    stored = store.set_if_missing(key, deciding)
    if stored:
        store.set_many(others)
    return stored


def make_room(store: Store, path: str, *, overwrite: bool, zarr_format: ZarrFormat) -> None:
    """Make sure that a node can be created at a path: nothing is there, or it is deleted, and its parents exist.

    Raises ContainsArrayError, ContainsGroupError, ReadOnlyError.
    """
    store.check_metadata_writable()
    store = store.live()
    missing = _missing_groups(store, paths_above(path))
    if overwrite:
        clear(store, path)
    else:
        check_free(store, path)
    for parent in missing:
        if store.set_if_missing(*documents(GroupMeta({}, zarr_format), parent)[0]):
            refresh(store, parent, zarr_format)


def _missing_groups(store: Store, paths: Iterable[str]) -> list[str]:
    """Return those of some paths at which no group is. Raises ContainsArrayError if an array is."""
    found = {path: read_node(store, path) for path in paths}
    for path, node in found.items():
        if isinstance(node, ArrayMeta):
            where = f"A parent of the new node, {join_path(str(store), path)!r},"
            raise ContainsArrayError(f"{where} is an array - only groups may have child nodes.")
    return [path for path, node in found.items() if node is None]


def check_free(store: Store, path: str, remedy: str = OVERWRITE) -> None:
    """Raise ContainsArrayError, ContainsGroupError or ContainsNodeError if a node or its copy is stored at a path.

    remedy: what replaces it.
    """
    node = read_node(store, path)
    if node is not None:
        is_array = isinstance(node, ArrayMeta)
        error, kind = (ContainsArrayError, "an array") if is_array else (ContainsGroupError, "a group")
        where = join_path(str(store), path)
        run = unfinished_run(store, path)
        begun = "; " if run is None else f", with an unfinished {run}: call it again with {RESUME} to go on, or "
        raise error(f"{kind} is already stored at {where!r}{begun}pass {remedy} to replace it")
    unfinished = unfinished_copy(store, path, above=False)
    if unfinished is not None:
        raise ContainsNodeError(f"{unfinished}, or pass {remedy} to replace it")


def check_vacant(store: Store, path: str, error: type[NodeNotFoundError], *, nodes_below: bool = False) -> None:
    """Raise an error if something other than Zarr data is at a path where a node may be created that was not asked for.

    With ``nodes_below``, also if there are nodes below the path.
    """
    found = occupant(store, path, nodes_below=nodes_below)
    if found is not None:
        raise error(f"neither an array nor a group at {join_path(str(store), path)!r}, and none was created: {found}")


def clear(store: Store, path: str) -> None:
    """Delete everything at a path, which must be Zarr data: a folder of other files is never deleted.

    Raises ContainsGroupError unless there is Zarr metadata at the path, or nothing but Zarr nodes one level below.
    """
    objects, children = store.list_dir(path)
    if not objects and not children:
        return
    if not any(name in objects for name in (*NAMES, MARK)):
        foreign = objects + [
            child for child in children if not set(store.list_dir(join_path(path, child))[0]) & set(NAMES)
        ]
        if foreign:
            raise ContainsGroupError(
                f"{join_path(str(store), path)!r} holds {foreign[0]!r}, which is not Zarr data: "
                "it is not deleted; remove it yourself or choose another path"
            )
    delete_node(store, path)


def create_nodes(store: Store, path: str, nodes: Mapping[str, Any], *, overwrite: bool) -> dict[str, NodeMeta]:
    """Create nodes below a path, and the groups above them that are missing.

    ``nodes`` are metadata by path. Nothing is stored unless all of them can be. Returns what was created, by path,
    groups before their members. Raises MetadataError, ContainsArrayError, ContainsGroupError, ReadOnlyError.
    """
    store.check_metadata_writable()
    asked = _parsed(nodes)
    if not asked:
        return {}
    zarr_format = next(iter(asked.values())).zarr_format
    above = {join_path(path, parent): parent for name in asked for parent in paths_above(name) if parent not in asked}
    missing = {above[place]: GroupMeta({}, zarr_format) for place in _missing_groups(store, above)}
    if not overwrite:
        for name in asked:
            check_free(store, join_path(path, name))
    created = dict(sorted({**asked, **missing}.items()))
    for name, meta in created.items():
        _check_storable(join_path(path, name), meta)
    for name, meta in created.items():
        put_node(store, join_path(path, name), meta, overwrite=overwrite and name in asked)
    return created


def _parsed(nodes: Mapping[str, Any]) -> dict[str, NodeMeta]:
    """Return metadata by normalized path. Raises MetadataError for what cannot be a hierarchy."""
    parsed: dict[str, NodeMeta] = {}
    for given, value in nodes.items():
        name = normalize_path(given)
        if name in parsed:
            raise MetadataError(f"two of the paths mean the same: {given!r} is {name!r} after normalization")
        parsed[name] = as_meta(value)
    formats = {meta.zarr_format for meta in parsed.values()}
    if len(formats) > 1:
        raise MetadataError("all nodes of a hierarchy must have the same zarr_format, got 2 and 3")
    for name in parsed:
        outer = next((one for one in paths_above(name) if isinstance(parsed.get(one), ArrayMeta)), None)
        if outer is not None:
            what = f"the node at {outer!r} is an array, and {name!r} would be in it"
            raise MetadataError(f"{what}. Only Zarr groups can contain other nodes.")
    return parsed


def _check_storable(path: str, meta: NodeMeta) -> None:
    """Raise MetadataError if metadata have no JSON: later, nodes before it might be deleted already."""
    try:
        documents(meta, path)
    except (TypeError, ValueError) as error:
        raise MetadataError(f"the metadata of {path!r} cannot be stored: {error}") from error


def paths_above(name: str) -> Iterator[str]:
    """Return the paths of the groups above a path, the root first."""
    parts = name.split("/") if name else []
    return ("/".join(parts[:depth]) for depth in range(len(parts)))
