"""Consolidated metadata: the documents of a whole hierarchy in one, which every later change updates.

Zarr v2 keeps them in ``.zmetadata`` beside the group, v3 in the group's own ``zarr.json``. Here both are a mapping from
keys, relative to the group, to documents: ``"a/b/zarr.json"`` or ``"a/.zgroup"``.

Rules. Every function that changes a node calls `refresh` afterwards. It looks at every group above the node, and in
stores around the node's own (`Store.enclosing`), and puts into those that are consolidated what is *stored now*, under
the lock of that one document: the last of several changes leaves it true. What a program has read of consolidated
metadata is as old as what `state_of` said before reading.

Source: zarr 2.18 and zarr-python 3, whose ``.zmetadata`` (``zarr_consolidated_format`` 1) and ``consolidated_metadata``
(kind "inline") these are; neither is part of a specification.
"""

import warnings
from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any, TypeAlias

from gzarr.errors import MetadataError, StoreError
from gzarr.errors.escaping import escaped
from gzarr.indexing.keys import join_path
from gzarr.metadata.fields import dump_json, parse_json
from gzarr.storage.base import Buffer, Request, Store
from gzarr.storage.changing import change_object
from gzarr.storage.rules import DOCUMENTS

#: Where zarr 2 puts the documents unless it is told otherwise.
DEFAULT_KEY = ".zmetadata"
FIELD = "consolidated_metadata"
_CONSOLIDATED = "consolidated metadata"
#: Documents by their keys, relative to the consolidated group.
State: TypeAlias = tuple[object, int]
Documents: TypeAlias = dict[str, dict[str, Any]]

_V2_NAMES = (".zarray", ".zgroup", ".zattrs")
_NAMES = ("zarr.json", *_V2_NAMES)
# Every change of metadata by this process has a number of its own, so another number than before
# tells of a change, whatever the order in which threads note theirs. Stores without tokens have nothing else to tell.
_numbers = count(1)
_last_change = 0


def state_of(store: Store, key: str) -> State:
    """What compares equal as long as a document stays the same: its token, and the number of changes by this process.

    There is no token if asking for it takes as long as reading the document.
    """
    versions = store.versions
    return None if versions is None or versions.remote else versions.token(key), _last_change


def _count() -> None:
    """Count a change, once it is stored: what asks for the state later reads it."""
    global _last_change  # noqa: PLW0603 - one number for the process
    _last_change = next(_numbers)


# -- one consolidated document -----------------------------------------------------------------------------------------


def find_documents(document: Mapping[str, Any], what: str) -> Documents | None:
    """The documents in a group's ``zarr.json``; None if it is not consolidated. Raises: MetadataError."""
    block = document.get(FIELD)
    if block is None:
        return None
    if not isinstance(block, dict) or block.get("kind") != "inline" or not isinstance(block.get("metadata"), dict):
        raise MetadataError(
            f"{what}: field {FIELD!r} must be an object of kind 'inline' with 'metadata'; consolidate the group again,"
            " or open it with use_consolidated=False"
        )
    found: Documents = {"zarr.json": {name: value for name, value in document.items() if name != FIELD}}
    _flatten(block["metadata"], "", found, what)
    return found


def _flatten(members: Mapping[str, Any], path: str, found: Documents, what: str) -> None:
    """Collect entries; the entries of groups may contain their own members."""
    for name, entry in members.items():
        if not isinstance(entry, dict):
            raise MetadataError(f"{what}: field {FIELD!r}: the entry {name!r} must be an object, got {entry!r}")
        node = join_path(path, name)
        inner = entry.get(FIELD)
        own = entry if FIELD not in entry else {field: value for field, value in entry.items() if field != FIELD}
        found[f"{node}/zarr.json"] = own
        if isinstance(inner, dict) and isinstance(inner.get("metadata"), dict):
            _flatten(inner["metadata"], node, found, what)


def _with_block(group: Mapping[str, Any], documents: Documents) -> bytes:
    """A group's ``zarr.json`` with its members in it. Groups among them have an empty field, as zarr-python expects."""
    empty = {FIELD: {"kind": "inline", "must_understand": False, "metadata": {}}}
    members = {
        key.removesuffix("/zarr.json"): {**document, **(empty if document.get("node_type") == "group" else {})}
        for key, document in sorted(documents.items(), key=lambda item: (item[0].count("/"), item[0]))
        if key != "zarr.json"
    }
    return dump_json(
        {**group, FIELD: {"kind": "inline", "must_understand": False, "metadata": members}}, 2, _CONSOLIDATED
    )


