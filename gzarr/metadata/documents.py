"""Finds, reads and writes the metadata documents of a node in a store, in either format."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Any

from gzarr.codecs.spec import CodecSpec
from gzarr.errors import ArrayNotFoundError, ContainsArrayError, GroupNotFoundError, NodeNotFoundError
from gzarr.errors.escaping import escaped
from gzarr.indexing.keys import join_path
from gzarr.metadata import v2, v3
from gzarr.metadata.consolidated import list_paths, refresh
from gzarr.metadata.fields import dump_json, parse_json
from gzarr.metadata.model import ArrayMeta, GroupMeta, NodeMeta, ZarrFormat
from gzarr.metadata.occupied import occupant
from gzarr.metadata.v2 import split_chain
from gzarr.storage.base import Buffer, Request, Store
from gzarr.storage.changing import change_object
from gzarr.storage.invalidation import invalidate
from gzarr.storage.rules import DOCUMENTS

#: Names of all documents that describe a node.
NAMES = tuple(sorted(DOCUMENTS, reverse=True))

#: Names of the documents one of which makes a node exist, by format.
_MAKING: dict[ZarrFormat, tuple[str, ...]] = {2: (".zarray", ".zgroup"), 3: ("zarr.json",)}

#: Members of a group whose documents are fetched in one request: across a network they arrive together.
_MEMBERS_AT_ONCE = 256


def read_node(store: Store, path: str, zarr_format: ZarrFormat | None = None) -> NodeMeta | None:
    """Read what is at a path: None if there is neither an array nor a group. v3 is looked for first.

    Raises: MetadataError naming the store, the key and the field.
    """
    if zarr_format != 2:
        key = join_path(path, "zarr.json")
        data = store.get_one(Request(key))
        if data is not None:
            return v3.parse_bytes(data, _what(store, key))
    if zarr_format == 3:
        return None
    keys = _v2_keys(path)
    return _parse_v2(f"{store}", keys, store.get_many([Request(key) for key in keys]))


def found_instead(store: Store, path: str, meta: NodeMeta | None) -> str:
    """What is at a path instead of the node that was looked for, in words; ``meta`` is what `read_node` found."""
    if meta is not None:
        return f"{kind_of(meta)} is there"
    other = read_node(store, path)
    if other is not None:
        return f"{kind_of(other)} of Zarr v{other.zarr_format} is there, not of v{5 - other.zarr_format}"
    return occupant(store, path) or "it does not exist"


def expect_array(store: Store, path: str, meta: NodeMeta | None) -> ArrayMeta:
    """What `read_node` found at a path, if it is an array. Raises: ArrayNotFoundError."""
    if isinstance(meta, ArrayMeta):
        return meta
    raise ArrayNotFoundError(f"no array at {join_path(str(store), path)!r}: {found_instead(store, path, meta)}")


def expect_group(store: Store, path: str, meta: NodeMeta | None) -> GroupMeta:
    """What `read_node` found at a path, if it is a group. Raises: ContainsArrayError, GroupNotFoundError."""
    if isinstance(meta, GroupMeta):
        return meta
    where = join_path(str(store), path)
    if meta is not None:
        raise ContainsArrayError(f"an array, not a group, is stored at {where!r}")
    raise GroupNotFoundError(f"no group at {where!r}: {found_instead(store, path, meta)}")


def expect_node(store: Store, path: str, meta: NodeMeta | None) -> NodeMeta:
    """What `read_node` found at a path, if it is anything. Raises: NodeNotFoundError."""
    if meta is not None:
        return meta
    where, found = join_path(str(store), path), found_instead(store, path, meta)
    raise NodeNotFoundError(f"neither an array nor a group at {where!r}: {found}")


def kind_of(meta: NodeMeta | None) -> str:
    """What metadata are of, in words."""
    return "an array" if isinstance(meta, ArrayMeta) else "a group"


def node_exists(store: Store, path: str, zarr_format: ZarrFormat) -> bool:
    """Whether there is an array or group at a path: whether it has its document, readable or not."""
    return any(store.contains_many([join_path(path, name) for name in _MAKING[zarr_format]]))


def _v2_keys(path: str) -> tuple[str, str, str]:
    prefix = f"{path}/" if path else ""
    return f"{prefix}.zarray", f"{prefix}.zgroup", f"{prefix}.zattrs"


def _parse_v2(store: str, keys: Sequence[str], found: Sequence[Buffer | None]) -> NodeMeta | None:
    """A node from what is stored for its `_v2_keys`. store: as errors call it."""
    array, group, attrs = found
    if array is None and group is None:
        return None
    attributes = {} if attrs is None else parse_json(attrs, f"{store}: {escaped(keys[2])}")
    if array is not None:
        return v2.parse_array_bytes(array, f"{store}: {escaped(keys[0])}", attributes)
    what = f"{store}: {escaped(keys[1])}"
    return v2.parse_group(parse_json(group or b"", what), attributes, what)


def documents(meta: NodeMeta, path: str) -> list[tuple[str, bytes]]:
    """The documents of a node as (key, bytes); the document that makes the node exist comes last. Bytes are stable.

    Raises: TypeError for attributes that JSON does not have.
    """
    if meta.zarr_format == 3:
        key = join_path(path, "zarr.json")
        return [(key, dump_json(v3.to_json(meta), 2, key))]
    made = {".zattrs": meta.attributes} if meta.attributes else {}
    made[".zarray" if isinstance(meta, ArrayMeta) else ".zgroup"] = v2.to_json(meta)
    keys = {join_path(path, name): document for name, document in made.items()}
    return [(key, dump_json(document, 4, key, sort_keys=True)) for key, document in keys.items()]


def to_dict(meta: NodeMeta) -> dict[str, Any]:
    """The document of a node; in v2 with its attributes, as zarr-python's metadata objects have it."""
    if meta.zarr_format == 3:
        return v3.to_json(meta)
    return {**v2.to_json(meta), "attributes": dict(meta.attributes)}


