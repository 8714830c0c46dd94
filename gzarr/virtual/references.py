"""Writes references to the chunks of arrays, so that others read the same data in place.

In kerchunk's format, in JSON or Parquet, what Zarr v2 can describe is described so, as every reader of references knows
it. Paths are absolute, because readers take relative ones from their working directory.

Source: kerchunk, "References specification"; fsspec, `LazyReferenceMapper`; Icechunk, ``set_virtual_refs_arr``.
"""

import base64
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import BytesIO
from math import prod
from typing import Any, NamedTuple

import numpy as np

from gzarr.api.open import open as open_node
from gzarr.errors import MetadataError, MissingExtraError, StoreError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.indexing.keys import Coords, join_path
from gzarr.metadata.conventions import described_in
from gzarr.metadata.documents import documents, write_node
from gzarr.metadata.model import ArrayMeta, GroupMeta, NodeMeta, ZarrFormat
from gzarr.storage import open_store
from gzarr.storage.base import Request, Store, host_view
from gzarr.storage.extras import require
from gzarr.storage.foreign import ZarrStore
from gzarr.storage.tables import INLINE, MISSING, ChunkTable
from gzarr.virtual.joins import Objects, reader_of, same_when_read, table_of, with_one_chain
from gzarr.virtual.kerchunk import METADATA, PARQUET, RECORD_SIZE

#: Chunks in a file of references, as kerchunk has them.
_RECORD_SIZE = 10_000
#: Bytes of an array that are written into the references, where no reference can lead to them.
_INLINE_NBYTES = 64 << 20
_REACHABLE = "http://", "https://", "s3://", "gs://", "gcs://", "az://", "abfs://"


def save_references(node: Any, dest: Any, *, storage_options: Mapping[str, Any] | None = None) -> None:
    """Save references to the chunks of a group or an array: what others need to read it in place.

    Parameters
    ----------
    node : Group, Array, path or URL
        What is referred to: Zarr, joined arrays, or a file of another format. Its chunks stay where they are.
    dest : path, URL, or icechunk.Session
        A path that ends in ".json", or in ".parquet" or ".parq", for references in kerchunk's format, which fsspec,
        Xarray and `gzarr.open` read; or a writable session of Icechunk, which gets virtual chunks, and is committed by
        the caller.
    storage_options : mapping, optional
        What the server of a URL needs to be told.

    Raises
    ------
    MetadataError
        If the format cannot describe an array.
    StoreError
        If the chunks are where no reference leads, such as in memory.

    Notes
    -----
    Chunks that only a library can read, and the last ones of data without chunks, are written into the references.

    Examples
    --------
    >>> import gzarr
    >>> root = gzarr.group("weather.zarr")
    >>> root["rain"] = [1, 2, 3]
    >>> gzarr.save_references(root, "weather.json")
    >>> gzarr.open("weather.json", "r")["rain"][:]
    array([1, 2, 3])
    """
    if not isinstance(node, (Array, Group)):
        node = open_node(node, mode="r")
    groups: dict[str, Mapping[str, Any]] = {} if isinstance(node, Array) else {"": node.attrs.asdict()}
    arrays: dict[str, _References] = {"": _references(node)} if isinstance(node, Array) else {}
    for path, member in node.members(None) if isinstance(node, Group) else ():
        if isinstance(member, Array):
            arrays[path] = _references(member)
        else:
            groups[path] = member.attrs.asdict()
    if not isinstance(dest, (str, os.PathLike)):
        _save_in_icechunk(groups, arrays, dest)
        return
    above, _, name = os.fspath(dest).rpartition("/")
    if not name.endswith((".json", *PARQUET)):
        raise StoreError(f"{dest!r}: references are written to a name that ends in .json, .parquet or .parq")
    store = open_store(above or ("/" if os.fspath(dest).startswith("/") else "."), storage_options=storage_options)[0]
    (_save_json if name.endswith(".json") else _save_parquet)(groups, arrays, store, name)


