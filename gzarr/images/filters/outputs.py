"""Where a filter writes: an array, or an image whose pyramid is built in the same pass. Both may be new.

What has been written is noted (`gzarr.images.pyramid.resuming`), so that the same call can go on after a kill.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np

from gzarr.api.create import create_array
from gzarr.api.open import open_array
from gzarr.errors import ArrayNotFoundError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.new_nodes import like
from gzarr.hierarchy.node import lies_within
from gzarr.hierarchy.reductions import fill_of
from gzarr.images.image import Image, open_image
from gzarr.images.new_levels import level_keywords, nodata_keywords
from gzarr.images.ome.documents import Multiscale, place_name
from gzarr.images.pyramid.building import Build, make_build
from gzarr.images.pyramid.downsample import GAUSSIAN
from gzarr.images.pyramid.making import check_image, first_level, is_finished, may_go_on, new_group, with_others
from gzarr.images.pyramid.recipes import Recipe

#: Attributes that say where elements lie, as CF, rioxarray and GDAL have them.
_PLACES = {"_ARRAY_DIMENSIONS", "coordinates", "grid_mapping", "crs", "crs_wkt", "spatial_ref", "transform"}
_PLACES |= {"GeoTransform", "AREA_OR_POINT", "zarr_conventions"}
#: How others begin, by Zarr's conventions.
_PLACED_BY = ("proj:", "spatial:")
#: The limit of memory is checked when the output is planned.
_ANY_NBYTES = 1 << 62


def output_build(output: Array | Image, recipe: Recipe) -> Build:
    """Plan an output that exists: an array, or an image with the levels that it has. Raises: ValueError."""
    recipe = recipe._replace(overwrite=not recipe.resume)
    if isinstance(output, Array):
        return make_build(output, output, None, recipe)
    if len(output) > 1 and recipe.levels is None and recipe.factors is None:
        recipe = recipe._replace(levels=len(output) - 1, factors=_factors_of(output))
    _check_method(recipe)
    alone = replace(output.metadata, datasets=output.metadata.datasets[:1])
    build = make_build(output.group, output.levels[0], alone, recipe)
    build.replaced = output.metadata if len(output) > 1 else None
    return build


def check_output(name: str, output: Array | Image, shape: tuple[int, ...], sources: Sequence[Any]) -> None:
    """Check an output that exists. Raises: ValueError if its shape is another, or it is one of the inputs."""
    levels = output.levels if isinstance(output, Image) else (output,)
    if levels[0].shape != shape:
        raise ValueError(f"{name}: the output {levels[0].store_path} has shape {levels[0].shape}, the result {shape}")
    for source, level in product(sources, levels):
        if isinstance(source, Array) and lies_within(source.store, source.path, level.store, level.path):
            raise ValueError(
                f"{name}: the output {level.store_path} is an input, and would be read after it was written; "
                "give another output"
            )
    levels[0].check_writable()


def result_of(build: Build) -> Array | Image:
    """What was built."""
    if build.multiscale is None or not isinstance(build.node, Group):
        return build.levels[0]
    build.node.attrs.refresh()
    levels = build.levels if build.is_complete else build.levels[:1]
    return Image(build.node, replace(build.multiscale, datasets=build.multiscale.datasets[: len(levels)]), levels)


def is_finished_image(output: Array | Image, given: Any) -> bool:
    """Whether other parts of a job have made a new image, with its levels, already. given: where it goes."""
    return isinstance(output, Image) and len(output) > 1 and not isinstance(given, Image)


def _check_method(recipe: Recipe) -> None:
    if recipe.method == GAUSSIAN:
        raise ValueError(
            f"{recipe.name}: method='gaussian' makes each level of the one before, when that is whole; leave it out "
            "and call build_pyramid afterwards"
        )


def _factors_of(image: Image) -> list[dict[str, int]]:
    """The factors between the levels of an image."""
    scales = [image.scale(level) for level in range(len(image))]
    return [
        {axis: max(round(above[axis] / below[axis]), 1) for axis in image.axes} for below, above in pairwise(scales)
    ]


class OutputKind(NamedTuple):
    """What a new output is like.

    Attributes
    ----------
    template : Array or Image
        Lends chunks, codecs and, if it is an image, the metadata.
    dtype : dtype
        Of the elements.
    shape : tuple of int
        Of level 0.
    axes : tuple of int or None
        For each axis, that of the template it comes from; None for a new one.
    multiscale : Multiscale or None
        What the metadata say, with level 0 alone; None if the output is an array.
    cell : tuple of int, optional
        Its chunks; by default those of the template.
    keeps_place : bool
        Whether its elements lie where those of the template do.
    """

    template: Array | Image
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    axes: tuple[int | None, ...]
    multiscale: Multiscale | None
    cell: tuple[int, ...] | None = None
    keeps_place: bool = False

    @property
    def like(self) -> Array:
        """The array that lends chunks and codecs."""
        return self.template.levels[0] if isinstance(self.template, Image) else self.template

    @property
    def is_same(self) -> bool:
        """Whether it is cut as that is."""
        return self.axes == tuple(range(self.like.ndim)) and self.cell is None

    def keywords(self) -> dict[str, Any]:
        """The keywords that make level 0."""
        given, same = self.like, self.is_same
        keywords: dict[str, Any] = {"shape": self.shape}
        if self.dtype != given.dtype or given.is_view or not same:
            name = "compressor" if given.zarr_format == 2 else "compressors"
            keywords |= {"dtype": self.dtype, name: getattr(given, name)}
        if self.dtype != given.dtype and not np.can_cast(given.dtype, self.dtype, "safe"):
            keywords["fill_value"] = 0
        if same:
            return like(given, keywords)
        keywords.setdefault("fill_value", fill_of(given))
        for name in ("chunks", "shards"):
            lengths = getattr(given, name)
            if lengths is not None and (self.cell is None or name == "chunks"):
                keywords[name] = tuple(1 if axis is None else lengths[axis] for axis in self.axes)
        if self.cell is not None:
            keywords["chunks"] = self.cell
        if given.zarr_format == 3 and given.dimension_names:
            keywords["dimension_names"] = [None if n is None else given.dimension_names[n] for n in self.axes]
        kept = {"zarr_format": given.zarr_format, "write_empty_chunks": given.write_empty_chunks}
        return {**kept, **keywords}

    def recording(self, skip: Any) -> dict[str, Any]:
        """The same, with attributes: what stands for missing data, as `nodata_keywords` has it, and where it lies."""
        keywords, given = self.keywords(), self.like
        said, is_same = given.attrs.asdict(), self.dtype == given.dtype
        kept = {name for name in said if self.keeps_place and (name in _PLACES or name.startswith(_PLACED_BY))}
        kept |= {"_FillValue", "missing_value"} & said.keys() if is_same else set()
        recorded = nodata_keywords(skip, given, self.dtype, given.zarr_format) if is_same or self.multiscale else {}
        placed = {name: said[name] for name in said if name in kept}
        attributes = {**placed, **keywords.get("attributes", {}), **recorded.get("attributes", {})}
        return {**keywords, **recorded, "attributes": attributes}


def new_output(kind: OutputKind, out: Any, recipe: Recipe, *, is_first: bool) -> Array | Image:
    """An output at a path: an array, or an image with level 0. Raises: ContainsNodeError.

    is_first: of several, of which it is the last to be finished.
    """
    return with_others(recipe.part, lambda: _new_output(kind, out, recipe, is_first=is_first))


def _new_output(kind: OutputKind, out: Any, recipe: Recipe, *, is_first: bool) -> Array | Image:
    if kind.multiscale is not None:
        return _new_image(kind, kind.multiscale, out, recipe)
    if recipe.resume:
        with suppress(ArrayNotFoundError):
            found = open_array(out, "r+")
            if not is_first or may_go_on(found, recipe.part):  # what is whole may be anything
                return found
    return create_array(**{**kind.recording(None), "store": out, "overwrite": recipe.overwrite})


def multiscale_like(template: Array | Image, dtype: np.dtype[Any]) -> Multiscale | None:
    """What the metadata of an image say that is made of another, with level 0 alone; None for an array."""
    if not isinstance(template, Image):
        return None
    multiscale = template.metadata
    scale, translation = multiscale.transformation(0)
    return replace(
        multiscale,
        datasets=(replace(multiscale.datasets[0], scale=scale, translation=translation),),
        whole=None,
        name=None,
        index=0,
        channels=tuple(replace(c, window=None) for c in multiscale.channels),  # of other values
        image_label=multiscale.image_label if dtype == template.dtype else None,
    )


def _new_image(kind: OutputKind, multiscale: Multiscale, out: Any, recipe: Recipe) -> Image:
    keywords = level_keywords(multiscale, kind.recording(recipe.skip))
    zarr_format = keywords.pop("zarr_format")
    _check_method(recipe)
    made = check_image(multiscale, keywords, recipe._replace(max_nbytes=_ANY_NBYTES))
    resume, path = bool(recipe.resume), multiscale.datasets[0].path
    if is_finished(recipe.part, out, path, made):
        return open_image(out, "r+")
    group = new_group(out, {"zarr_format": zarr_format}, resume=resume, overwrite=recipe.overwrite, first=path)
    level = first_level(group, multiscale, keywords, resume=resume)
    return Image(group, replace(multiscale, name=place_name(group)), (level,))
