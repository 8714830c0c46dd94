"""Builds the pyramid of an image: all levels in one pass over level 0, in bounded memory."""

from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from typing import Any

from gzarr.api.open import open as open_node
from gzarr.backend import Backend
from gzarr.display.progress import ProgressLike
from gzarr.errors import OVERWRITE, ContainsNodeError, MetadataError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.new_nodes import like
from gzarr.identity.runs import Resume, identify
from gzarr.images.create import put_image
from gzarr.images.image import Image, open_image
from gzarr.images.new_levels import level_keywords, nodata_keywords
from gzarr.images.ome.axes import new_axes
from gzarr.images.ome.documents import VERSION_OF, Multiscale, new_multiscale
from gzarr.images.pyramid import making
from gzarr.images.pyramid.building import method_name, plan
from gzarr.images.pyramid.device_memory import left_nbytes, sharing
from gzarr.images.pyramid.downsample import Method
from gzarr.images.pyramid.level_arrays import take_off_levels
from gzarr.images.pyramid.levels import Factors
from gzarr.images.pyramid.on_devices import OnDevices
from gzarr.images.pyramid.recipes import Recipe, shared_part
from gzarr.images.pyramid.resuming import read_marks
from gzarr.images.shown import show_values
from gzarr.images.tasks import DEVICE_WORKERS
from gzarr.indexing.keys import join_path


