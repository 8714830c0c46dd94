"""Begins images, or goes on with them, and makes levels by a recipe, in one pass where the method allows it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from gzarr.api.groups import open_group
from gzarr.errors import OVERWRITE, RESUME, ContainsNodeError, GroupNotFoundError, MetadataError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.reaching import open_store_at
from gzarr.hierarchy.values import meets
from gzarr.images.ome.documents import FORMAT_OF, Multiscale, ome_of
from gzarr.images.pyramid.building import Build, fill, make_build, plan, source_of
from gzarr.images.pyramid.cascade import Cascade
from gzarr.images.pyramid.cluster import build_on
from gzarr.images.pyramid.downsample import GAUSSIAN, check_method
from gzarr.images.pyramid.level_arrays import is_bare, level_array
from gzarr.images.pyramid.recipes import Recipe
from gzarr.images.pyramid.resuming import read_marks
from gzarr.images.pyramid.smoothing import smooth_levels
from gzarr.images.pyramid.units import plan_units
from gzarr.indexing.keys import join_path, normalize_path
from gzarr.metadata.documents import documents
from gzarr.metadata.model import ArrayMeta
from gzarr.storage import MemoryStore


def new_group(store: Any, opening: Mapping[str, Any], *, resume: bool, overwrite: bool, first: str = "0") -> Group:
    """The group of a new image, or with ``resume`` that of one that was not finished. Raises: ContainsNodeError.

    first: path of level 0.
    """
    if resume:
        with suppress(GroupNotFoundError):
            group = open_group(store, "r+", **opening)
            if is_begun(group, first):
                return group
    return open_group(store, "w" if overwrite else "w-", **opening)


def is_begun(group: Group, first: str) -> bool:
    """Whether the image in a group was begun and not finished. first: path of level 0."""
    return read_marks(group.store, group.path) is not None or is_bare(group, first)


def first_level(group: Group, multiscale: Multiscale, level: Mapping[str, Any], *, resume: bool) -> Array:
    """Level 0 of a new image, or with ``resume`` that of one that was not finished, which must be the same.

    Raises: ContainsNodeError.
    """
    path = multiscale.datasets[0].path
    array = group.get(path) if resume else None
    if not isinstance(array, Array):
        return group.create_array(path, **level)
    if documents(array.metadata, "") != documents(check_image(multiscale, level, None), ""):
        raise ContainsNodeError(
            f"{array.store_path} was begun with another shape, data type or chunks: go on with the same ones, or pass "
            f"{OVERWRITE} instead of {RESUME} to begin anew"
        )
    return array


def check_apart(data: Array, store: Any, path: str | None = None) -> None:
    """Refuse to replace a place in which an array lies that is read. Raises: MetadataError."""
    place, base = open_store_at(store, "a")
    if meets((place, join_path(base, normalize_path(path or ""))), (data.store, data.path)):
        raise MetadataError(
            f"data: {data.store_path} would be deleted before it is read; choose another place for the image"
        )


def build_levels(
    group: Group,
    base: Array,
    multiscale: Multiscale,
    data: Any,
    recipe: Recipe,
    *,
    write_base: bool,
    is_last: bool = True,
) -> Build:
    """Build levels from data: level 0, or what becomes level 0.

    write_base: whether level 0 is written. is_last: whether the notes of what is done are removed at the end.
    Raises: what `make_build`, `Build.writing` and `fill` raise.
    """
    method = recipe.method_for(multiscale)
    after = None
    if write_base and method == GAUSSIAN:  # which reads a level that is complete
        after = f"{recipe.name}, level 0"
        check_method(method, base.dtype, labels=multiscale.image_label is not None)
        if not (recipe.resume and ome_of(group)):  # or it is written already
            first = recipe._replace(levels=0, factors=None, method="nearest", progress=None, name=after)
            build_levels(group, base, multiscale, data, first, write_base=True, is_last=False)
        write_base = False
    if recipe.client is not None and method == GAUSSIAN:
        raise ValueError("method='gaussian' is not built by client= or on several devices; choose another method")
    build = make_build(group, base, multiscale, recipe, write_base=write_base, after=after, is_last=is_last)
    with build.writing():
        if recipe.client is not None:
            build_on(recipe.client, build)
        elif method == GAUSSIAN:
            smooth_levels(build)
        else:
            fill(build, source_of(data, base))
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
    method, _, planned = plan(base, multiscale, recipe)
    if method != GAUSSIAN:
        arrays = [level_array(group, base, level) for level in planned]
        cascade = Cascade([base, *arrays], [level.factors for level in planned], method, backend=base.backend)
        plan_units(cascade.geometry, recipe.max_nbytes, 1)