def parse_zmetadata(data: Buffer, what: str) -> Documents:
    """The documents in a ``.zmetadata``. Raises: MetadataError."""
    document = parse_json(data, what)
    version = document.get("zarr_consolidated_format")
    if version != 1:
        raise MetadataError(f"{what}: field 'zarr_consolidated_format' must be 1, got {version!r}")
    found = document.get("metadata")
    if not isinstance(found, dict) or not all(isinstance(entry, dict) for entry in found.values()):
        raise MetadataError(f"{what}: field 'metadata' must be an object of objects; consolidate the group again")
    return found


def dump_zmetadata(documents: Documents) -> bytes:
    """A ``.zmetadata``."""
    return dump_json({"metadata": documents, "zarr_consolidated_format": 1}, 4, _CONSOLIDATED, sort_keys=True)


# -- the hierarchy -----------------------------------------------------------------------------------------------------


def collect(store: Store, path: str, *, deep: bool = True) -> Documents:
    """The documents stored at a path and, if it is a group, below it: one listing for every group, one fetch a level.

    Raises: MetadataError naming a document that is not JSON.
    """
    found: Documents = {}
    level = [""]
    while level:
        keys = [join_path(node, name) for node in level for name in _NAMES]
        values = store.get_many([Request(join_path(path, key)) for key in keys])
        for key, value in zip(keys, values, strict=True):
            if value is not None:
                found[key] = parse_json(value, f"{store}: {join_path(path, key)}")
        groups = [node for node in level if deep and is_group(found, node)]
        level = [join_path(node, name) for node in groups for name in list_paths(store, join_path(path, node))]
    for document in found.values():
        document.pop(FIELD, None)
    return found


def list_paths(store: Store, path: str) -> list[str]:
    """Names of the paths directly below a group, sorted, with a warning for links to nothing, as for lost members."""
    objects, paths = store.list_dir(path)
    for name in set(objects) - DOCUMENTS if store.files is not None else ():
        try:
            store.getsize(join_path(path, name))
        except StoreError as error:
            warnings.warn(f"{join_path(str(store), path)}: a member may be lost: {error}", stacklevel=2)
    return paths


def is_group(documents: Documents, node: str) -> bool:
    """Whether documents are those of a group at a node."""
    v3 = documents.get(join_path(node, "zarr.json"))
    if v3 is not None:
        return v3.get("node_type") == "group"
    return join_path(node, ".zgroup") in documents and join_path(node, ".zarray") not in documents


def consolidate(store: Store, path: str, key: str = DEFAULT_KEY) -> bool:
    """Gather the documents of the node at a path and of everything below it, and store them in one document.

    Returns: False if there is no node. A v3 array is its one document: nothing is stored for it.
    Raises: MetadataError, ReadOnlyError.
    """
    store = store.live() if not store.read_only else store
    store.check_metadata_writable()
    v3 = store.getsize(join_path(path, "zarr.json")) is not None
    target = join_path(path, "zarr.json" if v3 else key)
    found: Documents = {}

    def gather(stored: Buffer | None) -> Buffer | None:
        nonlocal found
        found = {k: v for k, v in collect(store, path).items() if k.endswith("zarr.json") == v3}
        if not is_node():
            return stored
        return _with_block(found["zarr.json"], found) if v3 else dump_zmetadata(found)

    def is_node() -> bool:
        return is_group(found, "") if v3 else any(name in found for name in _V2_NAMES[:2])

    # What changes during the first pass may not see that it will be consolidated; what changes during the second does,
    # and comes after it: it needs the lock too, or its condition is refused.
    for _ in range(2):
        before = _last_change
        change_object(store, target, gather)
        if not is_node():
            return bool(found) and v3
        unchanged = _last_change == before
        _count()
        if unchanged:
            break
    return True


