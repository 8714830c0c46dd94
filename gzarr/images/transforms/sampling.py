"""Interpolates between the elements of an array: the box that a block of the result needs, and its elements.

Theory of operation. A result's element o is the input's at ``matrix @ o + offset``, as in SciPy. The corners of a block
give the box of the input that it needs. Splines of order 2 and more look at all of an axis, but what lies `SPLINE_HALO`
elements away changes hardly anything that a float64 has. Axes that are only shifted by whole elements are gone through.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gzarr.api.namespaces import array_namespace, scipy_namespace
from gzarr.backend import Array as AnyArray
from gzarr.images.blocks import BlockGrid
from gzarr.indexing.keys import Coords
from gzarr.indexing.regions import Region

#: Elements after which a spline of an order has forgotten an end of its box: its largest pole, to that power, is 1e-15.
SPLINE_HALO = {2: 20, 3: 27, 4: 34, 5: 41}
#: Elements that SciPy repeats at the ends before it filters for a spline, in mode "nearest".
_EDGE = 12
#: Points that are computed at once.
_POINTS = 1 << 15
#: Times as many along the last axis, where NumPy is fast.
_LONGER = 4
#: Multiples of one part of so many are summed without rounding, as far as arrays reach.
_FRACTIONS = 1 << 20
#: Standard deviations of a Gaussian that count, as in SciPy.
_TRUNCATE = 4

Mode = Literal["constant", "nearest"]
#: What the points along an axis are the sums of, in order: arrays that broadcast to the shape of the result.
Terms: TypeAlias = Sequence[NDArray[np.float64]]


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """How elements are interpolated.

    Attributes
    ----------
    shape : tuple of int
        Of the input.
    order : int
        Of the spline.
    mode : {"constant", "nearest"}
        What lies outside: ``cval``, or the nearest element.
    cval : scalar
        As in SciPy.
    sigma : tuple of float
        Standard deviations of a Gaussian that comes first, for each axis; empty for none.
    """

    shape: Coords
    order: int
    mode: Mode
    cval: Any
    sigma: tuple[float, ...] = ()

    @property
    def margin(self) -> int:
        """Elements around a point that its value is made of."""
        return SPLINE_HALO.get(self.order, 0) + max(self.order, 1)

    def halo(self, axis: int) -> int:
        """The margin along an axis, with that of the Gaussian."""
        return self.margin + (int(_TRUNCATE * self.sigma[axis] + 0.5) if self.sigma else 0)

    def box(self, low: NDArray[Any], high: NDArray[Any]) -> Region:
        """The elements that points between two corners need."""
        parts = []
        for axis, n in enumerate(self.shape):
            last = n - 1 if self.mode == "nearest" else np.inf  # where points beyond are, for which splines need more
            start = min(max(int(np.floor(min(low[axis], last))) - self.halo(axis), 0), n - 1)
            stop = min(int(np.ceil(max(high[axis], n - 1 - last))) + self.halo(axis) + 1, n)
            parts.append(slice(start, max(stop, start + 1)))
        return tuple(parts)

    def prepared(self, ndimage: Any, block: AnyArray) -> AnyArray:
        """The block after the Gaussian, in floats."""
        if not any(self.sigma):
            return block
        kind = np.float32 if block.dtype.itemsize < 4 or block.dtype == np.float32 else np.float64
        return ndimage.gaussian_filter(block.astype(kind), self.sigma, mode="nearest", truncate=_TRUNCATE)

    @property
    def keywords(self) -> dict[str, Any]:
        """Keywords of SciPy's functions."""
        return {"order": self.order, "mode": self.mode, "cval": self.cval}

    def at_points(self, block: AnyArray, terms: Sequence[Terms], low: NDArray[np.float64], out: AnyArray) -> None:
        """Interpolate a block that begins at ``low``, a few points at a time, so that these stay in cache.

        terms: for each axis, what its points are the sums of.
        """
        ndimage, n = scipy_namespace(block).ndimage, out.ndim
        if self.order > 1:
            edge = _EDGE if self.mode == "nearest" else 0
            wide = np.result_type(block.dtype, np.float64)
            block = ndimage.spline_filter(np.pad(block, edge, "edge"), self.order, wide, self.mode)
            low = low - edge
        piece, room = list(out.shape), _POINTS
        for axis in reversed(range(n)):  # about as long as wide, so that what they need of the block is in cache, too
            piece[axis] = min(max(round(room ** (1 / (axis + 1))) * _LONGER ** (axis == n - 1), 1), piece[axis])
            room //= piece[axis]
        grid, memory = BlockGrid(out.shape, tuple(piece)), np.empty((n, *piece))
        for where in map(grid.region, grid):
            points = memory[(slice(None), *(slice(part.stop - part.start) for part in where))]
            for axis, several in enumerate(terms):
                *first, last = [
                    one[tuple(w if m > 1 else slice(None) for w, m in zip(where, one.shape, strict=True))]
                    for one in several
                ]
                np.add(sum(first), last, out=points[axis])
                points[axis] -= low[axis]
            ndimage.map_coordinates(block, points, output=out[where], prefilter=False, **self.keywords)

    def at_elements(self, block: AnyArray, terms: Sequence[Terms], low: NDArray[np.float64], out: AnyArray) -> None:
        """As `at_points`, of order 0, where each axis of the result goes along the same one of the block."""
        for axis, several in enumerate(terms):
            block = block.take(np.floor(self._within(axis, several) + (0.5 - low[axis])).astype(np.intp), axis)
        out[...] = block
        for axis, several in enumerate(terms):
            outside = self._within(axis, several) != np.ravel(sum(several))
            if self.mode == "constant" and outside.any():
                out[(*(slice(None),) * axis, outside)] = cast_to(np, np.asarray(self.cval), out.dtype)

    def _within(self, axis: int, terms: Terms) -> NDArray[np.float64]:
        """Points along an axis, those outside at its ends."""
        return np.ravel(sum(terms)).clip(0, self.shape[axis] - 1)


