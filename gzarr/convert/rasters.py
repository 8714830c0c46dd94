"""Reads rasters by rasterio, and writes Cloud Optimized GeoTIFF."""

import os
import re
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np

from gzarr.api.groups import open_group
from gzarr.concurrency import new_lock
from gzarr.convert.writing import replacing
from gzarr.errors import CopyError, GzarrError
from gzarr.hierarchy.array import Array
from gzarr.images.create import create_image
from gzarr.images.image import Image, open_image
from gzarr.images.named_data import LazyVolume
from gzarr.images.ome.axes import letters
from gzarr.indexing.regions import Region
from gzarr.metadata.conventions import MASK, decode_mask, missing_data_of, nodata_of
from gzarr.storage.extras import require
from gzarr.virtual.netcdf4 import attributes_of

#: Units of the coordinates of maps, and how far from regular ones they may be, in parts of a step.
_DEGREES = {"x": "degrees?_?(E|east)", "y": "degrees?_?(N|north)"}
_TOLERANCE = 1e-2


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


def around(source: Any) -> tuple[Any, str]:
    """The group in which an array lies, or what a path or URL names, and the name there; else an empty mapping."""
    is_array = isinstance(source, Array)
    if is_array or isinstance(source, (str, os.PathLike)):
        place, _, name = (source.path if is_array else os.fspath(source).rstrip("/")).rpartition("/")
        with suppress(GzarrError, OSError):
            store, path = (source.store, place) if is_array else (place or ".", None)
            return open_group(store, "r", path=path, device="cpu"), name
    return {}, ""


def _labels(source: Any, found: Image) -> list[str | None]:
    """The names of channels: of an image, or of the one of which an array is a level."""
    group, level = around(source)
    image = open_image(group) if {"ome", "multiscales"} & set(getattr(group, "attrs", ())) else found
    is_level = level in [one.path for one in image.metadata.datasets]
    return [channel.label for channel in (image if is_level else found).channels]


def place_of(source: Any) -> tuple[dict[str, Any], bool]:
    """Where an array lies by the coordinates beside it, as attributes, north up; and whether its first row is southern.

    Without attributes if they do not say. Source: CF conventions 1.11, sections 4.1, 4.2 and 5.6.
    """
    group, name = around(source)
    array = group.get(name)
    names = array.lazy.dimension_names if isinstance(array, Array) and array.ndim in (2, 3) else None
    if not names:
        return {}, False
    grid = group.get(str(attributes_of(array.attrs).get("grid_mapping")))
    mapping = attributes_of(getattr(grid, "attrs", {}))
    code = mapping.get("crs_wkt", mapping.get("spatial_ref"))  # as older GDAL has it
    x, y = (_along(group.get(names[letters(names).index(axis)] or ""), axis, str(code)) for axis in "xy")
    if not x or not y:
        return {}, False
    transform = [x[2], 0, x[0] - x[2] / 2, 0, -abs(y[2]), max(y[:2]) + abs(y[2]) / 2]
    return {"spatial:transform": transform, "proj:code": code or x[3]}, y[2] > 0


def _along(found: Any, axis: str, crs: str) -> tuple[float, float, float, str | None] | None:
    """The ends of regular coordinates of a map, their step, and what degrees mean; None for others."""
    if not (isinstance(found, Array) and found.ndim == 1 and found.size > 1 and found.dtype.kind in "iuf"):
        return None
    said = attributes_of(found.attrs)
    unit, is_projected = str(said.get("units")), said.get("standard_name") == f"projection_{axis}_coordinate"
    is_degree = re.fullmatch(_DEGREES[axis], unit)
    if not is_degree and (not is_projected or unit.startswith("rad")):  # angles of a satellite's view
        return None
    values = found[...] * np.float64(said.get("scale_factor", 1)) + said.get("add_offset", 0)
    if is_degree and axis == "x" and values.min() > 180:
        values -= 360
    elif re.match("k(ilo)?m", unit) and "kilomet" not in crs:  # the system's unit is the metre
        values *= 1000
    steps = np.diff(values)
    is_regular = np.ptp(steps) <= _TOLERANCE * abs(steps.mean()) > 0
    return (*values[[0, -1]].tolist(), steps.mean().item(), "EPSG:4326" if is_degree else None) if is_regular else None


