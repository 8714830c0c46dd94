"""Fuses tiles into one image: blends of what lies over a block."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gzarr.backend import Array as AnyArray
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.options import check_keywords
from gzarr.hierarchy.reductions import fill_of
from gzarr.images.filters.results import Box, BoxMapping, ResultKeywords, on_device, write_result
from gzarr.images.image import Image
from gzarr.images.transforms.reshaping import placed_of
from gzarr.images.transforms.sampling import AffineSampler, Sampler, cast_to
from gzarr.indexing.keys import Coords
from gzarr.indexing.regions import Region

Blend = Literal["cosine", "max", "first"]


class _Tiles(NamedTuple):
    """Where tiles lie.

    Attributes
    ----------
    low, high : ndarray
        The corners of the boxes that they cover of the result.
    samplers : list of AffineSampler or None
        How each is interpolated; None for one that is only moved by whole elements.
    starts : ndarray
        Where those begin that are only moved.
    shape : tuple of int
        Of the result.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    samplers: list[AffineSampler | None]
    starts: NDArray[np.int64]
    shape: Coords

    def over(self, region: Region) -> list[int]:
        """The tiles that lie over a region."""
        ends = np.array([(part.start, part.stop - 1) for part in region], float).reshape(-1, 2)
        return np.flatnonzero(((self.low <= ends[:, 1]) & (self.high >= ends[:, 0])).all(1)).tolist()

    def box(self, number: int, region: Region, shape: Coords) -> Region:
        """What of a tile a region needs."""
        sampler = self.samplers[number]
        if sampler is not None:
            return sampler.box(region)
        each = zip(region, self.starts[number].tolist(), shape, strict=True)
        return tuple(slice(max(part.start - at, 0), min(part.stop - at, n)) for part, at, n in each)


def fuse(
    tiles: Sequence[Array | Image],
    out: Any,
    transforms: Sequence[ArrayLike] | None = None,
    blend: Blend = "cosine",
    *,
    origin: Sequence[float] | None = None,
    shape: Sequence[int] | None = None,
    order: int = 1,
    **kwargs: Unpack[ResultKeywords],
) -> Array | Image:
    """Fuse tiles into one image of any size: a block of it reads what lies over it, and nothing else.

    Parameters
    ----------
    tiles : sequence of Array or Image
        Tiles of one data type and as many axes each.
    out : Array, Image, path or Store
        Where the result goes: see `map_overlap`; it is like the first tile.
    transforms : sequence, optional
        Where each tile lies, in elements: a place of its first element, or a matrix of shape (n, n + 1) that takes the
        tile's elements to those of the result. Places may be negative: the result begins at the least. By default, the
        translations of images, in voxels of the first one.
    blend : {"cosine", "max", "first"}
        What becomes of elements that several tiles have: their mean, weighted by the cosine of the way from the
        middle of the tile; the largest; or that of the first tile. Where there is no tile, the result is 0.
    origin : sequence of int, optional
        Where the result begins, as transforms count: with ``shape``, a part of the scene. What lies over it is read.
    shape : sequence of int, optional
        Of the result. By default so that it holds all tiles.
    order : int
        Of the spline for tiles that do not lie at whole elements.
    **kwargs
        See `crop`.

    Returns
    -------
    Array or Image
        The scene.

    Examples
    --------
    >>> import gzarr, gzarr.images, numpy as np
    >>> one, two = gzarr.array(np.full((2, 3), 4)), gzarr.array(np.full((2, 3), 8))
    >>> gzarr.images.fuse([one, two], None, [(0, 0), (0, 2)])[...]
    array([[4, 4, 6, 8, 8],
           [4, 4, 6, 8, 8]])
    >>> gzarr.images.fuse([one, two], None, [(0, 0), (0, 2)], origin=(0, 2), shape=(1, 2))[...]
    array([[6, 8]])
    """
    check_keywords(kwargs, ResultKeywords, fuse)
    if not tiles or blend not in ("cosine", "max", "first"):
        raise ValueError(f"fuse: {len(tiles)} tiles, blend={blend!r}; give one tile or more, and cosine, max or first")
    sources = on_device("fuse", tiles, kwargs.get("device"), kwargs.get("max_device_nbytes"))
    given = _translations(tiles) if transforms is None else list(transforms)
    found, start = _placed_tiles(sources, given, origin, shape, order)

    def boxes(region: Region) -> list[Box]:
        return [(number, found.box(number, region, sources[number].shape)) for number in found.over(region)]

    placed = placed_of(tiles[0])
    if placed is not None:
        moved = np.array(placed.translation if transforms is None else 0.0) + np.array(placed.scale) * start
        placed = placed._replace(translation=tuple(np.broadcast_to(moved, (len(found.shape),)).tolist()))
    mapping = BoxMapping(
        name="fuse",
        sources=sources,
        template=tiles[0],
        shape=found.shape,
        boxes=boxes,
        compute=lambda region, *parts: _blended(found, sources, blend, region, zip(*parts, strict=True)),
        dtype=sources[0].dtype,
        placed=placed,
        arguments={"transforms": [np.asarray(one).tolist() for one in given], "how": [blend, order, *start.tolist()]},
        keeps_fill=not any(fill_of(one) for one in sources),
    )
    return write_result(mapping, out, kwargs)


