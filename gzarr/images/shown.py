"""The ranges of intensities that channels are shown with: those of the values, where nobody has said others."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gzarr.hierarchy.array import Array
from gzarr.hierarchy.missing import Missing, missing_of
from gzarr.images.image import Image
from gzarr.images.ome.channels import Channel, full_window, shown_range
from gzarr.images.ome.documents import write_multiscale

#: Bytes of the smallest level that are read once more.
_QUICK_NBYTES = 64 << 20


def show_values(image: Image, wanted: Sequence[bool] | None = None, missing: Missing | None = None) -> Image:
    """Write the ranges of values into the metadata of an image, and return it with them.

    wanted: of which channels. By default those that have no range, or that of the data type, of more than 8 bits.
    missing: what stands for missing data; by default what level 0 records.
    """
    given = image.channels
    if wanted is None:
        full = full_window(image.dtype)
        wanted = [c.window is None or (image.dtype.itemsize > 1 and c.window[:2] == full[:2]) for c in given]
    if not any(wanted) or image.dtype.kind not in "biuf":
        return image
    axis = next((n for n, axis in enumerate(image.metadata.axes) if axis.type == "channel"), None)
    missing = missing_of(None, image.levels[0]) if missing is None else missing
    found = shown(given, image.levels[-1], axis, nodata=None if missing is None else missing.value)
    channels = tuple(new if want else old for old, new, want in zip(given, found, wanted, strict=True))
    if channels == given:
        return image
    metadata = replace(image.metadata, channels=channels)
    write_multiscale(image.group, metadata)
    return replace(image, metadata=metadata)


def shown(
    channels: Sequence[Channel], level: Array, axis: int | None, limit: int = _QUICK_NBYTES, nodata: Any = None
) -> tuple[Channel, ...]:
    """Channels with the ranges of their values, of some planes if there are many.

    axis: that of the channels. nodata: an element that stands for missing data.
    """
    level, others = level.to("cpu"), [n for n in range(level.ndim) if n != axis]
    first = others[0] if len(others) > 2 else None
    n_planes = 1 if first is None else level.shape[first]
    plane_nbytes = level.nbytes // max(n_planes * (1 if axis is None else level.shape[axis]), 1)
    n_read = min(n_planes, limit // max(plane_nbytes * len(channels), 1))
    if not n_read or not level.size:
        return tuple(channels)
    planes = sorted({round(n) for n in np.linspace(0, n_planes - 1, n_read)})

    def values(number: int) -> np.ndarray[Any, Any]:
        where: list[Any] = [slice(None)] * level.ndim
        if axis is not None:
            where[axis] = number
        if first is not None and len(planes) < n_planes:
            where[first] = planes
        return np.asarray(level.oindex[tuple(where)])

    def present(found: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return found if nodata is None else found[found != nodata]

    full = full_window(level.dtype)
    return tuple(
        replace(channel, window=shown_range(present(values(number)), channel.window or full))
        for number, channel in enumerate(channels)
    )
