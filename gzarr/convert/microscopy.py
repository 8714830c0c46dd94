"""Arranges the images of a TIFF file as OME-Zarr: axes, voxel sizes, channels, levels as they are in the file.

Theory of operation. The axes of a file come in any order; those of OME-Zarr are t, c, z, y, x. A source is wrapped so
that its regions are read in the file's order and transposed. Samples of a pixel (red, green, blue) are channels. Axes
of one element that OME-Zarr has no name for are left out.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from gzarr.api.groups import open_group
from gzarr.convert.writing import write
from gzarr.copying.planning import TransferKeywords, format_of
from gzarr.copying.report import TransferReport
from gzarr.copying.sources import Source, SourceTree
from gzarr.copying.transfer import destination, transfer
from gzarr.errors import CopyError, MetadataError
from gzarr.hierarchy.group import Group
from gzarr.images.image import Image, open_image
from gzarr.images.image_data import read_image
from gzarr.images.new_levels import new_chunks
from gzarr.images.ome.axes import new_axes
from gzarr.images.ome.documents import Version, as_attributes, to_attributes, version_in, zarr_format_of
from gzarr.images.ome.series import collection_attributes
from gzarr.images.pyramid.build_pyramid import build_pyramid
from gzarr.images.shown import show_values
from gzarr.indexing.grid import Axis, Grid, RegularAxis
from gzarr.indexing.keys import join_path
from gzarr.indexing.regions import Region
from gzarr.metadata.model import ZarrFormat
from gzarr.virtual.ome_levels import image_attributes
from gzarr.virtual.tiff_metadata import Description, describe
from gzarr.virtual.tiff_tags import tags_of

_ORDER = "tczyx"
#: Colours of the samples of a pixel, and the photometric interpretations that have them.
_SAMPLES = (
    {"label": "red", "color": "FF0000"},
    {"label": "green", "color": "00FF00"},
    {"label": "blue", "color": "0000FF"},
)
_RGB, _YCBCR = 2, 6


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How the axes of a file become those of an image.

    Attributes
    ----------
    names : str
        The axes of the image, a part of "tczyx".
    places : tuple of tuple of int
        For every axis of the image, the axes of the file: one, or channels and samples.
    """

    names: str
    places: tuple[tuple[int, ...], ...]

    def read(self, source: Source, region: Region) -> np.ndarray[Any, Any]:
        """Read a region of the image."""
        wanted = [slice(0, 1)] * len(source.shape)
        cut = []
        for place, part in zip(self.places, region, strict=True):
            count = source.shape[place[1]] if len(place) > 1 else 1
            first = part.start // count
            wanted[place[0]] = slice(first, -(-part.stop // count))
            if len(place) > 1:  # all samples of some channels
                wanted[place[1]] = slice(0, count)
            cut.append(slice(part.start - first * count, part.stop - first * count))
        data = np.asarray(source.read(tuple(wanted)))
        order = [axis for place in self.places for axis in place]
        others = [axis for axis in range(data.ndim) if axis not in order]
        shape = [math.prod(data.shape[axis] for axis in place) for place in self.places]
        return data.transpose([*others, *order]).reshape(shape)[tuple(cut)]


def write_images(
    file: Any, given: Sequence[tuple[int, Any, list[Source]]], dest: Any, options: TransferKeywords
) -> TransferReport:
    """Write images of a TIFF file as OME-Zarr. Raises CopyError, MetadataError, StoreError.

    given: for every image its number in the file, tifffile's series, and its levels. options: of `gzarr.transfer`.
    """
    source, where = str(file.filehandle.path), options.get("path")
    with destination(dest, where, writable=False) as (store, at, _):
        zarr_format = format_of(SourceTree(source, {}, {}), store, at, options)
    names = [""] if len(given) == 1 else [str(n) for n in range(len(given))]
    groups: dict[str, Mapping[str, Any]] = {}
    arrays: dict[str, Source] = {}
    if len(given) > 1:
        groups |= collection_attributes(names, zarr_format)
    for name, (number, series, levels) in zip(names, given, strict=True):
        arrangement = arrange(series.axes, levels[0].shape, f"{source}, series {number}")
        said = describe(file, number, series)
        if "S" in series.axes:
            count = math.prod(levels[0].shape[n] for n, axis in enumerate(series.axes) if axis in "CS")
            said = as_colors(said, series.keyframe, count)
        found = [arranged(level, arrangement, zarr_format) for level in levels]
        called = series.name or Path(source).name.split(".")[0]
        groups[name] = image_attributes(found, said, tags_of(series.keyframe), zarr_format, called)
        arrays |= {f"{name}/{n}".lstrip("/"): level for n, level in enumerate(found)}
    report = write(SourceTree(source, groups, arrays, files=[source]), dest, **options)
    if not options.get("dry_run"):
        with destination(dest, where) as (store, at, _):
            for name in names:
                _add_levels(Image(*read_image(open_group(store, "r+", path=join_path(at, name)))), options)
    return report


def _add_levels(image: Image, options: TransferKeywords) -> None:
    """Build the pyramid of an image that has none, and show its channels with the ranges of their values."""
    if len(image) > 1:
        show_values(image)
    else:
        build_pyramid(
            image,
            max_nbytes=options.get("budget_nbytes"),
            progress=options.get("progress"),
            resume=options.get("resume", False),
        )


def arrange(axes: str, shape: Sequence[int], name: str) -> Arrangement:
    """Find the axes of an image. Raises CopyError if OME-Zarr has no such image."""
    found: dict[str, tuple[int, ...]] = {}
    others = []
    for number, (axis, extent) in enumerate(zip(axes.lower(), shape, strict=True)):
        if axis in _ORDER and axis not in found:
            found[axis] = (number,)
        elif axis == "s":
            found["c"] = (*found.get("c", ()), number)
        elif extent > 1:
            others.append((axis, number))
    for axis, number in others:
        free = next((name for name in ("tz" if axis == "i" else "zt") if name not in found), None)
        if free is None:
            raise CopyError(f"{name}: OME-Zarr has no place for axis {axis.upper()!r} of {axes}; convert without ome")
        found[free] = (number,)
    if "y" not in found or "x" not in found:
        raise CopyError(f"{name}: an image has the axes Y and X, got {axes}; convert without ome")
    names = "".join(axis for axis in _ORDER if axis in found)
    return Arrangement(names, tuple(found[axis] for axis in names))


def arranged(source: Source, arrangement: Arrangement, zarr_format: ZarrFormat) -> Source:
    """A source with the axes of an image."""
    shape = tuple(int(np.prod([source.shape[axis] for axis in place])) for place in arrangement.places)
    options = dict(source.options)
    if "chunks" in options:
        options["chunks"] = tuple(options["chunks"][place[-1]] for place in arrangement.places)
    else:
        axes = new_axes(arrangement.names, len(shape), None)
        options["chunks"] = new_chunks(axes, shape, source.itemsize)
    if zarr_format == 2:
        options["dimension_separator"] = "/"
    return replace(
        source,
        shape=shape,
        read=lambda region: arrangement.read(source, region),
        grid=_grid(source.grid, arrangement, shape),
        dimension_names=tuple(arrangement.names),
        options=options,
    )


def _grid(grid: Grid, arrangement: Arrangement, shape: tuple[int, ...]) -> Grid:
    axes: list[Axis] = []
    for place, extent in zip(arrangement.places, shape, strict=True):
        axis = grid[place[-1]]
        axes.append(axis if len(place) == 1 else RegularAxis(extent, axis.extent))
    return tuple(axes)


def as_colors(said: Description, page: Any, count: int) -> Description:
    """What is said of an image whose pixels have samples, in each channel: red, green, blue, and extra ones.

    count: how many channels and samples there are together. An opacity is not shown, as it would cover the others.
    """
    if page.photometric not in (_RGB, _YCBCR):
        return said
    alpha: dict[str, Any] = {"label": "alpha", "color": "FFFFFF", "active": False}
    samples = [*_SAMPLES, *(alpha if kind else {} for kind in page.extrasamples)]
    n_channels = count // len(samples)
    if len({channel.get("label") for channel in said.channels[: len(samples)]}) > 1:  # bands, which GDAL names
        named = [*said.channels, *[{}] * len(samples)]
        return replace(said, channels=tuple({**sample, **one} for sample, one in zip(samples, named, strict=False)))
    names = [channel.get("label") for channel in said.channels[:: len(samples)]]
    names += [f"Channel {n}" if n_channels > 1 else None for n in range(len(names), n_channels)]
    channels = []
    for name, (number, sample) in itertools.product(names[:n_channels], enumerate(samples)):
        label = sample.get("label", f"sample {number}")
        channels.append({**sample, "label": label if name is None else f"{name} {label}"})
    return replace(said, channels=tuple(channels))


# -- versions ----------------------------------------------------------------------------------------------------------
# OME-Zarr 0.4 is stored in Zarr v2, 0.5 and 0.6 in v3.

#: Attributes that OME-Zarr 0.4 has at the top, and 0.5 in "ome".
_OME_FIELDS = ("ome", "multiscales", "omero", "image-label")


def _in_order(image: Image) -> Image:
    """An image whose axes are stored in another order, by the paths of its arrays in order."""
    datasets = [replace(one, path=level.path) for one, level in zip(image.metadata.datasets, image.levels, strict=True)]
    return Image(image.group, replace(image.metadata, datasets=tuple(datasets)), image.levels)


def copy_image(
    group: Group, dest: Any, /, version: Version | None = None, **options: Unpack[TransferKeywords]
) -> TransferReport:
    """Copy an image with its labels, to another version of OME-Zarr if one is given.

    Parameters
    ----------
    group : Group
        Of the image, of any version.
    dest : path, URL, store or Group
        Where the copy goes.
    version : {"0.4", "0.5", "0.6"}, optional
        Of the copy. By default that of the image, if ``zarr_format`` has it.
    **options
        Keywords of `gzarr.transfer`.

    Returns
    -------
    TransferReport
        What was done.

    Raises
    ------
    MetadataError
        If the group is no image, or the version lacks its coordinate systems. Nothing is written then.
    CopyError
        If the copy stops.
    """
    source = open_image(group)
    images = {"": source, **{f"labels/{name}": label for name, label in source.labels.items()}}
    zarr_format = options.get("zarr_format") or group.metadata.zarr_format
    if any(one.levels[0].store is not one.group.store for one in images.values()):
        if len(images) > 1:
            what = "has axes in another order than OME-Zarr's, and labels: build_pyramid(image, out=...) makes an image"
            raise MetadataError(f"{group.store_path} {what} in order; call it for the image and for each label")
        group, images = open_group(source.levels[0].store, mode="r", device="cpu"), {"": _in_order(source)}
    if version is not None:
        zarr_format = zarr_format_of(version)
    own = version or version_in(source.version, zarr_format)
    documents = {at: replace(image.metadata, version=own) for at, image in images.items()}
    for document in documents.values():
        document.to_json(own)
    keywords: dict[str, Any] = {**options, "zarr_format": zarr_format}
    if zarr_format == 2:
        keywords["dimension_separator"] = "/"
    else:
        names = {join_path(at, one.path): image.axes for at, image in images.items() for one in image.metadata.datasets}
        keywords["each"] = {path: {"dimension_names": axes} for path, axes in names.items()}
    report = transfer(group, dest, **keywords)
    if options.get("dry_run"):
        return report
    with destination(dest, options.get("path")) as (store, where, _):
        copy = open_group(store, "r+", path=where)
        for at, image in images.items():
            found = copy[at] if at else copy
            if not isinstance(found, Group):
                raise CopyError(f"{found.store_path} is no group")
            others = {name: value for name, value in image.group.attrs.items() if name not in _OME_FIELDS}
            found.attrs.put(to_attributes(documents[at], others, zarr_format))
        if len(images) > 1:
            copy["labels"].attrs.put(as_attributes({"labels": list(source.labels)}, zarr_format, own))
    return report