def build_pyramid(
    image: Any,
    levels: int | None = None,
    factors: Factors = None,
    method: Method | None = None,
    *,
    skip: Any = None,
    out: Any = None,
    max_nbytes: int | None = None,
    resume: Resume = False,
    overwrite: bool = False,
    progress: ProgressLike = None,
    device: str | None = None,
    devices: Sequence[str] | None = None,
    max_device_nbytes: int | None = None,
    on: Any = None,
    part: tuple[int, int] | None = None,
) -> Image:
    """Build the smaller levels of an image, each region of which is read once.

    Parameters
    ----------
    image : Image, Group, Array, path, URL or store
        The image; its level 0 is what the others are made of. An array needs ``out``.
    levels : int, optional
        How many levels to add. By default, until no spatial axis has more than 256
        elements.
    factors : int, mapping, or sequence of these, optional
        How many elements become one, for each level: of all spatial axes, or by axis. By default 2; axes whose voxels
        are longer than the others' are left until those are as long.
    method : str or callable, optional
        How elements become one: "mean", "nearest" (the first element), "mode", "gaussian" or another of the methods
        that the guide to images lists, or a function of a block and the factors that returns the smaller block. By
        default "mean", and "mode" for labels.
    skip : number, array of bool or False, optional
        Elements that are missing, which are left out: those that equal a number or are NaN, or a mask of the shape of
        level 0, as an array in memory or a gzarr array. By default what the image records as missing data (the
        attribute ``nodata``); False for none. A window with nothing else becomes missing too.
    out : Group, path, URL or store, optional
        Where a new image is made, with a copy of level 0 from the same pass. By default, the image gets the levels.
    max_nbytes : int, optional
        Memory for decoded elements, in bytes. Encoded bytes under way come on top. By default 256 MiB, or what one unit
        needs if that is more, as progress then says: chunks and shards are written whole.
    resume : bool or str
        Whether to go on with a build that was interrupted: it needs the same image, unchanged, and the same arguments,
        else it is refused. At most one unit of each thread is done again. Of a function that cannot be compared, a
        text that stands for it: see `map_overlap`.
    overwrite : bool
        Whether to replace levels that exist.
    progress : bool or callable, optional
        True for a progress bar, or a function of (bytes done, bytes in all, name of the array).
    device : str, optional
        Where chunks are decoded, downsampled and encoded. By default, the device of the image.
    devices : sequence of str, optional
        Several devices, such as ``["cuda:0", "cuda:1"]``, which take blocks in turn, three at once each. Blocks are
        those that ``on`` has.
    max_device_nbytes : int, optional
        On each device, memory for everything: blocks, what a function takes for itself, decoding and encoding. By
        default ``max_nbytes``, besides what the image was opened with for decoding and encoding.
    on : optional
        What does the blocks, such as a `distributed.Client`: see `gzarr.transfer`. A block then takes up to
        ``max_nbytes``, and has whole chunks or shards of as many levels as fit; levels above are made of these.
    part : (int, int), optional
        Do part k of n of a job, ``(k, n)``: see `gzarr.transfer`. The last part to end makes the levels that need
        those of all, and completes the image; others return it with level 0 alone.

    Returns
    -------
    Image
        The image with its new levels.

    Raises
    ------
    ContainsNodeError
        If the image has other levels already and ``overwrite`` is false, or an unfinished build is not resumed, or is
        of something else.
    ValueError
        If there can be no such levels, the method is not for such elements, or ``max_nbytes`` is too small.
    ChunkError
        If a chunk of level 0 is damaged. What was written stays; repair the chunk and resume.

    Notes
    -----
    Means and medians of integers are exact and rounded once, half to even. A window at the end of an axis has the
    elements that exist. A level is as large as the one before divided by its factors, rounded up. Its voxels lie in the
    middle of their windows, with "nearest" at the first element, which the metadata say. "gaussian" makes one level
    after the other, each of which is read once more. Levels have the codecs of level 0, its chunks, cut to the level
    along axes that are reduced, and its shards, in halves where one takes more than 32 MiB.

    Examples
    --------
    >>> import gzarr, gzarr.images, numpy as np
    >>> image = gzarr.images.create_image("plane.zarr", shape=(600, 1000), dtype="u1", scale=0.5, units="micrometer")
    >>> image = gzarr.images.build_pyramid(image)
    >>> [level.shape for level in image.levels]
    [(600, 1000), (300, 500), (150, 250)]
    >>> image.scale(1), image.translation(1)
    ({'y': 1.0, 'x': 1.0}, {'y': 0.25, 'x': 0.25})

    Heights with -9999 where nothing was measured:

    >>> heights = gzarr.array(np.array([[4.0, -9999.0], [2.0, 3.0]]))
    >>> gzarr.images.build_pyramid(heights, 1, out="heights.zarr", skip=-9999)[1][...]
    array([[3.]])
    """
    if on is not None and (max_device_nbytes is not None or devices is not None):
        raise ValueError("max_device_nbytes, devices: workers of on= have their own; leave one of them away")
    this, resume = shared_part(on or devices, part, resume, overwrite=overwrite)
    if devices is not None and (device is not None or not devices):
        raise ValueError(f"devices={devices!r}: name one device at least, and leave device= away")
    backends = [sharing(each, max_device_nbytes) for each in devices or ()]
    with closing(OnDevices(backends)) if backends else nullcontext(on) as engine:
        recipe = Recipe(levels, factors, method, max_nbytes, resume, overwrite, progress, engine, this, skip=skip)
        return _built(image, out, recipe, backends[0] if backends else device, max_device_nbytes)


def _built(image: Any, out: Any, recipe: Recipe, device: str | Backend | None, max_device_nbytes: int | None) -> Image:
    """An image with its levels. Arguments and errors: as of `build_pyramid`."""
    if out is not None:
        given = image if isinstance(image, (Array, Image)) else open_image(image, "r")
        given, recipe = _limited(given, recipe, device, max_device_nbytes)
        return _copied(given, out, recipe)
    _check_levels(image)
    found = image if isinstance(image, Image) else open_image(image, "r+" if not isinstance(image, Group) else None)
    if found.group.read_only and not isinstance(image, (Image, Group)):
        _check_levels(open_node(image, "r"))
    source: Image
    source, recipe = _limited(found, recipe, device, max_device_nbytes)
    alone = replace(source.metadata, datasets=source.metadata.datasets[:1])
    base = source.levels[0]
    if len(source) > 1 and not _take_off(source, alone, recipe):
        return source
    build = making.build_levels(source.group, base, alone, base, recipe, write_base=False)
    if not build.is_complete:
        return Image(source.group, alone, build.levels[:1])
    return show_values(Image(source.group, build.multiscale or alone, build.levels), missing=build.cascade.missing[0])


