"""How far filters of scipy.ndimage, cupyx.scipy.ndimage, scikit-image and cuCIM look around an element."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

_ONE = "sobel prewitt laplace sobel_h sobel_v prewitt_h prewitt_v scharr scharr_h scharr_v"
_GAUSSIAN = "gaussian_filter gaussian_filter1d gaussian gaussian_laplace gaussian_gradient_magnitude"
_WINDOW = "uniform_filter median_filter minimum_filter maximum_filter rank_filter percentile_filter median"
_WINDOW += " grey_erosion grey_dilation morphological_gradient erosion dilation"
_TWICE = "grey_opening grey_closing white_tophat black_tophat opening closing"
_WEIGHTS = "convolve correlate convolve1d correlate1d"


def depth_of(func: Callable[..., Any], **kwargs: Any) -> int | tuple[int, ...]:
    """Return the depth that `map_overlap` needs for a known filter.

    Parameters
    ----------
    func : callable
        A filter of scipy.ndimage, cupyx.scipy.ndimage, scikit-image or cuCIM, or a `functools.partial` of one, whose
        keywords count too.
    **kwargs
        Its keywords: sigma, truncate, radius, size, footprint, structure, weights, origin, iterations.

    Returns
    -------
    int or tuple of int
        For all axes, or for each.

    Raises
    ------
    ValueError
        If the filter is not known, or a keyword is missing that says how far it looks.

    Examples
    --------
    >>> import gzarr.images
    >>> from scipy import ndimage
    >>> gzarr.images.depth_of(ndimage.gaussian_filter, sigma=(1, 2.5))
    (4, 10)
    >>> gzarr.images.depth_of(ndimage.median_filter, size=5)
    2
    """
    inner: Any = func
    while isinstance(inner, partial):
        inner, kwargs = inner.func, {**inner.keywords, **kwargs}
    name = getattr(inner, "__name__", str(inner))
    for names, find in _RULES.items():
        if name in names.split():
            return find(kwargs)
    known = " ".join(_RULES).split()
    raise ValueError(f"depth_of: {name} is not known; give depth= yourself, or take one of {', '.join(sorted(known))}")


def _needed(given: dict[str, Any], *names: str) -> Any:
    found = next((given[name] for name in names if given.get(name) is not None), None)
    if found is None:
        raise ValueError(f"depth_of: how far the filter looks is said by {' or '.join(names)}; give it by keyword")
    return found


def _each(reach: Callable[..., int], *values: Any) -> int | tuple[int, ...]:
    """What a function says of numbers, or of each of some sequences."""
    if not any(map(np.ndim, values)):
        return reach(*values)
    return tuple(reach(*(one.item() for one in each)) for each in zip(*np.broadcast_arrays(*values), strict=True))


def _gaussian(given: dict[str, Any]) -> int | tuple[int, ...]:
    if given.get("radius") is not None:
        return _each(int, given["radius"])
    return _each(lambda sigma: int(given.get("truncate", 4.0) * sigma + 0.5), _needed(given, "sigma"))


def _window(given: dict[str, Any], times: int = 1) -> int | tuple[int, ...]:
    size = _needed(given, "footprint", "structure", "size", "weights")
    size = (
        np.shape(size) if any(given.get(name) is not None for name in ("footprint", "structure", "weights")) else size
    )
    return _each(lambda n, origin: times * (int(n) // 2 + abs(int(origin))), size, given.get("origin", 0))


def _binary(given: dict[str, Any], times: int = 1) -> int | tuple[int, ...]:
    times *= int(given.get("iterations", 1))
    if times < 1:
        raise ValueError("depth_of: filters that repeat until nothing changes look arbitrarily far")
    return times if given.get("structure") is None else _window(given, times)


_RULES: dict[str, Callable[[dict[str, Any]], int | tuple[int, ...]]] = {
    _ONE: lambda _given: 1,
    _GAUSSIAN: _gaussian,
    f"{_WINDOW} {_WEIGHTS}": _window,
    _TWICE: partial(_window, times=2),
    "binary_erosion binary_dilation": _binary,
    "binary_opening binary_closing": partial(_binary, times=2),
}
