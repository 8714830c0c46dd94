"""TIFF, BigTIFF, OME-TIFF, GeoTIFF and ImageJ files in place: tifffile says where tiles and strips are.

Segments without compression, and those compressed with deflate or Zstandard, become chunks as they are stored. Others
(LZW, JPEG, predictors, odd numbers of bits) are decoded by tifffile, segment by segment, when they are read.

Source: TIFF 6.0; tifffile's tables of segments.
"""

import logging
import posixpath
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from math import prod
from typing import IO, Any, NamedTuple

import numpy as np
from numcodecs.registry import get_codec

from gzarr.copying.sources import reading
from gzarr.dtypes import fill_to_json, parse_dtype
from gzarr.errors import CopyError, MetadataError, StoreError
from gzarr.indexing.keys import Coords, join_path
from gzarr.metadata.conventions import NODATA
from gzarr.storage.base import Buffer, Request, Store
from gzarr.storage.extras import require
from gzarr.virtual.documents import Codec, array_document, codec, group_document
from gzarr.virtual.store import Chunks, Contents, Reader, one_by_one
from gzarr.virtual.table import INLINE, MISSING, ChunkTable, cut_run
from gzarr.virtual.tiff_tags import band_names, geo_attributes, nodata_of, packing_of, tags_of

#: Positions of the axes of a page in the five that tifffile counts segments by: planes, depth, length, width, samples.
_PLACE = {"Z": 1, "Y": 2, "X": 3}
#: Compressions that are codecs of gzarr, by the values of the tag.
_CODECS: dict[int, list[Codec]] = {
    1: [],
    **{number: [codec("numcodecs.zlib", level=6)] for number in (8, 32946)},
    **{number: [codec("zstd", level=3, checksum=False)] for number in (34926, 50000)},
}
_NO_PREDICTOR, _FIRST_BIT_HIGH = 1, 1


class ImageLevel(NamedTuple):
    """One resolution of a series.

    Attributes
    ----------
    shape, dtype
        Of the image, in the byte order in which it is stored.
    axes : str
        Letters of the axes, as tifffile has them.
    chunk_shape : tuple of int
        Of a segment.
    is_tiled, is_run : bool
        Whether segments are tiles, and whether all elements follow each other.
    codecs : list
        Codecs after "bytes".
    chunks : ChunkTable or Reader
        Where segments are, or what reads them.
    nodata : scalar or None
        What stands for missing data.
    attributes : mapping
        The place on the Earth, and what stands for missing data.
    """

    shape: Coords
    dtype: np.dtype[Any]
    axes: str
    chunk_shape: Coords
    is_tiled: bool
    is_run: bool
    codecs: list[Codec]
    chunks: Chunks
    nodata: Any
    attributes: Mapping[str, Any]

    @property
    def dimension_names(self) -> tuple[str, ...] | None:
        """Names of the axes; None if two would have the same."""
        names = tuple("c" if axis == "S" and "C" not in self.axes else axis.lower() for axis in self.axes)
        return names if len(set(names)) == len(names) else None

    def document(self, attributes: Mapping[str, Any]) -> bytes:
        """The document of the array."""
        return array_document(
            self.shape,
            self.dtype,
            self.chunk_shape,
            self.codecs,
            fill_value=self.nodata,
            attributes=attributes,
            dimension_names=self.dimension_names,
            mask_value=self.nodata,
        )


def find_in_tiff(file: IO[bytes], store: Store, key: str) -> Contents:
    """Find what a TIFF file holds.

    A file with one image series is an array. The levels of a pyramid are a group of arrays "0", "1", ... Several series
    are the groups or arrays "series_0", "series_1", ...

    Raises
    ------
    CopyError
        If the file is damaged or cut off.
    MissingExtraError
        If tifffile is missing.
    """
    objects = [(store, key)]
    with opened_tiff(file, key) as tiff:
        every = list(tiff.series)
        documents, arrays = dict[str, bytes](), dict[str, Chunks]()
        if len(every) != 1:
            documents["zarr.json"] = group_document({})
        for number, series in enumerate(every):
            path = f"series_{number}" if len(every) > 1 else ""
            levels = levels_of(series, objects, f"{key}:{path or 'image'}")
            attributes = series_attributes(series)
            if len(levels) > 1:
                called = series.name or posixpath.basename(key).split(".")[0]
                attributes = _as_image(levels, (tiff, number, series), attributes, called)
                documents[join_path(path, "zarr.json")] = group_document(attributes)
            for at, level in enumerate(levels):
                below = path if len(levels) == 1 else join_path(path, str(at))
                rest = attributes if len(levels) == 1 else {"axes": series.axes}
                arrays[below] = level.chunks
                documents[join_path(below, "zarr.json")] = level.document({**rest, **level.attributes})
    return Contents(documents, arrays, objects, said=partial(_said, file, key) if len(every) == 1 else None)


