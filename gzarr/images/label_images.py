"""Images of labels that belong to an image: what lists them, and how new ones are written.

Theory of operation. Labels are an image in the group "labels" of their image, with as many levels. It is listed there
once its own metadata are complete, so a write that is killed leaves nothing that viewers find.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, Unpack

import numpy as np

from gzarr.backend import Array as AnyArray
from gzarr.errors import MetadataError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.keywords import Layout
from gzarr.hierarchy.options import check_keywords
from gzarr.hierarchy.values import axis_names, check_aligned
from gzarr.identity.runs import identify
from gzarr.images.image_data import ImageData
from gzarr.images.new_levels import EncodingKeywords, level_keywords
from gzarr.images.ome.axes import ImageAxis, names_of
from gzarr.images.ome.documents import Multiscale, change_ome, new_multiscale, ome_of, version_of
from gzarr.images.ome.image_label import new_image_label
from gzarr.images.pyramid.building import BlockSource, fill, make_build, source_of
from gzarr.images.pyramid.downsample import check_method
from gzarr.images.pyramid.making import check_image, first_level, is_begun
from gzarr.images.pyramid.recipes import Recipe
from gzarr.images.pyramid.resuming import read_marks
from gzarr.images.pyramid.stored_chunks import chunk_of
from gzarr.indexing.keys import normalize_path
from gzarr.indexing.regions import Region
from gzarr.metadata.documents import delete_node
from gzarr.tensors import from_tensor, numpy_dtype

#: Given a block of level 0, returns its labels.
LabelFunction: TypeAlias = Callable[[AnyArray], AnyArray]


class LabelKeywords(EncodingKeywords, total=False):
    """Of `gzarr.images.Image.write_label`: how chunks are encoded."""

    chunks: Any
    shards: Any
    layout: Layout | None


def label_names(group: Group) -> list[str]:
    """Names of the images of labels that belong to the image in a group."""
    found = group.get("labels")
    if not isinstance(found, Group):
        return []
    listed = ome_of(found).get("labels")
    return [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []


def write_label(
    image: ImageData,
    name: str,
    data: Any,
    recipe: Recipe,
    *,
    dtype: Any = None,
    colors: Mapping[int, Any] | None = None,
    properties: Mapping[int, Mapping[str, Any]] | None = None,
    **keywords: Unpack[LabelKeywords],
) -> Group:
    """Write an image of labels that belongs to an image, and list it; returns its group.

    The parameters are those of `gzarr.images.Image.write_label`.
    """
    check_keywords(keywords, LabelKeywords, write_label)
    computes = callable(data) and not hasattr(data, "shape")
    if not computes:
        data = _in_order(from_tensor(data if hasattr(data, "shape") else np.asarray(data)), image)
    run = identify(
        recipe.name,
        recipe.resume,
        functions={"data": data} if computes else {},
        inputs={"image": image.levels[0]} if computes else {"data": data},
        beside=(image.group.store, image.group.path),
    )
    recipe = recipe._replace(run=run)
    if computes:
        axes, shape = image.metadata.axes, image.shape
        found = _probe(data, image)
    else:
        axes, shape = _axes_of(tuple(data.shape), image), tuple(data.shape)
        check_aligned(axis_names(data), names_of(axes), image.axes, image.group.store_path)
        found = numpy_dtype(data.dtype)
    kind = _label_dtype(np.dtype(found if dtype is None else dtype), image, name)
    check_method(recipe.method or "mode", kind, labels=True)
    alone = _metadata(image, name, axes, colors, properties)
    group, base = _created(image, name, alone, {"shape": shape, "dtype": kind, **keywords}, recipe)
    recipe = recipe._replace(overwrite=False)
    if recipe.levels is None and recipe.factors is None:
        steps = _factors(image, axes, shape)
        recipe = recipe._replace(levels=len(steps), factors=steps or None)
    given = BlockSource(_computed(data, image), chunk_of(image[0])) if computes else source_of(data, base, found)
    try:
        build = make_build(group, base, alone, recipe, is_last=False)
        with build.writing():
            fill(build, given._replace(produce=_checked(given.produce, base)))
    except Exception:
        if read_marks(base.store, group.path) is None:  # nothing to go on with
            delete_node(base.store, group.path)
        raise
    _list(image.group, normalize_path(name), listed=True)
    if build.marks is not None:
        build.marks.remove()
    group.attrs.refresh()
    return group


def _metadata(image: ImageData, name: str, axes: tuple[ImageAxis, ...], colors: Any, properties: Any) -> Multiscale:
    """The metadata of labels with level 0 alone. Raises: MetadataError."""
    path, version = normalize_path(name), version_of(image.group)
    if not path:
        raise MetadataError(f"{name!r} is no name for labels")
    numbers = [image.axes.index(axis.name) for axis in axes]
    scale, moved = (tuple(values[number] for number in numbers) for values in image.metadata.transformation(0))
    label = replace(new_image_label(colors, properties, version), source="../" * (2 + path.count("/")))
    return new_multiscale(axes, version, scale, moved, name=path.rpartition("/")[2], image_label=label)


def _created(
    image: ImageData, name: str, multiscale: Multiscale, given: Mapping[str, Any], recipe: Recipe
) -> tuple[Group, Array]:
    """Make the group and level 0 of labels, neither filled nor listed yet; or open those that were not finished.

    given: keywords of level 0. Raises: ContainsNodeError if there are labels of that name that are not replaced.
    """
    path, group = normalize_path(name), image.group
    group.check_metadata_writable()
    labels = group.require_group("labels")
    level = level_keywords(multiscale, given)
    own = labels.get(path) if recipe.resume else None
    if not isinstance(own, Group) or not is_begun(own, "0"):
        check_image(multiscale, level, recipe)
        if recipe.overwrite and path in label_names(group):
            _list(group, path, listed=False)
        own = labels.create_group(path, overwrite=recipe.overwrite)
    return own, first_level(own, multiscale, level, resume=bool(recipe.resume))


def _factors(image: ImageData, axes: Sequence[ImageAxis], shape: Sequence[int]) -> list[dict[str, int]]:
    """The factors between the image's levels, for labels with some of its axes, until nothing is left to join."""
    extents, found = list(shape), []
    for level in range(1, len(image)):
        before, after = image.scale(level - 1), image.scale(level)
        step = {axis.name: max(round(after[axis.name] / before[axis.name]), 1) for axis in axes}
        step = {name: f if n > 1 else 1 for (name, f), n in zip(step.items(), extents, strict=True)}
        if all(f == 1 for f in step.values()):
            break
        extents = [-(-n // f) for n, f in zip(extents, step.values(), strict=True)]
        found.append(step)
    return found


def _in_order(data: Any, image: ImageData) -> Any:
    """Return labels with their axes in the order of the image's, if they have names. Raises ValueError for others."""
    dims = axis_names(data)
    names = [name for name in image.axes if name in dims]
    if len(names) < len(dims):
        raise ValueError(
            f"labels with the axes {dims} do not lie over {image.group.store_path}, with axes {image.axes}: rename them"
        )
    return data.transpose(*names) if dims else data


def _axes_of(shape: tuple[int, ...], image: ImageData) -> tuple[ImageAxis, ...]:
    """The axes of labels of a shape: all of the image, or all but the channels, or those of space."""
    axes = image.metadata.axes
    choices = [axes, tuple(a for a in axes if a.type != "channel"), tuple(a for a in axes if a.type == "space")]
    for chosen in choices:
        extents = [image.shape[image.axes.index(axis.name)] for axis in chosen]
        if len(chosen) == len(shape) and all(n in (1, whole) for n, whole in zip(shape, extents, strict=True)):
            return chosen
    raise ValueError(
        f"labels of shape {shape} do not lie over {image.group.store_path}, with axes {names_of(axes)} and shape"
        f" {image.shape}: each extent must be the image's or 1; axes of channels and time may be left out"
    )


def _label_dtype(dtype: np.dtype[Any], image: ImageData, name: str) -> np.dtype[Any]:
    if dtype.kind == "b":
        return np.dtype("u1")
    if dtype.kind not in "iu":
        raise MetadataError(
            f"labels {name!r} of {image.group.store_path} must be integers, got {dtype}: cast them, or pass dtype="
        )
    return dtype


def _probe(function: LabelFunction, image: ImageData) -> np.dtype[Any]:
    """The data type that a function gives, for the first chunk of an image."""
    first = tuple(slice(0, min(pair)) for pair in zip(image.shape, image[0].chunks, strict=True))
    found: np.dtype[Any] = np.dtype(_computed(function, image)(first).dtype)
    return found


def _computed(function: LabelFunction, image: ImageData) -> Callable[[Region], AnyArray]:
    """A function that gives what another one makes of regions of level 0."""

    def produce(region: Region) -> AnyArray:
        block = image[0][region]
        result = function(block)
        shape = getattr(result, "shape", None)
        if shape != block.shape:
            raise ValueError(
                f"the function must return labels of shape {block.shape}, got {shape}, for {_named(region, image[0])}"
            )
        return result

    return produce


def _checked(produce: Callable[[Region], AnyArray], base: Array) -> Callable[[Region], AnyArray]:
    """A function that gives labels of the data type of level 0, and raises ValueError for what it does not have."""

    def checked(region: Region) -> AnyArray:
        labels = produce(region)
        if not _fit(labels, labels.dtype, base.dtype):
            raise ValueError(
                f"labels must be integers that fit {base.dtype}, got {labels.dtype} for {_named(region, base)}: pass"
                " another dtype="
            )
        return base.backend.asarray(labels, labels.dtype).astype(base.dtype, copy=False)

    return checked


def _named(region: Region, array: Array) -> str:
    return f"the block {', '.join(f'{s.start}:{s.stop}' for s in region)} of {array.store_path}"


def _fit(labels: AnyArray, kind: np.dtype[Any], dtype: np.dtype[Any]) -> bool:
    """Whether labels are integers that a data type has."""
    if kind.kind == "b" or (kind.kind in "iu" and np.can_cast(kind, dtype)):
        return True
    info = np.iinfo(dtype)
    return kind.kind in "iu" and bool(((labels >= info.min) & (labels <= info.max)).all())


def _list(group: Group, name: str, *, listed: bool) -> None:
    """Put labels on the list of an image's labels, or take them off it, in one atomic step."""

    def changed(found: dict[str, Any]) -> dict[str, Any]:
        names = found.get("labels")
        others = [other for other in names if other != name] if isinstance(names, list) else []
        return {**found, "labels": [*others, name] if listed else others}

    change_ome(group.require_group("labels"), changed, version_of(group))
