"""Projections along an axis, which is gone through in parts."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Unpack

import numpy as np

from gzarr.api.namespaces import array_namespace
from gzarr.backend import Array as AnyArray
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.options import check_keywords
from gzarr.hierarchy.reductions import fill_of
from gzarr.images.filters.results import Box, BoxMapping, ResultKeywords, on_device, write_result
from gzarr.images.halos import axis_of
from gzarr.images.image import Image
from gzarr.images.transforms.reshaping import names_of_axes
from gzarr.indexing.regions import Region

#: What is made of an axis.
Projection = Literal["max", "min", "mean", "sum", "std", "median", "argmax"]


class _Folded(NamedTuple):
    """A projection in parts.

    Attributes
    ----------
    begin : callable
        What is made of the elements of a part, its first coordinate and the axis.
    join : callable
        What is made of two parts, one after the other.
    end : callable
        The projection, of what was made of all parts and the length of the axis.
    """

    begin: Callable[[Any, AnyArray, int, int], Any]
    join: Callable[[Any, Any, Any], Any]
    end: Callable[[Any, Any, int], AnyArray]


def _largest(xp: Any, part: AnyArray, start: int, axis: int) -> Any:
    return part.max(axis), part.argmax(axis) + start


def _larger(xp: Any, one: Any, two: Any) -> Any:
    after = (two[0] > one[0]) | (xp.isnan(two[0]) & ~xp.isnan(one[0])) if two[0].dtype.kind == "f" else two[0] > one[0]
    return xp.where(after, two[0], one[0]), xp.where(after, two[1], one[1])


def _moments(xp: Any, part: AnyArray, start: int, axis: int) -> Any:
    wide = part.astype(_wide(part))
    mean = wide.mean(axis, keepdims=True)
    return part.shape[axis], mean.squeeze(axis), (abs(wide - mean) ** 2).sum(axis)


def _joined(xp: Any, one: Any, two: Any) -> Any:
    """Moments of two parts. Source: Chan, Golub and LeVeque, 1979."""
    n, apart = one[0] + two[0], two[1] - one[1]
    return n, one[1] + apart * (two[0] / n), one[2] + two[2] + abs(apart) ** 2 * (one[0] * two[0] / n)


def _wide(part: AnyArray) -> np.dtype[Any]:
    return np.result_type(part.dtype, np.float64)


def _kind(dtype: np.dtype[Any], statistic: str) -> np.dtype[Any] | None:
    """What NumPy's mean or standard deviation of floats or complex numbers is of."""
    return {"mean": dtype, "std": np.abs(np.empty(0, dtype)).dtype}.get(statistic)


def _mean(xp: Any, total: AnyArray, n: int) -> AnyArray:
    return total / n


_WAYS: dict[str, _Folded] = {
    "max": _Folded(lambda xp, x, _, a: x.max(a), lambda xp, a, b: xp.maximum(a, b), lambda xp, a, _: a),
    "min": _Folded(lambda xp, x, _, a: x.min(a), lambda xp, a, b: xp.minimum(a, b), lambda xp, a, _: a),
    "sum": _Folded(lambda xp, x, _, a: x.sum(a), lambda xp, a, b: a + b, lambda xp, a, _: a),
    "mean": _Folded(lambda xp, x, _, a: x.sum(a, dtype=_wide(x)), lambda xp, a, b: a + b, _mean),
    "argmax": _Folded(_largest, _larger, lambda xp, a, _: a[1]),
    "std": _Folded(_moments, _joined, lambda xp, a, n: xp.sqrt(a[2] / n)),
}
_METHODS = (*_WAYS, "median")


def project(
    image: Array | Image, out: Any, axis: int | str, statistic: Projection = "max", **kwargs: Unpack[ResultKeywords]
) -> Array | Image:
    """Project an array or an image along an axis, in bounded memory: the axis is gone through in parts.

    Parameters
    ----------
    image : Array or Image
        What is projected; of an image, level 0.
    out : Array, Image, path or Store
        Where the projection goes: see `map_overlap`. It is an image if two axes of space are left.
    axis : int or str
        Number or name of the axis, which the result lacks.
    statistic : {"max", "min", "mean", "sum", "std", "median", "argmax"}
        What NumPy's function of that name makes of the whole array. "median" needs the axis at once.
    **kwargs
        See `crop`. ``dtype`` is by default that of NumPy's function: float64 for means of integers.

    Returns
    -------
    Array or Image
        The projection.

    Raises
    ------
    ValueError
        If there is no such axis or statistic, or the axis has no elements.

    See Also
    --------
    reduce_blocks : for other functions, along several axes.

    Examples
    --------
    >>> import gzarr, gzarr.images, numpy as np
    >>> z = gzarr.array(np.arange(24).reshape(2, 3, 4), chunks=(1, 3, 4))
    >>> gzarr.images.project(z, None, 1, "mean")[...]
    array([[ 4.,  5.,  6.,  7.],
           [16., 17., 18., 19.]])
    """
    check_keywords(kwargs, ResultKeywords, project)
    (source,) = on_device("project", [image], kwargs.get("device"), kwargs.get("max_device_nbytes"))
    along = axis_of(axis, "axis", source.ndim, names_of_axes(image))
    n = source.shape[along]
    if statistic not in _METHODS or not n:
        raise ValueError(f"project: statistic={statistic!r} of {n} elements; expected one of {', '.join(_METHODS)}")
    kept = tuple(number for number in range(source.ndim) if number != along)
    step = n if statistic == "median" else min(source.chunks[along], n)

    def across(region: Region, start: int, stop: int) -> Region:
        return (*region[:along], slice(start, stop), *region[along:])

    def compute(region: Region, _boxes: Sequence[Box], blocks: list[AnyArray]) -> AnyArray:
        xp, way = array_namespace(blocks[0]), _WAYS.get(statistic)
        if way is None:
            return xp.median(blocks[0], axis=along)
        made = way.begin(xp, blocks.pop(), 0, along)
        for start in range(step, n, step):
            block = source[across(region, start, min(start + step, n))]
            made = way.join(xp, made, way.begin(xp, block, start, along))
        return way.end(xp, made, n)

    mapping = BoxMapping(
        name="project",
        sources=[source],
        template=image,
        shape=tuple(source.shape[number] for number in kept),
        boxes=lambda region: [(0, across(region, 0, step))],  # `compute` reads the other parts of the axis
        needs=lambda region: [(0, across(region, 0, n))],
        compute=compute,
        axes=kept,
        dtype=_kind(source.dtype, statistic) if source.dtype.kind in "fc" else None,
        chunk=tuple(source.chunks[number] for number in kept),
        arguments={"axis": along, "statistic": statistic},
        keeps_fill=not fill_of(source),
    )
    return write_result(mapping, out, kwargs)
