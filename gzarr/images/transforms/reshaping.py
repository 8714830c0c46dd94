"""Cuts, mirrors and turns: results whose elements are those of the input, elsewhere."""

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import numpy as np

from gzarr.hierarchy.array import Array
from gzarr.hierarchy.options import check_keywords
from gzarr.images.filters.results import Box, BoxMapping, ResultKeywords, on_device, write_result
from gzarr.images.halos import axis_of
from gzarr.images.image import Image
from gzarr.images.ome.axes import by_axis, unit_factor, units_by_axis
from gzarr.images.ome.transformations import Transformation
from gzarr.images.region import spans
from gzarr.indexing.regions import Region


def names_of_axes(given: Array | Image) -> Sequence[str | None] | None:
    """The names of the axes of an array or an image."""
    return given.axes if isinstance(given, Image) else given.dimension_names


def placed_of(given: Array | Image) -> Transformation | None:
    """Where the voxels of an image lie; None for an array."""
    return given.metadata.transformation(0) if isinstance(given, Image) else None


def crop(
    image: Array | Image,
    out: Any,
    selection: Mapping[Any, Any],
    *,
    units: str | Mapping[str, str] | None = None,
    **kwargs: Unpack[ResultKeywords],
) -> Array | Image:
    """Copy a part of an array or of an image, whose pyramid is built in the same pass.

    Parameters
    ----------
    image : Array or Image
        What a part is taken of; of an image, level 0.
    out : Array, Image, path or Store
        Where it goes: see `map_overlap`.
    selection : mapping
        Slices and numbers by axis; all of an axis that is left out, and an axis with a number is dropped. Of an image,
        in its coordinates, as `Image.region` takes them; of an array, elements by name or number of the axis.
    units : str or mapping, optional
        Of the coordinates of an image: see `Image.region`.
    **kwargs
        ``dtype``, ``max_nbytes``, ``resume``, ``progress``, ``device``, ``levels`` and the other keywords of
        `map_overlap` that are not about blocks.

    Returns
    -------
    Array or Image
        The part. An image keeps its coordinates.

    Examples
    --------
    >>> import gzarr.images, numpy as np
    >>> image = gzarr.images.create_image(data=np.arange(24).reshape(4, 6), scale=0.5, units="micrometer")
    >>> part = gzarr.images.crop(image, None, {"y": slice(1.0, None), "x": slice(0.5, 1.5)})
    >>> part[0][...], part.translation()
    (array([[13, 14],
           [19, 20]]), {'y': 1.0, 'x': 0.5})
    """
    check_keywords(kwargs, ResultKeywords, crop)
    sources = on_device("crop", [image], kwargs.get("device"), kwargs.get("max_device_nbytes"))
    chosen = _selected(image, sources[0], selection, units)
    kept = [axis for axis, one in enumerate(chosen) if isinstance(one, slice)]
    starts = [chosen[axis].start for axis in kept]

    def boxes(region: Region) -> list[Box]:
        box = [slice(one, one + 1) if isinstance(one, int) else one for one in chosen]
        for axis, part, start in zip(kept, region, starts, strict=True):
            box[axis] = slice(part.start + start, part.stop + start)
        return [(0, tuple(box))]

    def compute(region: Region, _boxes: Any, blocks: list[Any]) -> Any:
        return blocks[0].reshape(tuple(part.stop - part.start for part in region))

    mapping = BoxMapping(
        name="crop",
        sources=sources,
        template=image,
        shape=tuple(chosen[axis].stop - chosen[axis].start for axis in kept),
        boxes=boxes,
        compute=compute,
        axes=tuple(kept),
        dtype=sources[0].dtype,
        placed=_moved(placed_of(image), kept, starts),
        kept_channels=_channels(image, chosen),
        chunk=tuple(sources[0].chunks[axis] for axis in kept),
        arguments={"selection": [str(one) for one in chosen]},
        keeps_fill=True,
    )
    return write_result(mapping, out, kwargs)


def _moved(placed: Transformation | None, kept: list[int], starts: list[int]) -> Transformation | None:
    """Where the voxels of a part lie."""
    if placed is None:
        return None
    moved = [placed.translation[axis] + placed.scale[axis] * at for axis, at in zip(kept, starts, strict=True)]
    return Transformation(tuple(placed.scale[axis] for axis in kept), tuple(moved))


def _channels(image: Array | Image, chosen: Sequence[Any]) -> range | None:
    """Which channels are in a part; None for all."""
    kinds = [axis.type for axis in image.metadata.axes] if isinstance(image, Image) else []
    part = chosen[kinds.index("channel")] if "channel" in kinds else None
    return range(image.shape[kinds.index("channel")])[part] if isinstance(part, slice) else None


def _selected(image: Array | Image, source: Array, selection: Mapping[Any, Any], units: Any) -> list[Any]:
    """What is taken of each axis: a slice with both ends, or a number."""
    if isinstance(image, Image):
        axes, labels = image.metadata.axes, [channel.label for channel in image.channels]
        given = {} if units is None else units_by_axis(axes, units)
        wanted = by_axis(axes, selection, "selection")
        found = spans(
            axes, image.shape, image.metadata.transformation(0), wanted, given, labels, str(image.group.store_path)
        )
        return [one.selection for one in found]
    if units is not None:
        raise ValueError(f"crop: {source.store_path} is an array, which has no units; leave units= out")
    chosen: list[Any] = [slice(0, n) for n in source.shape]
    for key, value in selection.items():
        axis = axis_of(key, "selection", source.ndim, source.dimension_names)
        within = range(source.shape[axis])[value]
        if isinstance(within, range) and (within.step != 1 or not within):
            raise ValueError(f"crop: {value} is no part of the {source.shape[axis]} elements of axis {key!r}")
        chosen[axis] = slice(within.start, within.stop) if isinstance(within, range) else within
    return chosen


