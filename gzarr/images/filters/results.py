"""Computes results of any shape block by block: blocks of the result ask for the boxes of the inputs they need.

Theory of operation. A `Mapping` says which boxes of which inputs a region of the result is made of, and how. The units
of the result are planned, computed and written by `gzarr.images.pyramid.building.fill`, levels of an image in the same
pass. Where nothing is stored of the boxes, and the function keeps the fill value, nothing is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, prod
from typing import Any, TypedDict

import numpy as np

from gzarr.api.many import read_many
from gzarr.backend import Array as AnyArray
from gzarr.backend import Backend
from gzarr.display.progress import ProgressLike
from gzarr.hierarchy.array import Array
from gzarr.identity.runs import Resume, identify
from gzarr.images.filters.outputs import (
    OutputKind,
    check_output,
    multiscale_like,
    new_output,
    output_build,
    result_of,
)
from gzarr.images.halo.dry_run import ASSUMED, N_ELEMENTS
from gzarr.images.image import Image
from gzarr.images.ome.axes import ImageAxis
from gzarr.images.ome.documents import Multiscale
from gzarr.images.ome.transformations import Transformation
from gzarr.images.pyramid.building import BlockSource, fill
from gzarr.images.pyramid.device_memory import left_nbytes, sharing
from gzarr.images.pyramid.downsample import Method, resident
from gzarr.images.pyramid.levels import Factors
from gzarr.images.pyramid.making import check_apart
from gzarr.images.pyramid.recipes import Recipe
from gzarr.images.pyramid.stored_chunks import StoredChunks, same_fill
from gzarr.images.pyramid.units import Units
from gzarr.images.shown import show_values
from gzarr.indexing.keys import Coords
from gzarr.indexing.regions import Region

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
        Given the region, the boxes and their elements, returns the block.
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

    @property
    def backend(self) -> Backend:
        """Where blocks are computed."""
        return self.sources[0].backend

    def produce(self, region: Region) -> Any:
        """The block of a region."""
        boxes = self.boxes(region)
        try:
            made = self.compute(region, boxes, read_many([(self.sources[n], box) for n, box in boxes]))
        except Exception as error:
            where = ", ".join(f"{part.start}:{part.stop}" for part in region)
            error.add_note(f"{self.name}: in the block [{where}] of the result")
            raise
        return resident(self.backend, made)

    def nbytes(self, region: Region) -> int:
        """Bytes of the boxes of a region."""
        return sum(self.sources[n].itemsize * _size(box) for n, box in self.boxes(region))

    def kind(self, dtype: np.dtype[Any]) -> OutputKind:
        """What a new output is like."""
        first = self.template.levels[0] if isinstance(self.template, Image) else self.template
        axes = tuple(range(first.ndim)) if self.axes is None else self.axes
        multiscale, template = multiscale_like(self.template, dtype), self.template
        if multiscale is not None:
            multiscale = self._placed(multiscale, axes)
            if multiscale is None or len(multiscale.axes) < 2:
                template, multiscale = first, None
        return OutputKind(template, dtype, self.shape, axes, multiscale, self.cell)

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


def _size(region: Region) -> int:
    return prod(part.stop - part.start for part in region)


def on_device(
    name: str, sources: Sequence[Any], device: str | None, max_device_nbytes: int | None = None
) -> list[Array]:
    """Arrays, and level 0 of images, on one device. Raises: TypeError, DeviceError."""
    arrays = [one.levels[0] if isinstance(one, Image) else one for one in sources]
    for one in arrays:
        if not isinstance(one, Array):
            raise TypeError(
                f"{name}: inputs must be gzarr arrays or images, got {type(one).__name__}; open it with "
                "gzarr.open_array, or put it into gzarr.array"
            )
    backend = sharing(device or arrays[0].backend, max_device_nbytes)
    return [one.to(backend) for one in arrays]


def write_result(mapping: BoxMapping, out: Any, given: ResultKeywords) -> Array | Image:
    """Compute a result and write it.

    Parameters
    ----------
    mapping : BoxMapping
        How it is made.
    out : Array, Image, path or Store
        Where it goes: see `gzarr.images.map_overlap`.
    given : mapping
        The keywords of the call.

    Returns
    -------
    Array or Image
        The output.

    Raises
    ------
    ContainsNodeError
        If something is at a path, or an unfinished call there was of another input or argument.
    ValueError
        If an output has another shape or is an input, or ``max_nbytes`` is too little.
    """
    recipe = _recipe(mapping, given)
    if isinstance(out, (Array, Image)):
        check_output(mapping.name, out, mapping.shape, mapping.sources)
    elif recipe.overwrite:
        for source in mapping.sources:
            check_apart(source, out)
    dtype, per_byte = _tried(mapping, given)
    made = out if isinstance(out, (Array, Image)) else new_output(mapping.kind(dtype), out, recipe)
    made = made.to(mapping.backend)
    return made if 0 in mapping.shape else _filled(mapping, made, recipe, per_byte)


def _recipe(mapping: BoxMapping, given: ResultKeywords) -> Recipe:
    resume, dtype = given.get("resume", False), given.get("dtype") or mapping.dtype
    run = identify(
        mapping.name,
        resume,
        functions=mapping.functions,
        inputs={str(number): source for number, source in enumerate(mapping.sources)},
        arguments={**mapping.arguments, "shape": mapping.shape, "dtype": dtype and str(np.dtype(dtype))},
    )
    names = ("levels", "factors", "method", "overwrite", "progress", "skip")
    known: Any = {name: given[name] for name in names if name in given}  # type: ignore[literal-required]
    limit = left_nbytes(mapping.backend, given.get("max_nbytes"), given.get("max_device_nbytes"))
    return Recipe(max_nbytes=limit, resume=resume, name=mapping.name, run=run, **known)


def _tried(mapping: BoxMapping, given: ResultKeywords) -> tuple[np.dtype[Any], float]:
    """The data type of the output, and bytes that a block takes for each byte of its boxes, by a trial."""
    wanted = given.get("dtype") or mapping.dtype
    if 0 in mapping.shape:
        return np.dtype(wanted or mapping.sources[0].dtype), 1.0
    side = max(round(N_ELEMENTS ** (1 / max(len(mapping.shape), 1))), 1)
    starts = [max(n - side, 0) // 2 * (mapping.cell is None) for n in mapping.shape]
    sides = mapping.cell or (side,) * len(starts)
    region = tuple(slice(at, min(at + n, end)) for at, n, end in zip(starts, sides, mapping.shape, strict=True))
    made, nbytes = mapping.backend.measured(lambda: mapping.produce(region))
    boxes = mapping.nbytes(region)
    nbytes = boxes * ASSUMED + made.nbytes if nbytes is None else max(nbytes, made.nbytes)
    return np.dtype(wanted or made.dtype), nbytes / max(boxes + made.nbytes, 1)


def _filled(mapping: BoxMapping, output: Array | Image, recipe: Recipe, per_byte: float) -> Array | Image:
    """Fill an output, and return it with its levels."""
    build = output_build(output, recipe)
    base = build.levels[0]

    def extra(unit: Coords) -> int:
        """Bytes for a block in the middle of the result, besides itself."""
        starts = [(n - u) // 2 // u * u for n, u in zip(mapping.shape, unit, strict=True)]
        region = tuple(slice(at, min(at + u, n)) for at, u, n in zip(starts, unit, mapping.shape, strict=True))
        return ceil((mapping.nbytes(region) + prod(unit) * base.itemsize) * per_byte)

    def produce(region: Region) -> Any:
        made = mapping.produce(region)
        shape = tuple(part.stop - part.start for part in region)
        if tuple(made.shape) != shape:
            raise ValueError(f"{mapping.name}: a block has shape {tuple(made.shape)}, expected {shape}")
        return made.astype(base.dtype, copy=False)

    source = BlockSource(produce, mapping.chunk, mapping.halo, extra, _occupied(mapping, base))
    with build.writing():
        fill(build, source)
    made = result_of(build)
    return show_values(made) if isinstance(made, Image) else made


def _occupied(mapping: BoxMapping, base: Array) -> Callable[[Units], Sequence[Region]] | None:
    """What says which units need be computed; None for all."""
    if not mapping.keeps_fill or any(source.is_view for source in mapping.sources):
        return None
    if not same_fill(*mapping.sources, base):
        return None
    stored, needs = [StoredChunks(source) for source in mapping.sources], mapping.needs or mapping.boxes

    def occupied(units: Units) -> list[Region]:
        return [region for region in units if any(stored[n].has_any(box) for n, box in needs(region))]

    return occupied
