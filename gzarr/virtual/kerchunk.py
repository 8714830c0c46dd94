"""References as kerchunk and VirtualiZarr write them in JSON: keys of Zarr, with places in other files.

Source: kerchunk, "References specification", versions 0 and 1.
"""

import base64
import io
import json
import re
from codecs import getincrementaldecoder
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.copying.sources import reading
from gzarr.errors import CopyError, MetadataError, MissingExtraError, ReplacedError, StoreError
from gzarr.errors.escaping import escaped
from gzarr.indexing.keys import Coords, KeyEncoding, join_path
from gzarr.metadata import v2, v3
from gzarr.metadata.model import ArrayMeta
from gzarr.storage.base import Request, Store, host_view, token_of
from gzarr.storage.extras import have, require
from gzarr.storage.rules import DOCUMENTS
from gzarr.virtual.places import Containers
from gzarr.virtual.store import Contents, LazyTables
from gzarr.virtual.table import INLINE, MISSING, ChunkTable

_BASE64 = "base64:"
_Described: TypeAlias = Mapping[str, tuple[Coords, KeyEncoding]]
#: Where references begin that stand beside other members.
_REFS = re.compile(r'"refs"\s*:\s*\{')
#: Bytes that are read at once; in how many places a text is cut before more of it is read.
_BLOCK_NBYTES, _N_TRIES = 1 << 20, 3


def find_in_kerchunk(store: Store, key: str, where: str, allowed: Sequence[str]) -> Contents:
    """Find what references in JSON lead to.

    where: path or URL of the folder that they are in. allowed: other places (`allowed_places`).
    Raises: CopyError, StoreError, MetadataError.
    """
    found, name, token = _KeyColumns(join_path(str(store), key)), join_path(str(store), key), token_of(store, key)
    with reading(f"{key!r} as references"):
        given = _read(_blocks(store, key), found)
    if token != token_of(store, key):
        raise ReplacedError(f"{name} was replaced while it was read; open it again")
    for what, value in given.items():
        if what in ("refs", "templates") and not isinstance(value, dict):
            raise CopyError(f"{name}: {what!r} is {value!r:.40}, not an object with keys; repair it")
    if given.get("gen"):
        raise CopyError(f"{key!r} has references that are still to be generated (gen); let kerchunk write them out")
    beside = store, key.rpartition("/")[0], where
    return found.contents(Containers(name, beside, allowed, given.get("templates")))


def find_references(refs: Mapping[str, Any], places: Containers) -> Contents:
    """Find what references by key lead to. Raises: StoreError, MetadataError."""
    found = _KeyColumns(places.name)
    found.add(refs)
    return found.contents(places)


def _blocks(store: Store, key: str) -> Iterator[str]:
    """The text of an object, block by block. Raises: StoreError."""
    nbytes = store.getsize(key)
    if nbytes is None:
        raise StoreError(f"{store}: {key!r} is missing")
    decode, size = getincrementaldecoder("utf-8-sig")().decode, _BLOCK_NBYTES * (8 if store.concurrency > 1 else 1)
    for at in range(0, nbytes, size):
        yield decode(host_view(store.get_one(Request(key, at, min(size, nbytes - at))) or b""))


def _read(blocks: Iterator[str], found: "_KeyColumns") -> dict[str, Any]:
    """Read references in JSON, some at a time, so that they are never in memory all at once.

    A text that ends where a member of an object ends is an object, once that is closed; cut elsewhere, it is none.
    Returns: what stands beside the references.
    """
    text = next(blocks, "")
    begin = next((match for match in _REFS.finditer(text) if _is_object(text[: match.start()])), None)
    if begin is None:  # version 0
        given = json.loads(text + "".join(blocks))
        found.add(given.get("refs", given) if isinstance(given.get("refs", given), dict) else {})
        return {} if "refs" not in given else given
    around, text = json.loads(text[: begin.start()].rstrip(" \t\r\n,") + "}"), "{" + text[begin.end() :]
    for block in blocks:
        text += block
        end = len(text)
        for _ in range(_N_TRIES):
            end = text.rfind("],", 1, end)
            if end < 0:
                break
            with suppress(json.JSONDecodeError):
                found.add(json.loads(text[: end + 1] + "}"))
                text = "{" + text[end + 2 :]
                break
    refs, end = json.JSONDecoder().raw_decode(text)
    found.add(refs)
    given = json.loads("{" + text[end:].lstrip().removeprefix(","))
    return {**around, **given}


