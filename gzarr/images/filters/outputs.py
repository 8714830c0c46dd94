"""Where a filter writes: an array, or an image whose pyramid is built in the same pass. Both may be new.

What has been written is noted (`gzarr.images.pyramid.resuming`), so that the same call can go on after a kill.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

import gzarr.images.pyramid.resuming as notes
from gzarr.api.create import create_array
from gzarr.api.open import open_array, open_group
from gzarr.backend import Array as AnyArray
from gzarr.errors import OVERWRITE, ArrayNotFoundError, GroupNotFoundError
from gzarr.hierarchy import new_nodes
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.identity.inputs import describe_metadata
from gzarr.identity.runs import Run, identify
from gzarr.images.halo.planning import Bounds
from gzarr.images.image import Image
from gzarr.images.new_levels import level_keywords, nodata_keywords
from gzarr.images.pyramid.building import Build, building
from gzarr.images.pyramid.downsample import GAUSSIAN, Method
from gzarr.images.pyramid.level_arrays import is_bare, take_off_levels
from gzarr.images.pyramid.levels import Factors
from gzarr.images.pyramid.recipes import Recipe, check_image
from gzarr.images.pyramid.resuming import UnitsDone
from gzarr.indexing.grid import RegularAxis

#: The limit of memory is checked when the output is planned.
_ANY_NBYTES = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """How an output is made.

    Attributes
    ----------
    name : str
        Of the function that writes, for messages.
    run : Run
        What the elements depend on.
    resume, overwrite : bool
        Whether to go on with an unfinished run; whether to replace what is at a path.
    remedy : str
        What to do to begin anew, for messages.
    levels, factors, method, skip
        Of an image's pyramid: see `gzarr.images.build_pyramid`.
    """

    name: str
    run: Run
    resume: bool
    overwrite: bool
    levels: int | None
    factors: Factors
    method: Method | None
    remedy: str = f"pass {OVERWRITE}"
    skip: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """An array that is written, and what is made of it.

    Attributes
    ----------
    array : Array
        The array; level 0 of an image.
    image : Image or None
        The image without its other levels, if there is one.
    options : Options
        How it is made.
    """

    array: Array
    image: Image | None
    options: OutputOptions

    @contextmanager
    def open(self) -> Iterator[Writing]:
        """A context in which it is written; at its end, it is complete."""
        if self.image is None:
            with _array_written(self.array, self.options) as writing:
                yield writing
        else:
            with _image_written(self.image, self.options) as writing:
                yield writing


class Writing:
    """An output that is being written.

    Attributes
    ----------
    unit : tuple of int
        Groups of blocks begin at multiples of it, and end there or at the array's end.
    put : callable
        Takes the start of a group, and its elements.
    begin : callable
        Takes the plan and returns the marks of what is done.
    pending : callable
        Returns the bytes that wait for other groups.
    build : Build or None
        The image that is built.
    """

    def __init__(
        self,
        array: Array,
        begin: Callable[[Mapping[str, Any]], UnitsDone],
        build: Build | None = None,
    ) -> None:
        self.array, self.begin, self.build = array, begin, build
        self.unit = unit_of(array) if build is None else build.cascade.unit

    def put(self, start: tuple[int, ...], values: AnyArray) -> None:
        """Write a group, and whatever of a pyramid becomes whole."""
        if self.build is not None:
            self.build.cascade.put(start, values)
        else:
            self.array[tuple(slice(a, a + n) for a, n in zip(start, values.shape, strict=True))] = values

    def restore(self, done: Sequence[Bounds]) -> None:
        """Take groups for written."""
        if self.build is not None:
            for group in done:
                self.build.cascade.note(tuple(a for a, _ in group), tuple(b - a for a, b in group))
            self.build.cascade.restore()

    def pending(self) -> int:
        """Bytes that wait for other groups."""
        return 0 if self.build is None else self.build.cascade.pending_nbytes

    @property
    def result(self) -> Array | Image:
        """What was written."""
        build = self.build
        return self.array if build is None else Image(build.group, build.multiscale, build.levels)


@contextmanager
def _array_written(array: Array, options: OutputOptions) -> Iterator[Writing]:
    marks: list[UnitsDone] = []

    def begin(plan: Mapping[str, Any]) -> UnitsDone:
        if not options.resume:
            notes.remove_marks(array.store, array.path)
        output = {f"{key} of the output": value for key, value in describe_metadata(array.metadata).items()}
        marks.append(
            notes.begin(
                array.store,
                array.path,
                name=options.name,
                run=options.run.joined(identify(options.name, arguments=output)),
                plan=plan,
                resume=options.resume,
                remedy=options.remedy,
            )
        )
        return marks[0]

    try:
        yield Writing(array, begin)
    except Exception as error:
        for mark in marks:
            mark.note_failure(error)
            error.add_note(
                f"{array.store_path}: {mark.n_done} blocks of {options.name} are stored. The same call with "
                "resume=True goes on"
            )
        raise
    for mark in marks:
        mark.remove()


@contextmanager
def _image_written(image: Image, options: OutputOptions) -> Iterator[Writing]:
    multiscale, group = image.metadata, image.group
    levels, factors = options.levels, options.factors
    if len(image) > 1 and levels is None and factors is None:
        levels, factors = len(image) - 1, _factors_of(image)
    alone = replace(multiscale, datasets=multiscale.datasets[:1])
    _check_method(options)
    method = options.method or ("mode" if multiscale.image_label is not None else "mean")
    with building(
        group,
        image.levels[0],
        alone,
        levels=levels,
        factors=factors,
        method=method,
        skip=options.skip,
        resume=options.resume,
        overwrite=not options.resume,
        name=options.name,
        run=options.run,
    ) as build:

        def begin(plan: Mapping[str, Any]) -> UnitsDone:
            if len(image) > 1:
                take_off_levels(group, multiscale, [level.path for level in build.levels])
            return build.begin(plan)

        yield Writing(image.levels[0], begin, build)
    group.attrs.refresh()


def _check_method(options: OutputOptions) -> None:
    if options.method == GAUSSIAN:
        raise ValueError(
            f"{options.name}: method='gaussian' makes each level of the one before, when that is whole; leave it out "
            "and call build_pyramid afterwards"
        )


def _factors_of(image: Image) -> list[dict[str, int]]:
    """The factors between the levels of an image."""
    scales = [image.scale(level) for level in range(len(image))]
    return [
        {axis: max(round(above[axis] / below[axis]), 1) for axis in image.axes} for below, above in pairwise(scales)
    ]


def new_output(template: Array | Image, out: Any, dtype: np.dtype[Any], options: OutputOptions) -> Output:
    """An output at a path, like a template: an array, or an image with level 0.

    Raises: ContainsNodeError.
    """
    if isinstance(template, Image):
        image = _new_image(template, out, dtype, options)
        return Output(array=image.levels[0], image=image, options=options)
    if options.resume:
        with suppress(ArrayNotFoundError):
            return Output(array=open_array(out, "r+"), image=None, options=options)
    array = create_array(**{**_like(template, dtype), "store": out, "overwrite": options.overwrite})
    return Output(array=array, image=None, options=options)


def _new_image(template: Image, out: Any, dtype: np.dtype[Any], options: OutputOptions) -> Image:
    first, multiscale = template.levels[0], template.metadata
    changes = dtype != first.dtype
    datasets, anew = (multiscale.datasets[0],), options.overwrite
    multiscale = replace(
        multiscale,
        datasets=datasets,
        name=None,
        index=0,
        channels=tuple(replace(c, window=None) for c in multiscale.channels),  # of other values
        image_label=None if changes else multiscale.image_label,
    )
    if options.resume:
        with suppress(GroupNotFoundError):
            group = open_group(out, "r+")
            anew = is_bare(group, datasets[0].path)
            if not anew:
                level = open_array(group, "r+", path=datasets[0].path)
                return Image(group, replace(multiscale, name=_name_of(group)), (level,))
    recorded = nodata_keywords(options.skip, first, dtype, first.zarr_format)
    keywords = level_keywords(multiscale, _like(first, dtype) | recorded)
    del keywords["zarr_format"]
    _check_method(options)
    recipe = Recipe(options.levels, options.factors, options.method, _ANY_NBYTES, skip=options.skip)
    check_image(multiscale, keywords, recipe)
    group = open_group(out, "w" if anew else "w-", zarr_format=first.zarr_format)
    level = group.create_array(datasets[0].path, **keywords)
    return Image(group, replace(multiscale, name=_name_of(group)), (level,))


def _name_of(group: Group) -> str:
    return group.basename or str(group.store).rstrip("/").rsplit("/", 1)[-1]


def _like(template: Array, dtype: np.dtype[Any]) -> dict[str, Any]:
    """The keywords that make an array like another, perhaps of another data type."""
    keywords: dict[str, Any] = {}
    if dtype != template.dtype or template.is_view:
        name = "compressor" if template.zarr_format == 2 else "compressors"
        keywords = {"dtype": dtype, name: getattr(template, name)}
    return new_nodes.like(template, keywords)


def unit_of(array: Array) -> tuple[int, ...]:
    """The smallest block of an array that is stored as a whole."""
    return tuple(axis.length if isinstance(axis, RegularAxis) else axis.extent for axis in array.metadata.grid)
