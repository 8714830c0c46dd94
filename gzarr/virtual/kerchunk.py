"""References as kerchunk and VirtualiZarr write them in JSON: keys of Zarr, with places in other files.

Source: kerchunk, "References specification", versions 0 and 1.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gzarr.copying.sources import reading
from gzarr.errors import CopyError, MetadataError, StoreError
from gzarr.indexing.keys import Coords, KeyEncoding, join_path
from gzarr.metadata.documents import read_node
from gzarr.metadata.model import ArrayMeta
from gzarr.storage.base import Request, Store, host_view
from gzarr.storage.memory import MemoryStore
from gzarr.storage.rules import DOCUMENTS
from gzarr.virtual.places import Containers
from gzarr.virtual.store import Chunks, Contents
from gzarr.virtual.table import INLINE, ChunkTable

_BASE64 = "base64:"


def find_in_kerchunk(store: Store, key: str, where: str, allowed: Sequence[str]) -> Contents:
    """Find what references in JSON lead to.

    where: path or URL of the folder that they are in. allowed: other places (`allowed_places`).
    Raises: CopyError, StoreError, MetadataError.
    """
    text = store.get_one(Request(key))
    if text is None:
        raise StoreError(f"{store}: {key!r} is missing")
    with reading(f"{key!r} as references"):
        given = json.loads(bytes(host_view(text)))
    refs, templates = given.get("refs", given), given.get("templates", {})
    for name, value in {"refs": refs, "templates": templates}.items():
        if not isinstance(value, dict):
            raise CopyError(
                f"{join_path(str(store), key)}: {name!r} is {value!r:.40}, not an object with keys; repair it"
            )
    if given.get("gen"):
        raise CopyError(f"{key!r} has references that are still to be generated (gen); let kerchunk write them out")
    beside = store, key.rpartition("/")[0], where
    return find_references(refs, Containers(join_path(str(store), key), beside, allowed, templates))


def find_references(refs: Mapping[str, Any], places: Containers) -> Contents:
    """Find what references by key lead to. Raises: StoreError, MetadataError."""
    with reading(places.name):
        documents = {name: _document(value) for name, value in refs.items() if _is_document(name)}
    arrays: dict[str, Chunks] = {}
    encodings: dict[str, KeyEncoding] = {}
    described = dict(described_arrays(documents, places.name))
    for path, keys in _by_array(refs, described).items():
        counts, encodings[path] = described[path]
        with reading(f"{places.name}: array {path!r}"):
            arrays[path] = _table(path, counts, encodings[path], keys, refs, places)
    return Contents(documents, arrays, places.objects, encodings)


def _is_document(key: str) -> bool:
    return key.rpartition("/")[2] in DOCUMENTS


def _document(value: Any) -> bytes:
    return _inline(value) if isinstance(value, str) else json.dumps(value).encode()


def _inline(text: str) -> bytes:
    return base64.b64decode(text[len(_BASE64) :]) if text.startswith(_BASE64) else text.encode()


class _Documents(MemoryStore):
    """Documents that errors call by the name of what they are from."""

    def __init__(self, documents: Mapping[str, bytes], name: str) -> None:
        super().__init__(dict(documents), read_only=True)
        self._name = name

    def __str__(self) -> str:
        return self._name


def described_arrays(documents: Mapping[str, bytes], name: str) -> Iterator[tuple[str, tuple[Coords, KeyEncoding]]]:
    """For every array its path, the number of chunks along each axis, and how it names them.

    name: what errors call the documents. Raises: MetadataError.
    """
    store = _Documents(documents, name)
    for key in documents:
        path, _, name = key.rpartition("/")
        if name in (".zarray", "zarr.json"):
            meta = read_node(store, path, 2 if name == ".zarray" else 3)
            if isinstance(meta, ArrayMeta):
                yield path, (tuple(axis.nchunks for axis in meta.grid), meta.keys)


def _by_array(refs: Mapping[str, Any], described: Mapping[str, Any]) -> dict[str, list[str]]:
    """The keys of chunks by the paths of their arrays."""
    found: dict[str, list[str]] = {path: [] for path in described}
    folders: dict[str, list[str]] = {}
    for key in refs:
        folder, _, name = key.rpartition("/")
        keys = folders.get(folder)
        if keys is None:
            above = folder
            while above and above not in described:
                above = above.rpartition("/")[0]
            keys = folders[folder] = found.get(above, [])
        if name not in DOCUMENTS:
            keys.append(key)
    return found


def _table(
    path: str, counts: Coords, encoding: KeyEncoding, keys: Sequence[str], refs: Mapping[str, Any], places: Containers
) -> ChunkTable:
    """Where the chunks of an array are."""
    table = ChunkTable.empty(counts)
    what = f"{places.name}: array {path!r}"
    rows = _rows(path, what, counts, encoding, keys)
    inline: Any = table.inline
    for row, key in zip(rows, keys, strict=True):
        value = refs[key]
        if isinstance(value, str):
            table.objects[row], inline[row] = INLINE, _inline(value)
            continue
        if not _is_place(value):
            raise MetadataError(
                f"{what}: the reference {key!r} is neither a text nor [URL] or [URL, offset, length]: {value!r}"
            )
        table.objects[row] = places.add(value[0])
        if len(value) > 1:
            table.offsets[row], table.lengths[row] = value[1], value[2]
        else:
            table.lengths[row] = -1
    return table


def _is_place(value: Any) -> bool:
    """Whether a reference names an object, or a part of one."""
    if not isinstance(value, list) or len(value) not in (1, 3) or not isinstance(value[0], str):
        return False
    return all(type(number) is int and 0 <= number < 1 << 63 for number in value[1:])


def _rows(path: str, what: str, counts: Coords, encoding: KeyEncoding, keys: Sequence[str]) -> Sequence[int]:
    """The rows of a table that some keys mean. Raises: MetadataError for keys that the array does not have."""
    below = len(join_path(path, "_")) - 1
    coords = [encoding.decode(key[below:], len(counts)) for key in keys]
    for key, at in zip(keys, coords, strict=True):
        if at is None or any(c >= n for c, n in zip(at, counts, strict=True)):
            raise MetadataError(f"{what}: the reference {key!r} is of no chunk of a grid of {counts}")
    if not counts or not keys:
        return [0] * len(keys)
    rows: list[int] = np.ravel_multi_index(tuple(np.array(coords, np.int64).T), counts).tolist()
    return rows