def _said(file: Any, key: str) -> Any:
    """What a file with one series says of it."""
    from gzarr.virtual.tiff_metadata import describe

    with opened_tiff(file, key) as tiff:
        return describe(tiff, 0, tiff.series[0])


def _as_image(
    levels: Sequence[ImageLevel], of: tuple[Any, int, Any], attributes: Mapping[str, Any], name: str
) -> dict[str, Any]:
    """Attributes of levels as those of an OME-Zarr image, if it has such axes: samples of a pixel come last in TIFF.

    of: the file, and number and series of the image.
    """
    from gzarr.virtual.ome_levels import image_attributes  # few files are pyramids
    from gzarr.virtual.tiff_metadata import describe

    try:
        return image_attributes(levels, describe(*of), attributes, 3, name)
    except MetadataError:
        return dict(attributes)


@contextmanager
def opened_tiff(file: Any, name: str) -> Iterator[Any]:
    """A file as tifffile opens it. Raises: CopyError if it is damaged or holds no image, MissingExtraError."""
    tifffile = require("tifffile", "tiff", "reading TIFF files")
    with ExitStack() as stack:
        with reading(f"{name!r} as TIFF"), _damage_noted() as damage:
            tiff = stack.enter_context(tifffile.TiffFile(file))
            n = len(tiff.series)
        if damage or not n:
            raise CopyError(f"{name!r} is damaged or cut off: {[*damage, 'it holds no image'][0]}; get the whole file")
        yield tiff


@contextmanager
def _damage_noted() -> Iterator[list[str]]:
    """Errors of tifffile in this thread: it only logs them and returns the pages that it can read."""
    messages: list[str] = []
    thread = threading.get_ident()

    class Noting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.thread == thread:
                messages.append(record.getMessage())

    handler, logger = Noting(logging.ERROR), logging.getLogger("tifffile")
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)


def series_attributes(series: Any) -> dict[str, Any]:
    """The tags of a series that describe it."""
    attributes = {"axes": series.axes, **tags_of(series.keyframe)}
    names = band_names(series.keyframe)
    if names:
        attributes["band_names"] = [names.get(n) for n in range(max(names) + 1)]
    return attributes


def levels_of(series: Any, objects: list[tuple[Store, str]], name: str) -> list[ImageLevel]:
    """The levels of a series. objects: those that hold segments, to which other files of the series are added."""
    found, packing = [], packing_of(series.keyframe)
    for number, level in enumerate(series.levels):
        attributes: dict[str, Any] = {}
        if series.keyframe.is_geotiff:
            whole, here = ([one.shape[one.axes.index(axis)] for axis in "YX"] for one in (series, level))
            attributes = geo_attributes(series.keyframe, (here[0], here[1]), (whole[0] / here[0], whole[1] / here[1]))
        attributes |= packing
        nodata = nodata_of(series.keyframe, np.dtype(level.dtype))
        if nodata is not None:
            attributes[NODATA] = fill_to_json(nodata, parse_dtype(level.dtype), 3)
        found.append(_level(level, objects, f"{name}, level {number}" if number else name, attributes, nodata))
    return found