class _References(NamedTuple):
    """The chunks of one array.

    Attributes
    ----------
    array : Array
        The array.
    table : ChunkTable
        Where its chunks are.
    objects : sequence
        The objects that they are in.
    """

    array: Array
    table: ChunkTable
    objects: Sequence[tuple[Store, str]]

    def urls(self, prefix: str = "") -> list[str]:
        """The URL of each object. prefix: of local paths. Raises: StoreError."""
        return [_url(store, key, prefix) for store, key in self.objects]

    def rows(self) -> list[tuple[int, Coords, int]]:
        """Row, coordinates and object of each chunk that is stored."""
        rows = np.flatnonzero(self.table.objects != MISSING)
        return list(
            zip(rows.tolist(), _coords(rows, self.table.counts), self.table.objects[rows].tolist(), strict=True)
        )

    def inline(self, row: int) -> bytes:
        """A chunk that is written into the references."""
        return bytes(self.table.inline[row])


def _references(array: Array) -> _References:
    """The references to an array. Chunks that none leads to are read. Raises: StoreError."""
    objects, array = Objects(), with_one_chain(array)
    if array.dtype != array.metadata.data_type.dtype:
        raise MetadataError(
            f"{array.store_path} is a view as {array.dtype}; save references to the array that it is of"
        )
    if reader_of(array) is not None:
        table = ChunkTable.empty(tuple(one.nchunks for one in array.metadata.grid))
        rows = np.arange(table.objects.size)
    else:
        table = table_of(array, objects)
        is_short = (table.objects >= 0) & (table.lengths >= 0) & (table.lengths < table.padded_nbytes)
        rows = np.flatnonzero(is_short | (table.objects == INLINE))
    key, inline, numbers, nbytes = array.metadata.keys.under(array.path, array.ndim), {}, table.objects.copy(), 0
    for row, coords in zip(rows.tolist(), _coords(rows, table.counts), strict=True):
        chunk = array.store.get_one(Request(key(coords)))
        if chunk is not None:
            inline[row], numbers[row] = bytes(host_view(chunk)), INLINE
            nbytes += len(inline[row])
        if nbytes > _INLINE_NBYTES:
            raise StoreError(
                f"{array.store_path}: no reference leads to its chunks, as only a library reads them; convert the file"
            )
    return _References(array, replace(table, objects=numbers, inline=inline), objects.found)


def _coords(rows: Any, counts: Coords) -> list[Coords]:
    if not counts:
        return [()] * len(rows)
    return [tuple(at) for at in np.stack(np.unravel_index(rows, counts), 1).tolist()]


def _url(store: Store, key: str, prefix: str = "") -> str:
    path = None if store.files is None else store.files.path(key)
    if path is not None:
        return prefix + os.path.abspath(path)  # noqa: PTH100 - links are kept
    if str(store).startswith(_REACHABLE):
        return join_path(str(store), key)
    raise StoreError(f"{store}: no reference leads to {key!r}, as others cannot reach this store; copy it to files")


_Groups = Mapping[str, Mapping[str, Any]]
_Arrays = Mapping[str, _References]


def _metas(arrays: _Arrays, zarr_format: ZarrFormat) -> dict[str, ArrayMeta] | None:
    """The metadata of all arrays in a format; None if it lacks some."""
    found = {path: same_when_read(described_in(one.array.metadata, zarr_format)) for path, one in arrays.items()}
    metas = {path: meta for path, meta in found.items() if meta is not None}
    return metas if len(metas) == len(found) else None


def _documents(groups: _Groups, metas: Mapping[str, ArrayMeta], zarr_format: ZarrFormat) -> dict[str, bytes]:
    nodes: dict[str, NodeMeta] = {path: GroupMeta(dict(attributes), zarr_format) for path, attributes in groups.items()}
    return {key: text for path, meta in {**nodes, **metas}.items() for key, text in documents(meta, path)}


def _save_json(groups: _Groups, arrays: _Arrays, store: Store, key: str) -> None:
    v2 = _metas(arrays, 2)
    metas = _metas(arrays, 3) if v2 is None else v2
    if metas is None:
        raise MetadataError("some of the arrays cannot be described in Zarr v2, and some not in v3; save them apart")
    found = _documents(groups, metas, 2 if v2 is not None else 3)
    refs: dict[str, Any] = {name: text.decode() for name, text in found.items()}
    for path, one in arrays.items():
        urls, name = one.urls(), metas[path].keys.under(path, len(one.table.counts))
        for row, coords, number in one.rows():
            if number == INLINE:
                refs[name(coords)] = "base64:" + base64.b64encode(one.inline(row)).decode()
            else:
                offset, length = one.table.places[row].tolist()
                refs[name(coords)] = [urls[number]] if length < 0 else [urls[number], offset, length]
    store.set(key, json.dumps({"version": 1, "refs": refs}).encode())


