"""Where a filter writes: an array, or an image whose pyramid is built in the same pass. Both may be new.

What has been written is noted (`gzarr.images.pyramid.resuming`), so that the same call can go on after a kill.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np

from gzarr.api.create import create_array
from gzarr.api.open import open_array
from gzarr.errors import ArrayNotFoundError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.new_nodes import like
from gzarr.hierarchy.node import lies_within
from gzarr.images.image import Image
from gzarr.images.new_levels import level_keywords, nodata_keywords
from gzarr.images.ome.documents import place_name
from gzarr.images.pyramid.building import Build, make_build
from gzarr.images.pyramid.downsample import GAUSSIAN
from gzarr.images.pyramid.making import check_image, first_level, new_group
from gzarr.images.pyramid.recipes import Recipe

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
    return Image(build.node, build.multiscale, build.levels)


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


def new_output(template: Array | Image, out: Any, dtype: np.dtype[Any], recipe: Recipe) -> Array | Image:
    """An output at a path, like a template: an array, or an image with level 0.

    Raises: ContainsNodeError.
    """
    if isinstance(template, Image):
        return _new_image(template, out, dtype, recipe)
    if recipe.resume:
        with suppress(ArrayNotFoundError):
            return open_array(out, "r+")
    return create_array(**{**_like(template, dtype), "store": out, "overwrite": recipe.overwrite})


def _new_image(template: Image, out: Any, dtype: np.dtype[Any], recipe: Recipe) -> Image:
    first, multiscale = template.levels[0], template.metadata
    multiscale = replace(
        multiscale,
        datasets=multiscale.datasets[:1],
        name=None,
        index=0,
        channels=tuple(replace(c, window=None) for c in multiscale.channels),  # of other values
        image_label=multiscale.image_label if dtype == first.dtype else None,
    )
    recorded = nodata_keywords(recipe.skip, first, dtype, first.zarr_format)
    keywords = level_keywords(multiscale, _like(first, dtype) | recorded)
    del keywords["zarr_format"]
    _check_method(recipe)
    check_image(multiscale, keywords, recipe._replace(max_nbytes=_ANY_NBYTES))
    resume, path, opening = bool(recipe.resume), multiscale.datasets[0].path, {"zarr_format": first.zarr_format}
    group = new_group(out, opening, resume=resume, overwrite=recipe.overwrite, first=path)
    level = first_level(group, multiscale, keywords, resume=resume)
    return Image(group, replace(multiscale, name=place_name(group)), (level,))


def _like(template: Array, dtype: np.dtype[Any]) -> dict[str, Any]:
    """The keywords that make an array like another, perhaps of another data type."""
    keywords: dict[str, Any] = {}
    if dtype != template.dtype or template.is_view:
        name = "compressor" if template.zarr_format == 2 else "compressors"
        keywords = {"dtype": dtype, name: getattr(template, name)}
    return like(template, keywords)
