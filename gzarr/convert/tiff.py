"""Converts TIFF, BigTIFF, OME-TIFF and ImageJ files to Zarr by segment, arrays to TIFF and images to OME-TIFF."""

import math
import os
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np

from gzarr.api.open import open_array
from gzarr.convert.rasters import around
from gzarr.convert.writing import node_of, of_files, replacing, write
from gzarr.copying.arrays import BUDGET_NBYTES
from gzarr.copying.planning import TransferKeywords, axis_names
from gzarr.copying.report import TransferReport
from gzarr.copying.sources import Source, SourceTree, from_array, of_file, on_host, reading, regular_grid
from gzarr.errors import CopyError
from gzarr.hierarchy.array import Array
from gzarr.images.image import Image, open_image
from gzarr.images.ome.axes import ANGLES, unit_factor, unit_type
from gzarr.indexing.keys import join_path
from gzarr.metadata.conventions import nodata_of
from gzarr.storage.base import Store
from gzarr.storage.extras import require
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
    transform become the attributes ``proj:code`` and ``spatial:transform``, the names of bands ``band_names``, scale,
    offset and unit that all bands share ``scale_factor``, ``add_offset`` and ``units``, and the nodata value the fill
    value and the attributes ``nodata`` and ``_FillValue``, which xarray reads.

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
    grid = regular_grid(level.shape, None if level.is_run else level.chunk_shape)
    options = {"chunks": level.chunk_shape} if level.is_tiled else {}
    how: dict[str, Any] = {"attributes": level.attributes, "options": options, "mask_value": level.nodata}
    dtype = level.dtype.newbyteorder("=")
    return of_file(replace(from_array(array), name=name, dtype=dtype, grid=grid, array=None, **how))


# -- to TIFF -----------------------------------------------------------------------------------------------------------

#: Lengths of tiles are multiples of this. Source: TIFF 6.0, section 15.
_MULTIPLE = 16
_TILE = 256
_GDAL_NODATA = 42113
#: Larger files need the offsets of BigTIFF.
_BIG_NBYTES = 1 << 31
#: tifffile's letters for axes that have one by their names. Others become "Q", which says nothing.
_LETTERS = {"time": "T", "channel": "C", "band": "C", "depth": "Z", "lat": "Y", "lon": "X"}
_KNOWN = "TZCYX"


def to_tiff(
    source: Any,
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    tile: tuple[int, int] | None = None,
    compression: Literal["zlib", "lzw", "zstd", "deflate", "lzma", "jpeg"] | None = "zlib",
) -> None:
    """Write an array to a TIFF file, whose pages are its last two axes, or an image with its levels to OME-TIFF.

    The levels of an image are SubIFDs, as Bio-Formats reads them. Its axes, voxel sizes, and the names and colours of
    its channels are in the OME-XML. Each page has levels of its own there: those that are smaller along other axes than
    y and x, such as z, are left out, and labels are not written.

    A last axis of two to four samples named "c", or of three or four without a name, becomes the samples of a pixel.
    Names of axes are stored in tifffile's form, and the attribute ``nodata`` in GDAL's, which `from_tiff` reads. Files
    of more than 2 GiB are BigTIFF. `to_geotiff` also writes where the pixels of a map lie.

    Parameters
    ----------
    source : Array, Image, Group, path or URL
        The array or the image. Of an image's levels, one is named so: "image.zarr/0".
    path : str or path
        Path of the file, which appears when it is complete.
    overwrite : bool, default False
        Whether to replace an existing file.
    tile : tuple of two int, optional
        Shape of the tiles, multiples of 16. By default that of the chunks, if it is one, or (256, 256).
    compression : str, optional
        Compression of tifffile, "zlib" by default; None for none.

    Raises
    ------
    CopyError
        If the file exists or cannot be written, or TIFF lacks such arrays, or OME-TIFF such axes or data types.
    MissingExtraError
        If tifffile is missing.

    Examples
    --------
    >>> import tempfile, tifffile, gzarr
    >>> folder = tempfile.mkdtemp()
    >>> gzarr.convert.to_tiff(gzarr.ones((3, 64, 80), dtype="u2"), f"{folder}/a.tif")
    >>> tifffile.imread(f"{folder}/a.tif").shape
    (3, 64, 80)
    """
    tifffile = require("tifffile", "tiff", "the conversion to TIFF files")
    found = node_of(source.group if isinstance(source, Image) else source, path)
    if not isinstance(found, Array):
        if not {"ome", "multiscales"} & set(found.attrs):
            raise CopyError(f"{found.store_path} is a group: a TIFF file holds an array or an image; name one in it")
        image = source if isinstance(source, Image) else open_image(found)
        _warn_of_loss(image.levels[0])
        _write_image(tifffile, image, path, tile, overwrite=overwrite, compression=compression)
        return
    array = found
    _warn_of_loss(array, source)
    samples = _nsamples(array)
    npixel = array.ndim - (samples > 0)
    if npixel < 2 or 0 in array.shape or array.dtype.kind not in "biufc":
        what = f"shape {array.shape} and dtype {array.dtype}"
        raise CopyError(f"{array.store_path} has {what}: TIFF holds numbers in at least two axes, none of them empty")
    shape = _tile_shape(array, samples) if tile is None else tile
    big = array.nbytes >= _BIG_NBYTES
    with replacing(path, overwrite=overwrite) as partial, tifffile.TiffWriter(partial, bigtiff=big) as file:
        file.write(
            _tiles(array, shape, samples),
            shape=array.shape,
            dtype=array.dtype.newbyteorder("="),
            tile=shape,
            compression=compression,
            **_tags(array, samples),
        )