def _save_parquet(groups: _Groups, arrays: _Arrays, store: Store, folder: str) -> None:
    if "" in arrays:  # fsspec finds no chunks of it, and fills it
        raise MetadataError("readers of references in Parquet know no array without a group; save it in JSON")
    pyarrow = require("pyarrow", "kerchunk", "writing references in Parquet")
    parquet = require("pyarrow.parquet", "kerchunk", "writing references in Parquet")
    metas = _metas(arrays, 2)
    if metas is None:
        raise MetadataError(
            "references in Parquet describe arrays in Zarr v2, which lacks shards, chunks of different lengths and some"
            " codecs of these arrays; save them in JSON"
        )
    names, inner = store.list_dir(folder)
    if (names or inner) and METADATA not in names:
        raise StoreError(f"{join_path(str(store), folder)} is there and holds no references; choose another name")
    store.delete_prefix(folder)
    for path, one in arrays.items():
        urls, n = pyarrow.array(one.urls(), pyarrow.string()), prod(one.table.counts)
        n_padded = -(-n // _RECORD_SIZE) * _RECORD_SIZE  # readers expect files of one length
        objects, places = np.full(n_padded, MISSING), np.zeros((n_padded, 2), np.int64)
        objects[:n], places[:n] = one.table.objects, one.table.places
        places[(objects < 0) | (places[:, 1] < 0)] = 0
        for start in range(0, n_padded, _RECORD_SIZE):
            codes = objects[start : start + _RECORD_SIZE]
            raws = [one.inline(row) if code == INLINE else None for row, code in enumerate(codes.tolist(), start)]
            columns = {
                "path": pyarrow.DictionaryArray.from_arrays(pyarrow.array(codes, mask=codes < 0), urls),
                "offset": places[start : start + _RECORD_SIZE, 0],
                "size": places[start : start + _RECORD_SIZE, 1],
                "raw": pyarrow.array(raws, pyarrow.binary()),
            }
            file = BytesIO()
            parquet.write_table(pyarrow.table(columns), file, compression="zstd")
            store.set(join_path(folder, join_path(path, f"refs.{start // _RECORD_SIZE}.parq")), file.getvalue())
    metadata = {name: json.loads(text) for name, text in _documents(groups, metas, 2).items()}
    store.set(join_path(folder, METADATA), json.dumps({"metadata": metadata, RECORD_SIZE: _RECORD_SIZE}).encode())


def _save_in_icechunk(groups: _Groups, arrays: _Arrays, session: Any) -> None:
    theirs, metas = getattr(session, "store", session), _metas(arrays, 3)
    if not hasattr(theirs, "set_virtual_refs_arr"):
        raise MissingExtraError("references in a repository need Icechunk 2.3 or newer: pip install 'gzarr[icechunk]'")
    store, now = ZarrStore(theirs), datetime.now(UTC) + timedelta(seconds=1)  # kept in whole seconds
    if metas is None:
        raise MetadataError("some of the arrays have codecs that Zarr v3 lacks, and Icechunk knows no other format")
    for path, attributes in groups.items():
        write_node(store, path, GroupMeta(dict(attributes)))
    for path, one in arrays.items():
        write_node(store, path, metas[path])
        table, key = one.table, metas[path].keys.under(path, len(one.table.counts))
        sizes = [holder.getsize(name) or 0 if (table.lengths < 0).any() else 0 for holder, name in one.objects]
        lengths = np.where(table.lengths < 0, np.array([*sizes, 0, 0])[table.objects], table.lengths)
        urls = np.array([*one.urls("file://"), "", ""], object)[table.objects].tolist()
        columns = table.offsets.clip(0).astype("u8"), lengths.astype("u8")
        failed = theirs.set_virtual_refs_arr(f"/{path}", table.counts, urls, *columns, checksum=now)
        if failed:
            url = urls[int(np.ravel_multi_index(tuple(failed[0]), table.counts)) if table.counts else 0]
            raise StoreError(f"the repository has no virtual chunk container for {url!r}; add one to its configuration")
        store.set_many((key(coords), one.inline(row)) for row, coords, number in one.rows() if number == INLINE)
