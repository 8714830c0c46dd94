"""Finds where consolidated metadata differ from the documents that are stored."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from gzarr.checking.report import Problem
from gzarr.errors import GzarrError, MetadataError, StoreError
from gzarr.indexing.keys import join_path
from gzarr.metadata import v2, v3
from gzarr.metadata.consolidated import DEFAULT_KEY, FIELD, Documents, collect, find_documents, parse_zmetadata
from gzarr.metadata.fields import dump_json, parse_json
from gzarr.storage.base import Buffer, Request, Store
from gzarr.storage.rules import is_allowed


def check_consolidated(store: Store, path: str, documents: Mapping[str, Buffer]) -> tuple[list[Problem], list[str]]:
    """Where consolidated metadata differ from the documents, and what could not be checked."""
    problems, unchecked = list[Problem](), list[str]()
    try:
        for key, listed in _consolidated(path, documents):
            stored = _stored(store, path, listed)
            if stored is None:
                unchecked.append(f"consolidated metadata in {key!r}: a document below is malformed")
                continue
            for name in sorted(listed.keys() | stored.keys()):
                reason = _difference(name, listed.get(name), stored.get(name))
                if reason and name.endswith("zarr.json") == key.endswith("zarr.json"):
                    problems.append(Problem("consolidated", key, f"{name!r} {reason}", path))
    except MetadataError as error:
        key = join_path(path, "zarr.json" if "zarr.json" in documents else DEFAULT_KEY)
        problems.append(Problem("consolidated", key, str(error), path))
    return problems, unchecked


def consolidated_nodes(path: str, documents: Mapping[str, Buffer]) -> list[str]:
    """Paths of all nodes in the consolidated metadata at a node, without itself."""
    with suppress(MetadataError):
        keys = [key for _, listed in _consolidated(path, documents) for key in filter(is_allowed, listed)]
        return sorted({join_path(path, node) for node, _, name in (key.rpartition("/") for key in keys) if node})
    return []


def parse_document(document: dict[str, Any], attributes: Mapping[str, Any], name: str, what: str) -> Any:
    """A node from its document, or attributes, by the document's name. Raises: MetadataError."""
    match name:
        case "zarr.json":
            return v3.parse(document, what)
        case ".zarray":
            return v2.parse_array(document, attributes, what)
        case ".zgroup":
            return v2.parse_group(document, attributes, what)
    return document


def _consolidated(path: str, documents: Mapping[str, Buffer]) -> Iterator[tuple[str, Documents]]:
    """The consolidated metadata at a node: (key, documents). Raises: MetadataError."""
    data = documents.get("zarr.json", b"")
    if FIELD.encode() in bytes(data):
        key = join_path(path, "zarr.json")
        listed = find_documents(parse_json(data, key), key)
        if listed is not None:
            yield key, listed
    if DEFAULT_KEY in documents:
        key = join_path(path, DEFAULT_KEY)
        yield key, parse_zmetadata(documents[DEFAULT_KEY], key)


def _stored(store: Store, path: str, listed: Documents) -> Documents | None:
    """The documents at a node and below it, of a store that cannot list those that are listed; None if malformed."""
    try:
        try:
            return collect(store, path)
        except StoreError:
            values = store.get_many([Request(join_path(path, name)) for name in listed])
            pairs = zip(listed, values, strict=True)
            found = {name: parse_json(value, name) for name, value in pairs if value is not None}
            return {name: {k: v for k, v in value.items() if k != FIELD} for name, value in found.items()}
    except MetadataError:
        return None


def _difference(name: str, listed: dict[str, Any] | None, stored: dict[str, Any] | None) -> str:
    """How a document in consolidated metadata differs from the one that is stored; "" if it does not."""
    if name.rpartition("/")[2] == ".zattrs":  # none is as good as an empty one
        listed, stored = listed or {}, stored or {}
    if listed is None:
        return "is stored, but not in the consolidated metadata"
    if stored is None:
        return "is in the consolidated metadata, but not stored"
    same = listed == stored or _plain(name, listed) == _plain(name, stored)
    return "" if same else "differs from the document"


def _plain(name: str, document: dict[str, Any]) -> bytes:
    """A document in a form that is the same however it was written, without consolidated metadata of its own."""
    document = {field: value for field, value in document.items() if field != FIELD}
    if document:
        with suppress(GzarrError):
            meta = parse_document(document, {}, name.rpartition("/")[2], name)
            document = meta if isinstance(meta, dict) else (v3 if name.endswith("zarr.json") else v2).to_json(meta)
    return dump_json(document, 0, "a document", sort_keys=True)
