"""Makes the levels of an image by a recipe, in one pass where the method allows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gzarr.api.open import open_group
from gzarr.display.progress import ProgressLike
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.identity.runs import Resume, Run
from gzarr.images.ome.documents import FORMAT_OF, Multiscale, ome_attributes
from gzarr.images.pyramid.building import Build, building, cascade_of, chunk_of, fill, plan, producer, skipped
from gzarr.images.pyramid.cluster import ClusterClient, build_on
from gzarr.images.pyramid.downsample import GAUSSIAN, Method, check_method
from gzarr.images.pyramid.level_arrays import level_array
from gzarr.images.pyramid.levels import Factors
from gzarr.images.pyramid.smoothing import smooth_levels
from gzarr.images.pyramid.units import plan_units
from gzarr.metadata.model import ArrayMeta
from gzarr.storage.memory import MemoryStore


class Recipe(NamedTuple):
    """How levels are made of level 0.

    Attributes
    ----------
    levels, factors, method
        As in `gzarr.images.build_pyramid`.
    max_nbytes : int or None
        Memory for decoded elements, in bytes; None for 256 MiB, or what one unit needs.
    resume : bool or str
        Whether to go on with an unfinished build; see `gzarr.images.build_pyramid`.
    overwrite : bool
        Whether to replace levels, and unfinished builds.
    progress : bool or callable, optional
        As in `gzarr.transfer`.
    client : Client, optional
        Of a cluster that builds the levels, where level 0 is stored already.
    run : Run, optional
        What becomes level 0.
    skip : number, array of bool or False, optional
        As in `gzarr.images.build_pyramid`.
    """

    levels: int | None = None
    factors: Factors = None
    method: Method | None = None
    max_nbytes: int | None = None
    resume: Resume = False
    overwrite: bool = False
    progress: ProgressLike = None
    client: ClusterClient | None = None
    run: Run | None = None
    skip: Any = None


def build_levels(
    group: Group,
    base: Array,
    multiscale: Multiscale,
    data: Any,
    recipe: Recipe,
    *,
    write_base: bool,
    name: str = "build_pyramid",
    is_last: bool = True,
) -> Build:
    """Build levels from data: level 0, or what becomes level 0.

    write_base: whether level 0 is written. name: of the function that builds, for messages. is_last: whether the notes
    of what is done are removed at the end.
    Raises: what `gzarr.images.pyramid.building.building` and `fill` raise.
    """
    method = method_of(recipe, multiscale)
    first_name = None
    if write_base and method == GAUSSIAN:  # which reads a level that is complete
        first_name = f"{name}, level 0"
        check_method(method, base.dtype, labels=multiscale.image_label is not None)
        if not (recipe.resume and ome_attributes(group.attrs.asdict(), group.zarr_format)):  # or it is written already
            first = recipe._replace(levels=0, factors=None, method="nearest", progress=None)
            build_levels(group, base, multiscale, data, first, write_base=True, name=first_name, is_last=False)
        write_base = False
    if recipe.client is not None and method == GAUSSIAN:
        raise ValueError("method='gaussian' is not built on a cluster; leave client= out, or choose another method")
    with building(
        group,
        base,
        multiscale,
        levels=recipe.levels,
        factors=recipe.factors,
        method=method,
        skip=recipe.skip,
        write_base=write_base,
        resume=recipe.resume,
        overwrite=recipe.overwrite,
        name=name,
        run=recipe.run,
        after=first_name,
        is_last=is_last,
    ) as build:
        if recipe.client is not None:
            build_on(recipe.client, build, method, max_nbytes=recipe.max_nbytes, progress=recipe.progress)
        elif method == GAUSSIAN:
            smooth_levels(build, max_nbytes=recipe.max_nbytes, progress=recipe.progress)
        else:
            produce = producer(data, base.backend, base.dtype)
            fill(build, produce, max_nbytes=recipe.max_nbytes, progress=recipe.progress, chunk=chunk_of(data))
    group.attrs.refresh()
    return build


def check_image(multiscale: Multiscale, level: Mapping[str, Any], recipe: Recipe | None) -> ArrayMeta:
    """Check that there can be an image, and levels by a recipe. Returns: what the metadata of level 0 will be.

    Raises: MetadataError, ValueError, TypeError.
    """
    trial = open_group(MemoryStore(), "w", zarr_format=FORMAT_OF[multiscale.version], device="cpu")
    base = trial.create_array(multiscale.datasets[0].path, **level)
    if recipe is not None:
        check_recipe(trial, base, multiscale, recipe)
    return base.metadata


def check_recipe(group: Group, base: Array, multiscale: Multiscale, recipe: Recipe) -> None:
    """Check that levels can be made by a recipe, before anything is written. Raises: ValueError, TypeError."""
    method = method_of(recipe, multiscale)
    check_method(method, base.dtype, labels=multiscale.image_label is not None)
    skipped(recipe.skip, base, method)
    planned = plan(base, multiscale, recipe.levels, recipe.factors, method)
    if method != GAUSSIAN:
        arrays = [level_array(group, base, level) for level in planned]
        plan_units(cascade_of(base, arrays, planned, method, write_base=True).geometry, recipe.max_nbytes, 1)


def method_of(recipe: Recipe, multiscale: Multiscale) -> Method:
    """The method of a recipe; by default the mean, and of labels the mode."""
    if recipe.method is not None:
        return recipe.method
    return "mean" if multiscale.image_label is None else "mode"
