"""References as kerchunk and VirtualiZarr write them in JSON: keys of Zarr, with places in other files.

A reference leads somewhere else, so a file from a stranger could make a program read what it should not. References may
name what lies beside them; other places have to be allowed (`gzarr.config`, ``virtual.containers``).

Source: kerchunk, "References specification", versions 0 and 1.
"""

from __future__ import annotations

import base64
import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import numpy as np

from gzarr.config import config
from gzarr.copying.sources import reading
from gzarr.errors import CopyError, MetadataError, StoreError
from gzarr.indexing.keys import Coords, KeyEncoding, join_path
from gzarr.metadata.documents import read_node
from gzarr.metadata.model import ArrayMeta
from gzarr.storage import open_store
from gzarr.storage.base import Request, Store, host_view
from gzarr.storage.memory import MemoryStore
from gzarr.storage.rules import DOCUMENTS, without_secrets
from gzarr.virtual.store import Chunks, Contents
from gzarr.virtual.table import INLINE, ChunkTable

_BASE64 = "base64:"
_TEMPLATE = re.compile(r"\{\{ *(\w+) *\}\}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def find_in_kerchunk(store: Store, key: str) -> Contents:
    """Find what references in JSON lead to. Raises: CopyError, StoreError, MetadataError."""
    text = store.get_one(Request(key))
    if text is None:
        raise StoreError(f"{store}: {key!r} is missing")
    with reading(f"{key!r} as references"):
        given = json.loads(bytes(host_view(text)))
        refs = given.get("refs", given)
    if given.get("gen"):
        raise CopyError(f"{key!r} has references that are still to be generated (gen); let kerchunk write them out")
    places = _Places(store, key, given.get("templates", {}))
    documents = {name: _document(value) for name, value in refs.items() if _is_document(name)}
    arrays: dict[str, Chunks] = {}
    encodings: dict[str, KeyEncoding] = {}
    described = dict(_described(documents))
    for path, keys in _by_array(refs, described).items():
        counts, encodings[path] = described[path]
        arrays[path] = _table(path, counts, encodings[path], keys, refs, places)
    return Contents(documents, arrays, places.objects, encodings)


def _is_document(key: str) -> bool:
    return key.rpartition("/")[2] in DOCUMENTS


def _document(value: Any) -> bytes:
    return _inline(value) if isinstance(value, str) else json.dumps(value).encode()


def _inline(text: str) -> bytes:
    return base64.b64decode(text[len(_BASE64) :]) if text.startswith(_BASE64) else text.encode()


def _described(documents: Mapping[str, bytes]) -> Iterator[tuple[str, tuple[Coords, KeyEncoding]]]:
    """For every array its path, the number of chunks along each axis, and how it names them."""
    store = MemoryStore(dict(documents), read_only=True)
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
    path: str, counts: Coords, encoding: KeyEncoding, keys: Sequence[str], refs: Mapping[str, Any], places: _Places
) -> ChunkTable:
    """Where the chunks of an array are."""
    table = ChunkTable.empty(counts)
    rows = _rows(path, counts, encoding, keys)
    inline: Any = table.inline
    numbers = places.numbers
    for row, key in zip(rows, keys, strict=True):
        value = refs[key]
        if isinstance(value, str):
            table.objects[row], inline[row] = INLINE, _inline(value)
            continue
        if not _is_place(value):
            raise MetadataError(
                f"array {path!r}: the reference {key!r} is neither a text nor [URL] or [URL, offset, length]: {value!r}"
            )
        url = value[0]
        number = numbers.get(url)
        table.objects[row] = places.add(url) if number is None else number
        if len(value) > 1:
            table.offsets[row], table.lengths[row] = value[1], value[2]
        else:
            table.lengths[row] = -1
    return table


def _is_place(value: Any) -> bool:
    """Whether a reference names an object, or a part of one."""
    if not isinstance(value, list) or len(value) not in (1, 3) or not isinstance(value[0], str):
        return False
    return all(type(number) is int and number >= 0 for number in value[1:])


def _rows(path: str, counts: Coords, encoding: KeyEncoding, keys: Sequence[str]) -> Sequence[int]:
    """The rows of a table that some keys mean. Raises: MetadataError for keys that the array does not have."""
    below = len(join_path(path, "_")) - 1
    coords = [encoding.decode(key[below:], len(counts)) for key in keys]
    for key, at in zip(keys, coords, strict=True):
        if at is None or any(c >= n for c, n in zip(at, counts, strict=True)):
            raise MetadataError(f"array {path!r}: the reference {key!r} is of no chunk of a grid of {counts}")
    if not counts or not keys:
        return [0] * len(keys)
    rows: list[int] = np.ravel_multi_index(tuple(np.array(coords, np.int64).T), counts).tolist()
    return rows


class _Places:
    """The objects that references lead to.

    Parameters
    ----------
    store, key
        The references, beside which relative places are.
    templates : mapping
        What stands for names in double braces.
    """

    def __init__(self, store: Store, key: str, templates: Mapping[str, str]) -> None:
        self._store, self._templates = store, templates
        self._folder = key.rpartition("/")[0]
        self._stores: dict[str, Store] = {}
        self.objects: list[tuple[Store, str]] = []
        self.numbers: dict[str, int] = {}

    def add(self, url: str) -> int:
        """The number of the object at a URL. Raises: StoreError if the place is not allowed."""
        number = self.numbers[url] = len(self.objects)
        self.objects.append(self._find(_TEMPLATE.sub(self._template, url)))
        return number

    def _template(self, match: re.Match[str]) -> str:
        try:
            return self._templates[match[1]]
        except KeyError as error:
            raise StoreError(f"{self._store}: a reference names the template {match[1]!r}, which is missing") from error

    def _find(self, url: str) -> tuple[Store, str]:
        scheme = _SCHEME.match(url)
        if scheme is None and not url.startswith("/"):
            key = posixpath.normpath(join_path(self._folder, url))
            if not key.startswith(".."):
                return self._store, key
        allowed = [str(place) for place in config.get("virtual.containers")]
        if not any(_is_within(url, place) for place in allowed):
            raise StoreError(
                f"{self._store}: a reference leads to {without_secrets(url)!r}, which is not beside it; if you trust"
                " it, allow the place: gzarr.config.set({'virtual.containers': ['s3://bucket/', '/data/']})"
            )
        above, _, name = url.rpartition("/")
        store = self._stores.get(above)
        if store is None:
            store = self._stores[above] = open_store(above or "/", mode="r")[0]
        return store, name


def _is_within(url: str, place: str) -> bool:
    """Whether a place contains a URL or path, which must not lead out of it again."""
    plain = posixpath.normpath(url.removeprefix("file://")) if not re.match(r"(?!file)\w+://", url) else url
    # Clients of HTTP decode dots, take a backslash for a slash, and drop tabs and ends of lines.
    parts = re.split(r"[/\\]", re.sub(r"[\t\r\n]", "", unquote(plain)))
    return ".." not in parts and plain.startswith(place.removeprefix("file://").rstrip("/") + "/")
