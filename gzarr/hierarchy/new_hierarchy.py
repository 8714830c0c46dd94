"""Creates many arrays and groups at once, from their metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gzarr.errors import ContainsArrayError, MetadataError
from gzarr.hierarchy.create import check_free, put_node
from gzarr.indexing.keys import join_path, normalize_path
from gzarr.metadata.documents import as_meta, documents, read_node
from gzarr.metadata.model import ArrayMeta, GroupMeta, NodeMeta
from gzarr.storage.base import Store


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
    above = {parent for name in asked for parent in _above(name)} - asked.keys()
    missing = {}
    for name in above:
        found = read_node(store, join_path(path, name))
        if isinstance(found, ArrayMeta):
            raise ContainsArrayError(
                f"an array is stored at {join_path(str(store), join_path(path, name))!r}: it cannot contain other nodes"
            )
        if found is None:
            missing[name] = GroupMeta({}, zarr_format)
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
        outer = next((one for one in _above(name) if isinstance(parsed.get(one), ArrayMeta)), None)
        if outer is not None:
            raise MetadataError(f"the node at {outer!r} is an array, so it cannot contain the node at {name!r}")
    return parsed


def _check_storable(path: str, meta: NodeMeta) -> None:
    """Raise MetadataError if metadata have no JSON: later, nodes before it might be deleted already."""
    try:
        documents(meta, path)
    except (TypeError, ValueError) as error:
        raise MetadataError(f"the metadata of {path!r} cannot be stored: {error}") from error


def _above(name: str) -> Iterator[str]:
    """Return the paths of the groups above a path, the root first."""
    parts = name.split("/") if name else []
    return ("/".join(parts[:depth]) for depth in range(len(parts)))