def _blended(
    found: _Tiles, sources: Sequence[Array], blend: Blend, region: Region, parts: Iterable[tuple[Box, AnyArray]]
) -> AnyArray:
    """A block of the result, of the boxes of tiles that lie over it."""
    xp, is_mean = sources[0].backend.xp, blend == "cosine"
    shape = tuple(part.stop - part.start for part in region)
    wide = np.dtype(np.float32 if is_mean and sources[0].dtype.itemsize <= 2 else np.float64)
    kind = wide if is_mean else sources[0].dtype
    made, weights = xp.zeros(shape, kind), xp.zeros(shape, wide if is_mean else np.float32)
    for (number, box), block in parts:
        weight = _weight(xp, box, sources[number].shape, weights.dtype, is_mean=is_mean)
        sampler, place = found.samplers[number], (slice(None),) * len(shape)
        if sampler is None:
            each = zip(box, found.starts[number].tolist(), region, strict=True)
            place = tuple(slice(b.start + at - r.start, b.stop + at - r.start) for b, at, r in each)
        else:
            weight = sampler.sample(region, box, weight, weight.dtype)
            block = cast_to(xp, sampler.sample(region, box, block, wide), wide if is_mean else kind)  # noqa: PLW2901
        if is_mean:
            made[place] += block * weight
            weights[place] += weight
        else:
            before, seen = weights[place], made[place]
            is_more = (block > seen) | (seen != seen) if blend == "max" else False  # noqa: PLR0124 - NaN
            takes = (weight > 0.5) & ((before == 0) | is_more)
            made[place] = xp.where(takes, block, seen)
            weights[place] = xp.maximum(before, takes)
    if not is_mean:
        return made
    made /= xp.maximum(weights, np.finfo(np.float32).tiny)
    return cast_to(xp, made, sources[0].dtype)


def _translations(tiles: Sequence[Array | Image]) -> list[NDArray[np.float64]]:
    """Where images lie, in voxels of the first one and from its origin. Raises: TypeError."""
    made = []
    for tile in tiles:
        if not isinstance(tile, Image):
            raise TypeError(f"fuse: {tile.store_path} is an array, which has no translation; give transforms=")
        scale, moved = (np.array(part) for part in tile.metadata.transformation(0))
        first = tiles[0].metadata.transformation(0)  # type: ignore[union-attr]
        if not np.allclose(scale, first.scale):
            raise ValueError(f"fuse: voxels of {tile.group.store_path} are of another size; call resample or rescale")
        made.append((moved - first.translation) / scale)
    return made


def _placed_tiles(
    sources: Sequence[Array], given: Sequence[Any], origin: Any, shape: Sequence[int] | None, order: int
) -> tuple[_Tiles, NDArray[np.float64]]:
    """Where tiles lie in a result that begins at an origin, by default the least of their corners; and the origin.

    Raises: ValueError.
    """
    first = sources[0]
    for one in sources:
        if (one.ndim, one.dtype) != (first.ndim, first.dtype) or not one.size:
            raise ValueError(f"fuse: {one.store_path} has {one.ndim} axes of {one.dtype}, unlike {first.store_path}")
    if len(given) != len(sources):
        raise ValueError(f"fuse: {len(given)} transforms for {len(sources)} tiles; give one for each")
    n = sources[0].ndim
    matrices, lows, highs = [], [], []
    for number, (source, one) in enumerate(zip(sources, given, strict=True)):
        matrix = np.asarray(one, float)
        if matrix.shape == (n,):
            matrix = np.column_stack([np.eye(n), np.round(matrix, 6)])
        if matrix.shape != (n, n + 1) or not np.isfinite(matrix).all() or not abs(np.linalg.det(matrix[:, :n])) > 0:
            raise ValueError(f"fuse: transforms[{number}] is no place of {n} numbers, nor an invertible (n, n + 1)")
        last = np.array(source.shape) - 1.0
        ends = np.stack([np.minimum(matrix[:, :n] * last, 0), np.maximum(matrix[:, :n] * last, 0)])
        lows.append(ends[0].sum(1) + matrix[:, n])
        highs.append(ends[1].sum(1) + matrix[:, n])
        matrices.append(matrix)
    origin = np.floor(np.min(lows, 0) + 1e-6 if origin is None else np.asarray(origin, float))
    made = (
        tuple(map(int, shape))
        if shape is not None
        else tuple((np.ceil(np.max(highs, 0) - 1e-6) - origin + 1).astype(int).tolist())
    )
    samplers: list[AffineSampler | None] = []
    for source, matrix in zip(sources, matrices, strict=True):
        moved = matrix[:, n] - origin
        if (matrix[:, :n] == np.eye(n)).all() and (moved == np.round(moved)).all():
            samplers.append(None)
        else:
            inverse = np.linalg.inv(matrix[:, :n])
            how = Sampler(shape=source.shape, order=order, mode="constant", cval=0)
            samplers.append(AffineSampler(how, inverse, -inverse @ moved, made))
    starts = np.round([matrix[:, n] - origin for matrix in matrices]).astype(np.int64)
    return _Tiles(np.array(lows) - origin, np.array(highs) - origin, samplers, starts, made), origin


def _weight(xp: Any, box: Region, shape: Coords, dtype: np.dtype[Any], *, is_mean: bool) -> AnyArray:
    """The weights of a box of a tile: ones, or the cosine of the way from the middle, a little above 0 at the ends."""
    weight = xp.ones((1,) * len(box), dtype)
    for axis, (part, n) in enumerate(zip(box, shape, strict=True)):
        steps = (np.arange(part.start, part.stop) + 0.5) / n - 0.5
        window = np.cos(np.pi * steps) if is_mean else np.ones(len(steps))
        weight = weight * xp.asarray(window.astype(dtype)).reshape([-1 if k == axis else 1 for k in range(len(box))])
    return weight