@dataclass(frozen=True)
class AffineSampler:
    """Interpolates at ``matrix @ o + offset``.

    Attributes
    ----------
    sampler : Sampler
        How.
    matrix, offset : ndarray
        Where.
    extent : tuple of int
        Shape of the result.
    rounding : {"matrix", "diagonal", ""}
        Points are rounded as SciPy rounds those of a matrix, or of a diagonal; or in any way.
    """

    sampler: Sampler
    matrix: NDArray[np.float64]
    offset: NDArray[np.float64]
    extent: Coords
    rounding: Literal["matrix", "diagonal", ""] = "matrix"

    @property
    def passive(self) -> tuple[int, ...]:
        """The axes that are the same in the result."""
        unit = np.eye(len(self.offset))
        return tuple(
            n
            for n in range(len(self.offset))
            if (self.matrix[n] == unit[n]).all() and (self.matrix[:, n] == unit[n]).all()
            if self.offset[n] == 0 and self.extent[n] <= self.sampler.shape[n]
        )

    def box(self, region: Region) -> Region:
        """The elements of the input that a region of the result needs."""
        ends = np.array([(part.start, max(part.stop - 1, part.start)) for part in region], float)
        both = self.matrix[:, :, None] * ends[None]
        low, high = both.min(2).sum(1) + self.offset, both.max(2).sum(1) + self.offset
        made = list(self.sampler.box(low, high))
        for axis in self.passive:
            made[axis] = region[axis]
        return tuple(made)

    def sample(self, region: Region, box: Region, block: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
        """A block of the result, of the elements of its box."""
        xp, ndimage, passive = array_namespace(block), scipy_namespace(block).ndimage, self.passive
        active = [axis for axis in range(len(region)) if axis not in passive]
        if not active:
            return block.astype(dtype, copy=False)
        shape = tuple(part.stop - part.start for part in region)
        sigma = tuple(self.sampler.sigma[axis] for axis in active if self.sampler.sigma)
        sampler = replace(self.sampler, shape=tuple(self.sampler.shape[axis] for axis in active), sigma=sigma)
        interpolate = self._interpolation(sampler, active, region, box, block)
        made = xp.empty(shape, dtype)
        for place in np.ndindex(*(shape[axis] for axis in passive)):
            index: list[Any] = [slice(None)] * len(region)
            for axis, at in zip(passive, place, strict=True):
                index[axis] = at
            interpolate(sampler.prepared(ndimage, block[tuple(index)]), made[tuple(index)])
        return made

    def _interpolation(
        self, sampler: Sampler, active: list[int], region: Region, box: Region, block: AnyArray
    ) -> Callable[[AnyArray, AnyArray], None]:
        """What interpolates a block on the active axes, and where the result goes.

        On the host, points are rounded as SciPy rounds those of the whole array, so that ties and ends are the same.
        """
        xp, ndimage, n = array_namespace(block), scipy_namespace(block).ndimage, len(active)
        matrix, offset = self.matrix[np.ix_(active, active)], self.offset[active]
        low, start = (np.array([each[axis].start for axis in active], float) for each in (box, region))
        diagonal, moved = np.diagonal(matrix), matrix @ start + offset - low
        is_diagonal = bool((matrix == np.diag(diagonal)).all() and diagonal.all())
        both = [offset / diagonal, moved / diagonal] if is_diagonal else []
        if xp is np and self.rounding and not is_exact(matrix, offset, *both):
            along = [np.arange(region[axis].start, region[axis].stop, dtype=float) for axis in active]
            along = [one.reshape([-1 if k == axis else 1 for k in range(n)]) for axis, one in enumerate(along)]
            if is_diagonal and self.rounding == "diagonal":
                each = zip(along, diagonal, offset / diagonal, strict=True)
                terms = [[np.zeros((1,) * n), (one + first) * step] for one, step, first in each]
            else:
                terms = [
                    [np.full((1,) * n, offset[axis]), *(row[k] * along[k] for k in np.flatnonzero(row))]
                    for axis, row in enumerate(matrix)
                ]
            way = sampler.at_elements if is_diagonal and not sampler.order else sampler.at_points
            return lambda part, out: way(part, terms, low, out)
        how = xp.asarray(diagonal if is_diagonal else matrix)

        def interpolate(part: AnyArray, out: AnyArray) -> None:
            given = {"output_shape": out.shape, "output": out.dtype, **sampler.keywords}
            out[...] = ndimage.affine_transform(part, how, tuple(moved.tolist()), **given)

        return interpolate


def is_exact(*numbers: ArrayLike) -> bool:
    """Whether sums of products of numbers and indices are not rounded, in any order."""
    scaled = [np.asarray(one) * _FRACTIONS for one in numbers]
    return all(bool(((np.rint(one) == one) & (abs(one) < 1 << 45)).all()) for one in scaled)


def check_sampler(name: str, sampler: Sampler) -> None:
    """Raise ValueError for an order or a mode that is not known, and for an input without elements."""
    if not 0 <= sampler.order <= 5 or sampler.mode not in ("constant", "nearest"):
        given = f"{sampler.order!r} and {sampler.mode!r}"
        raise ValueError(f"{name}: order must be 0 to 5, mode 'constant' or 'nearest', got {given}")
    if 0 in sampler.shape:
        raise ValueError(f"{name}: the input has no elements, its shape is {sampler.shape}")


def cast_to(xp: Any, made: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
    """Floats as another type: integers rounded, and clipped to what it has."""
    if dtype.kind in "iu":
        made = xp.clip(xp.rint(made), np.iinfo(dtype).min, np.iinfo(dtype).max)
    return made.astype(dtype)