def _check_levels(node: Any) -> None:
    if isinstance(node, Array):
        where = f"{node.store_path} is an array, no image, and has no levels"
        raise MetadataError(f"{where}: `gzarr ome convert` makes an image of it, and so does out=")


def _limited(
    source: Any, recipe: Recipe, device: str | Backend | None, max_device_nbytes: int | None
) -> tuple[Any, Recipe]:
    """An array or image on a device, of whose memory it leaves a part to the recipe."""
    if device is None and max_device_nbytes is None:
        return source, recipe
    given = (source if isinstance(source, Array) else source.levels[0]).backend
    backend = sharing(device or given, max_device_nbytes)
    left = left_nbytes(backend, recipe.max_nbytes, max_device_nbytes)
    if max_device_nbytes is not None and isinstance(recipe.on, OnDevices):
        left = max(int(left or 0) // DEVICE_WORKERS, 1)  # of one task
    return source.to(backend), recipe._replace(max_nbytes=left)


def _take_off(source: Image, alone: Multiscale, recipe: Recipe) -> bool:
    """Take the levels that an image has out of its metadata, and delete them. Returns: whether they are to be built.

    Raises: ContainsNodeError if that was not asked for.
    """
    group, base = source.group, source.levels[0]
    method, _, planned = plan(base, alone, recipe)
    is_as_planned = [level.shape for level in planned] == [level.shape for level in source.levels[1:]]
    if recipe.resume and is_as_planned and source.metadata.type == method_name(method):
        # A build that ended before its last step repeats that.
        return read_marks(group.store, group.path) is not None
    if not recipe.overwrite:
        raise ContainsNodeError(
            f"{group.store_path} has {len(source)} levels already: pass {OVERWRITE} to build levels 1 to "
            f"{len(source) - 1} anew"
        )
    making.check_recipe(group, base, alone, recipe)
    take_off_levels(group, source.metadata, [join_path(group.path, level.path) for level in planned])
    return True


def _copied(source: Array | Image, out: Any, recipe: Recipe) -> Image:
    """A new image with all levels."""
    base = source if isinstance(source, Array) else source.levels[0]
    multiscale = _of_array(base) if isinstance(source, Array) else source.metadata
    several = isinstance(recipe.on, OnDevices)
    if several:
        raise ValueError("devices= builds levels of an image that is stored: leave it away, or out=")
    if recipe.overwrite:
        making.check_apart(base, out)
    opening = {"zarr_format": base.metadata.zarr_format, "device": base.backend}
    recorded = nodata_keywords(recipe.skip, base, base.dtype, base.zarr_format)
    level = level_keywords(multiscale, like(base, {}) | recorded)
    del level["zarr_format"]
    multiscale = replace(multiscale, datasets=multiscale.datasets[:1])
    if making.is_finished(recipe.part, out, multiscale.datasets[0].path, making.check_image(multiscale, level, recipe)):
        return open_image(out, "r")
    recipe = recipe._replace(run=identify("build_pyramid", recipe.resume, inputs={"level 0": base}))
    how: Any = {"resume": bool(recipe.resume), "overwrite": recipe.overwrite, "first": multiscale.datasets[0].path}
    group = making.with_others(recipe.part, lambda: making.new_group(out, opening, **how))
    return put_image(group, multiscale, level, base, recipe._replace(overwrite=False))


def _of_array(array: Array) -> Multiscale:
    """The metadata of an image that is made of an array."""
    names = array.dimension_names
    axes = new_axes(names if names and all(names) else None, array.ndim, None)
    return new_multiscale(axes, VERSION_OF[array.metadata.zarr_format], (1.0,) * array.ndim, (0.0,) * array.ndim)
