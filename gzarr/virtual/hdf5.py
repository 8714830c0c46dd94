"""HDF5 and netCDF-4 files in place: h5py says where their chunks are, and nothing of them is decoded here.

Filters that gzarr knows become codecs. What it cannot decode by itself is read by h5py, chunk by chunk: texts of any
length, datasets in other files, compact ones, structs that are padded, and other filters (LZF, Blosc2, bitshuffle,
szip). h5py needs the filter then: the package hdf5plugin has most of them.

Source: HDF5 File Format Specification, "Filter Pipeline"; the registered filters of The HDF Group.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numcodecs.vlen import VLenUTF8

from gzarr.concurrency import new_lock
from gzarr.copying import hdf5
from gzarr.copying.sources import Source, reading
from gzarr.errors import CopyError, UnknownDataTypeError
from gzarr.hierarchy.array import Array
from gzarr.indexing.keys import Coords, join_path
from gzarr.metadata.conventions import UNLIMITED, UNREADABLE
from gzarr.storage.base import Buffer, Store
from gzarr.storage.extras import have
from gzarr.storage.memory import MemoryStore
from gzarr.virtual.documents import Codec, array_document, codec, group_document, has_one_order
from gzarr.virtual.hdf5_files import OtherFiles, file_number
from gzarr.virtual.netcdf4 import attributes_of, axes_of_variables, is_dimension
from gzarr.virtual.store import Chunks, Contents, LazyTables, Reader, one_by_one
from gzarr.virtual.table import INLINE, MISSING, ChunkTable, cut_run

_DEFLATE, _SHUFFLE, _FLETCHER32, _BLOSC, _LZ4, _ZSTD = 1, 2, 3, 32001, 32004, 32015
_BLOSC_CODECS = "blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd"
_BLOSC_SHUFFLES = "noshuffle", "shuffle", "bitshuffle"
#: Filters that imagecodecs decodes, by its names.
_IMAGECODECS = {_LZ4: "lz4h5"}
#: Attributes of the root of netCDF-4 files: of the library, and of Python's h5netcdf.
_NETCDF = "_NCProperties", "_nc3_strict"
#: What netCDF-4 puts before the name of a variable that has the name of a dimension and is not along it.
_NOT_OF_DIMENSION = "_nc4_non_coord_"
#: Bytes of a chunk that h5py reads of a dataset without chunks.
_READ_NBYTES = 1 << 22
#: Places of chunks that are put into a table at once.
_N_NOTED = 4096


class Library:
    """A file as h5py has it: opened when a chunk needs h5py, and then kept open until the store is closed.

    Parameters
    ----------
    open_file : callable
        Opens the file with h5py.
    """

    def __init__(self, open_file: Callable[[], Any]) -> None:
        self.open_file, self._opening = open_file, new_lock()
        self._file: Any = None
        #: Which file that is, by HDF5's number of it.
        self.number = -1

    def dataset(self, path: str) -> Any:
        """A dataset by its path."""
        with self._opening:
            if not self._file:
                self._file = self.open_file()
        return self._file[path]

    def close(self) -> None:
        """Close the file."""
        with self._opening:
            if self._file:
                self._file.close()


class InChunks(NamedTuple):
    """A dataset that is read chunk by chunk.

    Attributes
    ----------
    library : Library
        The file.
    path : str
        Of the dataset.
    shape, chunks : tuple of int
        Shape of the array, which may be larger than the dataset, and of a chunk.
    """

    library: Library
    path: str
    shape: Coords
    chunks: Coords


def find_in_hdf5(open_file: Callable[[], Any], store: Store, key: str, allows: Callable[[str], bool]) -> Contents:
    """Find what an HDF5 file holds.

    Parameters
    ----------
    open_file : callable
        Opens the file with h5py.
    store, key
        The object that the file is.
    allows : callable
        Whether links and data may lead to another file, by its path.

    Returns
    -------
    Contents
        Documents and chunks. What Zarr lacks is left out; the attribute `UNREADABLE` of what has it says why.

    Raises
    ------
    CopyError
        If the file is damaged.
    """
    library, lost = Library(open_file), dict[str, str]()
    documents, makers = dict[str, bytes](), dict[str, Callable[[], Chunks]]()
    with reading(f"{key!r} as HDF5"), open_file() as file:
        library.number = file_number(file)
        tree = hdf5.tree(file, links="copy", odd=lambda path, error: lost.setdefault(path, str(error)))
        others = OtherFiles(library.number, allows)
        lost |= others.find(file, (*tree.groups, *tree.arrays))
        is_netcdf = any(name in file.attrs for name in _NETCDF)
        clean = attributes_of if is_netcdf else dict
        unlimited = dict[str, list[str]]()
        arrays = {path: source for path, source in tree.arrays.items() if path not in lost}
        found = [file[f"/{path}"] for path in arrays] if is_netcdf else []
        axes_of = axes_of_variables([one for one in found if file_number(one) == library.number])
        for path, source in arrays.items():
            dataset, at = file[f"/{path}"], path.replace(_NOT_OF_DIMENSION, "") if is_netcdf else path
            if is_netcdf and dataset.is_scale and dataset.maxshape == (None,):
                unlimited.setdefault(path.rpartition("/")[0], []).append(path.rpartition("/")[2])
            if is_netcdf and is_dimension(dataset):
                continue
            cleaned = replace(source, attributes=clean(source.attributes) | _lost_of(path, lost))
            if dataset.name in axes_of and file_number(dataset) == library.number:
                names, shape = axes_of[dataset.name]
                cleaned = replace(cleaned, dimension_names=cleaned.dimension_names or names, shape=shape)
            try:
                with reading(f"{key!r}: {path!r}"):
                    documents[join_path(at, "zarr.json")], makers[at] = _array(dataset, f"/{path}", cleaned, library)
            except (CopyError, UnknownDataTypeError) as error:
                lost[at] = str(error)
        for path, attributes in tree.groups.items():
            if path in lost:
                continue
            axes = {UNLIMITED: sorted(unlimited[path])} if path in unlimited else {}
            documents[join_path(path, "zarr.json")] = group_document(clean(attributes) | axes | _lost_of(path, lost))
    rest: Any = {"unreadable": lost, "close": library.close, "beside": others.objects()}
    return Contents(documents, LazyTables(makers), ((store, key),), **rest)


def _lost_of(path: str, lost: Mapping[str, str]) -> dict[str, Any]:
    """The attribute that says why members and attributes of a node were left out."""
    found = {}
    for name, why in lost.items():
        owner, mark, attribute = name.partition(hdf5.ATTRIBUTE_MARK)
        if mark and owner == path:
            found[f"attribute {attribute}"] = why
        elif not mark and name.rpartition("/")[0] == path:
            found[name.rpartition("/")[2]] = why
    return {UNREADABLE: found} if found else {}


def _array(dataset: Any, path: str, source: Source, library: Library) -> tuple[bytes, Callable[[], Chunks]]:
    """The document of a dataset, and what finds its chunks."""
    options: dict[str, Any] = {
        "fill_value": source.options.get("fill_value"),
        "attributes": source.attributes,
        "dimension_names": source.dimension_names,
        "mask_value": source.mask_value,
    }
    shape, dtype, is_text = source.shape, source.dtype, source.dtype == "string"
    is_plain = not is_text and has_one_order(dtype) and file_number(dataset) == library.number
    found = _stored(dataset, source.shape, dtype, library) if is_plain else None
    if found is not None:
        chunks, codecs, find = found
        return array_document(shape, dtype, chunks, codecs, **options), find
    if not is_text and not has_one_order(dtype):
        dtype = np.dtype([(name, dtype[name].newbyteorder("<")) for name in dtype.names])
    itemsize = source.itemsize if is_text else dtype.itemsize
    chunks = dataset.chunks or cut_run(shape, itemsize, 0, _READ_NBYTES)[0]
    what = InChunks(library, path, shape, chunks)
    read = partial(_read_texts, what) if is_text else partial(_read_elements, what, dtype)
    obstacle = _missing_filters(dataset)
    read = read if obstacle is None else partial(_refuse, obstacle)
    nbytes = 0 if dataset.is_virtual else dataset.id.get_storage_size()
    reader = Reader(_counts(shape, chunks), one_by_one(read), nbytes, 0 if dataset.chunks else max(prod(chunks), 1))
    return array_document(shape, dtype, chunks, [codec("vlen-utf8")] if is_text else [], **options), lambda: reader


def _stored(
    dataset: Any, shape: Coords, dtype: np.dtype[Any], library: Library
) -> tuple[Coords, list[Codec], Callable[[], Chunks]] | None:
    """Shape of a chunk, codecs after "bytes", and what finds the chunks; None if only h5py can read them."""
    h5d = hdf5.h5py_module().h5d
    properties = dataset.id.get_create_plist()
    if dataset.is_virtual or dataset.external or not _has_plain_elements(dataset):
        return None
    if dataset.chunks is None:
        if properties.get_layout() == h5d.COMPACT:
            return None  # among the metadata
        is_stored = dataset.id.get_storage_size() > 0  # behind a user's block, HDF5 gives an offset in any case
        chunks, table = cut_run(dataset.shape, dtype.itemsize, dataset.id.get_offset() if is_stored else 0)
        if not is_stored:
            table.objects[:] = MISSING
        return chunks, [], lambda: table
    codecs = _codecs(properties)
    if codecs is None or _are_misplaced(dataset):
        return None
    what = InChunks(library, dataset.name, shape, dataset.chunks)
    return dataset.chunks, codecs, partial(_chunk_table, what, dtype, codecs)


def _has_plain_elements(dataset: Any) -> bool:
    """Whether elements are stored as NumPy has them: no bits are left out, and no texts filled up with spaces."""
    h5t, stored = hdf5.h5py_module().h5t, dataset.id.get_type()
    if dataset.dtype.kind == "S":
        padding = stored.get_strpad()
        return bool(padding == h5t.STR_NULLPAD or (padding == h5t.STR_NULLTERM and dataset.dtype.itemsize == 1))
    return bool(stored.equal(h5t.py_create(dataset.dtype, logical=True)))


def _missing_filters(dataset: Any) -> str | None:
    """Why h5py cannot read a dataset; None if it can. The package hdf5plugin is used if it is there."""
    h5z, properties = hdf5.h5py_module().h5z, dataset.id.get_create_plist()
    filters = [properties.get_filter(number) for number in range(properties.get_nfilters())]
    if not all(h5z.filter_avail(code) for code, *_ in filters) and have("hdf5plugin"):
        import hdf5plugin  # noqa: F401 - which registers its filters
    missing = [f"{name.decode() or 'unknown'} ({code})" for code, _, _, name in filters if not h5z.filter_avail(code)]
    if not missing:
        return None
    return (
        f"{hdf5.place(dataset)} is stored with the filter {', '.join(missing)}, which neither gzarr nor h5py has; pip"
        " install hdf5plugin, or convert the file by gzarr.convert where the filter is installed"
    )


def _refuse(why: str, _: Coords) -> Buffer:
    raise CopyError(why)


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


def _chunk_table(what: InChunks, dtype: np.dtype[Any], codecs: Sequence[Codec]) -> ChunkTable:
    """Where the chunks of a dataset are. Chunks that skip a filter are read by h5py, and encoded anew."""
    with reading(what.path), what.library.open_file() as file:
        dataset = file[what.path]
        table = ChunkTable.empty(_counts(what.shape, what.chunks))
        infos: list[Any] = []

        def note_all() -> None:
            begins, masks, offsets, sizes = map(np.array, zip(*infos, strict=True))
            infos.clear()
            coords = begins // what.chunks
            there = (coords < table.counts).all(axis=1)
            rows = coords[there] @ table.steps
            table.objects[rows], table.offsets[rows], table.lengths[rows] = 0, offsets[there], sizes[there]
            for odd in np.flatnonzero(there & (masks != 0)).tolist():
                row = int(coords[odd] @ table.steps)
                table.objects[row] = INLINE
                table.inline[row] = partial(_encoded, what, dtype, codecs, tuple(coords[odd]))

        def note(info: Any) -> None:
            infos.append(info)
            if len(infos) == _N_NOTED:
                note_all()

        dataset.id.chunk_iter(note)
        if infos:
            note_all()
    return table


def _counts(shape: Coords, chunks: Coords) -> Coords:
    return tuple([-(-n // c) for n, c in zip(shape, chunks, strict=True)])


def _block(what: InChunks, coords: Coords, dtype: Any) -> Any:
    """A chunk as h5py reads it, filled up to its whole shape. dtype: None for texts."""
    with reading(what.path):
        dataset = what.library.dataset(what.path)
        axes = zip(coords, what.chunks, dataset.shape, strict=True)
        region = tuple([slice(at * c, min((at + 1) * c, n)) for at, c, n in axes])
        values = np.asarray((dataset.asstr() if dtype is None else dataset)[region])
        block = np.full(what.chunks, "", object) if dtype is None else np.zeros(what.chunks, dtype)
        if what.shape != dataset.shape and dtype is not None:
            block[...] = dataset.fillvalue
    there: Any = (*map(slice, values.shape), ...)  # without axes, the value alone
    block[there] = values
    return block


def _read_texts(what: InChunks, coords: Coords) -> Buffer:
    """Read a chunk of texts, and encode it as the codec "vlen-utf8" does."""
    return VLenUTF8().encode(_block(what, coords, None).ravel())


def _read_elements(what: InChunks, dtype: np.dtype[Any], coords: Coords) -> Buffer:
    """Read a chunk of elements in a byte order that the codec "bytes" describes."""
    return _block(what, coords, dtype).tobytes()


def _encoded(what: InChunks, dtype: np.dtype[Any], codecs: Sequence[Codec], coords: Coords) -> Buffer:
    """Read a chunk, and encode it as the other chunks of its dataset are."""
    values = _block(what, coords, dtype)
    store = MemoryStore({"zarr.json": array_document(values.shape, values.dtype, values.shape, codecs)})
    Array(store, "", write_empty_chunks=True)[...] = values
    return store["c/" + "/".join("0" * values.ndim)]
