"""Tags of TIFF files as attributes: those that describe an image, and those of GeoTIFF.

Source: OGC 19-008 (GeoTIFF 1.1); the Zarr conventions "spatial" and "proj".
"""

import math
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np

from gzarr.dtypes import cast_fill, parse_dtype
from gzarr.errors import MetadataError
from gzarr.metadata.conventions import as_json

_TAGS = ("ImageDescription", "XResolution", "YResolution", "ResolutionUnit", "Software", "DateTime", "GDAL_NODATA")
#: Tags of GeoTIFF.
_PIXEL_SCALE, _TIEPOINT, _TRANSFORMATION, _GEO_KEYS = 33550, 33922, 34264, 34735
#: Keys of GeoTIFF, and the code of what a file defines itself.
_MODEL_TYPE, _RASTER_TYPE, _GEODETIC_CRS, _PROJECTED_CRS, _USER_DEFINED = 1024, 1025, 2048, 3072, 32767
_ANGULAR_UNIT, _LINEAR_UNIT = 2054, 3076
_PIXEL_IS_POINT, _IS_GEOGRAPHIC = 2, 2
#: Units by their numbers in the registry of EPSG, and how many of them one is: surveyors' feet are no feet.
_UNITS = {9001: ("meter", 1.0), 9002: ("foot", 1.0), 9003: ("meter", 1200 / 3937), 9036: ("kilometer", 1.0)}
_UNITS |= {9101: ("radian", 1.0), 9102: ("degree", 1.0), 9122: ("degree", 1.0)}
_CONVENTIONS = {
    "spatial": {
        "uuid": "689b58e2-cf7b-45e0-9fff-9cfc0883d6b4",
        "name": "spatial",
        "schema_url": "https://raw.githubusercontent.com/zarr-conventions/spatial/refs/tags/v1/schema.json",
        "spec_url": "https://github.com/zarr-conventions/spatial/blob/v1/README.md",
    },
    "proj": {
        "uuid": "f17cb550-5864-4468-aeb7-f3180cfb622f",
        "name": "proj",
        "schema_url": "https://raw.githubusercontent.com/zarr-conventions/geo-proj/refs/tags/v1/schema.json",
        "spec_url": "https://github.com/zarr-conventions/geo-proj/blob/v1/README.md",
    },
}


def tags_of(page: Any) -> dict[str, Any]:
    """The tags that describe the image, if they have a form in JSON."""
    tags = {}
    for tag in _TAGS:
        if tag in page.tags:
            value = fraction(page, tag) if tag.endswith("Resolution") else page.tags[tag].value
            try:
                tags[tag] = as_json(int(value) if tag == "ResolutionUnit" else value)
            except (TypeError, ValueError):
                continue
    return tags


def fraction(page: Any, tag: str) -> float:
    """A tag that is a fraction; 0 if it is none."""
    value = page.tags.valueof(tag)
    if not isinstance(value, tuple) or len(value) != 2 or not value[1]:
        return 0.0
    return float(value[0] / value[1])


def nodata_of(page: Any, dtype: np.dtype[Any]) -> Any:
    """The element that stands for missing data; None without one. Warns of one that no such element can be.

    Source: GDAL, "GTiff -- GeoTIFF File Format", nodata value.
    """
    text = str(page.tags.valueof("GDAL_NODATA", "")).strip("\0 ")
    if not text or dtype.kind not in "biufc":
        return None
    with suppress(MetadataError, ValueError, OverflowError):
        number = int(text) if text.lstrip("+-").isdecimal() else float(text.replace(",", "."))
        element = cast_fill(number, parse_dtype(dtype))
        if np.isinf(element) == math.isinf(number):
            return element
    warnings.warn(
        f"{page.parent.filename}: nodata is {text!r}, which no element of type {dtype} is: it becomes the attribute "
        "GDAL_NODATA, and no element is taken for missing",
        stacklevel=2,
    )
    return None


def parsed_xml(text: str) -> ET.Element | None:
    """The root of XML; None if it is none, or declares entities, which might expand to gigabytes."""
    with suppress(ET.ParseError):
        return None if "<!DOCTYPE" in text else ET.fromstring(text)  # noqa: S314 - see above
    return None


def band_names(page: Any) -> dict[int, str]:
    """The names of bands by number, as GDAL has described them."""
    return _of_bands(page, "description")


