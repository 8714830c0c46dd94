"""Converts TIFF, BigTIFF, OME-TIFF and ImageJ files to Zarr by segment, with tifffile (the extra ``tiff``)."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from gzarr.api.open import open_array
from gzarr.convert.writing import of_files, write
from gzarr.copying.report import TransferReport
from gzarr.copying.settings import TransferKeywords
from gzarr.copying.sources import Source, SourceTree, of_file, reading, regular_grid
from gzarr.errors import CopyError
from gzarr.indexing.keys import join_path
from gzarr.storage.base import Store
from gzarr.storage.local import LocalStore
from gzarr.virtual.store import Contents, VirtualStore
from gzarr.virtual.tiff import ImageLevel, levels_of, opened_tiff, series_attributes


@of_files
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
    path = Path(source)
    name = str(path)
    with opened_tiff(path, name) as file:
        every = list(file.series)
        if series is not None and not 0 <= series < len(every):
            raise CopyError(f"{name!r} has {len(every)} series, no number {series}")
        chosen = [(n, one) for n, one in enumerate(every) if series in (None, n)]
        with reading(f"{name!r} as TIFF"):
            given = [(n, one, _sources(one, path, f"{name}:{n if ome else 'image'}")) for n, one in chosen]
        if ome:
            from gzarr.convert import microscopy  # `import gzarr` needs no images

            return microscopy.write_images(file, given, dest, options)
        groups: dict[str, Any] = {} if len(chosen) == 1 else {"": {}}
        arrays: dict[str, Source] = {}
        for number, one, levels in given:
            at = f"series_{number}" if len(chosen) > 1 else ""
            attributes = series_attributes(one)
            if len(levels) == 1:
                arrays[at] = replace(levels[0], attributes={**attributes, **levels[0].attributes})
                continue
            groups[at] = attributes
            arrays |= {
                join_path(at, str(n)): replace(level, attributes={"axes": one.axes, **level.attributes})
                for n, level in enumerate(levels)
            }
        return write(SourceTree(name, groups, arrays, files=[name]), dest, **options)


def _sources(series: Any, path: Path, name: str) -> list[Source]:
    """The levels of a series as sources. Raises CopyError."""
    objects: list[tuple[Store, str]] = [(LocalStore(path.parent, read_only=True), path.name)]
    return [
        _source(level, objects, f"{name}, level {number}" if number else name)
        for number, level in enumerate(levels_of(series, objects, name))
    ]


def _source(level: ImageLevel, objects: list[tuple[Store, str]], name: str) -> Source:
    contents = Contents({"zarr.json": level.document({})}, {"": level.chunks}, objects)
    array = open_array(VirtualStore(lambda: contents, name), "r", device="cpu")
    dtype = level.dtype.newbyteorder("=")
    return of_file(
        Source(
            name=name,
            shape=level.shape,
            dtype=dtype,
            itemsize=dtype.itemsize,
            read=array.__getitem__,
            grid=regular_grid(level.shape, None if level.is_run else level.chunk_shape),
            attributes=level.attributes,
            dimension_names=level.dimension_names,
            options={"chunks": level.chunk_shape} if level.is_tiled else {},
            mask_value=level.nodata,
        )
    )
