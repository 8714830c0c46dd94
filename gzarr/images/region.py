"""Parts of an image in coordinates: which elements of a level they are, and where these lie.

An element is a point, its centre, at ``translation + scale * index``. A slice takes the elements from its start up to
its stop, which is excluded, as with indices: slices that meet share no element. A slice between two elements takes the
nearest one, so that coarse levels show small regions too.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gzarr.errors import SelectionError
from gzarr.errors.escaping import escaped
from gzarr.images.ome.axes import ImageAxis, unit_factor, unit_type
from gzarr.images.ome.transformations import Transformation

#: The fraction of a voxel by which coordinates may be rounded.
_ROUNDING = 1e-6


class Region(NamedTuple):
    """A part of an image.

    Attributes
    ----------
    data : numpy.ndarray or cupy.ndarray
        Its elements, on the image's device.
    coords : dict
        Coordinates of the elements' centres by axis, in the units asked for: an array for each axis of the data, a
        number for an axis that was given one. Those of channels are numbers of channels.
    """

    data: Any
    coords: dict[str, Any]

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.data.shape))
        places = (
            f"{axis} {np.min(where):.6g}" + (f" to {np.max(where):.6g}" if np.ndim(where) else "")
            for axis, where in self.coords.items()
        )
        return escaped(f"<Region {shape} {self.data.dtype}, {', '.join(places)}>")


class AxisSelection(NamedTuple):
    """What a level has of one axis of a region."""

    selection: slice | int
    coords: Any


def spans(
    axes: Sequence[ImageAxis],
    shape: Sequence[int],
    placed: Transformation,
    wanted: Mapping[str, Any],
    units: Mapping[str, str],
    labels: Sequence[str | None],
    where: str,
) -> list[AxisSelection]:
    """The elements of a level on every axis of a region.

    Parameters
    ----------
    axes, shape, placed
        Of the level.
    wanted : mapping
        Slices and numbers by axis; all of an axis that is not named.
    units : mapping
        The units they are in, by axis; by default the axis' own.
    labels : sequence of str
        Names of the channels.
    where : str
        The image, as messages name it.

    Raises
    ------
    SelectionError
        If the region is not in the image.
    MetadataError
        If units cannot be converted.
    """
    made = []
    for number, axis in enumerate(axes):
        value = wanted.get(axis.name, slice(None))
        if axis.type == "channel":
            made.append(_channel_span(value, axis, shape[number], labels, where))
            continue
        unit = units.get(axis.name)
        if axis.name not in wanted and (axis.unit is None or unit_type(axis.unit) != axis.type):
            unit = None  # nothing was asked of it
        factor = _factor(axis, unit, where)
        scale, start = placed.scale[number] * factor, placed.translation[number] * factor
        shown = unit or axis.unit
        made.append(_span(value, ImageAxis(axis.name, axis.type, shown), shape[number], scale, start, where))
    return made


def _factor(axis: ImageAxis, unit: str | None, where: str) -> float:
    if unit is None:
        return 1.0
    if axis.unit is None:
        raise SelectionError(
            f"{where}: axis {axis.name!r} has no unit, so that no coordinates in {unit!r} are known: leave units out"
        )
    return unit_factor(axis.unit, unit)


def _span(value: Any, axis: ImageAxis, extent: int, scale: float, start: float, where: str) -> AxisSelection:
    if not isinstance(value, slice):
        place = (_number(value, axis, where) - start) / scale
        index = min(max(math.floor(place + 0.5), 0), extent - 1)
        if not -0.5 - _ROUNDING <= place <= extent - 0.5 + _ROUNDING:
            raise _outside(value, axis, extent, scale, start, where)
        return AxisSelection(index, start + scale * index)
    if value.step is not None:
        raise SelectionError(
            f"{where}: a region has no steps, got {value} for axis {axis.name!r}; choose a level instead"
        )
    low = -math.inf if value.start is None else (_number(value.start, axis, where) - start) / scale
    high = math.inf if value.stop is None else (_number(value.stop, axis, where) - start) / scale
    if low >= high or high <= -0.5 + _ROUNDING or low >= extent - 0.5 - _ROUNDING:
        raise _outside(value, axis, extent, scale, start, where)
    first = 0 if low <= 0 else math.ceil(low - _ROUNDING)
    last = extent if high >= extent else math.ceil(high - _ROUNDING)
    if first >= last:  # between two elements, or at the end of the last one
        first = min(max(math.floor((low + min(high, extent)) / 2 + 0.5), 0), extent - 1)
        last = first + 1
    return AxisSelection(slice(first, last), start + scale * np.arange(first, last))


def _channel_span(value: Any, axis: ImageAxis, extent: int, labels: Sequence[str | None], where: str) -> AxisSelection:
    if isinstance(value, str):
        if value not in labels:
            raise SelectionError(f"{where}: there is no channel {value!r}; the channels are {list(labels)}")
        value = labels.index(value)
    if isinstance(value, slice):
        numbers = range(extent)[value]
        if numbers.step != 1 or not numbers:
            raise SelectionError(f"{where}: {value} is no range of the {extent} channels of axis {axis.name!r}")
        return AxisSelection(slice(numbers.start, numbers.stop), np.arange(numbers.start, numbers.stop))
    if isinstance(value, bool) or not hasattr(value, "__index__") or not -extent <= int(value) < extent:
        raise SelectionError(f"{where}: axis {axis.name!r} has {extent} channels, there is no {value!r}")
    return AxisSelection(int(value) % extent, int(value) % extent)


def _number(value: Any, axis: ImageAxis, where: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if math.isnan(number) or isinstance(value, (bool, str)):
        raise SelectionError(f"{where}: axis {axis.name!r} takes a number or a slice of numbers, got {value!r}")
    return number


def _outside(value: Any, axis: ImageAxis, extent: int, scale: float, start: float, where: str) -> SelectionError:
    low, high, unit = start - scale / 2, start + scale * (extent - 0.5), f" {axis.unit}" if axis.unit else ""
    return SelectionError(
        f"{where}: {value} holds nothing of axis {axis.name!r}, which spans {low:.6g} to {high:.6g}{unit}"
    )


def level_for(scales: Sequence[Mapping[str, float]], wanted: Mapping[str, float]) -> int:
    """The coarsest level of which no axis is coarser than wanted, or than level 0."""
    fitting = 0
    for level, scale in enumerate(scales):
        if all(scale[name] <= max(value, scales[0][name]) * (1 + _ROUNDING) for name, value in wanted.items()):
            fitting = level
    return fitting
