"""Builds levels by a Gaussian filter, one after the other: what it needs around a block does not fit into one pass.

Theory of operation. The filter is separable. Along an axis with a factor f, an element of the new level is a weighted
sum of the f elements of its window and of some around it. The weights are a Gaussian about the middle of the window, so
that new voxels lie where those of a mean do. Of the smoothed elements, only those that stay are computed. Elements that
are missing have no weight, and sums are divided by the sums of weights (normalized convolution). Each level is
computed in blocks, with halos, of the one below (`gzarr.images.halo.blockwise`).

Source: Cardoso et al., "Scale factor point spread function matching", MICCAI 2015, for the width: a point that was
spread over one voxel is spread over one new voxel. scipy.ndimage's filters for the ends: weights up to four widths, and
axes that are reflected.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from gzarr.backend import Array as AnyArray
from gzarr.backend import Backend
from gzarr.cpu.threads import thread_count
from gzarr.display.progress import counted
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.missing import Missing
from gzarr.images.halo.blockwise import BlockwiseJob, run_blockwise
from gzarr.images.halo.boundary import Depth
from gzarr.images.halo.choosing import make_plan, plan_again
from gzarr.images.halo.planning import BlockwisePlan, Bounds, Costs, Geometry
from gzarr.images.pyramid.building import Build
from gzarr.images.pyramid.cascade import cell_shape
from gzarr.images.pyramid.resuming import UnitsDone
from gzarr.images.tasks import limit_of, with_memory
from gzarr.indexing.regions import Region

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
    backend: Backend,
    block: AnyArray,
    weights: Sequence[Weights],
    shape: tuple[int, ...],
    gaps: AnyArray | None = None,
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
    geometry: Geometry
    costs: Costs
    plan: BlockwisePlan


def smooth_levels(build: Build) -> None:
    """Build all levels above level 0, which is stored. Raises: ChunkError, StoreError, ValueError."""
    max_nbytes = build.recipe.max_nbytes
    steps = [_step(build, level, max_nbytes) for level in range(1, len(build.levels))]
    marks = build.begin({"plans": [step.plan.to_json() for step in steps]})
    if marks.n_done:
        steps = [
            step._replace(plan=plan_again(step.geometry, [step.source.metadata.chunk_grid], step.costs, stored))
            for step, stored in zip(steps, marks.plan["plans"], strict=True)
        ]
    first = 0
    with counted(build.recipe.progress, sum(step.source.nbytes for step in steps)) as add:
        for step in steps:
            _carry_out(step, marks, first, max_nbytes)
            first += len(step.plan.all_groups(step.geometry.out_shape))
            limit = limit_of(max_nbytes, step.plan.nbytes)
            add(step.source.nbytes, with_memory(step.source.path, max_nbytes, limit))


def _carry_out(step: _SmoothingStep, marks: UnitsDone, first: int, max_nbytes: int | None) -> None:
    """Make a level. first: the number of its first group among those of all levels."""

    def compute(block: Bounds, views: list[AnyArray]) -> AnyArray:
        shape = tuple(stop - start for start, stop in block)
        backend, missing = step.source.backend, step.missing
        if missing is None:
            return smooth(backend, views[0], step.weights, shape)
        gaps = _gaps(missing, step, views[0], tuple(start for start, _ in block))
        made = smooth(backend, views[0], step.weights, shape, gaps)
        none = backend.empty(shape, np.dtype(bool))
        window = [weight.factor for weight in step.weights]
        backend.reduce_windows(gaps[_inner(step, block)], window, "min", none)
        return backend.xp.where(none, made.dtype.type(missing.value), made)

    run_blockwise(
        BlockwiseJob(
            sources=[step.source],
            compute=compute,
            put=partial(_write, step.target),
            geometry=step.geometry,
            costs=step.costs,
            plan=step.plan,
            dtype=step.target.dtype,
            max_nbytes=limit_of(max_nbytes, step.plan.nbytes),
            marks=marks,
            first=first,
        )
    )


def _write(array: Array, start: tuple[int, ...], block: AnyArray) -> None:
    region: Region = tuple(slice(o, o + n) for o, n in zip(start, block.shape, strict=True))
    array[region] = block


def _step(build: Build, level: int, max_nbytes: int | None) -> _SmoothingStep:
    source, target = build.levels[level - 1 : level + 1]
    factors = build.cascade.factors[level - 1]
    weights = tuple(weights_of(f, n) for f, n in zip(factors, source.shape, strict=True))
    missing = build.cascade.missing[level - 1]
    geometry = Geometry(
        shape=source.shape,
        depth=tuple(Depth(weight.before, weight.after) for weight in weights),
        modes=("reflect",) * source.ndim,
        factors=factors,
        unit=cell_shape([target], [], 0, is_written=True),
    )
    waits = source.store.concurrency > 1 or source.backend is not source.backend.host
    costs = Costs(
        itemsizes=(source.itemsize,),
        out_itemsize=target.itemsize,
        block_nbytes=_BLOCK_NBYTES if missing is None else 2 * _BLOCK_NBYTES,
        workers=thread_count(),
        windows=2 if waits else 1,
        max_nbytes=limit_of(max_nbytes),
        grows=max_nbytes is None,
    )
    plan: Any = make_plan(geometry, [source.metadata.chunk_grid], costs, None)
    return _SmoothingStep(source, target, weights, missing, geometry, costs, plan)


def _inner(step: _SmoothingStep, block: Bounds) -> Region:
    """Where a block with its halo has what the block itself is made of."""
    return tuple(
        slice(weight.before, weight.before + min(stop * weight.factor, extent) - start * weight.factor)
        for weight, (start, stop), extent in zip(step.weights, block, step.source.shape, strict=True)
    )


def _gaps(missing: Missing, step: _SmoothingStep, view: AnyArray, start: tuple[int, ...]) -> AnyArray:
    """Where elements of a block with its halo are missing. start: of the block that is made of it."""
    backend = step.source.backend
    if missing.mask is None:
        return missing.find(backend, view, ())
    places = []
    for o, weight, n, extent in zip(start, step.weights, view.shape, step.source.shape, strict=True):
        first = o * weight.factor - weight.before
        place = np.arange(first, first + n) % (2 * extent)
        places.append(np.minimum(place, 2 * extent - 1 - place))  # the axis is reflected
    low = tuple(int(place.min()) for place in places)
    gaps = missing.read(backend, low, tuple(int(p.max()) + 1 - o for p, o in zip(places, low, strict=True)))
    for axis, (place, o) in enumerate(zip(places, low, strict=True)):
        gaps = gaps.take(backend.xp.asarray(place - o), axis)
    return gaps