for _class in (ArrayMeta, GroupMeta):
    _class.to_dict = to_dict  # type: ignore[method-assign, assignment]  # zarr-python's name for it


def as_meta(value: Any) -> NodeMeta:
    """The metadata in a document of `to_dict`, or in an object that has a ``to_dict()``, as zarr-python's have.

    Raises: MetadataError, TypeError.
    """
    if isinstance(value, NodeMeta):
        return value
    if not isinstance(value, Mapping):
        if not hasattr(value, "to_dict"):
            raise TypeError(f"expected metadata: those of a node, or a mapping; got {value!r}")
        value = value.to_dict()
    document, what = {name: _with_lists(item) for name, item in value.items()}, "metadata"
    if document.get("zarr_format") != 2:
        return v3.parse(document, what)
    attributes = document.pop("attributes", None) or {}
    if "shape" in document:
        return v2.parse_array(document, attributes, what)
    return v2.parse_group({"zarr_format": 2}, attributes, what)


def _with_lists(value: Any) -> Any:
    """A value of a document with lists for tuples, as JSON has them."""
    if isinstance(value, Mapping):
        return {name: _with_lists(item) for name, item in value.items()}
    return [_with_lists(item) for item in value] if isinstance(value, list | tuple) else value


def write_node(store: Store, path: str, meta: NodeMeta) -> None:
    """Write a node's documents, all of them made before the first is written. Raises: TypeError, ReadOnlyError."""
    store.check_metadata_writable()
    store.set_many(documents(meta, path))
    refresh(store, path, meta.zarr_format)


def write_shape(store: Store, path: str, meta: ArrayMeta, before: ArrayMeta) -> bool:
    """Write an array's new shape and chunk grid; everything else in its document stays unchanged.

    Returns: False, and changes nothing, if the stored shape is no longer that of `before`.
    """
    key = shape_key(meta, path)
    fields = v3.to_json(meta) if meta.zarr_format == 3 else {"shape": list(meta.shape)}

    def changed(document: dict[str, Any]) -> dict[str, Any]:
        if document.get("shape") != list(before.shape):
            raise ShapeChangedError
        return {**document, **{name: fields[name] for name in ("shape", "chunk_grid") if name in fields}}

    try:
        change_document(store, key, changed)
    except ShapeChangedError:
        return False
    refresh(store, path, meta.zarr_format)
    return True


