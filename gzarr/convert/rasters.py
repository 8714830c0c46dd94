"""Reads rasters by rasterio, and writes Cloud Optimized GeoTIFF."""

import os
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np

from gzarr.concurrency import new_lock
from gzarr.convert.writing import replacing
from gzarr.errors import CopyError, GzarrError
from gzarr.hierarchy.array import Array
from gzarr.images.create import create_image
from gzarr.images.image import Image, open_image
from gzarr.images.named_data import LazyVolume
from gzarr.indexing.regions import Region
from gzarr.metadata.conventions import nodata_of
from gzarr.storage.extras import require


def from_rasterio(source: Any, dest: Any, **kwargs: Any) -> Image:
    """Convert a raster that rasterio opens (GDAL's formats) to OME-Zarr, with the size of pixels and missing data.

    Parameters
    ----------
    source : path, URL or rasterio.DatasetReader
        The raster.
    dest : path, URL, store or Group
        Where the image goes.
    **kwargs
        Keywords of `gzarr.images.create_image`.

    Returns
    -------
    Image
        The image, of axes "cyx", or "yx" of one band. Its level 0 has the attributes ``proj:code`` and
        ``spatial:transform``, as `from_tiff` writes them.
    """
    rasterio = require("rasterio", "raster", "from_rasterio")
    with nullcontext(source) if hasattr(source, "dtypes") else rasterio.open(source) as file:
        return _from_opened(rasterio, file, dest, kwargs)


def _from_opened(rasterio: Any, file: Any, dest: Any, kwargs: Mapping[str, Any]) -> Image:
    several, reading = file.count > 1, new_lock()

    def read(region: Region) -> Any:
        y, x = region[-2:]
        bands = list(range(1, file.count + 1))[region[0]] if several else 1
        with reading:  # GDAL's datasets serve one thread at a time
            return file.read(bands, window=rasterio.windows.Window.from_slices(y, x))

    height, width = file.block_shapes[0]
    lead = (file.count,) if several else ()
    chunks = (*(1 for _ in lead), min(height, file.height), min(width, file.width))
    volume = LazyVolume((*lead, file.height, file.width), np.dtype(file.dtypes[0]), read, chunks)
    given: dict[str, Any] = {"axes": "cyx" if several else "yx"}
    given["scale"] = dict(zip("xy", map(abs, file.res), strict=True))
    if file.nodata is not None:
        given["skip"] = file.nodata
    if several:
        given["channels"] = [text or f"band {n}" for n, text in enumerate(file.descriptions, 1)]
    image = create_image(dest, volume, **{**given, **kwargs})
    code = file.crs.to_authority() if file.crs else None
    said: dict[str, Any] = {"spatial:transform": list(file.transform)[:6]}
    image.levels[0].attrs.update(said | ({"proj:code": ":".join(code)} if code else {}))
    return image


def _around(source: Any) -> Image | None:
    """The image of which an array, or what has a path or URL, is a level; None if it is none."""
    is_array = isinstance(source, Array)
    if not is_array and not isinstance(source, (str, os.PathLike)):
        return None
    place, _, level = (source.path if is_array else os.fspath(source).rstrip("/")).rpartition("/")
    with suppress(GzarrError, OSError):
        image = open_image(source.store, "r", path=place) if is_array else open_image(place or ".", "r")
        return image if level in [one.path for one in image.metadata.datasets] else None
    return None


def to_geotiff(source: Any, path: str | os.PathLike[str], *, overwrite: bool = False, **kwargs: Any) -> None:
    """Write an image or an array to a Cloud Optimized GeoTIFF with overviews, in bounded memory.

    Parameters
    ----------
    source : Image, Array or path
        Of two axes, or three, of which one is of bands: the first, or that with such a name. Its attributes
        ``proj:code``, ``spatial:transform``, ``spatial:registration`` and ``nodata`` are kept, and the names of
        channels, or the attribute ``band_names``.
    path : str or path
        Path of the file, which appears when it is complete.
    overwrite : bool, default False
        Whether to replace an existing file.
    **kwargs
        Options of GDAL's driver COG, such as ``compress="zstd"``.
    """
    rasterio = require("rasterio", "raster", "to_geotiff")
    shutil = require("rasterio.shutil", "raster", "to_geotiff")
    found = source if isinstance(source, Image) else open_image(source, "r")  # of an array, too: with bands first
    array = found.levels[0].to("cpu")
    if array.ndim not in (2, 3):
        raise CopyError(f"{array.store_path} has {array.ndim} axes: a GeoTIFF has two, and bands")
    attributes: Mapping[str, Any] = array.attrs.asdict()
    profile: dict[str, Any] = {"driver": "GTiff", "tiled": True, "bigtiff": "if_safer", "dtype": array.dtype.name}
    profile |= dict(zip(("height", "width"), array.shape[-2:], strict=True))
    profile |= {"count": array.shape[0] if array.ndim == 3 else 1, "crs": attributes.get("proj:code")}
    if "spatial:transform" in attributes:
        middle = 0.5 if attributes.get("spatial:registration") == "node" else 0.0  # GDAL's is that of the corner
        a, b, x, c, d, y = attributes["spatial:transform"][:6]
        profile["transform"] = rasterio.Affine(a, b, x - middle * (a + b), c, d, y - middle * (c + d))
    names = attributes.get("band_names") or [channel.label for channel in (_around(source) or found).channels]
    nodata = nodata_of(array.metadata)
    profile["nodata"] = None if nodata is None else nodata.item()
    with replacing(path, overwrite=overwrite) as partial:
        plain = f"{partial}.plain.tif"
        try:
            with rasterio.open(plain, "w", **profile) as file:
                for band, name in zip(file.indexes, names, strict=False):
                    file.set_band_description(band, name or "")
                for _, window in file.block_windows(1):
                    y, x = window.toslices()
                    block = array[(..., y, x)]
                    file.write(block if array.ndim == 3 else block[None], window=window)
            shutil.copy(plain, str(partial), driver="COG", **{"compress": "deflate", **kwargs})
        finally:
            Path(plain).unlink(missing_ok=True)