def _nodata(array: Array) -> Any:
    """The value for missing data that GDAL can keep; None without one."""
    meta = array.metadata
    values = [one.item() for one in (nodata_of(meta), *missing_data_of(meta).values) if one is not None]
    with suppress(ValueError, TypeError):  # of attributes that are no numbers
        if not values and np.isnan(decode_mask(meta.attributes.get(MASK, array.fill_value), array.dtype)):
            return np.nan
    # rasterio takes integers for floats
    return next((one for one in values if not isinstance(one, int) or abs(one) < 1 << 53), None)


def to_geotiff(source: Any, path: str | os.PathLike[str], *, overwrite: bool = False, **kwargs: Any) -> None:
    """Write an image or an array to a Cloud Optimized GeoTIFF with overviews, in bounded memory.

    Parameters
    ----------
    source : Image, Array or path
        Of two axes, or three, of which one is of bands: the first, or that with such a name. Its attributes
        ``proj:code``, ``spatial:transform``, ``spatial:registration`` and ``nodata`` are kept, and the names of
        channels, or the attribute ``band_names``; ``scale_factor``, ``add_offset`` and ``units``, too. Without
        ``spatial:transform``, it is that of the regular coordinates of CF beside an array, such as those of NetCDF in
        degrees_north and degrees_east; the first row is the northernmost then.
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
    base = found.levels[0].to("cpu")
    if base.ndim not in (2, 3):
        raise CopyError(f"{base.store_path} has {base.ndim} axes: a GeoTIFF has two, and bands")
    attributes = attributes_of(base.attrs.asdict())
    place, is_turned = ({}, False) if "spatial:transform" in attributes else place_of(source)
    attributes |= place
    array = base.lazy.flip(-2) if is_turned else base.lazy
    array = array.astype({"?": "u1", "e": "f4"}.get(base.dtype.char, base.dtype))  # GDAL has no smaller ones
    profile: dict[str, Any] = {"driver": "GTiff", "tiled": True, "bigtiff": "if_safer", "dtype": array.dtype.name}
    profile |= dict(zip(("height", "width"), array.shape[-2:], strict=True))
    profile |= {"count": array.shape[0] if array.ndim == 3 else 1, "crs": attributes.get("proj:code")}
    if "spatial:transform" in attributes:
        middle = 0.5 if attributes.get("spatial:registration") == "node" else 0.0  # GDAL's is that of the corner
        a, b, x, c, d, y = attributes["spatial:transform"][:6]
        profile["transform"] = rasterio.Affine(a, b, x - middle * (a + b), c, d, y - middle * (c + d))
    names = base.attrs.get("band_names") or _labels(source, found)
    profile["nodata"] = _nodata(base)
    with replacing(path, overwrite=overwrite) as partial:
        plain = f"{partial}.plain.tif"
        try:
            with rasterio.open(plain, "w", **profile) as file:
                for band, name in zip(file.indexes, names, strict=False):
                    file.set_band_description(band, name or "")
                for key, said in (("scale_factor", "scales"), ("add_offset", "offsets"), ("units", "units")):
                    value = attributes.get(key)
                    if value is not None:
                        setattr(file, said, (str(value) if key == "units" else value,) * file.count)
                for _, window in file.block_windows(1):
                    y, x = window.toslices()
                    block = np.asarray(array[(..., y, x)])
                    file.write(block if array.ndim == 3 else block[None], window=window)
            shutil.copy(plain, str(partial), driver="COG", **{"compress": "deflate", **kwargs})
        finally:
            Path(plain).unlink(missing_ok=True)
