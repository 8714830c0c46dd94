"""Tags of TIFF files as attributes: those that describe an image, and those of GeoTIFF.

Source: OGC 19-008 (GeoTIFF 1.1); the Zarr conventions "spatial" and "proj".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gzarr.metadata.conventions import as_json

_TAGS = ("ImageDescription", "XResolution", "YResolution", "ResolutionUnit", "Software", "DateTime")
#: Tags of GeoTIFF.
_PIXEL_SCALE, _TIEPOINT, _TRANSFORMATION, _GEO_KEYS = 33550, 33922, 34264, 34735
#: Keys of GeoTIFF, and the code of what a file defines itself.
_RASTER_TYPE, _GEODETIC_CRS, _PROJECTED_CRS, _USER_DEFINED = 1025, 2048, 3072, 32767
_PIXEL_IS_POINT = 2
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
            value = page.tags[tag].value
            if isinstance(value, tuple) and len(value) == 2 and tag.endswith("Resolution"):
                value = value[0] / value[1] if value[1] else 0.0
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


def geo_attributes(page: Any, shape: tuple[int, int], factors: tuple[float, float] = (1.0, 1.0)) -> dict[str, Any]:
    """The coordinate system and the transform of a GeoTIFF, as Zarr's conventions have them; empty for other files.

    shape: of the level, y and x. factors: how many pixels of the page one element of the level has.
    """
    keys = page.tags.valueof(_GEO_KEYS)
    transform = _transform(page)
    if keys is None or transform is None:
        return {}
    found = {keys[at]: keys[at + 3] for at in range(4, len(keys) - 3, 4) if keys[at + 1] == 0}
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
