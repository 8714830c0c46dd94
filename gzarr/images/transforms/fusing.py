"""Fuses tiles into one image, and finds where they lie: blends of what lies over a block, and phase correlation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product as product_of
from typing import Any, Literal, NamedTuple, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gzarr.api.namespaces import array_namespace, scipy_namespace
from gzarr.backend import Array as AnyArray
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.options import check_keywords
from gzarr.hierarchy.reductions import fill_of
from gzarr.images.filters.results import Box, BoxMapping, ResultKeywords, on_device, write_result
from gzarr.images.image import Image
from gzarr.images.transforms.reshaping import placed_of
from gzarr.images.transforms.sampling import AffineSampler, Sampler
from gzarr.indexing.keys import Coords
from gzarr.indexing.regions import Region
from gzarr.tensors import to_host

Blend = Literal["cosine", "max", "first"]
#: Peaks of a phase correlation that are looked at: noise may be higher than what two tiles have in common.
_PEAKS = 8
#: Elements by which a pair may contradict the others.
_APART = 1.0


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
    """
    check_keywords(kwargs, ResultKeywords, fuse)
    if not tiles or blend not in ("cosine", "max", "first"):
        raise ValueError(f"fuse: {len(tiles)} tiles, blend={blend!r}; give one tile or more, and cosine, max or first")
    sources = on_device("fuse", tiles, kwargs.get("device"), kwargs.get("max_device_nbytes"))
    first = sources[0]
    given = _translations(tiles) if transforms is None else list(transforms)
    found, origin = _placed_tiles(sources, given, shape, order)

    def boxes(region: Region) -> list[Box]:
        return [(number, found.box(number, region, sources[number].shape)) for number in found.over(region)]

    placed = placed_of(tiles[0])
    if placed is not None:
        moved = np.array(placed.translation if transforms is None else 0.0) + np.array(placed.scale) * origin
        placed = placed._replace(translation=tuple(np.broadcast_to(moved, (first.ndim,)).tolist()))
    mapping = BoxMapping(
        name="fuse",
        sources=sources,
        template=tiles[0],
        shape=found.shape,
        boxes=boxes,
        compute=lambda region, parts, blocks: _blended(
            found, sources, blend, region, list(zip(parts, blocks, strict=True))
        ),
        dtype=first.dtype,
        placed=placed,
        arguments={"transforms": [np.asarray(one).tolist() for one in given], "blend": blend, "order": order},
        keeps_fill=not any(fill_of(one) for one in sources),
    )
    return write_result(mapping, out, kwargs)


def _blended(
    found: _Tiles, sources: Sequence[Array], blend: Blend, region: Region, parts: Iterable[tuple[Box, AnyArray]]
) -> AnyArray:
    """A block of the result, of the boxes of tiles that lie over it."""
    xp, is_mean = sources[0].backend.xp, blend == "cosine"
    shape = tuple(part.stop - part.start for part in region)
    kind = np.dtype(np.float32 if sources[0].dtype.itemsize <= 2 else np.float64) if is_mean else sources[0].dtype
    made, weights = xp.zeros(shape, kind), xp.zeros(shape, np.float32)
    for (number, box), block in parts:
        weight = _weight(xp, box, sources[number].shape, is_mean=is_mean)
        sampler, place = found.samplers[number], (slice(None),) * len(shape)
        if sampler is None:
            each = zip(box, found.starts[number].tolist(), region, strict=True)
            place = tuple(slice(b.start + at - r.start, b.stop + at - r.start) for b, at, r in each)
        else:
            weight = sampler.sample(region, box, weight, weight.dtype)
            block = sampler.sample(region, box, block, kind)  # noqa: PLW2901
        if is_mean:
            made[place] += block * weight
            weights[place] += weight
        else:
            before = weights[place]
            takes = (weight > 0.5) & ((before == 0) | ((block > made[place]) if blend == "max" else False))
            made[place] = xp.where(takes, block, made[place])
            weights[place] = xp.maximum(before, takes)
    if not is_mean:
        return made
    made /= xp.maximum(weights, np.finfo(np.float32).tiny)
    return (xp.rint(made) if sources[0].dtype.kind in "iu" else made).astype(sources[0].dtype)


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
    sources: Sequence[Array], given: Sequence[Any], shape: Sequence[int] | None, order: int
) -> tuple[_Tiles, NDArray[np.float64]]:
    """Where tiles lie in a result that begins at the least of their corners, and where that is. Raises: ValueError."""
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
    origin = np.floor(np.min(lows, 0) + 1e-6)
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
            samplers.append(AffineSampler(how, inverse, -inverse @ moved))
    starts = np.round([matrix[:, n] - origin for matrix in matrices]).astype(np.int64)
    return _Tiles(np.array(lows) - origin, np.array(highs) - origin, samplers, starts, made), origin


