"""Computes results of any shape block by block: blocks of the result ask for the boxes of the inputs they need.

Theory of operation. A `Mapping` says which boxes of which inputs a region of the result is made of, and how. The units
of the result are planned, computed and written by `gzarr.images.pyramid.building.fill`, levels of an image in the same
pass. Where nothing is stored of the boxes, and the function keeps the fill value, nothing is computed.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from math import ceil, prod
from typing import Any, NamedTuple, TypedDict

import numpy as np

from gzarr.api.many import read_many
from gzarr.backend import Array as AnyArray
from gzarr.backend import Backend
from gzarr.display.progress import ProgressLike
from gzarr.hierarchy.array import Array
from gzarr.identity.runs import Resume, identify
from gzarr.images.blocks import start_of
from gzarr.images.filters.inputs import check_result, first_levels
from gzarr.images.filters.outputs import (
    OutputKind,
    check_output,
    is_finished_image,
    multiscale_like,
    new_output,
    output_build,
    result_of,
)
from gzarr.images.halos import chunk_cache
from gzarr.images.image import Image
from gzarr.images.ome.axes import ImageAxis
from gzarr.images.ome.documents import Multiscale
from gzarr.images.ome.transformations import Transformation
from gzarr.images.pyramid.building import BlockSource, fill
from gzarr.images.pyramid.cascade import unit_of
from gzarr.images.pyramid.device_memory import ASSUMED, N_ELEMENTS, left_nbytes, sharing
from gzarr.images.pyramid.downsample import Method, resident
from gzarr.images.pyramid.levels import Factors
from gzarr.images.pyramid.making import check_apart
from gzarr.images.pyramid.recipes import Recipe, shared_part
from gzarr.images.pyramid.rounds import base_blocks, build_rounds
from gzarr.images.pyramid.stored_chunks import units_with_any
from gzarr.images.pyramid.units import Cells, plan_units
from gzarr.images.shown import show_values
from gzarr.indexing.keys import Coords
from gzarr.indexing.regions import Region, size_of

#: A part of an input, by the number of the input.
Box = tuple[int, Region]


class ResultKeywords(TypedDict, total=False):
    """Keywords of all functions that write a result: see `gzarr.images.map_overlap`."""

    dtype: Any
    max_nbytes: int | None
    max_device_nbytes: int | None
    levels: int | None
    factors: Factors
    method: Method | None
    skip: Any
    resume: Resume
    overwrite: bool
    progress: ProgressLike
    device: str | None
    on: Any
    part: tuple[int, int] | None


@dataclass(frozen=True, kw_only=True)
class BoxMapping:
    """How a result is made of boxes of inputs.

    Attributes
    ----------
    name : str
        Of the function that was called, for messages and for notes of what is done.
    sources : sequence of Array
        The inputs, on one device.
    template : Array or Image
        What a new output is like.
    shape : tuple of int
        Of the result.
    boxes : callable
        Given a region of the result, returns the boxes that it is made of.
    compute : callable
        Given the region, the boxes and their elements, returns the block; of several outputs, one for each.
    axes : tuple of int or None
        For each axis of the result, that of the template; by default the same ones.
    dtype : dtype or None
        Of the result; by default what a trial gives.
    placed : Transformation or None
        Where the voxels of the result lie, if it is an image; by default as in the template.
    new_axes : sequence of ImageAxis
        What axes are that the template lacks.
    kept_channels : sequence of int or None
        Which channels the result has; None for all.
    chunk, halo : tuple of int
        Of the inputs as the result sees them: what is decoded whole, and what is read around a block.
    functions, arguments : mapping
        What the result depends on besides the inputs.
    keeps_fill : bool
        Whether boxes of nothing but the fill value make a block of it.
    cell : tuple of int, optional
        Chunks of a new output; by default those of the template.
    needs : callable, optional
        As ``boxes``, if `compute` reads more than these.
    unit : tuple of int, optional
        Blocks are multiples of it, from the begin on; by default of ``cell``.
    block : tuple of int, optional
        Regions are computed in parts of this shape.
    keeps_place : bool
        Whether elements of the result lie where those of the template do.
    casts : bool
        Whether blocks of another data type than the output are cast; otherwise they are refused.
    """

    name: str
    sources: Sequence[Array]
    template: Array | Image
    shape: Coords
    boxes: Callable[[Region], Sequence[Box]]
    compute: Callable[[Region, Sequence[Box], list[AnyArray]], Any]
    axes: tuple[int | None, ...] | None = None
    dtype: np.dtype[Any] | None = None
    placed: Transformation | None = None
    new_axes: Sequence[ImageAxis] = ()
    kept_channels: Sequence[int] | None = None
    chunk: Coords | None = None
    halo: Coords = ()
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    keeps_fill: bool = False
    cell: Coords | None = None
    needs: Callable[[Region], Sequence[Box]] | None = None
    unit: Coords | None = None
    block: Coords | None = None
    keeps_place: bool = False
    casts: bool = True

    @property
    def backend(self) -> Backend:
        """Where blocks are computed."""
        return self.sources[0].backend

    def produce(self, region: Region) -> list[AnyArray]:
        """The block of a region, for each output."""
        parts = [region]
        if self.block is not None:
            cuts = [
                [slice(at, min(at + n, part.stop)) for at in range(part.start, part.stop, n)]
                for part, n in zip(region, self.block, strict=True)
            ]
            parts = list(product(*cuts))
        made: list[AnyArray] = []
        for part in parts:
            blocks = self._produced(part)
            if len(parts) == 1:
                return blocks
            made = made or [self.backend.empty(tuple(p.stop - p.start for p in region), b.dtype) for b in blocks]
            for whole, block in zip(made, blocks, strict=True):
                place = [slice(p.start - r.start, p.stop - r.start) for p, r in zip(part, region, strict=True)]
                whole[tuple(place)] = block
        return made

    def _produced(self, region: Region) -> list[AnyArray]:
        boxes, shape = self.boxes(region), tuple(part.stop - part.start for part in region)
        try:
            made = self.compute(region, boxes, read_many([(self.sources[n], box) for n, box in boxes]))
            blocks = [resident(self.backend, one) for one in (made if isinstance(made, tuple) else (made,))]
            for block in blocks:
                check_result(block, shape, f"{self.name}: a block")
        except Exception as error:
            where = ", ".join(f"{part.start}:{part.stop}" for part in region)
            error.add_note(f"{self.name}: in the block [{where}] of the result")
            raise
        return blocks

    def only(self, dtype: np.dtype[Any], region: Region) -> AnyArray:
        """The block of the only output, in its data type."""
        return self.cast(self.produce(region)[0], dtype)

    def cast(self, block: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
        """A block in the data type of the output. Raises: ValueError."""
        if block.dtype != dtype and not self.casts:
            raise ValueError(
                f"{self.name}: func returned {block.dtype}, but the output is of {dtype}; convert the result, as by "
                "result.astype, or give dtype= and a path"
            )
        return block.astype(dtype, copy=False)

    def middle(self, shape: Sequence[int]) -> Region:
        """A region in the middle of the result, of whole units and about of a shape."""
        units = self.unit or self.cell or (1,) * len(self.shape)
        starts = [max(n - s, 0) // 2 // u * u for n, s, u in zip(self.shape, shape, units, strict=True)]
        each = zip(starts, shape, units, self.shape, strict=True)
        return tuple(slice(at, min(at + -(-s // u) * u, n)) for at, s, u, n in each)

    def nbytes(self, region: Region) -> int:
        """Bytes of the boxes of a region."""
        return sum(self.sources[n].itemsize * size_of(box) for n, box in self.boxes(region))

    def kind(self, dtype: np.dtype[Any]) -> OutputKind:
        """What a new output is like."""
        first = self.template.levels[0] if isinstance(self.template, Image) else self.template
        axes = tuple(range(first.ndim)) if self.axes is None else self.axes
        multiscale, template = multiscale_like(self.template, dtype), self.template
        if multiscale is not None:
            multiscale = self._placed(multiscale, axes)
            if multiscale is None or len(multiscale.axes) < 2:
                template, multiscale = first, None
        return OutputKind(template, dtype, self.shape, axes, multiscale, self.cell, self.keeps_place)

    def _placed(self, multiscale: Multiscale, axes: Sequence[int | None]) -> Multiscale | None:
        """The metadata of the result; None if it has no axes of an image."""
        added = iter(self.new_axes)
        named = tuple(next(added) if axis is None else multiscale.axes[axis] for axis in axes)
        dataset, channels = multiscale.datasets[0], multiscale.channels
        scale = tuple(1.0 if axis is None else dataset.scale[axis] for axis in axes)
        moved = tuple(0.0 if axis is None else dataset.translation[axis] for axis in axes)
        if self.placed is not None:
            scale, moved = self.placed
        if self.kept_channels is not None:
            channels = tuple(channels[n] for n in self.kept_channels if n < len(channels))
        if not any(axis.type == "channel" for axis in named):
            channels = ()
        if sum(axis.type == "space" for axis in named) < 2:
            return None
        return replace(
            multiscale, axes=named, datasets=(replace(dataset, scale=scale, translation=moved),), channels=channels
        )


def on_device(
    name: str, sources: Sequence[Any], device: str | None, max_device_nbytes: int | None = None
) -> list[Array]:
    """Arrays, and level 0 of images, on one device. Raises: TypeError, DeviceError."""
    arrays = first_levels(name, sources)
    backend = sharing(device or arrays[0].backend, max_device_nbytes)
    return [one.to(backend) for one in arrays]


def write_result(mapping: BoxMapping, out: Any, given: ResultKeywords) -> Array | Image:
    """`write_results` of one output."""
    return write_results(mapping, [out], given)[0]


def write_results(mapping: BoxMapping, places: Sequence[Any], given: ResultKeywords) -> list[Array | Image]:
    """Compute results and write them.

    Parameters
    ----------
    mapping : BoxMapping
        How they are made.
    places : sequence of Array, Image, path or Store
        Where they go: see `gzarr.images.map_overlap`.
    given : mapping
        The keywords of the call.

    Raises
    ------
    ContainsNodeError
        If something is at a path, or an unfinished call there was of another input or argument.
    ValueError
        If an output has another shape or is an input, or ``max_nbytes`` is too little.
    """
    recipe = _recipe(mapping, given)
    if recipe.is_shared and len(places) > 1:
        raise ValueError(f"{mapping.name}: on= and part= make one output; call it for each, or leave them away")
    for place in places:
        if isinstance(place, (Array, Image)):
            check_output(mapping.name, place, mapping.shape, mapping.sources)
        elif recipe.overwrite:
            for source in mapping.sources:
                check_apart(source, place)
    trial = _tried(mapping, given, len(places))
    kinds = [mapping.kind(dtype) for dtype in trial.dtypes]
    for place, kind, dtype in zip(places, kinds, trial.made, strict=True):
        existing = isinstance(place, (Array, Image))
        mapping.cast(np.empty(0, dtype), place.dtype if existing else kind.dtype)
        if recipe.skip is not None and not isinstance(place, Image) and (existing or kind.multiscale is None):
            raise ValueError(
                f"{mapping.name}: skip= is of the pyramid of an image, but the output is an array; leave it out"
            )
        if not existing and 0 not in mapping.shape:  # nothing is created that cannot be filled
            plan_units(_least(mapping, kind, trial), recipe.max_nbytes, 1)
    outputs = [
        (place if isinstance(place, (Array, Image)) else new_output(kind, place, recipe, is_first=n == 0)).to(
            mapping.backend
        )
        for n, (place, kind) in enumerate(zip(places, kinds, strict=True))
    ]
    if 0 in mapping.shape or (recipe.part is not None and is_finished_image(outputs[0], places[0])):
        return outputs
    return _filled(mapping, outputs, recipe, trial)


def _recipe(mapping: BoxMapping, given: ResultKeywords) -> Recipe:
    dtype, overwrite = given.get("dtype") or mapping.dtype, given.get("overwrite", False)
    this, resume = shared_part(given.get("on"), given.get("part"), given.get("resume", False), overwrite=overwrite)
    run = identify(
        mapping.name,
        resume,
        functions=mapping.functions,
        inputs={str(number): source for number, source in enumerate(mapping.sources)},
        arguments={**mapping.arguments, "shape": mapping.shape, "dtype": dtype and str(np.dtype(dtype))},
    )
    names = ("levels", "factors", "method", "overwrite", "progress", "skip", "on")
    known: Any = {name: given[name] for name in names if name in given}  # type: ignore[literal-required]
    limit = left_nbytes(mapping.backend, given.get("max_nbytes"), given.get("max_device_nbytes"))
    return Recipe(max_nbytes=limit, resume=resume, part=this, name=mapping.name, run=run, **known)


def _least(mapping: BoxMapping, kind: OutputKind, trial: "_Trial") -> Cells:
    """What is written whole of a new output."""
    given, itemsize = kind.keywords(), kind.dtype.itemsize
    unit = unit_of(kind.like) if kind.is_same else given.get("shards") or given["chunks"]
    more = trial.more_nbytes(mapping, itemsize)
    return Cells(mapping.shape, itemsize, (unit,), (0,), (1,) * len(unit), more_nbytes=more)


class _Trial(NamedTuple):
    """What a block in the middle says.

    dtypes, made: of the outputs that a path makes, and of what the function returned. per_byte: bytes that a block
    takes for each byte of its boxes and of itself.
    """

    dtypes: Sequence[np.dtype[Any]]
    made: Sequence[np.dtype[Any]]
    per_byte: float

    def more_nbytes(self, mapping: BoxMapping, itemsize: int) -> Callable[[Coords], int]:
        """What tells the bytes that a block of a shape takes besides itself."""
        n = itemsize * len(self.dtypes)
        return lambda unit: ceil((mapping.nbytes(mapping.middle(unit)) + prod(unit) * n) * self.per_byte)


def _tried(mapping: BoxMapping, given: ResultKeywords, n_outputs: int) -> _Trial:
    """Compute a block in the middle."""
    wanted = given.get("dtype") or mapping.dtype
    if 0 in mapping.shape:
        found = [np.dtype(wanted or mapping.sources[0].dtype)] * n_outputs
        return _Trial(found, found, 1.0)
    side = max(round(N_ELEMENTS ** (1 / max(len(mapping.shape), 1))), 1)
    region = mapping.middle(mapping.cell or [min(side, n) for n in mapping.shape])
    made, nbytes = mapping.backend.measured(lambda: mapping.produce(region))
    if len(made) != n_outputs:
        raise ValueError(f"{mapping.name}: func returned {len(made)} arrays for {n_outputs} outputs")
    boxes, results = mapping.nbytes(region), sum(one.nbytes for one in made)
    nbytes = boxes * ASSUMED + results if nbytes is None else max(nbytes, results)
    return _Trial(
        [np.dtype(wanted or one.dtype) for one in made], [one.dtype for one in made], nbytes / max(boxes + results, 1)
    )


def _filled(
    mapping: BoxMapping, outputs: Sequence[Array | Image], recipe: Recipe, trial: _Trial
) -> list[Array | Image]:
    """Fill outputs, and return them with their levels."""
    builds = [output_build(output, recipe) for output in outputs]
    bases = [build.levels[0] for build in builds]
    if (cache := chunk_cache(mapping.backend) if any(mapping.halo) and not recipe.is_shared else None) is not None:
        mapping = replace(mapping, sources=[one.to(one.backend, chunk_cache=cache) for one in mapping.sources])

    def produce(region: Region) -> Any:
        blocks = [mapping.cast(*one) for one in zip(mapping.produce(region), (b.dtype for b in bases), strict=True)]
        for build, block in zip(builds[1:], blocks[1:], strict=True):
            build.cascade.put(start_of(region), block)
        return blocks[0]

    more = trial.more_nbytes(mapping, max(base.itemsize for base in bases))
    where = mapping.sources, bases, mapping.needs or mapping.boxes
    occupied = units_with_any(*where) if mapping.keeps_fill else None
    source = BlockSource(produce, mapping.chunk, mapping.halo, more, occupied, mapping.unit, cache, builds[1:])
    with ExitStack() as stack:
        for build in builds:
            stack.enter_context(build.writing())
        if recipe.is_shared:
            build_rounds(builds[0], base_blocks(builds[0], source, partial(mapping.only, bases[0].dtype)))
        else:
            fill(builds[0], source)
    made = [result_of(build) for build in builds]
    return [
        show_values(one, missing=build.cascade.missing[0]) if isinstance(one, Image) and build.is_complete else one
        for one, build in zip(made, builds, strict=True)
    ]
