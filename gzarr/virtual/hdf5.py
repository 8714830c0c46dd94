"""HDF5 and netCDF-4 files in place: h5py says where their chunks are, and nothing of them is decoded here.

Filters that gzarr knows become codecs. What it cannot decode by itself is read by h5py, chunk by chunk: texts of any
length, datasets in other files, compact ones, structs that are padded, and other filters (LZF, Blosc2, bitshuffle,
szip). h5py needs the filter then: the package hdf5plugin has most of them.

Source: HDF5 File Format Specification, "Filter Pipeline"; the registered filters of The HDF Group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numcodecs.vlen import VLenUTF8

from gzarr.copying import hdf5
from gzarr.copying.sources import Source, reading
from gzarr.hierarchy.array import Array
from gzarr.indexing.keys import Coords, join_path
from gzarr.storage.base import Buffer, Store
from gzarr.storage.extras import have
from gzarr.storage.memory import MemoryStore
from gzarr.virtual.documents import Codec, array_document, codec, group_document, has_one_order
from gzarr.virtual.store import Chunks, Contents, Reader
from gzarr.virtual.table import INLINE, MISSING, ChunkTable, cut_run

_DEFLATE, _SHUFFLE, _FLETCHER32, _BLOSC, _LZ4, _ZSTD = 1, 2, 3, 32001, 32004, 32015
_BLOSC_CODECS = "blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd"
_BLOSC_SHUFFLES = "noshuffle", "shuffle", "bitshuffle"
#: Filters that imagecodecs decodes, by its names.
_IMAGECODECS = {_LZ4: "lz4h5"}
#: Attributes of the root of netCDF-4 files: of the library, and of Python's h5netcdf.
_NETCDF = "_NCProperties", "_nc3_strict"
#: What netCDF-4 calls a dimension without a variable, and puts before the name of a variable that has the name of a
#: dimension and is not along it.
_ONLY_DIMENSION, _NOT_OF_DIMENSION = b"This is a netCDF dimension but not a netCDF variable", "_nc4_non_coord_"
#: Bytes of a chunk that h5py reads of a dataset without chunks.
_READ_NBYTES = 1 << 22


class Opened(NamedTuple):
    """How a file is opened: for as long as something of it is read, as an open file keeps others from writing to it.

    Attributes
    ----------
    open : callable
        Opens the file with h5py.
    path : str
        Of a dataset.
    """

    open: Callable[[], Any]
    path: str


def find_in_hdf5(open_file: Callable[[], Any], store: Store, key: str) -> Contents:
    """Find what an HDF5 file holds.

    Parameters
    ----------
    open_file : callable
        Opens the file with h5py. It is closed again, as an open file keeps others from writing to it, and opened
        whenever h5py has to read something.
    store, key
        The object that the file is.

    Returns
    -------
    Contents
        Documents and chunks.

    Raises
    ------
    CopyError
        If the file is damaged, or holds something that Zarr lacks.
    """
    with reading(f"{key!r} as HDF5"), open_file() as file:
        tree = hdf5.tree(file, links="copy")
        is_netcdf = any(name in file.attrs for name in _NETCDF)
        clean = _netcdf_attributes if is_netcdf else dict
        documents = {join_path(path, "zarr.json"): group_document(clean(attrs)) for path, attrs in tree.groups.items()}
        arrays: dict[str, Chunks] = {}
        for path, source in tree.arrays.items():
            dataset = file[f"/{path}"]
            if is_netcdf and _is_dimension(dataset):
                continue
            at = path.replace(_NOT_OF_DIMENSION, "") if is_netcdf else path
            cleaned = replace(source, attributes=clean(source.attributes))
            documents[join_path(at, "zarr.json")], arrays[at] = _array(
                dataset, cleaned, Opened(open_file, dataset.name)
            )
    return Contents(documents, arrays, ((store, key),))


def _is_dimension(dataset: Any) -> bool:
    """Whether a dataset only stands for a dimension of netCDF-4."""
    name = dataset.attrs.get("NAME", b"")
    return (name if isinstance(name, bytes) else str(name).encode()).startswith(_ONLY_DIMENSION)


def _netcdf_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as netCDF-4 has them: one number is no list."""
    return {k: v[0] if isinstance(v, list) and len(v) == 1 else v for k, v in attributes.items()}