def _level(
    level: Any, objects: list[tuple[Store, str]], name: str, attributes: Mapping[str, Any], nodata: Any
) -> ImageLevel:
    """One resolution of a series. Raises CopyError if its pages do not add up to its shape, or are cut off."""
    page, shape, dtype = level.keyframe, tuple(level.shape), np.dtype(level.dtype)
    stored = dtype.newbyteorder(page.parent.byteorder)
    one_file = all(other is None or other.parent is page.parent for other in level.pages)
    if one_file and level.dataoffset is not None:  # all pages follow each other without compression
        end, nbytes = level.dataoffset + prod(shape) * dtype.itemsize, page.parent.filehandle.size
        if end > nbytes:
            raise CopyError(f"{name} is cut off: the file has {nbytes} of {end} bytes; get the whole file")
        chunk_shape, run = cut_run(shape, dtype.itemsize, level.dataoffset)
        return ImageLevel(shape, stored, level.axes, chunk_shape, False, True, [], run, nodata, attributes)
    ones: Coords = ()  # axes of one element behind those of a page
    while shape[: len(shape) - len(ones)][-page.ndim :] != tuple(page.shape) and shape[-1 - len(ones) :][:1] == (1,):
        ones += (1,)
    outer = shape[: max(len(shape) - page.ndim - len(ones), 0)]
    if shape != (*outer, *page.shape, *ones) or prod(outer) != len(level.pages):
        raise CopyError(f"{name}: {len(level.pages)} pages of {page.shape} do not add up to an image of {shape}")
    segments = _Segments(page)
    table = _table(level, outer, segments, objects, name)
    if segments.are_counted:
        table = replace(table, counts=(*table.counts, *ones))
    chunk_shape = (*[1] * len(outer), *segments.shape, *ones)
    codecs = _CODECS.get(int(page.compression)) if segments.are_counted and _is_plain(page, dtype) else None
    tables = [None if one is None else one.jpegtables for one in level.pages]
    decode = page.decode  # which looks at the file when it is first asked for
    decoder = _Decoder(decode, page.jpegheader, tables, segments, dtype, table, objects)
    chunks: Chunks = table
    if codecs is None:
        counts = table.counts if segments.are_counted else (*outer, *[1] * page.ndim, *ones)
        read, nbytes = one_by_one(decoder.decoded), int(table.lengths.clip(0).sum())
        stored, chunks = dtype.newbyteorder("<"), Reader(counts, read, nbytes)
    elif codecs and not page.is_tiled:
        for row in segments.short_rows(table.objects.size):  # the last strip of a page has fewer lines
            if table.objects[row] != MISSING:
                table.inline[row] = partial(decoder.encoded, row, int(table.objects[row]), stored, codecs)
                table.objects[row] = INLINE
    form = level.axes, chunk_shape, bool(page.is_tiled), False
    return ImageLevel(shape, stored, *form, codecs or [], chunks, nodata, attributes)


def _is_plain(page: Any, dtype: np.dtype[Any]) -> bool:
    """Whether segments are elements as NumPy has them, once they are decompressed."""
    bits = page.bitspersample if isinstance(page.bitspersample, tuple) else (page.bitspersample,)
    whole = set(bits) == {8 * dtype.itemsize}
    return whole and page.predictor == _NO_PREDICTOR and page.fillorder == _FIRST_BIT_HIGH


def _table(level: Any, outer: Coords, segments: "_Segments", objects: list[tuple[Store, str]], name: str) -> ChunkTable:
    """Where the segments of all pages are. Raises: CopyError for a segment behind the end of its file."""
    page, n = level.keyframe, segments.n
    padded = 0 if page.is_tiled else prod(segments.shape) * np.dtype(level.dtype).itemsize
    counts = (*outer, *(segments.counts if segments.are_counted else (n,)))
    table = ChunkTable.empty(counts, padded_nbytes=padded if int(page.compression) == 1 else 0)
    numbers = {id(page.parent): 0}
    for at, one in enumerate(level.pages):
        if one is None:  # sparse files leave out empty pages
            continue
        number = numbers.setdefault(id(one.parent), len(objects))
        if number == len(objects):
            folder = objects[0][1].rpartition("/")[0]
            objects.append((objects[0][0], join_path(folder, one.parent.filename)))
        offsets, lengths = np.asarray(one.dataoffsets[:n], np.int64), np.asarray(one.databytecounts[:n], np.int64)
        behind = np.flatnonzero((lengths > 0) & (offsets + lengths > one.parent.filehandle.size))
        if behind.size:
            where = f"page {one.index}, segment {behind[0]}"
            raise CopyError(f"{one.parent.filehandle.name}: {where} is cut off; get the whole file")
        rows = slice(at * n, (at + 1) * n)
        table.offsets[rows], table.lengths[rows] = offsets, lengths
        table.objects[rows] = np.where(lengths > 0, number, MISSING)
    return table