def _of_bands(page: Any, role: str) -> dict[int, str]:
    """What GDAL's metadata say of bands, by number."""
    root = parsed_xml(str(page.tags.valueof("GDAL_METADATA", "")))
    items = () if root is None else root.iter("Item")
    named = [item for item in items if item.get("role") == role and item.text]
    return {int(item.get("sample", "0")): str(item.text) for item in named if item.get("sample", "0").isdecimal()}


def packing_of(page: Any) -> dict[str, Any]:
    """The attributes scale_factor, add_offset and units of what GDAL says of all bands. Warns where bands differ."""
    found: dict[str, Any] = {}
    for role, key, kind in (
        ("scale", "scale_factor", float),
        ("offset", "add_offset", float),
        ("unittype", "units", str),
    ):
        values = _of_bands(page, role)
        if len(values) == page.samplesperpixel and len(set(values.values())) == 1:
            with suppress(ValueError):
                found[key] = kind(next(iter(values.values())))
        elif values:
            warnings.warn(f"{page.parent.filename}: {key} differs by band ({values}), and is left out", stacklevel=2)
    return found


def pixel_size(page: Any) -> tuple[float, float, str | None] | None:
    """Height and width of a pixel of a GeoTIFF, and their unit if the file says it; None for other files."""
    keys, scale = _geo_keys(page), page.tags.valueof(_PIXEL_SCALE) or (0.0, 0.0)
    a, b, _, d, e, _ = _transform(page) or (scale[0], 0.0, 0.0, 0.0, scale[1], 0.0)
    if not keys:
        return None
    key = _ANGULAR_UNIT if keys.get(_MODEL_TYPE) == _IS_GEOGRAPHIC else _LINEAR_UNIT
    unit, factor = _UNITS.get(keys.get(key, 0), (None, 1.0))
    return math.hypot(b, e) * factor, math.hypot(a, d) * factor, unit


def _geo_keys(page: Any) -> dict[int, int]:
    """The keys of a GeoTIFF whose values are in its directory; empty for other files."""
    keys = page.tags.valueof(_GEO_KEYS) or ()
    return {keys[at]: keys[at + 3] for at in range(4, len(keys) - 3, 4) if keys[at + 1] == 0}


def geo_attributes(page: Any, shape: tuple[int, int], factors: tuple[float, float] = (1.0, 1.0)) -> dict[str, Any]:
    """The coordinate system and the transform of a GeoTIFF, as Zarr's conventions have them; empty for other files.

    shape: of the level, y and x. factors: how many pixels of the page one element of the level has.
    """
    found, transform = _geo_keys(page), _transform(page)
    if not found or transform is None:
        return {}
    a, b, c, d, e, f = transform
    is_point = found.get(_RASTER_TYPE) == _PIXEL_IS_POINT
    if is_point and factors != (1.0, 1.0):  # the middle of the first window
        y, x = ((n - 1) / 2 for n in factors)
        c, f = c + a * x + b * y, f + d * x + e * y
    a, d, b, e = a * factors[1], d * factors[1], b * factors[0], e * factors[0]
    attributes: dict[str, Any] = {
        "spatial:dimensions": ["y", "x"],
        "spatial:shape": list(shape),
        "spatial:transform": [a, b, c, d, e, f],
        "spatial:registration": "node" if is_point else "pixel",
    }
    conventions = [_CONVENTIONS["spatial"]]
    code = found.get(_PROJECTED_CRS, found.get(_GEODETIC_CRS))
    if code is not None and code not in (0, _USER_DEFINED):
        attributes["proj:code"] = f"EPSG:{int(code)}"
        conventions.append(_CONVENTIONS["proj"])
    return {"zarr_conventions": conventions, **attributes}


def _transform(page: Any) -> Sequence[float] | None:
    """What takes columns and rows to coordinates: ``x = a * column + b * row + c``, ``y = d * column + ...``."""
    matrix = page.tags.valueof(_TRANSFORMATION)
    if matrix is not None and len(matrix) == 16:
        return [float(matrix[n]) for n in (0, 1, 3, 4, 5, 7)]
    scale, tie = page.tags.valueof(_PIXEL_SCALE), page.tags.valueof(_TIEPOINT)
    if scale is None or tie is None or len(scale) < 2 or len(tie) != 6:
        return None
    i, j, _, x, y, _ = map(float, tie)
    width, height = float(scale[0]), float(scale[1])
    return [width, 0.0, x - i * width, 0.0, -height, y + j * height]