def refresh(store: Store, path: str, zarr_format: int | None = None, *, subtree: bool = False) -> None:
    """Update all consolidated metadata above a node to what is stored for the node now, if anything.

    Costs one fetch of the documents of the groups above it where none is consolidated (for a root, none); else those
    that are, are written anew.

    zarr_format: the node's, if it is known.
    subtree: whether anything below the node may have changed too.
    Raises: MetadataError if consolidated metadata are malformed, ReadOnlyError, StoreError.
    """
    store = store.live()
    _count()
    while True:
        for key in _candidates(store, path, zarr_format):
            group = key.rpartition("/")[0]
            _refresh_document(store, key, path[len(group) + 1 :] if group else path, subtree=subtree)
        enclosing = store.enclosing()
        if enclosing is None or not _holds_group(enclosing[0]):
            return
        store, path = enclosing[0], join_path(enclosing[1], path)


def refresh_stored(store: Store, path: str, keys: Iterable[str]) -> None:
    """Update consolidated metadata after objects, documents among them, were stored as they are.

    Update those of every group that contains the objects, and those among the objects themselves, which may describe
    more or less than was stored.

    path: what all keys lie under. keys: of the objects.
    Raises: MetadataError if consolidated metadata are malformed, ReadOnlyError, StoreError.
    """
    store = store.live()
    nodes = {path}
    for key in keys:
        node, _, name = key.rpartition("/")
        while name in (*_NAMES, DEFAULT_KEY) and node not in nodes:
            nodes.add(node)
            node = node.rpartition("/")[0]
    for key in _consolidated(store, [join_path(node, name) for node in nodes for name in ("zarr.json", DEFAULT_KEY)]):
        _refresh_document(store, key, "", subtree=True)
        _count()
    refresh(store, path, subtree=True)


def _candidates(store: Store, path: str, zarr_format: int | None) -> list[str]:
    """Keys of the consolidated metadata in a store that contain a node."""
    parts = path.split("/") if path else []
    groups = ["/".join(parts[:depth]) for depth in range(len(parts) + 1)]
    keys: list[str] = []
    if zarr_format != 2:
        keys += [join_path(group, "zarr.json") for group in groups[:-1]]  # a zarr.json has no entry for itself
    if zarr_format != 3:
        keys += [join_path(group, DEFAULT_KEY) for group in groups]
    return _consolidated(store, keys)


def _consolidated(store: Store, keys: list[str]) -> list[str]:
    """Those keys that hold consolidated metadata."""
    found = store.get_many([Request(key) for key in keys]) if keys else []
    return [
        key
        for key, data in zip(keys, found, strict=True)
        if data is not None and (not key.endswith("zarr.json") or FIELD.encode() in bytes(data))
    ]


def _holds_group(store: Store) -> bool:
    """Whether there is a group around a node's own store; a folder that may not be read is none."""
    try:
        return any(store.getsize(name) is not None for name in ("zarr.json", ".zgroup"))
    except StoreError:
        return False


def _refresh_document(store: Store, key: str, node: str, *, subtree: bool) -> None:
    """Update one consolidated document to what is stored for a node below it."""
    changed = False

    def refreshed(data: Buffer | None) -> Buffer | None:
        nonlocal changed
        now = data if data is None else _refreshed(store, key, data, node, subtree=subtree)
        changed = now is not data
        return now

    change_object(store, key, refreshed)
    if changed:
        _count()


def _refreshed(store: Store, key: str, data: Buffer, node: str, *, subtree: bool) -> Buffer:
    """A consolidated document with what is stored for a node below it; the same bytes if that is in it."""
    what = f"{store}: {escaped(key)}"
    v3 = key.endswith("zarr.json")
    document = parse_json(data, what) if v3 else {}
    old = find_documents(document, what) if v3 else parse_zmetadata(data, what)
    if old is None:
        return data
    group = key.rpartition("/")[0]
    now = {join_path(node, name): value for name, value in collect(store, join_path(group, node), deep=subtree).items()}
    here = {join_path(node, name) for name in _NAMES}
    gone = subtree or not any(name in now for name in here)
    others = {
        name: value
        for name, value in old.items()
        if name not in here and not (gone and (not node or name.startswith(f"{node}/")))
    }
    documents = others | {name: value for name, value in now.items() if name.endswith("zarr.json") == v3}
    if documents == old:
        return data
    return _with_block(document, documents) if v3 else dump_zmetadata(documents)
