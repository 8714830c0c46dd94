"""Changes intensities by what all of an image says: two passes, of which the first makes a histogram."""

from collections.abc import Callable
from typing import Any, Literal, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gzarr.api.namespaces import array_namespace, scipy_namespace
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.missing import missing_by_convention
from gzarr.images.filters.overlap import BlockKeywords, map_blocks, map_overlap
from gzarr.images.filters.where import Where
from gzarr.images.image import Image
from gzarr.images.transforms.sampling import cast_to

#: Bins of a histogram of elements that have more values than integers of 16 bits.
_BINS = 4096


def _histogram(image: Array | Image) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How many elements have each value: exact for integers of up to 16 bits, otherwise in bins, by their middles.

    The first and the last bin stand for the least and the largest element.
    """
    array = image.levels[0] if isinstance(image, Image) else image
    stats = array.stats()
    low, high = float(stats.min), float(stats.max)
    if not np.isfinite(low - high):
        raise ValueError(
            f"{array.store_path}: elements reach from {low} to {high}; intensities need some that are there, and none "
            "that is infinite: replace these, or give the level or range"
        )
    if low == high:
        return np.ones(1), np.full(1, low)
    if array.dtype.kind in "biu" and high - low < 1 << 16:
        found: Any = array.stats(int(high - low) + 1, (low - 0.5, high + 0.5)).histogram
        return found[0].astype(float), (found[1][:-1] + found[1][1:]) / 2
    found = array.astype(np.float64).stats(_BINS, (low, high)).histogram  # edges in floats of 4 bytes may coincide
    return found[0].astype(float), np.array([low, *(found[1][1:-2] + found[1][2:-1]) / 2, high])


def _but_missing(func: Callable[[Any], Any], image: Array | Image) -> Callable[[Any], Any]:
    """A function of blocks that leaves alone what the image records as missing."""
    array = image.levels[0] if isinstance(image, Image) else image
    missing = missing_by_convention(None, array)
    if missing is None:
        return func

    def kept(block: Any) -> Any:
        made, xp = func(block), array_namespace(block)
        same = block.astype(made.dtype) if made.dtype != bool else False  # what is missing is no object
        return xp.where(missing.find(array.backend, block, ()), same, made)

    return kept


def _written(
    func: Callable[[Any], Any], image: Array | Image, out: Any, given: BlockKeywords, depth: Any = 0
) -> Array | Image:
    """What a function of blocks makes of what is not missing."""
    made: Array | Image = map_overlap(_but_missing(func, image), image, out, depth, **given)
    return made


def find_threshold(image: Array | Image, method: Literal["otsu", "li", "mean"] = "otsu") -> float:
    """Find what tells objects from their background, from the histogram of an image of any size.

    Parameters
    ----------
    image : Array or Image
        The image; of several levels, level 0.
    method : {"otsu", "li", "mean"}
        As `skimage.filters.threshold_otsu` and its neighbours: the same for integers of up to 16 bits; others are
        counted in 4096 bins.

    Returns
    -------
    float
        What objects are brighter than.

    Examples
    --------
    >>> import gzarr, gzarr.images
    >>> gzarr.images.find_threshold(gzarr.array([1, 2, 2, 90, 95]))
    2.0
    """
    array = image.levels[0] if isinstance(image, Image) else image
    if method == "mean" and np.isfinite(mean := float(array.stats().mean)):
        return mean
    counts, values = _histogram(image)
    if len(values) == 1:
        return float(values[0])
    below, above = np.cumsum(counts), np.cumsum(counts[::-1])[::-1]
    if method == "otsu":
        lower = np.cumsum(counts * values) / np.maximum(below, 1)
        upper = (np.cumsum((counts * values)[::-1]) / np.maximum(above[::-1], 1))[::-1]
        return float(values[np.argmax(below[:-1] * above[1:] * (lower[:-1] - upper[1:]) ** 2)])
    if method != "li":
        raise ValueError(f"find_threshold: method {method!r} is unknown; expected otsu, li or mean")
    first, found, last = values[0], float((counts * values).sum() / counts.sum()) - values[0], np.inf
    step = float(np.diff(values[counts > 0]).min()) / 2  # source: Li and Tam, 1998
    while abs(found - last) > step:
        last, bright = found, values - first > found
        fore, back = (np.average(values[part] - first, weights=counts[part]) for part in (bright, ~bright))
        if back == 0:
            break
        found = (back - fore) / (np.log(back) - np.log(fore))
    return float(found + first)


def threshold(
    image: Array | Image,
    out: Any,
    level: Literal["otsu", "li", "mean"] | float = "otsu",
    **kwargs: Unpack[BlockKeywords],
) -> Array | Image:
    """Write a mask of what is brighter than a threshold: a number, or that of `find_threshold`.

    Parameters
    ----------
    image, out, **kwargs
        See `map_blocks`.
    level : str or float
        The threshold, or how it is found.

    Returns
    -------
    Array or Image
        The mask.

    Examples
    --------
    >>> import gzarr, gzarr.images
    >>> gzarr.images.threshold(gzarr.array([1, 2, 2, 90, 95]), None)[...]
    array([False, False, False,  True,  True])
    """
    found = find_threshold(image, level) if isinstance(level, str) else level
    return _written(lambda block: block > found, image, out, kwargs)


def rescale_intensity(
    image: Array | Image,
    out: Any,
    in_range: tuple[float, float] | None = None,
    out_range: tuple[float, float] | None = None,
    *,
    percentiles: tuple[float, float] = (0, 100),
    **kwargs: Unpack[BlockKeywords],
) -> Array | Image:
    """Stretch intensities, as `skimage.exposure.rescale_intensity`.

    Parameters
    ----------
    image, out, **kwargs
        See `map_blocks`.
    in_range : pair of float, optional
        What becomes the ends of ``out_range``; what lies outside is clipped. By default, the percentiles of the image.
    out_range : pair of float, optional
        By default, what the data type has, or 0 to 1 for floats.
    percentiles : pair of float
        Of the elements, instead of ``in_range``.

    Returns
    -------
    Array or Image
        The result, of the data type of the image.

    Examples
    --------
    >>> import gzarr, gzarr.images, numpy as np
    >>> gzarr.images.rescale_intensity(gzarr.array(np.array([10, 20, 30], "u1")), None)[...]
    array([  0, 128, 255], dtype=uint8)
    """
    dtype = image.dtype
    if in_range is None:
        counts, values = _histogram(image)
        share = np.cumsum(counts) / counts.sum()
        found = np.searchsorted(share, np.array(percentiles) / 100).clip(0, len(values) - 1)
        in_range = (float(values[found[0]]), float(values[found[1]]))
    ends = (0.0, 1.0) if dtype.kind == "f" else (float(np.iinfo(dtype).min), float(np.iinfo(dtype).max))
    (low, high), (least, most) = in_range, out_range or ends

    def stretch(block: Any) -> Any:
        xp = array_namespace(block)
        part = (xp.clip(block.astype(np.float64), low, high) - low) / max(high - low, np.finfo(float).tiny)
        return cast_to(xp, part * (most - least) + least, dtype)

    return _written(stretch, image, out, kwargs)


def equalize(image: Array | Image, out: Any, **kwargs: Unpack[BlockKeywords]) -> Array | Image:
    """Make all intensities equally frequent: the share of elements that are not brighter, as a float32 from 0 to 1.

    Parameters
    ----------
    image, out, **kwargs
        See `map_blocks`.

    Returns
    -------
    Array or Image
        The result, as `skimage.exposure.equalize_hist` makes it with a bin for each value.

    Examples
    --------
    >>> import gzarr, gzarr.images, numpy as np
    >>> gzarr.images.equalize(gzarr.array(np.array([1, 1, 2, 9], "u1")), None)[...]
    array([0.5 , 0.5 , 0.75, 1.  ], dtype=float32)
    """
    counts, values = _histogram(image)
    share = np.cumsum(counts) / counts.sum()
    return _mapped(image, out, values, share, np.dtype("f4"), kwargs)


def match_histogram(
    image: Array | Image, out: Any, like: Array | Image, **kwargs: Unpack[BlockKeywords]
) -> Array | Image:
    """Give an image the intensities of another one, as `skimage.exposure.match_histograms`.

    Parameters
    ----------
    image, out, **kwargs
        See `map_blocks`.
    like : Array or Image
        The other one, of any shape.

    Returns
    -------
    Array or Image
        The result, of the data type of the image.

    Examples
    --------
    >>> import gzarr, gzarr.images, numpy as np
    >>> one, two = (gzarr.array(np.array(values, "u1")) for values in ([1, 2, 3, 4], [10, 20, 20, 90]))
    >>> gzarr.images.match_histogram(one, None, two)[...]
    array([10, 15, 20, 90], dtype=uint8)
    """
    (counts, values), (others, wanted) = _histogram(image), _histogram(like)
    share, goal = (np.cumsum(one) / one.sum() for one in (counts, others))
    made = np.interp(share, goal[others > 0], wanted[others > 0])
    return _mapped(image, out, values, made, image.dtype, kwargs)


def _mapped(
    image: Array | Image, out: Any, values: Any, made: Any, dtype: np.dtype[Any], given: BlockKeywords
) -> Array | Image:
    """An image with other values in the place of some; between them, what lies between."""

    def mapped(block: Any) -> Any:
        xp = array_namespace(block)
        flat = xp.interp(block.reshape(-1).astype(np.float64), xp.asarray(values), xp.asarray(made))
        return cast_to(xp, flat.reshape(block.shape), dtype)

    return _written(mapped, image, out, given)


def flat_field(
    image: Array | Image, out: Any, flat: ArrayLike, dark: ArrayLike = 0, **kwargs: Unpack[BlockKeywords]
) -> Array | Image:
    """Correct uneven light: ``(image - dark) / (flat - dark)``, times the mean of ``flat - dark``.

    Parameters
    ----------
    image, out, **kwargs
        See `map_blocks`.
    flat, dark : array_like
        What the camera sees of an even plane, and in the dark; of the last axes of the image, in memory.

    Returns
    -------
    Array or Image
        The result, of the data type of the image; integers are rounded and clipped.

    Examples
    --------
    >>> import gzarr, gzarr.images, numpy as np
    >>> gzarr.images.flat_field(gzarr.array(np.array([[40, 60], [20, 30]])), None, [2.0, 3.0])[...]
    array([[50, 50],
           [25, 25]])
    """
    zero = np.broadcast_to(np.asarray(dark, float), np.broadcast_shapes(np.shape(dark), np.shape(flat)))
    light = np.asarray(flat, float) - zero
    if light.shape != image.shape[image.ndim - light.ndim :] or not (light > 0).all():
        raise ValueError(
            f"flat_field: flat - dark, of shape {light.shape}, must be above 0 and of the last axes of {image.shape}"
        )
    gain, dtype = light.mean() / light, image.dtype

    def correct(block: Any, where: Where) -> Any:
        xp, part = array_namespace(block), where.box[image.ndim - gain.ndim :]
        shape = block.shape[image.ndim - gain.ndim :]
        factor, moved = (xp.asarray(np.resize(one[part], shape)) for one in (gain, zero))
        return _but_missing(lambda given: cast_to(xp, (given - moved) * factor, dtype), image)(block)

    made: Array | Image = map_blocks(correct, image, out, **kwargs)
    return made


def subtract_background(image: Array | Image, out: Any, sigma: float, **kwargs: Unpack[BlockKeywords]) -> Array | Image:
    """Subtract a background that is smooth: a Gaussian of the image, on the last two axes, as far as it is darker.

    Parameters
    ----------
    image, out, **kwargs
        See `map_blocks`.
    sigma : float
        Of the Gaussian, in elements: larger than objects are.

    Returns
    -------
    Array or Image
        The result, of the data type of the image.

    Examples
    --------
    >>> import gzarr, gzarr.images, numpy as np
    >>> gzarr.images.subtract_background(gzarr.array(np.full((9, 9), 7)), None, 2).stats().max
    0
    """
    dtype, reach = image.dtype, int(4 * sigma + 0.5)
    sigmas = (0.0,) * (image.ndim - 2) + (sigma, sigma)

    def subtract(block: Any) -> Any:
        wide = block.astype(np.float32)
        smooth = scipy_namespace(block).ndimage.gaussian_filter(wide, sigmas)
        return cast_to(array_namespace(block), (wide - smooth).clip(0), dtype)

    return _written(subtract, image, out, kwargs, {image.ndim - 2: reach, image.ndim - 1: reach})
