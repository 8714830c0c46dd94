"""Creates images: the group, level 0, and the metadata, which are written last."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Unpack

import numpy as np

from gzarr.display.progress import ProgressLike
from gzarr.errors import MetadataError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.keywords import GroupKeywords, RareArrayKeywords, StoreKeywords
from gzarr.hierarchy.missing import missing_of
from gzarr.hierarchy.new_nodes import dtype_of
from gzarr.hierarchy.options import check_keywords
from gzarr.identity.runs import Resume, identify
from gzarr.images.image import Image
from gzarr.images.named_data import Placed, place
from gzarr.images.new_levels import EncodingKeywords, level_keywords, new_dtype, nodata_keywords, numbers
from gzarr.images.ome.axes import names_of, new_axes
from gzarr.images.ome.channels import lacks_window, new_channels
from gzarr.images.ome.documents import Multiscale, Version, new_multiscale, write_multiscale, zarr_format_of
from gzarr.images.pyramid.downsample import Method
from gzarr.images.pyramid.levels import Factors
from gzarr.images.pyramid.making import build_levels, check_apart, check_image, first_level, new_group, with_others
from gzarr.images.pyramid.recipes import Recipe
from gzarr.images.shown import show_values
from gzarr.images.stored_levels import count_channels
from gzarr.indexing.chunking import parse_shape
from gzarr.tensors import from_tensor

#: Elements along the other axes of a picture whose last axis are colours, at least.
_BESIDE_COLORS = 48


class ImageKeywords(EncodingKeywords, RareArrayKeywords, StoreKeywords, total=False):
    """Of `create_image`: how chunks are encoded, and how the store and the device are used."""

    order: Literal["C", "F"] | None
    write_empty_chunks: bool | None


class NewImageKeywords(ImageKeywords, total=False):
    """Of `create_image`: what does not depend on the data."""

    skip: Any
    scale: float | Sequence[float] | Mapping[str, float] | None
    translation: float | Sequence[float] | Mapping[str, float] | None
    units: str | Mapping[str, str] | None
    channels: Sequence[Any] | None
    name: str | None
    version: Version
    chunks: Any
    shards: Any
    overwrite: bool
    path: str | None
    device: str | None


def create_image(
    store: Any = None,
    data: Any = None,
    *,
    shape: Any = None,
    dtype: Any = None,
    axes: Any = None,
    scale: float | Sequence[float] | Mapping[str, float] | None = None,
    translation: float | Sequence[float] | Mapping[str, float] | None = None,
    units: str | Mapping[str, str] | None = None,
    channels: Sequence[Any] | None = None,
    name: str | None = None,
    version: Version = "0.5",
    chunks: Any = None,
    shards: Any = None,
    levels: int | None = None,
    factors: Factors = None,
    method: Method | None = None,
    skip: Any = None,
    max_nbytes: int | None = None,
    overwrite: bool = False,
    resume: Resume = False,
    progress: ProgressLike = None,
    path: str | None = None,
    device: str | None = None,
    **kwargs: Unpack[ImageKeywords],
) -> Image:
    """Create an OME-Zarr image: with data, all levels in one pass over them; without, level 0 alone.

    Parameters
    ----------
    store : Store, Group, path, URL or mapping, optional
        Where to create the image. By default in memory.
    data : array-like, optional
        The picture or volume: anything with a shape that can be sliced. The axes of xarray's arrays, and those of gzarr
        arrays with names, keep their names, and go into the order of OME-Zarr. Regular coordinates become scale and
        translation, their attribute ``units`` the unit, and those of channels their labels; dates become seconds since
        the first one. What ``axes``, ``scale``, ``translation`` and ``units`` say must agree.
    shape, dtype : optional
        Extents and data type of an image without data.
    axes : str or sequence, optional
        Names of the axes, "tczyx" or a part of it, or mappings with name, type and unit. By default the last of
        "tczyx"; of two or three axes, "yx" and "zyx". Of data, they may come in another order, such as "yxc": the image
        is stored as "cyx", the order that OME-Zarr requires, and the data are transposed as they are read.
    scale : float, sequence or mapping, optional
        Size of a voxel: of all axes of space, of every axis, or by axis. By default 1.
    translation : float, sequence or mapping, optional
        Coordinates of the first voxel's centre, in the same way. By default 0.
    units : str or mapping, optional
        Unit of the axes of space, such as "micrometer", or units by axis.
    channels : sequence, optional
        A name, or a mapping with label, color, window (start and end) and active, for each channel. By default,
        colours are those that labels name, others in turn, and windows the range of the smallest level that data gave,
        or that of the data type.
    name : str, optional
        Name of the image; by default the last part of its path.
    version : {"0.5", "0.4", "0.6"}
        Version of OME-Zarr: 0.5 and 0.6 are stored in Zarr v3, 0.4 in v2.
    chunks, shards : optional
        See `gzarr.create_array`. By default chunks are squares or cubes of up to 1 MiB, of one time and channel.
    levels, factors, method, max_nbytes, progress : optional
        How the levels above level 0 are made of the data: see `build_pyramid`. ``levels=0`` makes none.
    skip : number, array of bool or False, optional
        Elements that are missing: see `build_pyramid`. A number, or NaN, is recorded as missing data (the attributes
        ``nodata`` and ``_FillValue``), and the fill value unless ``fill_value`` is given. By default what a gzarr array
        as the data records.
    overwrite : bool
        Whether to replace what is stored there.
    resume : bool or str
        Whether to go on with an image that was not finished: it needs the same arguments and data. Of lazy data that
        cannot be compared, such as Dask's, a text that stands for them: see `map_overlap`.
    path : str, optional
        Path of the image in the store.
    device : str, optional
        Where reads put their results: "auto", "cpu", "cuda" or "cuda:N". By default the setting ``device``.
    **kwargs
        ``compressors`` and the other keywords of `gzarr.create_array`.

    Returns
    -------
    Image
        The image, open for reading and writing.

    Raises
    ------
    MetadataError
        If a keyword is malformed or OME-Zarr has no such image. Nothing is written or deleted.
    ContainsArrayError, ContainsGroupError
        If something is stored there and ``overwrite`` is false.
    TypeError
        If a keyword is unknown.

    Examples
    --------
    >>> import gzarr.images
    >>> image = gzarr.images.create_image("brain.zarr", shape=(2, 30, 256, 256), dtype="u2", axes="czyx",
    ...     scale={"z": 2.0, "y": 0.4, "x": 0.4}, units="micrometer", channels=["DAPI", "GFP"])
    >>> image[0].chunks, [channel.color for channel in image.channels]
    ((1, 30, 64, 64), ['00FF00', 'FF00FF'])
    """
    check_keywords(kwargs, ImageKeywords, create_image)
    given: dict[str, Any] = {**kwargs}
    reach = {key: given.pop(key) for key in GroupKeywords.__annotations__ if key in given}
    zarr_format = zarr_format_of(version)
    if data is not None:
        data = from_tensor(data if hasattr(data, "shape") else np.asarray(data))
        shape, dtype = tuple(data.shape) if shape is None else shape, dtype_of(data, {}) if dtype is None else dtype
    if not isinstance(name, str | None):
        raise MetadataError(f"name: a text is needed, got {name!r}")
    extents, kind = parse_shape(shape), new_dtype(dtype)
    if data is not None and extents != tuple(data.shape):
        raise MetadataError(f"shape: {extents} is not that of the data, {tuple(data.shape)}; leave one of them away")
    listed = {"chunks": chunks, "shards": shards, "skip": skip}
    placed = place(Placed(data, axes, scale, translation, units, channels), listed)
    data, axes, scale, translation, units, channels = placed
    extents = extents if data is None else tuple(data.shape)
    found = new_axes(axes, len(extents), units)
    if axes is None:
        _warn_of_colors(extents)
    scale, translation = numbers(scale, found, "scale", 1.0), numbers(translation, found, "translation", 0.0)
    shown = new_channels(channels, count_channels(found, extents), kind)
    multiscale = new_multiscale(found, version, scale, translation, name=name, channels=shown)
    given = {**nodata_keywords(skip, data, kind, zarr_format), **given}
    given |= {"shape": extents, "dtype": kind, "chunks": chunks, "shards": shards}
    level = level_keywords(multiscale, given)
    recipe = Recipe(levels, factors, method, max_nbytes, resume, False, progress)
    if data is None and recipe != Recipe():
        raise MetadataError(
            "levels, factors, method, resume and progress need data=...; build_pyramid adds levels later"
        )
    if data is None and np.ndim(skip):
        raise MetadataError("skip: a mask needs data=...; give it to build_pyramid later")
    recipe = recipe._replace(skip=skip)
    check_image(multiscale, level, None if data is None else recipe)
    if data is not None:
        recipe = recipe._replace(run=identify("create_image", resume, inputs={"data": data}))
    if overwrite and isinstance(data, Array):
        check_apart(data, store, path)
    opening: dict[str, Any] = {"path": path, "zarr_format": zarr_format, "device": device, **reach}
    group = new_group(store, opening, resume=bool(resume), overwrite=overwrite)
    return _finished(put_image(group, multiscale, level, data, recipe), data, channels, skip)


def _warn_of_colors(shape: Sequence[int]) -> None:
    """Warn of axes that nobody has named, the last of which are colours by their number."""
    if len(shape) > 2 and shape[-1] in (3, 4) and min(shape[-3:-1]) >= _BESIDE_COLORS:
        usual, last = "".join(names_of(new_axes(None, len(shape), None))), "tzyxc"[-len(shape) :]
        taken = f'the axes of shape {tuple(shape)} are taken for "{usual}"'
        warnings.warn(f'{taken}; if the last one is of colours, pass axes="{last}"', UserWarning, stacklevel=3)


def _finished(image: Image, data: Any, channels: Sequence[Any] | None, skip: Any) -> Image:
    if data is None or channels is None:
        return image
    return show_values(image, [lacks_window(item) for item in channels], missing=missing_of(skip, image.levels[0]))


def put_image(
    group: Group, multiscale: Multiscale, level: dict[str, Any], data: Any = None, recipe: Recipe | None = None
) -> Image:
    """Make the levels of an image in its group, of which it has none, and write the metadata at last."""
    recipe = Recipe() if recipe is None else recipe
    resume = bool(recipe.resume)
    array = with_others(recipe.part, lambda: first_level(group, multiscale, level, resume=resume))
    image = Image(group, multiscale, (array,))
    named = replace(multiscale, name=image.name)
    if data is None:
        write_multiscale(group, named)
        return replace(image, metadata=named)
    build = build_levels(group, array, named, data, recipe._replace(name="create_image"), write_base=True)
    return Image(group, build.multiscale or named, build.levels) if build.is_complete else image