def _array(dataset: Any, source: Source, opened: Opened) -> tuple[bytes, Chunks]:
    """The document and the chunks of a dataset."""
    options: dict[str, Any] = {
        "fill_value": source.options.get("fill_value"),
        "attributes": source.attributes,
        "dimension_names": source.dimension_names,
        "mask_value": source.mask_value,
    }
    shape = source.shape
    if source.dtype == "string":
        chunks = dataset.chunks or _rows(shape, source.itemsize)
        read = Reader(_counts(shape, chunks), partial(_read_texts, opened, chunks))
        return array_document(shape, "string", chunks or (), [codec("vlen-utf8")], **options), read
    dtype: Any = source.dtype
    found = _stored(dataset, dtype, opened) if has_one_order(dtype) else None
    if found is not None:
        chunks, codecs, table = found
        return array_document(shape, dtype, chunks, codecs, **options), table
    if not has_one_order(dtype):
        dtype = np.dtype([(name, dtype[name].newbyteorder("<")) for name in dtype.names])
    chunks = dataset.chunks or _rows(shape, dtype.itemsize)
    read = Reader(_counts(shape, chunks), partial(_read_elements, opened, chunks, dtype))
    return array_document(shape, dtype, chunks, [], **options), read


def _stored(dataset: Any, dtype: np.dtype[Any], opened: Opened) -> tuple[Coords, list[Codec], ChunkTable] | None:
    """Shape of a chunk, codecs after "bytes", and where the chunks are; None if only h5py can read them."""
    h5d = hdf5.h5py_module().h5d
    properties = dataset.id.get_create_plist()
    if dataset.is_virtual or dataset.external:
        return None
    if dataset.chunks is None:
        if properties.get_layout() == h5d.COMPACT:
            return None  # among the metadata
        is_stored = dataset.id.get_storage_size() > 0  # behind a user's block, HDF5 gives an offset in any case
        chunks, table = cut_run(dataset.shape, dtype.itemsize, dataset.id.get_offset() if is_stored else 0)
        if not is_stored:
            table.objects[:] = MISSING
        return chunks, [], table
    codecs = _codecs(properties)
    if codecs is None or _are_misplaced(dataset):
        return None
    return dataset.chunks, codecs, _chunk_table(dataset, partial(_encoded, opened, dataset.chunks, dtype, codecs))


def _are_misplaced(dataset: Any) -> bool:
    """Whether HDF5 may say wrongly where chunks are in the grid, as releases up to 2.0 at least do.

    An extensible array counts chunks along its only unlimited axis first, and HDF5 as if that were in its place: all
    chunks then seem to be the first ones along the axes before it.
    """
    unlimited = [axis for axis, length in enumerate(dataset.maxshape) if length is None]
    if len(unlimited) != 1:
        return False
    before = slice(unlimited[0])
    if all(n <= c for n, c in zip(dataset.maxshape[before], dataset.chunks, strict=False)):
        return False

    def is_apart(info: Any) -> bool | None:
        return any(info.chunk_offset[before]) or None  # None goes on

    return not dataset.id.chunk_iter(is_apart)


