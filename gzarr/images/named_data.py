"""What data with named axes, such as those of xarray, say of an image: order of axes, scale, units, channels.

Coordinates are taken if they are regular, and refused otherwise: an image has a size of voxels, and no list of places.
What a call says besides must not contradict them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.errors import MetadataError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.lazy_views import LazyView
from gzarr.hierarchy.values import axis_names
from gzarr.images.ome.axes import MAX_AXES, ImageAxis, letters, new_axis, ordered, unit_name, unit_type, units_by_axis
from gzarr.indexing.regions import Region

#: How far coordinates may be from regular ones, and from what a call says, in parts of a step.
_TOLERANCE = 1e-3
_RANKS = {"time": 0, "space": 2}


@dataclass(frozen=True)
class LazyVolume:
    """Data that are read when they are sliced.

    Attributes
    ----------
    shape, dtype
        Of the data.
    read : callable
        Returns a region as an array.
    chunks : tuple of int or None
        What is read whole.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read: Callable[[Region], Any]
    chunks: tuple[int, ...] | None = None

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def __getitem__(self, key: Any) -> NDArray[Any]:
        return np.asarray(self.read(key))


class Placed(NamedTuple):
    """Arguments of `create_image` that data with named axes complete."""

    data: Any
    axes: Any = None
    scale: Any = None
    translation: Any = None
    units: Any = None
    channels: Any = None


class _Coordinates(NamedTuple):
    scale: float
    translation: float
    unit: str | None


def place(given: Placed, listed: Mapping[str, Any]) -> Placed:
    """Return the arguments of an image with what the axes of its data say, and the data in the order of OME-Zarr.

    given: what the call says. listed: other keywords of the call that may have an item for every axis. Raises
    MetadataError for names that OME-Zarr does not know, for irregular coordinates, and for contradictions.
    """
    is_stored = isinstance(given.data, (Array, LazyView))
    dims = () if is_stored and given.axes is not None else _dims(given.data)
    called, axes, order = _order(given, dims)
    data, is_moved = given.data, order != tuple(range(len(order)))
    if not dims and not (is_moved and len(order) == len(getattr(data, "shape", ()))):
        return given
    if is_moved:
        _check_listed(given, listed, called, order)
        data = _transposed(data, order)
    if getattr(data, "chunks", None) and hasattr(getattr(data, "data", None), "dask"):
        data = data.data  # which tells its blocks
    coordinates = getattr(given.data, "coords", {})
    known = [(dim, axis, coordinates[dim]) for dim, axis in zip(called, axes, strict=True) if dim in coordinates]
    found = {a.name: _regular(dim, a, values) for dim, a, values in known if a.type in ("space", "time")}
    labels = [[str(label) for label in np.asarray(values)] for _, axis, values in known if axis.type == "channel"]
    steps = {name: one.scale for name, one in found.items()}
    starts = {name: one.translation for name, one in found.items()}
    return Placed(
        data,
        tuple([axes[at] for at in order]),
        _joined("scale", given.scale, steps, steps, axes),
        _joined("translation", given.translation, starts, steps, axes),
        _joined_units(given.units, {name: one.unit for name, one in found.items() if one.unit}, axes),
        labels[0] if labels and given.channels is None else given.channels,
    )


def _order(given: Placed, dims: tuple[Any, ...]) -> tuple[Sequence[Any], list[ImageAxis], tuple[int, ...]]:
    """The axes of data, by their names and as the image's, and their numbers in the order of the image."""
    if dims:
        axes = _axes(dims, given.axes)
        return dims, axes, tuple(sorted(range(len(axes)), key=lambda at: _place(axes[at])))
    axes = [new_axis(axis) for axis in given.axes] if isinstance(given.axes, Iterable) else []
    return [axis.name for axis in axes], axes, ordered(axes)


def _transposed(data: Any, order: Sequence[int]) -> Any:
    """Data with their axes in another order. Nothing is read."""
    if isinstance(data, Array):
        data = data.lazy
    if hasattr(data, "transpose"):
        names = axis_names(data)
        return data.transpose(*([names[at] for at in order] if names else order))
    chunks = getattr(data, "chunks", None)
    back = np.argsort(order).tolist()

    def read(region: Region) -> Any:
        return np.asarray(data[tuple([region[at] for at in back])]).transpose(order)

    moved = chunks and tuple([chunks[at] for at in order])
    return LazyVolume(tuple([data.shape[at] for at in order]), np.dtype(data.dtype), read, moved)


def _dims(data: Any) -> tuple[Any, ...]:
    """The names of the axes of data; letters if those of an array have a name that OME-Zarr does not know."""
    names = getattr(data.lazy if isinstance(data, Array) else data, "dimension_names", None)
    if not names or len(names) > MAX_AXES:
        return axis_names(data)
    return names if all(name and new_axis(name).type for name in names) else tuple(letters(names))


