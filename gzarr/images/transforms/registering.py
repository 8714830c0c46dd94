"""Finds where tiles lie, by phase correlation of pairs and least squares of all."""

from collections.abc import Callable, Sequence
from itertools import product as product_of
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gzarr.api.namespaces import array_namespace, scipy_namespace
from gzarr.backend import Array as AnyArray
from gzarr.hierarchy.array import Array
from gzarr.images.image import Image
from gzarr.tensors import to_host

#: Peaks of a phase correlation that are looked at: noise may be higher than what two tiles have in common.
_PEAKS = 8
#: Elements by which a pair may contradict the others.
_APART = 1.0


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
        Arrays with NaN or infinite elements are not moved, with a quality of 0.

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
    if not (xp.isfinite(one).all() and xp.isfinite(two).all()):
        return Registration(np.zeros(one.ndim), 0.0)
    product = _spectrum(xp, fft, one, two)
    found = xp.abs(fft.ifftn(product)).reshape(-1)
    peaks = to_host(xp.argsort(found)[-_PEAKS:])
    places = np.stack(np.unravel_index(peaks, one.shape), 1)
    turns = np.array(list(product_of((0, 1), repeat=one.ndim))) * np.array(one.shape)
    choices = np.append([[0] * one.ndim], (places[:, None] - turns[None]).reshape(-1, one.ndim), 0)  # both ways
    qualities = [_correlation(one, two, choice) for choice in choices]
    best = int(np.argmax(qualities))
    shift = choices[best].astype(float)
    if upsample > 1 and qualities[best] > 0:  # source: Guizar-Sicairos, Thurman and Fienup, 2008
        a, b = (_shown(each, choices[best], sign) for each, sign in ((one, 1), (two, -1)))
        for axis, n in enumerate(a.shape):  # the ends, where the arrays are cut, would look like no shift at all
            window = xp.asarray(np.hanning(n + 2)[1:-1]).reshape([-1 if k == axis else 1 for k in range(one.ndim)])
            a, b = a * window, b * window
        zoomed, width = xp.conj(_spectrum(xp, fft, a, b)), 2 * upsample + 1
        for axis in reversed(range(one.ndim)):
            rows = np.arange(width)[:, None] - upsample
            kernel = np.exp(-2j * np.pi * rows * np.fft.fftfreq(a.shape[axis], upsample))
            zoomed = xp.tensordot(xp.asarray(kernel), zoomed, axes=(1, -1))
        peak = np.unravel_index(int(xp.argmax(xp.abs(zoomed))), zoomed.shape)
        shift += np.where(np.array(one.shape) > 1, (np.array(peak) - upsample) / upsample, 0)
    return Registration(shift + 0.0, qualities[best])


def _spectrum(xp: Any, fft: Any, one: AnyArray, two: AnyArray) -> AnyArray:
    """The cross spectrum of two arrays, of amplitudes of 1."""
    product = fft.fftn(one.astype(np.float64)) * xp.conj(fft.fftn(two.astype(np.float64)))
    return product / xp.maximum(xp.abs(product), np.finfo(np.float64).tiny * 1e8)


def _shown(array: AnyArray, shift: NDArray[Any], sign: int) -> AnyArray:
    """What one of two arrays has in common with the other, less its mean. sign: 1 for the first, -1 for the second."""
    each = zip(shift.tolist(), array.shape, strict=True)
    part = array[tuple(slice(max(sign * s, 0), n + min(sign * s, 0)) for s, n in each)].astype(np.float64)
    return part - part.mean()


def _correlation(one: AnyArray, two: AnyArray, shift: NDArray[Any]) -> float:
    """The correlation of what two arrays have in common if the second is moved; -1 if that is little."""
    if any(2 * abs(s) >= n for s, n in zip(shift.tolist(), one.shape, strict=True)):
        return -1.0
    a, b = (_shown(each, shift, sign) for each, sign in ((one, 1), (two, -1)))
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
    pairs = [
        (i, j) for i, j in np.argwhere((high - low > np.minimum(shapes[:, None] - 1, 7)).all(-1)).tolist() if i < j
    ]
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