def _warn_of_loss(array: Array, source: Any = None) -> None:
    group = around(source)[0]
    lost = [name for name in axis_names(from_array(array)) if name and name in group]
    lost += [key for key in ("spatial:transform", "scale_factor", "add_offset") if key in array.attrs]
    if lost:
        names = ", ".join(lost)
        warnings.warn(f"{array.store_path}: TIFF has no place for {names}; to_geotiff writes maps", stacklevel=3)


def _tags(array: Array, samples: int) -> dict[str, Any]:
    """How an array of so many samples is described."""
    axes, nodata = _axes(array, samples), nodata_of(array.metadata)
    options: dict[str, Any] = {"metadata": {"axes": axes}} if axes else {}
    options["photometric"] = "rgb" if samples > 2 else "minisblack"
    if samples:
        options["planarconfig"] = "contig"
    if nodata is not None:
        options["extratags"] = [(_GDAL_NODATA, "s", 0, str(nodata.item()), True)]
    return options


def _write_image(
    tifffile: Any,
    image: Image,
    path: str | os.PathLike[str],
    tile: tuple[int, int] | None,
    *,
    overwrite: bool,
    compression: str | None,
) -> None:
    """Write OME-TIFF. Source: the OME-TIFF specification, sub-resolutions. Raises: CopyError."""
    base, axes = image.levels[0], "".join(image.axes).upper()
    fits = base.dtype.kind in "fc" or (base.dtype.kind in "iu" and base.itemsize < 8)
    if not fits or 0 in base.shape or axes[-2:] != "YX" or not set(axes) <= set(_KNOWN) or base.dtype == np.float16:
        what = f"axes {image.axes}, shape {base.shape} and dtype {base.dtype}"
        known = "t, c, z, y, x and numbers of up to 32 bits, or floats and complex numbers of NumPy but float16"
        raise CopyError(f"{image.group.store_path} has {what}: OME-TIFF has {known}; convert it, or write one level")
    levels = [level.to("cpu") for level in image.levels if level.shape[:-2] == base.shape[:-2]]
    other = [f"level {number}" for number, level in enumerate(image) if level.shape[:-2] != base.shape[:-2]]
    if lost := [*other, *(f"label {name!r}" for name in image.labels)]:
        warnings.warn(f"{image.group.store_path}: OME-TIFF has no place for {', '.join(lost)}", stacklevel=3)
    shape = _tile_shape(base, 0) if tile is None else tile
    options: dict[str, Any] = {"dtype": base.dtype.newbyteorder("="), "tile": shape, "compression": compression}
    options["photometric"] = "minisblack"
    big = sum(level.nbytes for level in levels) >= _BIG_NBYTES
    said: dict[str, Any] = {"metadata": _ome_metadata(image, axes), "subifds": len(levels) - 1 or None}
    with replacing(path, overwrite=overwrite) as partial, tifffile.TiffWriter(partial, bigtiff=big, ome=True) as file:
        for level in levels:
            file.write(_tiles(level, shape, 0), shape=level.shape, **options, **said)
            said = {"subfiletype": 1}