def _axes(dims: tuple[Any, ...], axes: Any) -> list[ImageAxis]:
    """The axes of data in their order. Raises MetadataError for unknown names, and if a call has others."""
    named = [new_axis(dim) if isinstance(dim, str) else ImageAxis(repr(dim)) for dim in dims]
    unknown = [axis.name for axis in named if axis.type is None]
    if axes is None and unknown:
        raise MetadataError(
            f"data: the axes are {dims}, of which OME-Zarr does not know {', '.join(map(repr, unknown))}; name "
            f"them all, in the order of the data: axes={'tczyx'[-len(dims) :]!r}, for instance"
        )
    called = named if axes is None else [new_axis(axis) for axis in axes]
    if len(called) != len(named):
        raise MetadataError(f"axes: the data have the axes {dims}, got {axes!r}; name each of them")
    for name, own in zip(named, called, strict=True):
        same = name.type != "space" or own.name.lower() == name.name.lower()
        if name.type is not None and not (own.type == name.type and same):
            raise MetadataError(
                f"axes: {axes!r} contradict the data, whose axes are {dims}; list them in this order, or "
                "leave axes= away"
            )
    return called


def _place(axis: ImageAxis) -> tuple[int, int]:
    """Where an axis stands: time, channel or another one, z, y, x."""
    return _RANKS.get(axis.type or "", 1), "zyx".find(axis.name.lower()) if axis.type == "space" else 0


def _check_listed(given: Placed, listed: Mapping[str, Any], dims: Sequence[Any], order: Sequence[int]) -> None:
    """Raise MetadataError if it is unclear in which order a call lists something."""
    right = ", ".join([repr(dims[at]) for at in order])
    call = right if axis_names(given.data) else ", ".join(map(repr, order))
    for keyword, value in {**listed, "scale": given.scale, "translation": given.translation}.items():
        if isinstance(value, (list, tuple)) or getattr(value, "ndim", None):
            raise MetadataError(
                f"{keyword}: the data, with the axes {tuple(dims)}, are stored as ({right}), so the order of {value!r} "
                f"is unclear; give data.transpose({call})"
            )


def _regular(dim: Any, axis: ImageAxis, coordinate: Any) -> _Coordinates:
    """The size of voxels and the first place that coordinates say. Raises MetadataError if they are not regular."""
    values = np.asarray(coordinate)
    unit = getattr(coordinate, "attrs", {}).get("units")
    if values.dtype.kind in "mM":  # an image has no date: times count from the first one
        origin = values[:1] if values.dtype.kind == "M" else np.timedelta64(0, "s")
        values, unit = (values - origin) / np.timedelta64(1, "s"), "second"
    if values.ndim != 1 or values.dtype.kind not in "iuf" or not values.size:
        raise _irregular(dim, f"are {values.dtype}; give numbers")
    numbers = values.astype("f8")
    first, n = float(numbers[0]), numbers.size
    step = float(f"{(numbers[-1] - first) / (n - 1):.12g}") if n > 1 else 1.0  # without what rounding has added
    if step < 0:
        raise _irregular(dim, f"descend; sort the data, data.sortby({dim!r}), for OME-Zarr has no negative scale")
    rounding = float(np.spacing(np.abs(values).max())) if values.dtype.kind == "f" else 0.0
    apart = np.abs(numbers - np.linspace(first, float(numbers[-1]), n)).max()
    if not (step > 0 and apart <= max(_TOLERANCE * step, min(rounding, step / 100))):
        raise _irregular(dim, "are not regular, as OME-Zarr wants it; interpolate the data")
    is_known = isinstance(unit, str) and unit_type(unit) == axis.type
    return _Coordinates(step, first, unit_name(unit) if is_known and isinstance(unit, str) else None)


def _irregular(dim: Any, what: str) -> MetadataError:
    return MetadataError(f"data: the coordinates of axis {dim!r} {what}, or leave them away: data.drop_vars({dim!r})")


def _joined(
    keyword: str, given: Any, found: Mapping[str, float], steps: Mapping[str, float], axes: Sequence[ImageAxis]
) -> Any:
    """Numbers by axis, of a call and of the data. Raises MetadataError if they differ."""
    if given is None:
        return found
    if isinstance(given, Mapping):
        called = dict(given)
    elif np.ndim(given) == 0:
        called = {axis.name: given for axis in axes if axis.type == "space"}
    else:
        called = {axis.name: number for axis, number in zip(axes, given, strict=False)}
    for name in called.keys() & found.keys():
        if isinstance(called[name], Real) and abs(called[name] - found[name]) > _TOLERANCE * steps[name]:
            raise MetadataError(
                f"{keyword}: {called[name]!r} contradicts the coordinates of the data, which say {found[name]!r} for "
                f"axis {name!r}; leave one of them away"
            )
    return {**found, **called} if isinstance(given, Mapping) or np.ndim(given) == 0 else given


def _joined_units(given: Any, found: Mapping[str, str], axes: Sequence[ImageAxis]) -> Any:
    """Units by axis, of a call and of the data. Raises MetadataError if they differ."""
    called = {axis.name: axis.unit for axis in axes if axis.unit is not None}
    called |= units_by_axis(axes, given) if given is not None else {}
    for name in called.keys() & found.keys():
        if unit_name(called[name]) != found[name]:
            raise MetadataError(
                f"units: {called[name]!r} contradicts the coordinates of the data, which are in {found[name]!r} "
                f"along axis {name!r}; leave one of them away"
            )
    return {**found, **called} or None