def _is_object(text: str) -> bool:
    """Whether some members of an object end with a text."""
    try:
        json.loads(text.rstrip(" \t\r\n,") + "}")
    except json.JSONDecodeError:
        return False
    return True


def _document(value: Any) -> bytes:
    return _inline(value) if isinstance(value, str) else json.dumps(value).encode()


def _inline(text: str) -> bytes:
    return base64.b64decode(text[len(_BASE64) :]) if text.startswith(_BASE64) else text.encode()


class _KeyColumns:
    """References, as columns: those of a million chunks take 60 MB.

    Parameters
    ----------
    name : str
        What errors call them.
    """

    def __init__(self, name: str) -> None:
        self._name, self._documents, self._inline = name, dict[str, bytes](), dict[str, bytes]()
        self._urls: dict[str, int] = {}
        #: Keys, in one text, and for each the number of its URL, offset and length.
        self._parts: list[tuple[str, NDArray[np.int32], NDArray[np.int64]]] = []

    def add(self, refs: Mapping[str, Any]) -> None:
        """Add references by key. Raises: MetadataError."""
        is_plain = {*map(type, refs.values())} == {list}
        places = refs if is_plain else {key: value for key, value in refs.items() if type(value) is list}
        if len(places) < len(refs):
            with reading(self._name):
                for key, value in refs.items():
                    if key.rpartition("/")[2] in DOCUMENTS:
                        self._documents[key] = _document(value)
                    elif key not in places:
                        self._inline[key] = _inline(value) if isinstance(value, str) else self._refuse(key, value)
        if places:
            objects, ends = self._columns(places)
            self._parts.append(("\0".join(places), objects, ends))

    def _refuse(self, key: str, value: Any) -> Any:
        raise MetadataError(
            f"{self._name}: the reference {key!r} is neither a text nor [URL] or [URL, offset, length]: {value!r}"
        )

    def _columns(self, places: Mapping[str, Any]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The numbers of URLs, and offsets and lengths (n, 2)."""
        wholes = [key for key, value in places.items() if len(value) == 1] if 1 in map(len, places.values()) else []
        places = {**places, **{key: [places[key][0], 0, 0] for key in wholes}} if wholes else places
        try:
            urls, offsets, lengths = zip(*places.values(), strict=True)
            ends = np.stack([np.fromiter(numbers, np.int64, len(urls)) for numbers in (offsets, lengths)], 1)
            is_known = {*map(type, urls)} == {str} and {*map(type, offsets), *map(type, lengths)} == {int}
        except (ValueError, TypeError, OverflowError):
            is_known = False
        if not is_known or ends.min() < 0:
            self._refuse(*next((key, value) for key, value in places.items() if not _is_place(value)))
        if wholes:
            ends[np.isin([*places], wholes), 1] = -1
        for url in dict.fromkeys(urls):
            self._urls.setdefault(url, len(self._urls))
        return np.fromiter(map(self._urls.__getitem__, urls), np.int32, len(urls)), ends

    def contents(self, places: Containers) -> Contents:
        """What the references lead to. Raises: StoreError, MetadataError."""
        described = dict(described_arrays(self._documents, self._name))
        tables = {path: ChunkTable.empty(counts) for path, (counts, _) in described.items()}
        with reading(self._name):
            numbers = np.array([places.add(url) for url in self._urls], np.int32)
            while self._parts:
                text, objects, ends = self._parts.pop()
                for path, rows, chosen in self._places(text, described):
                    tables[path].objects[rows], tables[path].places[rows] = numbers[objects[chosen]], ends[chosen]
            chunks = list(self._inline.values())
            for path, rows, chosen in self._places("\0".join(self._inline), described) if chunks else ():
                tables[path].objects[rows] = INLINE
                tables[path].inline.update({int(row): chunks[at] for row, at in zip(rows, chosen, strict=True)})
        return Contents(self._documents, tables, places.objects, {path: one for path, (_, one) in described.items()})

    def _places(self, text: str, described: _Described) -> Iterator[tuple[str, Any, Any]]:
        """For each array with some of the keys its path, the rows that they mean, and which of the keys.

        Raises: MetadataError for keys that the array does not have.
        """
        first = _array_of(text.partition("\0")[0], described)
        rows = None if first is None else _rows(text, first, *described[first])
        if rows is not None:
            yield first or "", rows, np.arange(len(rows))
            return
        found: dict[str, list[tuple[int, int]]] = {}
        for number, key in enumerate(text.split("\0")):
            path = _array_of(key, described)
            if path is None:
                continue
            counts, encoding = described[path]
            at = encoding.decode(key[len(join_path(path, "_")) - 1 :], len(counts))
            if at is None or any(c >= n for c, n in zip(at, counts, strict=True)):
                raise MetadataError(
                    f"{self._name}: array {path!r}: the reference {key!r} is of no chunk of a grid of {counts}"
                )
            found.setdefault(path, []).append((int(np.ravel_multi_index(at, counts)) if counts else 0, number))
        for path, pairs in found.items():
            yield path, *np.array(pairs).T


def _array_of(key: str, described: _Described) -> str | None:
    """The array that a chunk belongs to, by its key."""
    above = key
    while above:
        above = above.rpartition("/")[0]
        if above in described:
            return above
    return None


def _rows(text: str, path: str, counts: Coords, encoding: KeyEncoding) -> NDArray[np.int64] | None:
    """The rows that the keys in a text mean; None if some are not of the array, or of none of its chunks."""
    begin, ndim = f"\0{join_path(path, '_')[:-1]}{encoding.prefix}", len(counts)
    inner = f"\0{text}".replace(begin, "\0")
    n = inner.count("\0")
    digits = inner.replace("\0", "").replace(encoding.separator, "")
    if not ndim or len(inner) + n * (len(begin) - 1) != len(text) + 1 or not (digits.isascii() and digits.isdigit()):
        return None
    raw = np.frombuffer(inner.encode(), np.uint8)
    ends = np.flatnonzero((raw == 0) | (raw == ord(encoding.separator)))
    coords = np.fromstring(inner[1:].replace("\0", encoding.separator), np.int64, sep=encoding.separator)
    if len(ends) != n * ndim or raw[ends[::ndim]].any() or len(coords) != n * ndim:
        return None
    is_plain = len(digits) == len(coords) + sum(np.count_nonzero(coords >= 10**power) for power in range(1, 19))
    coords = coords.reshape(n, ndim)
    if not is_plain or (coords >= counts).any():  # some begin with zeros
        return None
    return coords @ np.array([prod(counts[axis + 1 :]) for axis in range(ndim)], np.int64)


def _is_place(value: Any) -> bool:
    """Whether a reference names an object, or a part of one."""
    if len(value) not in (1, 3) or not isinstance(value[0], str):
        return False
    return all(type(number) is int and 0 <= number < 1 << 63 for number in value[1:])


def described_arrays(documents: Mapping[str, bytes], name: str) -> Iterator[tuple[str, tuple[Coords, KeyEncoding]]]:
    """For every array its path, the number of chunks along each axis, and how it names them.

    name: what errors call the documents. Raises: MetadataError.
    """
    parsers = {".zarray": v2.parse_array_bytes, "zarr.json": v3.parse_bytes}
    for key, document in documents.items():
        path, _, last = key.rpartition("/")
        meta = parsers[last](document, f"{name}: {escaped(key)}") if last in parsers else None
        if isinstance(meta, ArrayMeta):
            yield path, (tuple(axis.nchunks for axis in meta.grid), meta.keys)


# -- Parquet -----------------------------------------------------------------------------------------------------------

METADATA, RECORD_SIZE = ".zmetadata", "record_size"
#: How the names of such folders end.
PARQUET = ".parquet", ".parq"


def find_in_parquet(store: Store, key: str, where: str, allowed: Sequence[str]) -> Contents:
    """Find what references in a folder of Parquet files lead to.

    key: of the folder. where: path or URL of the folder around it. allowed: other places (`allowed_places`).
    Raises: CopyError, StoreError, MetadataError.
    """
    text = store.get_one(Request(join_path(key, METADATA)))
    if text is None:
        raise StoreError(
            f"{store}: {key!r} has no {METADATA}, so that it holds no references; if it is Zarr, rename it"
        )
    with reading(f"{key!r} as references"):
        given = json.loads(bytes(host_view(text)))
        documents = {name: json.dumps(value).encode() for name, value in given["metadata"].items()}
        record_size = int(given[RECORD_SIZE])
    name = join_path(str(store), key)
    described = dict(described_arrays(documents, name))
    places = Containers(name, (store, key.rpartition("/")[0], where), allowed)
    rest, keys = (record_size, places), {path: encoding for path, (_, encoding) in described.items()}
    makers = {path: partial(_table, store, join_path(key, path), one[0], *rest) for path, one in described.items()}
    return Contents(documents, LazyTables(makers), places.objects, keys)


def _table(store: Store, folder: str, counts: Coords, record_size: int, places: Containers) -> ChunkTable:
    """Where the chunks of an array are."""
    table, n = ChunkTable.empty(counts), prod(counts)
    for number, start in enumerate(range(0, n, record_size)):
        file = join_path(folder, f"refs.{number}.parq")
        data = store.get_one(Request(file))
        if data is None:  # no chunk of these is stored
            continue
        with reading(f"{file!r} as references"):
            found = _columns(io.BytesIO(host_view(data)))
        rows = slice(start, min(start + len(found.codes), n))
        codes = found.codes[: rows.stop - start]
        if len(codes) < min(record_size, n - start):
            raise CopyError(f"{file!r} is cut off: it has {len(codes)} of {min(record_size, n - start)} references")
        numbers = np.array([*map(places.add, found.names), MISSING], np.int32)  # the last one is of code -1
        table.objects[rows], table.offsets[rows] = numbers[codes], found.offsets[: len(codes)]
        lengths = found.lengths[: len(codes)]
        table.lengths[rows] = np.where((lengths == 0) & (table.offsets[rows] == 0) & (codes >= 0), -1, lengths)
        for at, raw in found.inline.items():
            if at < len(codes):
                table.objects[start + at], table.inline[start + at] = INLINE, raw
    return table


class _Columns(NamedTuple):
    """The references of a file: which of some names each has (-1: none), the place there, and encoded chunks."""

    codes: Any
    names: Sequence[str]
    offsets: Any
    lengths: Any
    inline: Mapping[int, bytes]


def _columns(file: io.BytesIO) -> _Columns:
    """Read a file of references. Raises: MissingExtraError, and what the library raises."""
    if have("pyarrow"):
        table: Any = require("pyarrow.parquet", "kerchunk", "this").read_table(file)
        path = table.column("path").combine_chunks() if "path" in table.column_names else None
        column = {name: table.column(name).to_numpy() for name in ("offset", "size") if name in table.column_names}
        raws = table.column("raw").to_pylist() if "raw" in table.column_names else []
        codes, names = np.full(len(table), -1), []
        if path is not None:
            path = path if hasattr(path, "dictionary") else path.dictionary_encode()
            codes, names = path.indices.fill_null(-1).to_numpy(), path.dictionary.to_pylist()
    elif have("fastparquet"):
        frame: Any = require("fastparquet", "kerchunk", "this").ParquetFile(file).to_pandas()
        column = {name: frame[name].to_numpy() for name in ("offset", "size") if name in frame}
        raws = frame["raw"].tolist() if "raw" in frame else []
        codes, names = frame["path"].factorize() if "path" in frame else (np.full(len(frame), -1), [])
    else:
        raise MissingExtraError("references in Parquet need pyarrow or fastparquet: pip install 'gzarr[kerchunk]'")
    zeros = np.zeros(len(codes), np.int64)
    given = {at: raw for at, raw in enumerate(raws) if isinstance(raw, (bytes, str))}
    inline = {at: raw.encode() if isinstance(raw, str) else raw for at, raw in given.items()}
    return _Columns(np.asarray(codes), list(names), column.get("offset", zeros), column.get("size", zeros), inline)
