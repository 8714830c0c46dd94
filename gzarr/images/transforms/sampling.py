"""Interpolates between the elements of an array: the box that a block of the result needs, and its elements.

Theory of operation. A result's element o is the input's at ``matrix @ o + offset``, as in SciPy. The corners of a block
give the box of the input that it needs. Splines of order 2 and more look at all of an axis, but what lies `SPLINE_HALO`
elements away changes hardly anything that a float64 has. Axes that are only shifted by whole elements are gone through.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gzarr.api.namespaces import array_namespace, scipy_namespace
from gzarr.backend import Array as AnyArray
from gzarr.indexing.keys import Coords
from gzarr.indexing.regions import Region

#: Elements after which a spline of an order has forgotten an end of its box: its largest pole, to that power, is 1e-15.
SPLINE_HALO = {2: 20, 3: 27, 4: 34, 5: 41}
#: Standard deviations of a Gaussian that count, as in SciPy.
_TRUNCATE = 4

Mode = Literal["constant", "nearest"]


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
            start = min(max(int(np.floor(low[axis])) - self.halo(axis), 0), n - 1)
            stop = max(min(int(np.ceil(high[axis])) + self.halo(axis) + 1, n), 1)
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
    """

    sampler: Sampler
    matrix: NDArray[np.float64]
    offset: NDArray[np.float64]
    extent: Coords

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
        sampler = replace(self.sampler, sigma=tuple(self.sampler.sigma[axis] for axis in active if self.sampler.sigma))
        interpolate = self._interpolation(active, region, box, block, dtype)
        made = xp.empty(shape, dtype)
        for place in np.ndindex(*(shape[axis] for axis in passive)):
            index: list[Any] = [slice(None)] * len(region)
            for axis, at in zip(passive, place, strict=True):
                index[axis] = at
            made[tuple(index)] = interpolate(sampler.prepared(ndimage, block[tuple(index)]))
        return made

    def _interpolation(
        self, active: list[int], region: Region, box: Region, block: AnyArray, dtype: np.dtype[Any]
    ) -> Callable[[AnyArray], AnyArray]:
        """What interpolates a block on the active axes.

        On the host, points are rounded as SciPy rounds those of the whole array, so that ties and ends are the same.
        """
        xp, ndimage = array_namespace(block), scipy_namespace(block).ndimage
        matrix, offset, n = self.matrix[np.ix_(active, active)], self.offset[active], len(active)
        low, start = (np.array([each[axis].start for axis in active], float) for each in (box, region))
        shape = tuple(region[axis].stop - region[axis].start for axis in active)
        given = {"output": dtype, **self.sampler.keywords}
        diagonal = np.diagonal(matrix)
        is_diagonal = bool((matrix == np.diag(diagonal)).all())
        if xp is np and not (is_diagonal and self.sampler.order and self.sampler.mode == "nearest"):
            points = np.empty((n, *shape))
            for axis in range(n):
                at = np.full((1,) * n, offset[axis])
                for other in np.flatnonzero(matrix[axis]).tolist():
                    steps = matrix[axis, other] * (np.arange(shape[other]) + start[other])
                    at = at + steps.reshape([-1 if k == other else 1 for k in range(n)])
                np.subtract(at, low[axis], out=points[axis])
            return lambda part: ndimage.map_coordinates(part, points, **given)
        given["matrix"] = xp.asarray(diagonal if is_diagonal else matrix)
        given["offset"] = tuple((matrix @ start + offset - low).tolist())
        return lambda part: ndimage.affine_transform(part, output_shape=shape, **given)


def check_sampler(name: str, sampler: Sampler) -> None:
    """Raise ValueError for an order or a mode that is not known, and for an input without elements."""
    if not 0 <= sampler.order <= 5 or sampler.mode not in ("constant", "nearest"):
        raise ValueError(f"{name}: order={sampler.order!r}, mode={sampler.mode!r}: from 0 to 5, constant or nearest")
    if 0 in sampler.shape:
        raise ValueError(f"{name}: the input has no elements, its shape is {sampler.shape}")


def cast_to(xp: Any, made: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
    """Floats as another type: integers rounded, and clipped to what it has."""
    if dtype.kind in "iu":
        made = xp.clip(xp.rint(made), np.iinfo(dtype).min, np.iinfo(dtype).max)
    return made.astype(dtype)
