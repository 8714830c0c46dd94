"""Writes arrays as TIFF files of tiles, with tifffile (the extra ``tiff``)."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from gzarr.convert.writing import node_of, replacing
from gzarr.copying.arrays import BUDGET_NBYTES
from gzarr.copying.named_chunks import axis_names
from gzarr.copying.sources import from_array, on_host
from gzarr.errors import CopyError
from gzarr.hierarchy.array import Array
from gzarr.metadata.conventions import nodata_of
from gzarr.storage.extras import require

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
    """Write an array to a TIFF file, whose pages are its last two axes.

    A last axis of two to four samples named "c", or of three or four without a name, becomes the samples of a pixel.
    Names of axes are stored in tifffile's form, and the attribute ``nodata`` in GDAL's, which `from_tiff` reads. Files
    of more than 2 GiB are BigTIFF.

    Parameters
    ----------
    source : Array, path or URL
        The array. Of a group of levels, name one: "image.zarr/0".
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
        If the file exists or cannot be written, or TIFF lacks such arrays.
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
    array = node_of(source)
    if not isinstance(array, Array):
        raise CopyError(f"{array.store_path} is a group: a TIFF file holds one array; name it, such as its level '0'")
    samples = _nsamples(array)
    npixel = array.ndim - (samples > 0)
    if npixel < 2 or 0 in array.shape or array.dtype.kind not in "biufc":
        what = f"shape {array.shape} and dtype {array.dtype}"
        raise CopyError(f"{array.store_path} has {what}: TIFF holds numbers in at least two axes, none of them empty")
    shape = _tile_shape(array, samples) if tile is None else tile
    axes = _axes(array, samples)
    options: dict[str, Any] = {"metadata": {"axes": axes}} if axes else {}
    if samples:
        options |= {"planarconfig": "contig", "photometric": "rgb" if samples > 2 else "minisblack"}
    else:
        options["photometric"] = "minisblack"
    nodata = nodata_of(array.metadata)
    if nodata is not None:
        options["extratags"] = [(_GDAL_NODATA, "s", 0, str(nodata.item()), True)]
    big = array.nbytes >= _BIG_NBYTES
    with replacing(path, overwrite=overwrite) as partial, tifffile.TiffWriter(partial, bigtiff=big) as file:
        file.write(
            _tiles(array, shape, samples),
            shape=array.shape,
            dtype=array.dtype.newbyteorder("="),
            tile=shape,
            compression=compression,
            **options,
        )


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
