"""Builds levels by a Gaussian filter, one after the other: what it needs around a block does not fit into one pass.

Theory of operation. The filter is separable. Along an axis with a factor f, an element of the new level is a weighted
sum of the f elements of its window and of some around it. The weights are a Gaussian about the middle of the window, so
that new voxels lie where those of a mean do. Of the smoothed elements, only those that stay are computed. Elements that
are missing have no weight, and sums are divided by the sums of weights (normalized convolution). Each level is
computed in blocks, with halos, of the one below (`gzarr.images.halos`).

Source: Cardoso et al., "Scale factor point spread function matching", MICCAI 2015, for the width: a point that was
spread over one voxel is spread over one new voxel. scipy.ndimage's filters for the ends: weights up to four widths, and
axes that are reflected.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from gzarr.api.many import read_many
from gzarr.backend import Array as AnyArray
from gzarr.backend import Backend
from gzarr.chunk_io.chunk_cache import ChunkCache
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.missing import Missing
from gzarr.images.blocks import BlockGrid
from gzarr.images.halos import AxisSpan, Depth, boxes_of, chunk_cache, joined, span_of
from gzarr.images.pyramid.building import Build
from gzarr.images.pyramid.cascade import cell_shape
from gzarr.images.pyramid.phases import run_phases
from gzarr.images.pyramid.recipes import Recipe
from gzarr.images.pyramid.rounds import grid_blocks, unit_of_blocks
from gzarr.images.pyramid.units import Cells, Units, plan_units
from gzarr.images.tasks import worker_count
from gzarr.indexing.keys import Coords
from gzarr.indexing.regions import Region
from gzarr.scale.blocks import BlockPlan

#: Weights reach so many widths from the middle of a window.
_TRUNCATE = 4.0
#: Bytes of temporary memory for an element of a block: sums along an axis, and a weighted part, as floats.
_BLOCK_NBYTES = 16


class Weights(NamedTuple):
    """What one axis is smoothed with.

    Attributes
    ----------
    factor : int
        Elements that become one.
    before, after : int
        Elements that are needed before a block, and after it, where its last window may be cut off.
    values : tuple of float
        From ``before`` elements before a window on; they sum to 1.
    """

    factor: int
    before: int
    after: int
    values: tuple[float, ...]


def weights_of(factor: int, size: int) -> Weights:
    """The weights for an axis of a size."""
    if factor == 1:
        return Weights(1, 0, 0, (1.0,))
    sigma = math.sqrt((factor**2 - 1) / (8 * math.log(2)))
    reach = max(0, min(int(_TRUNCATE * sigma + 0.5), size - factor))
    last = min(factor - 1 + reach, size - 1) if size < factor else factor - 1 + reach
    values = [math.exp(-0.5 * ((k - (factor - 1) / 2) / sigma) ** 2) for k in range(-reach, last + 1)]
    return Weights(factor, reach, 0 if size < factor else last, tuple(v / sum(values) for v in values))


def smooth(
    backend: Backend, block: AnyArray, weights: Sequence[Weights], shape: tuple[int, ...], gaps: AnyArray | None = None
) -> AnyArray:
    """Smooth a block with its halo, and keep one element of each window.

    shape: of the result. gaps: where elements of the block are missing, which have no weight.
    """
    xp, dtype = backend.xp, block.dtype
    values = block.astype(np.result_type(dtype, "f4"), copy=False)
    if gaps is None:
        return _rounded(xp, _smoothed(values, weights, shape), dtype)
    total = _smoothed((~gaps).astype(values.dtype), weights, shape)
    made = _smoothed(xp.where(gaps, values.dtype.type(0), values), weights, shape)
    return _rounded(xp, made / xp.where(total == 0, total.dtype.type(1), total), dtype)


def _smoothed(values: AnyArray, weights: Sequence[Weights], shape: tuple[int, ...]) -> AnyArray:
    """The weighted sums of windows."""
    for axis, (weight, n) in enumerate(zip(weights, shape, strict=True)):
        if weight.factor > 1:
            every = (slice(None),) * axis
            total = None
            for first, value in enumerate(weight.values):
                stop = first + (n - 1) * weight.factor + 1
                part = values[(*every, slice(first, stop, weight.factor))] * values.dtype.type(value)
                if total is None:
                    total = part
                else:
                    total += part
            values = total
    return values[tuple(map(slice, shape))]


def _rounded(xp: Any, values: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
    """Numbers in a data type."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        values = xp.clip(xp.rint(values), limits.min, limits.max)
    elif dtype.kind == "b":
        values = values > 0.5
    return values.astype(dtype, copy=False)


