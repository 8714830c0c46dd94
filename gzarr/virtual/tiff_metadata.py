"""What TIFF files say of their images: OME-XML, the descriptions of ImageJ and Aperio, GeoTIFF's tags, resolutions.

Source: OME schema 2016-06; ImageJ's TIFF encoder.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gzarr.images.ome.axes import unit_name, unit_type
from gzarr.virtual.tiff_tags import band_names, fraction, parsed_xml, pixel_size

#: Micrometers of the units of the tag ResolutionUnit.
_RESOLUTION_UM = {2: 25400.0, 3: 10000.0}


@dataclass(frozen=True, slots=True)
class Description:
    """What a file says of an image.

    Attributes
    ----------
    name : str or None
        Its name.
    scale : mapping
        Size of a voxel by axis.
    units : mapping
        Units of these, by their OME-Zarr names.
    channels : tuple of mapping
        Label, colour and window of every channel, as far as they are known; empty if none is.
    """

    name: str | None = None
    scale: Mapping[str, float] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    channels: tuple[Mapping[str, Any], ...] = ()


def describe(file: Any, number: int, series: Any) -> Description:
    """What a file, as tifffile has opened it, says of its series with a number."""
    if file.is_ome:
        found = _of_ome(file.ome_metadata, number, series)
    elif file.is_imagej:
        found = _of_imagej(file.imagej_metadata or {}, series.keyframe)
    elif pixel_size(series.keyframe) is not None or band_names(series.keyframe):
        found = _of_geotiff(series)
    else:
        found = _of_aperio(series.keyframe)
    if "x" in found.scale or "y" in found.scale or file.is_ome:
        return found
    resolution = _of_resolution(series.keyframe)
    return Description(
        found.name, {**resolution.scale, **found.scale}, {**resolution.units, **found.units}, found.channels
    )


def _of_ome(text: str, number: int, series: Any) -> Description:
    """From OME-XML. The number counts the series that the file has: images may be listed that it lacks."""
    root = parsed_xml(text)
    images = [] if root is None else root.findall("{*}Image")
    listed = [(image, pixels) for image in images for pixels in image.findall("{*}Pixels")]
    named = [found for found in listed[number:] if found[0].get("Name") in (None, series.name)]
    if not named:
        return Description()
    image, pixels = named[0]
    sizes = [("t", pixels.get("TimeIncrement"), pixels.get("TimeIncrementUnit", "s"))]
    sizes += [(n.lower(), pixels.get(f"PhysicalSize{n}"), pixels.get(f"PhysicalSize{n}Unit", "um")) for n in "ZYX"]
    channels = []
    n_samples = series.shape[series.axes.index("S")] if "S" in series.axes else 1
    for channel in pixels.findall("{*}Channel"):
        color = channel.get("Color")
        known = {"label": channel.get("Name"), "color": None if color is None else _ome_color(color)}
        channels += [{key: value for key, value in known.items() if value}] * n_samples
    return Description(image.get("Name"), *_voxel(sizes), tuple(channels) if any(channels) else ())


def _ome_color(text: str) -> str | None:
    """Six digits of a signed number whose bytes are red, green, blue and alpha."""
    try:
        number = int(text)
    except ValueError:
        return None
    return f"{number & 0xFFFFFFFF:08X}"[:6] if -(1 << 31) <= number < 1 << 32 else None


def _voxel(sizes: Iterable[tuple[str, Any, Any]]) -> tuple[dict[str, float], dict[str, str]]:
    """The sizes of a voxel by axis, of those that are some, and their units that OME-Zarr knows.

    sizes: axis, size and unit, as files have them.
    """
    scale: dict[str, float] = {}
    units: dict[str, str] = {}
    for axis, size, unit in sizes:
        try:
            value = abs(float(size))
        except (TypeError, ValueError):
            continue
        if not math.isfinite(value) or not value:
            continue
        scale[axis] = value
        name = unit_name(str(unit))
        if unit_type(name) == ("time" if axis == "t" else "space"):
            units[axis] = name
    return scale, units


def _of_imagej(metadata: Mapping[str, Any], page: Any) -> Description:
    """From ImageJ's description and its other tags."""
    unit = str(metadata.get("unit", "")).encode("latin-1", "replace").decode("unicode_escape", "replace")
    sizes = [("z", metadata.get("spacing"), unit), ("t", metadata.get("finterval"), metadata.get("tunit", "s"))]
    for axis, tag in (("y", "YResolution"), ("x", "XResolution")):
        resolution = fraction(page, tag)
        if resolution and unit:
            sizes.append((axis, 1 / resolution, unit))
    count = int(metadata.get("channels", 1))
    luts, ranges = metadata.get("LUTs", ()), metadata.get("Ranges", ())
    channels = []
    for n in range(count):
        channel: dict[str, Any] = {}
        if n < len(luts):
            channel["color"] = "".join(f"{int(row[-1]):02X}" for row in luts[n])
        if len(ranges) >= 2 * (n + 1):
            channel["window"] = float(ranges[2 * n]), float(ranges[2 * n + 1])
        channels.append(channel)
    return Description(None, *_voxel(sizes), tuple(channels) if any(channels) else ())


def _of_aperio(page: Any) -> Description:
    """From the description of a slide scanner, which says how many micrometers a pixel has."""
    found = re.search(r"\bMPP\s*=\s*([0-9.]+)", str(page.description))
    if not found or not str(page.description).startswith("Aperio"):
        return Description()
    return Description(None, *_voxel((axis, found[1], "um") for axis in "yx"))


def _of_geotiff(series: Any) -> Description:
    """From the tags of GeoTIFF, and the names of bands that GDAL writes."""
    height, width, unit = pixel_size(series.keyframe) or (0.0, 0.0, None)
    names = band_names(series.keyframe)
    channels = tuple({"label": names[n]} if n in names else {} for n in range(max(names, default=-1) + 1))
    return Description(None, *_voxel([("y", height, unit), ("x", width, unit)]), channels)


def _of_resolution(page: Any) -> Description:
    """From the tags of every TIFF."""
    micrometers = _RESOLUTION_UM.get(page.tags.valueof("ResolutionUnit"), 0.0)
    resolutions = (("y", fraction(page, "YResolution")), ("x", fraction(page, "XResolution")))
    return Description(None, *_voxel((axis, micrometers / n, "um") for axis, n in resolutions if n))