def _ome_metadata(image: Image, axes: str) -> dict[str, Any]:
    """What tifffile makes OME-XML of: voxels in micrometers and seconds, names and colours of channels."""
    made: dict[str, Any] = {"axes": axes}
    made |= {"Name": image.metadata.name} if image.metadata.name else {}
    for name, size in image.scale(0).items():
        kind = unit_type(unit) if (unit := image.units.get(name)) and unit not in ANGLES else None
        if name in "xyz":
            made[f"PhysicalSize{name.upper()}"] = size * (unit_factor(unit, "micrometer") if unit and kind else 1)
            made[f"PhysicalSize{name.upper()}Unit"] = "µm" if kind else "pixel"
        elif name == "t" and unit and kind:
            made |= {"TimeIncrement": size * unit_factor(unit, "second"), "TimeIncrementUnit": "s"}
    if "C" in axes and image.channels:
        labels = [channel.label or f"channel {number}" for number, channel in enumerate(image.channels)]
        colors = [int.from_bytes(bytes.fromhex(f"{c.color or 'FFFFFF'}FF"), signed=True) for c in image.channels]
        made["Channel"] = {"Name": labels, "Color": colors}
    return made


def _nsamples(array: Array) -> int:
    """How many samples a pixel has in the last axis; 0 if that is no axis of samples."""
    if array.ndim < 3 or array.dtype.kind not in "ui":
        return 0
    name, extent = axis_names(from_array(array))[-1], array.shape[-1]
    if name is None:
        return extent if extent in (3, 4) else 0
    return extent if name.lower() in ("c", "s", "rgb", "rgba", "channel", "band") and 1 < extent <= 4 else 0


def _axes(array: Array, samples: int) -> str | None:
    """Tifffile's letters for the axes; None if the array has no names."""
    names = axis_names(from_array(array))
    if not any(names):
        return None
    letters = [_LETTERS.get((name or "").lower(), (name or "").upper()) for name in names]
    known = [letter if letter in _KNOWN and letters.count(letter) == 1 and letter else "Q" for letter in letters]
    inner = ["Y", "X", "S"] if samples else ["Y", "X"]
    outer = [letter if letter not in inner else "Q" for letter in known[: -len(inner)]]
    return "".join([*outer, *inner])


def _tile_shape(array: Array, samples: int) -> tuple[int, int]:
    chunk = array.chunks[array.ndim - 2 - (samples > 0) :][:2]
    fits = all(n % _MULTIPLE == 0 and n <= 4 * _TILE for n in chunk)
    return (chunk[0], chunk[1]) if fits else (_TILE, _TILE)


def _tiles(array: Array, tile: tuple[int, int], samples: int) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the tiles page by page; as many pages are read at once as chunks hold, if they fit into the budget."""
    outer = array.shape[: array.ndim - 2 - (samples > 0)]
    page_shape = array.shape[len(outer) :]
    page_nbytes = math.prod(page_shape) * array.itemsize
    depth = array.chunks[len(outer) - 1] if outer else 1
    npages = max(1, min(depth, BUDGET_NBYTES // page_nbytes))
    rows = page_shape[0]
    if page_nbytes > BUDGET_NBYTES:
        high = -(-array.chunks[len(outer)] // tile[0]) * tile[0]
        rows = high if high * page_nbytes // page_shape[0] <= BUDGET_NBYTES else tile[0]
    for index in np.ndindex(*outer[:-1]):
        for first in range(0, outer[-1] if outer else 1, npages):
            pages = (slice(first, first + npages),) if outer else ()
            yield from _tiles_of_pages(array, (*index, *pages), rows, tile, stacked=bool(outer))


def _tiles_of_pages(
    array: Array, where: tuple[Any, ...], rows: int, tile: tuple[int, int], *, stacked: bool
) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the tiles of some pages, reading so many rows at a time; several pages are read whole."""
    height = array.shape[len(where)]
    for low in range(0, height, rows):
        block = on_host(array[(*where, slice(low, min(low + rows, height)))])
        for page in block if stacked else [block]:
            for y in range(0, page.shape[0], tile[0]):
                for x in range(0, page.shape[1], tile[1]):
                    yield np.ascontiguousarray(page[y : y + tile[0], x : x + tile[1]])