def flip(
    image: Array | Image, out: Any, axis: int | str | Sequence[int | str], **kwargs: Unpack[ResultKeywords]
) -> Array | Image:
    """Mirror an array or an image along some axes.

    Parameters
    ----------
    image : Array or Image
        What is mirrored; of an image, level 0.
    out : Array, Image, path or Store
        Where the result goes: see `map_overlap`.
    axis : int, str or sequence of them
        Numbers or names of the axes.
    **kwargs
        See `crop`.

    Returns
    -------
    Array or Image
        The result, as `numpy.flip` makes it of the whole array, with the coordinates of the input.

    Examples
    --------
    >>> import gzarr, gzarr.images
    >>> gzarr.images.flip(gzarr.array([[1, 2, 3], [4, 5, 6]]), None, 1)[...]
    array([[3, 2, 1],
           [6, 5, 4]])
    """
    check_keywords(kwargs, ResultKeywords, flip)
    given = axis if isinstance(axis, Sequence) and not isinstance(axis, str) else [axis]
    names = names_of_axes(image)
    flipped = {axis_of(one, "axis", image.ndim, names) for one in given}
    return _turned("flip", image, out, tuple(range(image.ndim)), flipped, kwargs)


def rotate90(
    image: Array | Image,
    out: Any,
    k: int = 1,
    axes: tuple[int | str, int | str] = (-2, -1),
    **kwargs: Unpack[ResultKeywords],
) -> Array | Image:
    """Turn an array or an image by right angles, without interpolation.

    Parameters
    ----------
    image : Array or Image
        What is turned; of an image, level 0.
    out : Array, Image, path or Store
        Where the result goes: see `map_overlap`.
    k : int
        How many times, from the first of the axes towards the second.
    axes : pair of int or str
        Numbers or names of the axes of the plane.
    **kwargs
        See `crop`.

    Returns
    -------
    Array or Image
        The result, as `numpy.rot90` makes it of the whole array. An image's voxel sizes turn, too.

    Examples
    --------
    >>> import gzarr, gzarr.images
    >>> gzarr.images.rotate90(gzarr.array([[1, 2, 3], [4, 5, 6]]), None)[...]
    array([[3, 6],
           [2, 5],
           [1, 4]])
    """
    check_keywords(kwargs, ResultKeywords, rotate90)
    names = names_of_axes(image)
    one, two = (axis_of(each, "axes", image.ndim, names) for each in axes)
    if one == two:
        raise ValueError(f"rotate90: axes={axes!r} name one axis twice; a plane has two")
    order = list(range(image.ndim))
    if k % 2 and isinstance(image, Image) and not {one, two} <= set(image.spatial):
        raise ValueError(f"rotate90: axes={axes!r} of {image.axes} must be of space")
    if k % 2:
        order[one], order[two] = two, one
    flipped = {0: set(), 1: {two}, 2: {one, two}, 3: {one}}[k % 4]
    return _turned("rotate90", image, out, tuple(order), flipped, kwargs)


def _turned(
    name: str, image: Array | Image, out: Any, order: tuple[int, ...], flipped: set[int], given: ResultKeywords
) -> Array | Image:
    """The input with its axes in another order, after some of them were mirrored."""
    (source,) = on_device(name, [image], given.get("device"), given.get("max_device_nbytes"))
    place = [order.index(axis) for axis in range(source.ndim)]

    def boxes(region: Region) -> list[Box]:
        parts = [region[place[axis]] for axis in range(source.ndim)]
        for axis in flipped:
            n = source.shape[axis]
            parts[axis] = slice(n - parts[axis].stop, n - parts[axis].start)
        return [(0, tuple(parts))]

    def compute(_region: Region, _boxes: Any, blocks: list[Any]) -> Any:
        turned = blocks[0][tuple(slice(None, None, -1 if n in flipped else 1) for n in range(source.ndim))]
        return turned.transpose(order)

    placed = placed_of(image)
    if placed is not None:
        own = [image.units[name] for name in image.axes] if isinstance(image, Image) else []
        ratios = [
            unit_factor(mine, unit) if (mine := own[n]) and unit else 1.0 for n, unit in zip(order, own, strict=True)
        ]
        placed = Transformation(*(tuple((np.take(numbers, order) * ratios).tolist()) for numbers in placed))
    mapping = BoxMapping(
        name=name,
        sources=[source],
        template=image,
        shape=tuple(source.shape[axis] for axis in order),
        boxes=boxes,
        compute=compute,
        dtype=source.dtype,
        placed=placed,
        kept_channels=_channels(image, [slice(None, None, -1 if n in flipped else 1) for n in range(source.ndim)]),
        chunk=tuple(source.chunks[axis] for axis in order),
        arguments={"order": order, "flipped": sorted(flipped)},
        keeps_fill=True,
    )
    return write_result(mapping, out, given)