def check_shape(store: Store, path: str, before: ArrayMeta) -> None:
    """Raise `ShapeChangedError` if the stored array no longer has the shape of `before`."""
    meta = read_node(store.live(), path, before.zarr_format)
    if not isinstance(meta, ArrayMeta) or meta.shape != before.shape:
        raise ShapeChangedError


class ShapeChangedError(Exception):
    """An array has another shape meanwhile."""


def change_document(store: Store, key: str, change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
    """Replace a stored document by a changed one, so that no change by another thread or process is lost.

    Consolidated metadata above it are not updated.

    Parameters
    ----------
    store : Store
        The store.
    key : str
        Key of the document: a ``zarr.json`` or a document of v2.
    change : callable
        Gives the new document from the stored one; may be called several times. Nothing is stored if it raises.

    Raises
    ------
    NodeNotFoundError
        If the document is gone.
    ReadOnlyError
        If metadata cannot be changed.
    StoreError
        If others replaced the document too often meanwhile.
    """
    store.check_metadata_writable()
    what = _what(store, key)

    def changed(stored: Buffer | None) -> bytes:
        if stored is None:
            raise NodeNotFoundError(f"{what} is gone: it was deleted")
        return _dumped(key, change(parse_json(stored, what)), what)

    change_object(store, key, changed)


def _dumped(key: str, document: Mapping[str, Any], what: str) -> bytes:
    v3 = key.endswith("zarr.json")
    return dump_json(document, 2 if v3 else 4, what, sort_keys=not v3)


def change_attributes(
    store: Store, path: str, zarr_format: ZarrFormat, change: Callable[[dict[str, Any]], Mapping[str, Any]]
) -> None:
    """Replace a node's attributes by changed ones, so that no change by another thread or process is lost.

    Parameters
    ----------
    store, path, zarr_format
        The node.
    change : callable
        Gives the new attributes from the stored ones; may be called several times.

    Raises
    ------
    TypeError
        If JSON does not have an attribute.
    NodeNotFoundError, ReadOnlyError, StoreError
        As for `change_document`.
    """
    store.check_metadata_writable()
    change_attributes_at(store, join_path(path, "zarr.json" if zarr_format == 3 else ".zattrs"), change)
    refresh(store, path, zarr_format)


def change_attributes_at(store: Store, key: str, change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
    """Replace the attributes in one document: all of it, or a member of a ``zarr.json``. See `change_attributes`."""
    if key.endswith("zarr.json"):
        change_document(
            store, key, lambda document: {**document, "attributes": dict(change(document.get("attributes", {})))}
        )
        return

    def changed(stored: Buffer | None) -> bytes | None:
        what = _what(store, key)
        attributes = change({} if stored is None else parse_json(stored, what))
        return _dumped(key, attributes, what) if attributes else None

    change_object(store, key, changed)


def read_attributes_at(store: Store, key: str) -> dict[str, Any]:
    """Read the attributes of one document: all of it, or a member of a ``zarr.json``; none if there is no document."""
    stored = store.get_one(Request(key))
    document = {} if stored is None else parse_json(stored, _what(store, key))
    return document.get("attributes", {}) if key.endswith("zarr.json") else document


def delete_node(store: Store, path: str) -> None:
    """Delete everything at a path. Consolidated metadata list what is left, even if this fails midway."""
    store.check_metadata_writable()
    try:
        store.delete_prefix(path)
    finally:
        invalidate()
        refresh(store, path, subtree=True)


def move_node(store: Store, source: str, dest: str) -> None:
    """Rename everything at a path, in consolidated metadata too."""
    store.check_metadata_writable()
    try:
        store.move_prefix(source, dest)
    finally:
        invalidate()
        refresh(store, source, subtree=True)
        refresh(store, dest, subtree=True)


def shape_key(meta: ArrayMeta, path: str) -> str:
    """Key of the document that holds an array's shape, chunks, data type and codecs."""
    return join_path(path, "zarr.json" if meta.zarr_format == 3 else ".zarray")


def document_key(meta: NodeMeta, path: str) -> str:
    """Key of the document that holds a node's attributes: what read-modify-write of them locks."""
    return join_path(path, "zarr.json" if meta.zarr_format == 3 else ".zattrs")


def codecs_in_errors(meta: ArrayMeta, store: Store, path: str) -> str:
    """The place of an array's codecs, as errors name it: store, key, field."""
    field = "codecs" if meta.zarr_format == 3 else "filters or compressor"
    return f"{_what(store, shape_key(meta, path))}: {field}"


def member_names(store: Store, path: str, zarr_format: ZarrFormat) -> Iterator[str]:
    """Names of the nodes directly under a group, sorted, including nodes whose documents cannot be read."""
    making, prefix = _MAKING[zarr_format], f"{path}/" if path else ""
    for names in _names_below(store, path):
        found = iter(store.contains_many([f"{prefix}{name}/{document}" for name in names for document in making]))
        yield from compress(names, map(any, zip(*[found] * len(making), strict=True)))


def members(store: Store, path: str, zarr_format: ZarrFormat) -> Iterator[tuple[str, NodeMeta]]:
    """The nodes directly under a group, sorted by name: (name, metadata). Raises: MetadataError."""
    for names in _names_below(store, path):
        yield from read_members(store, path, names, zarr_format)


def descendants(
    store: Store, path: str, zarr_format: ZarrFormat, max_depth: int | None = None
) -> Iterator[tuple[str, NodeMeta]]:
    """Everything in a group, groups before their members: (path from the group, metadata). Raises: MetadataError.

    max_depth: how many levels to go down; 0 lists the group's own members, None lists all.
    """
    levels = [("", members(store, path, zarr_format))]
    while levels:  # not by recursion: an archive may be deeper than Python allows
        prefix, listed = levels[-1]
        for name, meta in listed:
            inner = prefix + name
            yield inner, meta
            if isinstance(meta, GroupMeta) and (max_depth is None or inner.count("/") < max_depth):
                levels.append((f"{inner}/", members(store, join_path(path, inner), zarr_format)))
                break
        else:
            levels.pop()


def _names_below(store: Store, path: str) -> Iterator[Sequence[str]]:
    names = list_paths(store, path)
    return (names[start : start + _MEMBERS_AT_ONCE] for start in range(0, len(names), _MEMBERS_AT_ONCE))


def read_members(
    store: Store, path: str, names: Sequence[str], zarr_format: ZarrFormat
) -> Iterator[tuple[str, NodeMeta]]:
    """The nodes with some names or paths below a group, their documents fetched together. Raises: MetadataError."""
    paths, shown = [join_path(path, name) for name in names], f"{store}"
    if zarr_format == 3:
        keys = [join_path(node, "zarr.json") for node in paths]
        for name, key, data in zip(names, keys, store.get_many([Request(key) for key in keys]), strict=True):
            if data is not None:
                yield name, v3.parse_bytes(data, f"{shown}: {escaped(key)}")
        return
    nodes = [_v2_keys(node) for node in paths]
    found = store.get_many([Request(key) for keys in nodes for key in keys])
    for name, node, first in zip(names, nodes, range(0, len(found), 3), strict=True):
        meta = _parse_v2(shown, node, found[first : first + 3])
        if meta is not None:
            yield name, meta


def _what(store: Store, key: str) -> str:
    return f"{store}: {escaped(key)}"


def split_codecs(meta: ArrayMeta) -> tuple[tuple[CodecSpec, ...], CodecSpec | None, tuple[CodecSpec, ...]]:
    """(filters, serializer, compressors) of the chunks: of those within a shard, if the array is sharded."""
    if meta.zarr_format == 2:
        filters, compressor = split_chain(meta.codecs)
        return filters, None, () if compressor is None else (compressor,)
    specs = meta.codecs if meta.sharding is None else meta.sharding.codecs
    at = next((i for i, s in enumerate(specs) if s.kind in ("array_bytes", "any")), len(specs) - 1)
    return specs[:at], specs[at], specs[at + 1 :]
