"""Converts TIFF, BigTIFF, OME-TIFF and ImageJ files to Zarr by segment, with tifffile (the extra ``tiff``)."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from gzarr.concurrency import new_lock
from gzarr.convert.dicom import unless_dicom
from gzarr.convert.tiff_tags import band_names, geo_attributes, nodata_of, tags_of
from gzarr.convert.writing import write
from gzarr.copying.report import TransferReport
from gzarr.copying.settings import TransferKeywords
from gzarr.copying.sources import Source, SourceTree, reading, regular_grid
from gzarr.dtypes import fill_to_json, parse_dtype
from gzarr.errors import CopyError
from gzarr.indexing.regions import Region
from gzarr.metadata.conventions import NODATA
from gzarr.storage.extras import require

#: Positions of the axes of a page in the five that tifffile counts segments by: planes, depth, length, width, samples.
_PLACE = {"Z": 1, "Y": 2, "X": 3}


def from_tiff(
    source: str | os.PathLike[str],
    dest: Any,
    *,
    series: int | None = None,
    ome: bool = False,
    **options: Unpack[TransferKeywords],
) -> TransferReport:
    """Convert a TIFF file to Zarr, reading only the tiles or strips that each region needs.

    A file with one image series becomes an array. The levels of a pyramid become a group of arrays "0", "1", ...
    Several series become the groups or arrays "series_0", "series_1", ... Axes become dimension names, tags such as
    description and resolution become attributes, and tiles become chunks. Of a GeoTIFF, the coordinate system and the
    transform become the attributes ``proj:code`` and ``spatial:transform``, the names of bands ``band_names``, and the
    nodata value the fill value and the attributes ``nodata`` and ``_FillValue``, which xarray reads.

    Parameters
    ----------
    source : str or path
        Path of the file.
    dest : path, URL, store or Group
        Where the Zarr node goes.
    series : int, optional
        Number of the series to convert; by default all of them.
    ome : bool
        Whether to write OME-Zarr images, 0.5 in Zarr v3 or 0.4 in v2: with the axes "tczyx" or a part of it, and the
        voxel sizes, units, channel names and colours that OME-XML, ImageJ, Aperio or GDAL have put into the file.
        Levels that the file has are kept as they are; an image of one level gets a pyramid. Several series become a
        collection of images "0", "1", ...
    **options
        Keywords of `gzarr.transfer`.

    Returns
    -------
    TransferReport
        What was done.

    Raises
    ------
    CopyError
        If the file cannot be read or has no such series, or the copy stops.
    MissingExtraError
        If tifffile is missing.

    Examples
    --------
    >>> import numpy as np, tempfile, tifffile, gzarr
    >>> folder = tempfile.mkdtemp()
    >>> tifffile.imwrite(f"{folder}/a.tif", np.zeros((256, 256), "u1"), tile=(64, 64))
    >>> report = gzarr.convert.from_tiff(f"{folder}/a.tif", f"{folder}/a.zarr")
    >>> gzarr.open(f"{folder}/a.zarr").chunks
    (64, 64)
    """
    tifffile = require("tifffile", "tiff", "the conversion of TIFF files")
    path = Path(source)
    with ExitStack() as stack:
        with unless_dicom(path):
            with _damage_noted() as damage, reading(f"{str(path)!r} as TIFF"):
                file = stack.enter_context(tifffile.TiffFile(path))
                every = list(file.series)
            if damage or not every:
                what = [*damage, "it holds no image"][0]
                raise CopyError(f"{str(path)!r} is damaged or cut off: {what}; get the whole file")
        if series is not None and not 0 <= series < len(every):
            raise CopyError(f"{str(path)!r} has {len(every)} series, no number {series}")
        chosen = every if series is None else [every[series]]
        if ome:
            from gzarr.convert import microscopy  # `import gzarr` needs no images

            with reading(f"{str(path)!r} as TIFF"):
                given = [(n, one, _levels(one, f"{path}:{n}")) for n, one in enumerate(every) if series in (None, n)]
            return microscopy.write_images(file, given, dest, options)
        groups: dict[str, Mapping[str, Any]] = {}
        arrays: dict[str, Source] = {}
        if len(chosen) != 1:
            groups[""] = {}
        with reading(f"{str(path)!r} as TIFF"):
            for number, one in enumerate(chosen):
                _add_series(one, f"series_{number}" if len(chosen) > 1 else "", str(path), groups, arrays)
        return write(SourceTree(str(path), groups, arrays, files=[str(path)]), dest, **options)


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


def _add_series(
    series: Any, path: str, name: str, groups: dict[str, Mapping[str, Any]], arrays: dict[str, Source]
) -> None:
    attributes = {"axes": series.axes, **tags_of(series.keyframe)}
    names = band_names(series.keyframe)
    if names:
        attributes["band_names"] = [names.get(n) for n in range(max(names) + 1)]
    levels = _levels(series, f"{name}:{path or 'image'}")
    if len(levels) == 1:
        arrays[path] = replace(levels[0], attributes={**attributes, **levels[0].attributes})
        return
    groups[path] = attributes
    for number, level in enumerate(levels):
        arrays[f"{path}/{number}".lstrip("/")] = replace(level, attributes={"axes": series.axes, **level.attributes})


def _levels(series: Any, name: str) -> list[Source]:
    """The levels of a series, with the place on the Earth as their attributes if the file says it."""
    found = []
    for number, level in enumerate(series.levels):
        attributes: dict[str, Any] = {}
        if series.keyframe.is_geotiff:
            whole, here = ([one.shape[one.axes.index(axis)] for axis in "YX"] for one in (series, level))
            attributes = geo_attributes(series.keyframe, (here[0], here[1]), (whole[0] / here[0], whole[1] / here[1]))
        nodata = nodata_of(series.keyframe, np.dtype(level.dtype))
        if nodata is not None:
            attributes[NODATA] = fill_to_json(nodata, parse_dtype(level.dtype), 3)
        found.append(_level(level, f"{name}, level {number}" if number else name, attributes, nodata))
    return found


def _level(level: Any, name: str, attributes: Mapping[str, Any], nodata: Any) -> Source:
    """One resolution of a series as a source. Raises CopyError if its pages do not add up to its shape."""
    page, shape = level.keyframe, tuple(level.shape)
    dtype = np.dtype(level.dtype)
    segments = None
    # the pages of a series may be in several files with their own offsets
    one_file = all(other is None or other.parent is page.parent for other in level.pages)
    if one_file and level.dataoffset is not None:
        stored = dtype.newbyteorder(page.parent.byteorder)
        try:
            data = np.memmap(page.parent.filehandle.path, stored, "r", offset=level.dataoffset, shape=shape)
        except ValueError as error:
            raise CopyError(f"{name} is cut off: {error}; get the whole file") from error
        read: Callable[[Region], Any] = data.__getitem__
    else:
        outer = shape[: len(shape) - page.ndim]
        if shape[len(outer) :] != tuple(page.shape) or math.prod(outer) != len(level.pages):
            raise CopyError(f"{name}: {len(level.pages)} pages of {page.shape} do not add up to an image of {shape}")
        _check_whole(level)
        pages = _Pages(level, outer, nodata)
        read = pages.read
        segments = (*[1] * len(outer), *pages.segment_shape)
    return Source(
        name=name,
        shape=shape,
        dtype=dtype,
        itemsize=dtype.itemsize,
        read=read,
        grid=regular_grid(shape, segments),
        attributes=attributes,
        dimension_names=_dimension_names(level.axes),
        options={"chunks": segments} if segments and page.is_tiled else {},
        mask_value=nodata,
    )


def _check_whole(level: Any) -> None:
    """Refuse a file that ends before the last segment of a page, before anything is written. Raises CopyError."""
    for page in level.pages:
        if page is None:  # sparse files leave out empty pages
            continue
        handle = page.parent.filehandle
        nbytes = handle.size
        for number, (offset, length) in enumerate(zip(page.dataoffsets, page.databytecounts, strict=False)):
            if length and offset + length > nbytes:
                raise CopyError(f"{handle.name}: page {page.index}, segment {number} is cut off; get the whole file")


def _dimension_names(axes: str) -> tuple[str, ...] | None:
    names = tuple("c" if axis == "S" and "C" not in axes else axis.lower() for axis in axes)
    return names if len(set(names)) == len(names) else None


class _Pages:
    """Reads regions of a stack of pages by decoding the segments that they touch. Any thread may read."""

    def __init__(self, level: Any, outer: tuple[int, ...], nodata: Any) -> None:
        self._level = level
        self._outer = outer
        self._nodata = 0 if nodata is None else nodata
        self._page = page = level.keyframe
        self._places = [_PLACE.get(axis, 0 if page.planarconfig == 2 else 4) for axis in page.axes]
        _, depth, length, width, samples = page.shaped
        if page.is_tiled:
            self._segment = (1, page.tiledepth, page.tilelength, page.tilewidth, samples)
        else:
            self._segment = (1, 1, min(page.rowsperstrip, length), width, samples)
        self._counts = tuple(-(-n // s) for n, s in zip(page.shaped, self._segment, strict=True))
        #: Pages whose segments are counted in another way are decoded whole.
        self._whole = math.prod(self._counts) != len(page.dataoffsets) or (depth > 1 and not page.is_tiled)
        self._lock = new_lock()

    @property
    def segment_shape(self) -> tuple[int, ...]:
        """Shape of a tile or strip in the axes of the page; that of the page if it is decoded whole."""
        return tuple(self._page.shape) if self._whole else tuple(self._segment[place] for place in self._places)

    def read(self, region: Region) -> Any:
        """Decode a region."""
        nouter = len(self._outer)
        lengths = [part.stop - part.start for part in region]
        out = np.full(lengths, self._nodata, self._level.dtype)
        numbers = np.arange(math.prod(self._outer)).reshape(self._outer)
        for inner, number in np.ndenumerate(numbers[region[:nouter]]):
            page = self._level.pages[int(number)]
            if page is not None:  # sparse files leave out empty pages
                self._read_page(page, region[nouter:], out[inner])
        return out

    def _read_page(self, page: Any, region: Region, out: Any) -> None:
        if self._whole:
            with self._lock:
                out[...] = page.asarray()[region]
            return
        box = [slice(0, n) for n in self._page.shaped]
        for place, part in zip(self._places, region, strict=True):
            box[place] = part
        target = out.reshape([part.stop - part.start for part in box])
        spans = [range(part.start // s, -(-part.stop // s)) for part, s in zip(box, self._segment, strict=True)]
        for coords in product(*spans):
            self._read_segment(page, int(np.ravel_multi_index(coords, self._counts)), box, target)

    def _fetch(self, page: Any, index: int) -> bytes:
        """The encoded bytes of a segment. Raises CopyError if the file ends too soon."""
        handle, nbytes = page.parent.filehandle, page.databytecounts[index]
        with self._lock:
            closed = handle.closed  # the files of a series are, if there are several
            if closed:
                handle.open()
            try:
                handle.seek(page.dataoffsets[index])
                encoded: bytes = handle.read(nbytes)
            finally:
                if closed:
                    handle.close()
        if len(encoded) < nbytes:
            raise CopyError(f"{handle.name}: page {page.index}, segment {index} is cut off; get the whole file")
        return encoded

    def _read_segment(self, page: Any, index: int, box: list[slice], target: Any) -> None:
        """Decode one segment and copy the part of it in the box."""
        if not page.databytecounts[index]:
            return
        encoded = self._fetch(page, index)
        try:
            data, position, shape = self._page.decode(
                encoded, index, jpegtables=page.jpegtables, jpegheader=self._page.jpegheader
            )
        except Exception as error:  # decoders raise errors of many kinds
            hint = "; pip install 'gzarr[tiff]' has all decoders" if "imagecodecs" in str(error) else ""
            raise CopyError(
                f"{page.parent.filehandle.name}: page {page.index}, segment {index} cannot be decoded: {error}{hint}"
            ) from error
        if data is None:
            return
        starts = [position[0], *position[1:4], 0]
        lengths = [1, *shape]
        lows = [max(part.start, s) for part, s in zip(box, starts, strict=True)]
        highs = [min(part.stop, s + n) for part, s, n in zip(box, starts, lengths, strict=True)]
        inside = tuple(slice(low - s, high - s) for low, high, s in zip(lows, highs, starts, strict=True))
        into = tuple(slice(low - p.start, high - p.start) for low, high, p in zip(lows, highs, box, strict=True))
        target[into] = data[None][inside]
