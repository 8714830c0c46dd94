"""References as kerchunk writes them in Parquet: a folder with ``.zmetadata``, and for each array files of references.

The references of an array are read when it is first used.

Source: fsspec, `fsspec.implementations.reference.LazyReferenceMapper`; kerchunk, "References specification", Parquet.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from gzarr.copying.sources import reading
from gzarr.errors import CopyError, MissingExtraError, StoreError
from gzarr.indexing.keys import Coords, join_path
from gzarr.storage.base import Request, Store, host_view
from gzarr.storage.extras import have, require
from gzarr.virtual.kerchunk import described_arrays
from gzarr.virtual.lazy_tables import LazyTables
from gzarr.virtual.places import Containers
from gzarr.virtual.store import Contents
from gzarr.virtual.table import INLINE, MISSING, ChunkTable

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

    def make(path: str) -> ChunkTable:
        return _table(store, join_path(key, path), described[path][0], record_size, places)

    keys = {path: encoding for path, (_, encoding) in described.items()}
    return Contents(documents, LazyTables(list(described), make), places.objects, keys)


def _table(store: Store, folder: str, counts: Coords, record_size: int, places: Containers) -> ChunkTable:
    """Where the chunks of an array are."""
    table, n = ChunkTable.empty(counts), prod(counts)
    inline: Any = table.inline
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
                table.objects[start + at], inline[start + at] = INLINE, raw
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
    inline = {at: raw.encode() if isinstance(raw, str) else raw for at, raw in enumerate(raws) if _is_given(raw)}
    return _Columns(np.asarray(codes), list(names), column.get("offset", zeros), column.get("size", zeros), inline)


def _is_given(raw: Any) -> bool:
    return isinstance(raw, (bytes, str))
