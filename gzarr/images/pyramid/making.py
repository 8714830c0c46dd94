"""Begins images, or goes on with them, and makes levels by a recipe, in one pass where the method allows it."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from time import sleep
from typing import Any, TypeVar

from gzarr.api.groups import create_group, open_group
from gzarr.errors import OVERWRITE, RESUME, ContainsNodeError, GroupNotFoundError, GzarrError, MetadataError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.reaching import open_store_at
from gzarr.hierarchy.values import meets
from gzarr.images.ome.documents import FORMAT_OF, Multiscale, ome_of
from gzarr.images.pyramid.building import Build, fill, make_build, plan, source_of
from gzarr.images.pyramid.cascade import Cascade
from gzarr.images.pyramid.downsample import GAUSSIAN, check_method
from gzarr.images.pyramid.level_arrays import is_bare, level_array
from gzarr.images.pyramid.on_devices import OnDevices
from gzarr.images.pyramid.recipes import Recipe
from gzarr.images.pyramid.resuming import read_marks
from gzarr.images.pyramid.rounds import base_blocks, build_rounds
from gzarr.images.pyramid.smoothing import smooth_levels
from gzarr.images.pyramid.units import plan_units
from gzarr.indexing.keys import join_path, normalize_path
from gzarr.metadata.documents import documents
from gzarr.metadata.model import ArrayMeta
from gzarr.scale.blocks import JobPart
from gzarr.storage import MemoryStore

#: How often, and after which time, parts of a job look again for what another part is creating.
_TRIES, _WAIT_S = 5, 0.2

T = TypeVar("T")


def new_group(store: Any, opening: Mapping[str, Any], *, resume: bool, overwrite: bool, first: str = "0") -> Group:
    """The group of a new image, or with ``resume`` that of one that was not finished. Raises: ContainsNodeError.

    first: path of level 0.
    """
    if resume:
        with suppress(GroupNotFoundError):
            group = open_group(store, "r+", **opening)
            if is_begun(group, first):
                return group
    return create_group(store, overwrite=overwrite, **opening)


def with_others(part: JobPart | None, make: Callable[[], T]) -> T:
    """Make what other parts of a job may be making at this moment: what they have made is taken then."""
    for _ in range(_TRIES if part is not None else 0):
        with suppress(ContainsNodeError):
            return make()
        sleep(_WAIT_S)
    return make()


def is_finished(part: JobPart | None, out: Any, first: str, like: ArrayMeta) -> bool:
    """Whether the other parts of a job have finished the image already. like: what level 0 would be, at this path."""
    with suppress(GzarrError, OSError, LookupError):  # not even begun
        group = open_group(out, "r")
        made: Any = group[first].metadata
        same = (made.shape, made.data_type, made.grid) == (like.shape, like.data_type, like.grid)
        return part is not None and same and bool(ome_of(group)) and read_marks(group.store, group.path) is None
    return False


def is_begun(group: Group, first: str) -> bool:
    """Whether the image in a group was begun and not finished. first: path of level 0."""
    return read_marks(group.store, group.path) is not None or is_bare(group, first)


def may_go_on(array: Array, part: JobPart | None) -> bool:
    """Whether an array can be what an unfinished call has begun: it has notes, or no chunks. Others may have been."""
    return part is not None or read_marks(array.store, array.path) is not None or not array.nchunks_initialized


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
        if recipe.part is not None:
            raise ValueError("part=: levels by method='gaussian' need level 0 first; copy it, then build its levels")
        if not (recipe.resume and ome_of(group)):  # or it is written already
            first = recipe._replace(levels=0, factors=None, method="nearest", progress=None, name=after)
            build_levels(group, base, multiscale, data, first, write_base=True, is_last=False)
        write_base = False
    if isinstance(recipe.on, OnDevices) and method == GAUSSIAN:
        raise ValueError("method='gaussian' is not built on several devices; choose another method")
    build = make_build(group, base, multiscale, recipe, write_base=write_base, after=after, is_last=is_last)
    with build.writing():
        if method == GAUSSIAN:
            smooth_levels(build)
        elif recipe.is_shared:
            given = source_of(data, base)
            build_rounds(build, base_blocks(build, given, given.produce) if write_base else None)
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
