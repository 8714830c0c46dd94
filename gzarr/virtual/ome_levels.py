"""OME-Zarr's metadata for the levels of an image in another format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gzarr.images.new_levels import numbers
from gzarr.images.ome.axes import new_axes
from gzarr.images.ome.channels import new_channels
from gzarr.images.ome.documents import VERSION_OF, Dataset, Multiscale, to_attributes
from gzarr.images.stored_levels import count_channels
from gzarr.metadata.model import ZarrFormat
from gzarr.virtual.tiff_metadata import Description


def image_attributes(
    levels: Sequence[Any], said: Description, stored: Mapping[str, Any], zarr_format: ZarrFormat, name: str
) -> dict[str, Any]:
    """The attributes of an image's group.

    levels: with shape, dtype, and the axes of an image as dimension names. said: what the file says. stored: other
    attributes. name: if the file has none.
    """
    base = levels[0]
    names = "".join(str(axis) for axis in base.dimension_names or ())
    axes = new_axes(names, len(names), {axis: unit for axis, unit in said.units.items() if axis in names})
    scale = numbers({axis: size for axis, size in said.scale.items() if axis in names}, axes, "scale", 1.0)
    datasets = []
    for number, level in enumerate(levels):
        steps = factors(base.shape, level.shape)
        datasets.append(
            Dataset(
                str(number),
                tuple(s * f for s, f in zip(scale, steps, strict=True)),
                tuple(s * (f - 1) / 2 for s, f in zip(scale, steps, strict=True)),
            )
        )
    count = count_channels(axes, base.shape)
    channels = _channels(said, count, np.dtype(base.dtype))
    multiscale = Multiscale(
        axes=axes,
        datasets=tuple(datasets),
        version=VERSION_OF[zarr_format],
        name=said.name or name,
        type="none" if len(levels) == 1 else "unknown",
        metadata={} if len(levels) == 1 else {"description": "the levels of a TIFF file"},
        channels=channels,
    )
    return to_attributes(multiscale, stored, zarr_format)


def factors(base: Sequence[int], shape: Sequence[int]) -> tuple[float, ...]:
    """How many elements of level 0 one element of a level has, by axis: whole numbers, if rounding gives the shape."""
    found = []
    for whole, n in zip(base, shape, strict=True):
        near = max(round(whole / n), 1)
        found.append(float(near) if n in (whole // near, -(-whole // near)) else whole / n)
    return tuple(found)


def _channels(said: Description, count: int, dtype: np.dtype[Any]) -> Any:
    """The channels that a file names."""
    if not said.channels:
        return ()
    given = [{"label": f"Channel {n}", **(said.channels[n] if n < len(said.channels) else {})} for n in range(count)]
    return new_channels(given, count, dtype)