def _codecs(properties: Any) -> list[Codec] | None:
    """The filters of a dataset as codecs; None if gzarr lacks one."""
    codecs: list[Codec] = []
    for number in range(properties.get_nfilters()):
        code, _, values, _ = properties.get_filter(number)
        if code == _DEFLATE and values:
            found = codec("numcodecs.zlib", level=values[0])
        elif code == _SHUFFLE and values and not codecs:  # of what is no whole number of elements, HDF5 keeps the rest
            found = codec("numcodecs.shuffle", elementsize=values[0])
        elif code == _FLETCHER32:
            found = codec("numcodecs.fletcher32")
        elif code == _ZSTD:
            found = codec("zstd", level=values[0] if values else 3, checksum=False)
        elif code == _BLOSC and len(values) > 6:
            shuffle, cname = _BLOSC_SHUFFLES[values[5]], _BLOSC_CODECS[values[6]]
            found = codec(
                "blosc", typesize=max(values[2], 1), cname=cname, clevel=values[4], shuffle=shuffle, blocksize=0
            )
        elif code in _IMAGECODECS and have("imagecodecs"):
            found = codec(f"numcodecs.imagecodecs_{_IMAGECODECS[code]}")
        else:
            return None
        codecs.append(found)
    return codecs


def _chunk_table(dataset: Any, encoded: Callable[[Coords], Buffer]) -> ChunkTable:
    """Where the chunks of a dataset are. Chunks that skip a filter are read by h5py, and encoded anew."""
    chunks = dataset.chunks
    table = ChunkTable.empty(_counts(dataset.shape, chunks))
    inline: Any = table.inline

    def note(info: Any) -> None:
        coords = tuple([at // n for at, n in zip(info.chunk_offset, chunks, strict=True)])
        row = table.row(coords)
        if row is None:
            return
        table.objects[row], table.offsets[row], table.lengths[row] = 0, info.byte_offset, info.size
        if info.filter_mask:
            table.objects[row] = INLINE
            inline[row] = partial(encoded, coords)

    dataset.id.chunk_iter(note)
    return table


def _counts(shape: Coords, chunks: Coords) -> Coords:
    return tuple([-(-n // c) for n, c in zip(shape, chunks, strict=True)])


def _rows(shape: Coords, itemsize: int) -> Coords:
    """Shape of the chunks in which h5py reads a dataset that has none."""
    return cut_run(shape, itemsize, 0, _READ_NBYTES)[0]


def _block(opened: Opened, chunks: Coords, coords: Coords, dtype: Any) -> Any:
    """A chunk as h5py reads it, filled up to its whole shape. dtype: None for texts."""
    with reading(opened.path), opened.open() as file:
        dataset = file[opened.path]
        axes = zip(coords, chunks, dataset.shape, strict=True)
        region = tuple([slice(at * c, min((at + 1) * c, n)) for at, c, n in axes])
        values = np.asarray((dataset.asstr() if dtype is None else dataset)[region])
    block = np.full(chunks, "", object) if dtype is None else np.zeros(chunks, dtype)
    block[tuple(map(slice, values.shape))] = values
    return block


def _read_texts(opened: Opened, chunks: Coords, coords: Coords) -> Buffer:
    """Read a chunk of texts, and encode it as the codec "vlen-utf8" does."""
    encoded: bytes = VLenUTF8().encode(_block(opened, chunks, coords, None).ravel())
    return encoded


def _read_elements(opened: Opened, chunks: Coords, dtype: np.dtype[Any], coords: Coords) -> Buffer:
    """Read a chunk of elements in a byte order that the codec "bytes" describes."""
    elements: bytes = _block(opened, chunks, coords, dtype).tobytes()
    return elements


def _encoded(opened: Opened, chunks: Coords, dtype: np.dtype[Any], codecs: Sequence[Codec], coords: Coords) -> Buffer:
    """Read a chunk, and encode it as the other chunks of its dataset are."""
    values = _block(opened, chunks, coords, dtype)
    store = MemoryStore({"zarr.json": array_document(values.shape, values.dtype, values.shape, codecs)})
    Array(store, "", write_empty_chunks=True)[...] = values
    return store["c/" + "/".join("0" * values.ndim)]