def _weight(xp: Any, box: Region, shape: Coords, *, is_mean: bool) -> AnyArray:
    """The weights of a box of a tile: ones, or the cosine of the way from the middle, a little above 0 at the ends."""
    weight = xp.ones((1,) * len(box), np.float32)
    for axis, (part, n) in enumerate(zip(box, shape, strict=True)):
        steps = (np.arange(part.start, part.stop) + 0.5) / n - 0.5
        window = np.cos(np.pi * steps) if is_mean else np.ones(len(steps))
        weight = weight * xp.asarray(window.astype(np.float32)).reshape(
            [-1 if k == axis else 1 for k in range(len(box))]
        )
    return weight


class Registration(NamedTuple):
    """How two arrays fit.

    Attributes
    ----------
    shift : ndarray
        What, in elements, moves the second array onto the first.
    quality : float
        The correlation of what both show, at most 1.
    """

    shift: NDArray[np.float64]
    quality: float


def register(reference: Any, moving: Any, *, upsample: int = 10) -> Registration:
    """Find how an array is moved against another, by phase correlation.

    Parameters
    ----------
    reference, moving : array
        Of one shape, in memory or of gzarr: what two tiles show of one place. They are read whole.
    upsample : int
        Parts of an element that the shift is found to.

    Returns
    -------
    Registration
        ``shift`` moves ``moving`` onto ``reference``, as `skimage.registration.phase_cross_correlation` finds it.

    Examples
    --------
    >>> import gzarr.images, numpy as np
    >>> picture = np.random.default_rng(0).random((64, 64))
    >>> gzarr.images.register(picture, np.roll(picture, (3, -5), (0, 1))).shift
    array([-3.,  5.])
    """
    one, two = (each[...] for each in (reference, moving))
    if one.shape != two.shape or not one.size:
        raise ValueError(f"register: shapes {one.shape} and {two.shape}; give what both show of one place")
    xp, fft = array_namespace(one, two), scipy_namespace(one).fft
    product = fft.fftn(one.astype(np.float64)) * xp.conj(fft.fftn(two.astype(np.float64)))
    product /= xp.maximum(xp.abs(product), np.finfo(np.float64).tiny * 1e8)
    found = xp.abs(fft.ifftn(product)).reshape(-1)
    peaks = to_host(xp.argsort(found)[-_PEAKS:])
    places = np.stack(np.unravel_index(peaks, one.shape), 1)
    turns = np.array(list(product_of((0, 1), repeat=one.ndim))) * np.array(one.shape)
    choices = (places[:, None] - turns[None]).reshape(-1, one.ndim)  # as far the one way as the other
    qualities = [_correlation(one, two, choice) for choice in choices]
    best = int(np.argmax(qualities))
    shift = choices[best].astype(float)
    if upsample > 1:  # source: Guizar-Sicairos, Thurman and Fienup, 2008: a matrix product around the peak
        width = int(np.ceil(1.5 * upsample))
        shift = np.round(shift * upsample) / upsample
        zoomed = xp.conj(product)
        offsets = width // 2 - shift * upsample
        for axis in reversed(range(one.ndim)):
            rows = np.arange(width)[:, None] - offsets[axis]
            kernel = np.exp(-2j * np.pi * rows * np.fft.fftfreq(one.shape[axis], upsample))
            zoomed = xp.tensordot(xp.asarray(kernel), zoomed, axes=(1, -1))
        peak = np.unravel_index(int(xp.argmax(xp.abs(zoomed))), zoomed.shape)
        shift = shift + (np.array(peak) - width // 2) / upsample
    return Registration(shift + 0.0, qualities[best])


def _correlation(one: AnyArray, two: AnyArray, shift: NDArray[Any]) -> float:
    """The correlation of what two arrays have in common if the second is moved; -1 if that is little."""
    parts = [
        tuple(slice(max(sign * s, 0), n + min(sign * s, 0)) for s, n in zip(shift.tolist(), one.shape, strict=True))
        for sign in (1, -1)
    ]
    if any(2 * abs(s) >= n for s, n in zip(shift.tolist(), one.shape, strict=True) if n > 1):
        return -1.0
    a, b = (each[part].astype(np.float64) for each, part in zip((one, two), parts, strict=True))
    a, b = a - a.mean(), b - b.mean()
    spread = float((a * a).sum() * (b * b).sum()) ** 0.5
    return float((a * b).sum()) / spread if spread else 0.0


def register_tiles(
    tiles: Sequence[Array | Image],
    places: Sequence[ArrayLike],
    *,
    min_quality: float = 0.3,
    upsample: int = 10,
    progress: Callable[[int, int], object] = lambda _done, _total: None,
) -> NDArray[np.float64]:
    """Find where tiles lie, from where they roughly do: all pairs that overlap are registered, and fitted together.

    Parameters
    ----------
    tiles : sequence of Array or Image
        The tiles; of images, level 0. What two of them have in common is read.
    places : sequence of array_like
        Where the first element of each tile roughly lies, in elements.
    min_quality : float
        Pairs below this correlation are left out.
    upsample : int
        See `register`.
    progress : callable, optional
        Called with how many pairs are done, and how many there are.

    Returns
    -------
    ndarray
        Of shape (tiles, axes): where each lies, for `fuse`, by least squares weighted with the quality. The first tile
        stays; a tile that fits no other keeps its place.

    Examples
    --------
    >>> import gzarr, gzarr.images, numpy as np
    >>> scene = np.random.default_rng(0).random((60, 100))
    >>> tiles = [gzarr.array(scene[:, :60]), gzarr.array(scene[:, 43:])[:, :57]]
    >>> gzarr.images.register_tiles(tiles, [(0, 0), (0, 40)])
    array([[ 0.,  0.],
           [ 0., 43.]])
    """
    arrays = [one.levels[0] if isinstance(one, Image) else one for one in tiles]
    start = np.array([np.asarray(place, float) for place in places])
    whole, shapes = np.round(start).astype(int), np.array([one.shape for one in arrays])
    if start.shape != shapes.shape:
        raise ValueError(f"register_tiles: places of shape {start.shape} for tiles of {shapes.shape}")
    rows, wanted, trust = [], [], []
    low = np.maximum(whole[:, None], whole[None])
    high = np.minimum((whole + shapes)[:, None], (whole + shapes)[None])
    pairs = [(i, j) for i, j in np.argwhere((high - low > 7).all(-1)).tolist() if i < j]
    for number, (i, j) in enumerate(pairs):
        boxes = [
            tuple(slice(a, b) for a, b in zip(low[i, j] - whole[k], high[i, j] - whole[k], strict=True)) for k in (i, j)
        ]
        found = register(arrays[i][boxes[0]], arrays[j][boxes[1]], upsample=upsample)
        if found.quality >= min_quality:
            row = np.zeros(len(arrays))
            row[[j, i]] = 1, -1
            rows.append(row)
            wanted.append(whole[j] - whole[i] + found.shift - (start[j] - start[i]))
            trust.append(found.quality * float(np.prod(high[i, j] - low[i, j])))
        progress(number + 1, len(pairs))
    found_moves = np.array(wanted).reshape(-1, start.shape[1])
    moved = _solved(np.array(rows).reshape(-1, len(arrays)), found_moves, np.array(trust))
    return np.round(start + moved, 6) + 0.0


def _solved(equations: NDArray[Any], wanted: NDArray[Any], trust: NDArray[Any]) -> NDArray[np.float64]:
    """How far each tile moves, by least squares: one pair that contradicts the others leaves at a time."""
    n = equations.shape[1]
    anchor = 1e-6 * np.eye(n)
    anchor[0, 0] = 1e3
    weights = np.sqrt(trust / max([1.0, *trust]))[:, None]
    wanted_too = np.zeros((n, wanted.shape[1]))
    while True:
        system = np.concatenate([equations * weights, anchor])
        moved: NDArray[np.float64]
        moved = np.linalg.lstsq(system, np.concatenate([wanted * weights, wanted_too]), rcond=None)[0]
        apart = np.abs(equations @ moved - wanted).max(1, initial=0) * (weights[:, 0] > 0)
        if not (apart > _APART).any():
            return moved
        weights[np.argmax(apart)] = 0