class _Segments:
    """How the tiles or strips of a page are counted.

    Attributes
    ----------
    n : int
        How many there are.
    are_counted : bool
        Whether they are counted along the axes; pages of other files are one chunk.
    shape, counts : tuple of int
        Shape of a chunk, and how many there are, along the axes of the page.
    whole : tuple of int
        Shape of a chunk along the five axes that tifffile counts segments by.
    """

    def __init__(self, page: Any) -> None:
        places = [_PLACE.get(axis, 0 if page.planarconfig == 2 else 4) for axis in page.axes]
        _, depth, length, width, samples = page.shaped
        rows = page.tilelength if page.is_tiled else min(page.rowsperstrip, length)
        one = (1, page.tiledepth if page.is_tiled else 1, rows, page.tilewidth if page.is_tiled else width, samples)
        counts = tuple(-(-n // s) for n, s in zip(page.shaped, one, strict=True))
        self.n = len(page.dataoffsets)
        self.are_counted = prod(counts) == self.n and (depth == 1 or page.is_tiled)
        self.whole = one if self.are_counted else tuple(page.shaped)
        self.shape = tuple(one[place] for place in places) if self.are_counted else tuple(page.shape)
        self.counts = tuple(counts[place] for place in places) if self.are_counted else (1,) * len(places)
        self._rows, self._has_rest = places.index(_PLACE["Y"]), bool(length % rows)

    def short_rows(self, n: int) -> list[int]:
        """The rows of a table of so many segments that have fewer lines than the others."""
        if not self._has_rest:
            return []
        return np.arange(n).reshape(-1, *self.counts).take(-1, 1 + self._rows).ravel().tolist()


class _Decoder(NamedTuple):
    """Decodes segments by tifffile."""

    decode: Callable[..., Any]
    jpegheader: Any
    jpegtables: Sequence[Any]
    segments: _Segments
    dtype: np.dtype[Any]
    table: ChunkTable
    objects: list[tuple[Store, str]]

    def decoded(self, coords: Coords) -> Buffer | None:
        """A chunk, filled up to its whole shape; None if nothing of it is stored. Raises: StoreError."""
        if self.segments.are_counted:
            rows = [self.table.row(coords)]
        else:
            page = self.table.row((*coords[: len(self.table.counts) - 1], 0))
            rows = [] if page is None else list(range(page, page + self.segments.n))
        found = [(row, int(self.table.objects[row])) for row in rows if row is not None]
        stored = [(row, number) for row, number in found if number != MISSING]
        return self._chunk(stored).tobytes() if stored else None

    def encoded(self, row: int, number: int, stored: np.dtype[Any], codecs: list[Codec]) -> Buffer:
        """A segment, filled up to its whole shape and encoded as the others are. Raises: StoreError."""
        name = codecs[0]["name"].removeprefix("numcodecs.")
        values = self._chunk([(row, number)]).astype(stored)
        return get_codec({"id": name, "level": 1}).encode(values.tobytes())

    def _chunk(self, segments: list[tuple[int, int]]) -> Any:
        """A chunk of some segments, each a row of the table and the number of its object."""
        block = np.zeros(self.segments.whole, self.dtype)
        for row, number in segments:
            store, key = self.objects[number]
            data = store.get_one(Request(key, int(self.table.offsets[row]), int(self.table.lengths[row])))
            page, segment = divmod(row, self.segments.n)
            try:
                tables = self.jpegtables[page]
                values, (plane, *begin, _), _ = self.decode(
                    data, segment, jpegtables=tables, jpegheader=self.jpegheader
                )
            except Exception as error:  # decoders raise errors of many kinds
                hint = "; pip install 'gzarr[tiff]' has all decoders" if "imagecodecs" in str(error) else ""
                raise StoreError(f"{key!r}: page {page}, segment {segment} cannot be decoded: {error}{hint}") from error
            if values is None:
                continue
            if self.segments.are_counted:
                plane, begin = 0, [0, 0, 0]
            block[plane][tuple(slice(at, at + n) for at, n in zip(begin, values.shape, strict=False))] = values
        return block.reshape(self.segments.shape)