class _SmoothingStep(NamedTuple):
    """How one level is made of the one below."""

    source: Array
    target: Array
    weights: tuple[Weights, ...]
    missing: Missing | None
    cells: Cells
    cache: ChunkCache | None

    def units(self, max_nbytes: int | None, unit: Coords | None = None) -> Units:
        """The units of the new level, whose chunks are kept in the memory that they leave."""
        workers = worker_count(self.source.backend, self.source.store.concurrency)
        return plan_units(self.cells, max_nbytes, workers, unit, self.cache)

    def spans(self, region: Region) -> list[AxisSpan]:
        """What a region of the new level needs of the one below."""
        return [
            span_of(
                part.start * weight.factor,
                min(part.stop * weight.factor, n),
                Depth(weight.before, weight.after),
                n,
                "reflect",
            )
            for part, weight, n in zip(region, self.weights, self.source.shape, strict=True)
        ]

    def compute(self, region: Region) -> AnyArray:
        """A region of the new level."""
        spans, backend, missing = self.spans(region), self.source.backend, self.missing
        shape = tuple(part.stop - part.start for part in region)
        boxes = boxes_of(spans)
        block = joined(spans, read_many([(self.source, box) for box in boxes]))
        if missing is None:
            return smooth(backend, block, self.weights, shape)
        if missing.mask is None:
            gaps = missing.find(backend, block, ())
        else:
            parts = [
                missing.read(backend, tuple(p.start for p in box), tuple(p.stop - p.start for p in box))
                for box in boxes
            ]
            gaps = joined(spans, parts)
        made = smooth(backend, block, self.weights, shape, gaps)
        none = backend.empty(shape, np.dtype(bool))
        inner = [
            slice(w.before, w.before + min(p.stop * w.factor, n) - p.start * w.factor)
            for w, p, n in zip(self.weights, region, self.source.shape, strict=True)
        ]
        backend.reduce_windows(gaps[tuple(inner)], [w.factor for w in self.weights], "min", none)
        return backend.xp.where(none, made.dtype.type(missing.value), made)


def smooth_levels(build: Build) -> None:
    """Build all levels above level 0, which is stored. Raises: ChunkError, StoreError, ValueError."""
    recipe, steps = build.recipe, [_step(build, level) for level in range(1, len(build.levels))]
    if recipe.is_shared:
        units = [unit_of_blocks(step.cells, step.source.nbytes, recipe) for step in steps]
    else:
        units = [list(step.units(recipe.max_nbytes).unit) for step in steps]
    run_phases(build, {"blocks": units}, lambda plan: list(map(partial(_phase, recipe), steps, plan["blocks"])))


def _phase(recipe: Recipe, step: _SmoothingStep, unit: Sequence[int]) -> BlockPlan:
    """The blocks of a level, for any engine."""
    units, grid = step.units(recipe.max_nbytes, tuple(unit)), BlockGrid(step.target.shape, tuple(unit))

    def put(number: int) -> None:
        region = grid.region(grid.at(number))
        step.target[region] = step.compute(region)

    return grid_blocks(step.target, grid, put, units.cost_nbytes, recipe, units.workers)


def _step(build: Build, level: int) -> _SmoothingStep:
    source, target = build.levels[level - 1 : level + 1]
    weights = tuple(weights_of(f, n) for f, n in zip(build.cascade.factors[level - 1], source.shape, strict=True))
    missing = build.cascade.missing[level - 1]
    element = source.itemsize + (_BLOCK_NBYTES if missing is None else 2 * _BLOCK_NBYTES)
    cell = cell_shape([target], [], 0, is_written=True)

    def more_nbytes(unit: Coords) -> int:
        return element * math.prod(n * w.factor + w.before + w.after for n, w in zip(unit, weights, strict=True))

    halo = tuple(-(-max(w.before, w.after) // w.factor) for w in weights)
    cells = Cells(target.shape, target.itemsize, (cell,), (0,), (1,) * target.ndim, 0.0, halo, more_nbytes)
    cache = None if build.recipe.is_shared else chunk_cache(source.backend)
    if cache is not None:
        source = source.to(source.backend, chunk_cache=cache)
    return _SmoothingStep(source, target, weights, missing, cells, cache)
