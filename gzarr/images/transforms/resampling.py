"""Interpolated results: affine transformations, other voxel sizes, the grid of another image, displacements."""

from collections.abc import Mapping, Sequence
from math import cos, radians, sin
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gzarr.api.namespaces import array_namespace
from gzarr.backend import Array as AnyArray
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.options import check_keywords
from gzarr.hierarchy.reductions import fill_of
from gzarr.images.filters.results import Box, BoxMapping, ResultKeywords, on_device, write_result
from gzarr.images.halos import axis_of, per_axis
from gzarr.images.image import Image
from gzarr.images.ome.axes import unit_factor
from gzarr.images.ome.transformations import Transformation
from gzarr.images.transforms.reshaping import names_of_axes, placed_of
from gzarr.images.transforms.sampling import AffineSampler, Mode, Sampler, cast_to, check_sampler
from gzarr.indexing.regions import Region

#: What takes the middle between two elements to the second one, whatever the rounding.
_TIE = 1e-9


def affine(
    image: Array | Image,
    out: Any,
    matrix: ArrayLike,
    offset: float | Sequence[float] = 0.0,
    *,
    shape: Sequence[int] | None = None,
    order: int = 1,
    mode: Mode = "constant",
    cval: Any = 0,
    **kwargs: Unpack[ResultKeywords],
) -> Array | Image:
    """Apply an affine transformation to an array or an image of any size.

    Element ``o`` of the result is that of the input at ``matrix @ o + offset``, as `scipy.ndimage.affine_transform` has
    it, with equal values. Blocks of the result read the boxes of the input that they need.

    Parameters
    ----------
    image : Array or Image
        The input; of an image, level 0.
    out : Array, Image, path or Store
        Where the result goes: see `map_overlap`.
    matrix : array_like
        Of shape (n, n), (n,) for a diagonal one, or (n, n + 1) or (n + 1, n + 1) with the offset; n is the number of
        axes, or of an image the number of its axes of space: then the others stay.
    offset : float or sequence of float
        Of the axes of the matrix.
    shape : sequence of int, optional
        Of the result, on the axes of the matrix or on all. By default, that of the input.
    order : int
        Of the spline, from 0 (the nearest element) to 5; 1 is linear.
    mode : {"constant", "nearest"}
        What lies outside: ``cval``, or the nearest element.
    cval : scalar
        Value of "constant".
    **kwargs
        See `crop`.

    Returns
    -------
    Array or Image
        The result. An image has the voxel sizes and the origin of the input.

    Examples
    --------
    >>> import gzarr, gzarr.images, numpy as np
    >>> z = gzarr.array(np.arange(12.0).reshape(3, 4))
    >>> gzarr.images.affine(z, None, [1, 0.5], [0, 0.5])[...]
    array([[ 0.5,  1. ,  1.5,  2. ],
           [ 4.5,  5. ,  5.5,  6. ],
           [ 8.5,  9. ,  9.5, 10. ]])
    """
    check_keywords(kwargs, ResultKeywords, affine)
    ndim, found = image.ndim, np.asarray(matrix, float)
    active = list(range(ndim))
    if isinstance(image, Image) and len(found) < ndim:
        active = list(image.spatial)
    given, moved = _parsed(found, offset, len(active))
    whole, start = np.eye(ndim), np.zeros(ndim)
    whole[np.ix_(active, active)], start[active] = given, moved
    made = list(image.shape)
    if shape is not None:
        wanted = active if len(shape) == len(active) else range(ndim)
        for axis, n in zip(wanted, shape, strict=True):
            made[axis] = int(n)
    sampler = Sampler(shape=image.shape, order=order, mode=mode, cval=cval)
    rounding: Any = "diagonal" if found.ndim == 1 else "matrix"
    where = AffineSampler(sampler, whole, start, tuple(made), rounding)
    return _sampled("affine", image, out, where, placed_of(image), kwargs)


def _parsed(matrix: NDArray[np.float64], offset: Any, n: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The matrix and the offset of n axes. Raises: ValueError."""
    if matrix.shape in ((n, n + 1), (n + 1, n + 1)) and np.isfinite(matrix).all():
        return matrix[:n, :n], matrix[:n, n]
    if matrix.shape not in ((n,), (n, n)) or not np.isfinite(matrix).all():
        raise ValueError(
            f"affine: matrix of shape {matrix.shape} must be of finite numbers, and of {n} axes: of shape {(n,)}, "
            f"{(n, n)}, {(n, n + 1)} or {(n + 1, n + 1)}"
        )
    return np.diag(matrix) if matrix.ndim == 1 else matrix, np.broadcast_to(np.asarray(offset, float), (n,))


def _sampled(
    name: str,
    image: Array | Image,
    out: Any,
    where: AffineSampler,
    placed: Transformation | None,
    given: ResultKeywords,
) -> Array | Image:
    """The input at the points of another grid. placed: where these lie."""
    (source,) = on_device(name, [image], given.get("device"), given.get("max_device_nbytes"))
    sampler = where.sampler
    check_sampler(name, sampler)
    dtype = np.dtype(given.get("dtype") or source.dtype)
    exact = dtype.kind in "iu" and any(sampler.sigma)

    def compute(region: Region, boxes: Sequence[Box], blocks: list[AnyArray]) -> AnyArray:
        made = where.sample(region, boxes[0][1], blocks[0], np.dtype("f8") if exact else dtype)
        return cast_to(array_namespace(made), made, dtype) if exact else made

    steps = np.abs(where.matrix).sum(0)
    mapping = BoxMapping(
        name=name,
        sources=[source],
        template=image,
        shape=where.extent,
        boxes=lambda region: [(0, where.box(region))],
        compute=compute,
        dtype=dtype,
        placed=placed,
        chunk=tuple(max(round(n / max(step, 1e-9)), 1) for n, step in zip(source.chunks, steps, strict=True)),
        halo=tuple(0 if axis in where.passive else sampler.halo(axis) for axis in range(source.ndim)),
        arguments={
            "matrix": where.matrix.tolist(),
            "offset": where.offset.tolist(),
            "rounding": where.rounding,
            "sampler": [*sampler.keywords.values(), sampler.sigma],
        },
        keeps_fill=bool(sampler.mode == "nearest" or fill_of(source) == sampler.cval),
    )
    return write_result(mapping, out, given)


def rescale(
    image: Array | Image,
    out: Any,
    factor: float | Mapping[str, float] | None = None,
    *,
    to: float | Mapping[str, float] | None = None,
    units: str | Mapping[str, str] | None = None,
    order: int = 1,
    anti_aliasing: bool = True,
    **kwargs: Unpack[ResultKeywords],
) -> Array | Image:
    """Change the number of elements along axes of space, with a Gaussian before elements are left out.

    Values are those of `skimage.transform.resize` with ``mode="edge"``. Integers are rounded.

    Parameters
    ----------
    image : Array or Image
        The input; of an image, level 0.
    out : Array, Image, path or Store
        Where the result goes: see `map_overlap`.
    factor : float or mapping, optional
        Elements of the result for one of the input: of all axes of space (of an array, of all), or by axis.
    to : float or mapping, optional
        The voxel size that the result shall have, instead of a factor: ``to=0.5`` makes an image isotropic.
    units : str or mapping, optional
        Unit of ``to``; by default that of the image.
    order : int
        Of the spline, from 0 to 5. With 0, nothing is smoothed: right for labels.
    anti_aliasing : bool
        Whether axes that get fewer elements are smoothed, with a sigma of half the factor less one.
    **kwargs
        See `crop`.

    Returns
    -------
    Array or Image
        The result; an image covers the same space.

    Examples
    --------
    >>> import gzarr.images
    >>> image = gzarr.images.create_image(shape=(20, 64, 64), dtype="u2", scale=(2, 0.5, 0.5), units="micrometer")
    >>> half = gzarr.images.rescale(image, None, to=1.0)
    >>> half.shape, half.scale()
    ((40, 32, 32), {'z': 1.0, 'y': 1.0, 'x': 1.0})
    """
    check_keywords(kwargs, ResultKeywords, rescale)
    factors = _factors(image, factor, to, units)
    made = tuple(max(round(n * f), 1) if n else 0 for n, f in zip(image.shape, factors, strict=True))
    steps = np.array([n / m if m else 1.0 for n, m in zip(image.shape, made, strict=True)])
    sigma = tuple(max((step - 1) / 2, 0.0) if anti_aliasing and order else 0.0 for step in steps.tolist())
    sampler = Sampler(shape=image.shape, order=order, mode="nearest", cval=0, sigma=sigma if any(sigma) else ())
    placed = placed_of(image)
    if placed is not None:
        scale = [s * step for s, step in zip(placed.scale, steps.tolist(), strict=True)]
        moved = [t + s * (step - 1) / 2 for t, s, step in zip(*reversed(placed), steps.tolist(), strict=True)]
        placed = Transformation(tuple(scale), tuple(moved))
    offset = (steps - 1) / 2 + (0 if order else _TIE)
    where = AffineSampler(sampler, np.diag(steps), offset, made, "" if order else "matrix")
    return _sampled("rescale", image, out, where, placed, kwargs)


def _factors(image: Array | Image, factor: Any, to: Any, units: Any) -> list[float]:
    """Elements of the result for one of the input, by axis. Raises: ValueError."""
    if (factor is None) == (to is None):
        raise ValueError("rescale: give factor= or to=, one of them")
    axes = image.spatial if isinstance(image, Image) else range(image.ndim)
    given = factor if to is None else to
    if isinstance(given, (int, float)):
        given = dict.fromkeys(axes, given)
    found = per_axis(given, "factor" if to is None else "to", image.ndim, names_of_axes(image), None)
    if not all(one is None or one > 0 for one in found):
        raise ValueError(f"rescale: numbers > 0 are needed, got {given!r}")
    if to is None:
        return [1.0 if one is None else float(one) for one in found]
    if not isinstance(image, Image):
        raise TypeError(f"rescale: {image.store_path} is an array, which has no voxel sizes; give factor=")
    wanted = {name: 1.0 for name, one in zip(image.axes, found, strict=True) if one is not None}
    if units is not None:
        named = units if isinstance(units, Mapping) else {image.axes[n]: units for n in image.spatial}
        for name, unit in named.items():
            own = image.units[name]
            wanted[name] = unit_factor(unit, own) if own is not None else 1.0
    return [
        1.0 if one is None else scale / (one * wanted[name])
        for one, (name, scale) in zip(found, image.scale().items(), strict=True)
    ]


def resample(
    image: Image,
    out: Any,
    like: Image,
    *,
    order: int = 1,
    mode: Mode = "constant",
    cval: Any = 0,
    **kwargs: Unpack[ResultKeywords],
) -> Array | Image:
    """Interpolate an image at the voxels of another one, by their coordinates.

    Parameters
    ----------
    image : Image
        The input.
    out : Image, path or Store
        Where the result goes: see `map_overlap`.
    like : Image
        Whose voxels are taken on the axes of space, which both have, with units that can be converted.
    order, mode, cval
        See `affine`.
    **kwargs
        See `crop`.

    Returns
    -------
    Image
        The result.

    Examples
    --------
    >>> import gzarr.images, numpy as np
    >>> image = gzarr.images.create_image(data=np.arange(24.0).reshape(4, 6), scale=1.0)
    >>> like = gzarr.images.create_image(shape=(2, 3), dtype="u1", scale=2.0, translation=0.5)
    >>> gzarr.images.resample(image, None, like)[0][...]
    array([[ 3.5,  5.5,  7.5],
           [15.5, 17.5, 19.5]])
    """
    check_keywords(kwargs, ResultKeywords, resample)
    own, other = image.metadata.transformation(0), like.metadata.transformation(0)
    steps, offset, made = np.ones(image.ndim), np.zeros(image.ndim), list(image.shape)
    scale, moved = list(own.scale), list(own.translation)
    for axis in image.spatial:
        name = image.axes[axis]
        if name not in like.axes:
            raise ValueError(f"resample: {like.group.store_path} has no axis {name!r}; its axes are {like.axes}")
        there, units = like.axes.index(name), (like.units[name], image.units[name])
        ratio = unit_factor(*units) if None not in units else 1.0  # type: ignore[arg-type]
        made[axis] = like.shape[there]
        scale[axis], moved[axis] = other.scale[there] * ratio, other.translation[there] * ratio
        steps[axis] = scale[axis] / own.scale[axis]
        offset[axis] = (moved[axis] - own.translation[axis]) / own.scale[axis]
    sampler = Sampler(shape=image.shape, order=order, mode=mode, cval=cval)
    placed = Transformation(tuple(scale), tuple(moved))
    where = AffineSampler(sampler, np.diag(steps), offset, tuple(made))
    return _sampled("resample", image, out, where, placed, kwargs)


def deskew(
    image: Array | Image,
    out: Any,
    angle: float,
    *,
    axis: int | str = "z",
    along: int | str = "y",
    shift: float | None = None,
    order: int = 1,
    **kwargs: Unpack[ResultKeywords],
) -> Array | Image:
    """Straighten a stack that a light sheet scanned at an angle: each plane moves on by what the stage moved sideways.

    Parameters
    ----------
    image : Array or Image
        The stack; of an image, level 0.
    out : Array, Image, path or Store
        Where the result goes: see `map_overlap`.
    angle : float
        Between the sheet and the way of the stage, in degrees.
    axis, along : int or str
        The axis of the planes, and that along which they are moved.
    shift : float, optional
        Elements that a plane moves more than the one before. By default from the voxel sizes of an image: the length
        of a step times the cosine of the angle.
    order : int
        See `affine`.
    **kwargs
        See `crop`.

    Returns
    -------
    Array or Image
        The result, longer along ``along``; what no plane covers is 0. The planes of an image are as far apart as the
        sine of the angle says.

    Examples
    --------
    >>> import gzarr, gzarr.images, numpy as np
    >>> z = gzarr.array(np.ones((3, 2)))
    >>> gzarr.images.deskew(z, None, 45, axis=0, along=1, shift=1)[...]
    array([[1., 1., 0., 0.],
           [0., 1., 1., 0.],
           [0., 0., 1., 1.]])
    """
    check_keywords(kwargs, ResultKeywords, deskew)
    names, placed = names_of_axes(image), placed_of(image)
    planes, sideways = axis_of(axis, "axis", image.ndim, names), axis_of(along, "along", image.ndim, names)
    if shift is None:
        if placed is None:
            raise ValueError("deskew: an array has no voxel sizes; give shift=")
        shift = placed.scale[planes] * cos(radians(angle)) / placed.scale[sideways]
    if planes == sideways or not 0 < angle <= 90 or not np.isfinite(shift):
        raise ValueError(f"deskew: axis={axis!r}, along={along!r}, angle={angle!r}: two axes, and 0 < angle <= 90")
    matrix, offset, made = np.eye(image.ndim), np.zeros(image.ndim), list(image.shape)
    more = abs(shift) * max(image.shape[planes] - 1, 0)
    matrix[sideways, planes], offset[sideways] = -shift, min(shift, 0) * max(image.shape[planes] - 1, 0)
    made[sideways] += int(np.ceil(more - 1e-9))
    if placed is not None:
        scale, moved = list(placed.scale), list(placed.translation)
        scale[planes] *= sin(radians(angle))
        moved[sideways] += offset[sideways] * scale[sideways]
        placed = Transformation(tuple(scale), tuple(moved))
    sampler = Sampler(shape=image.shape, order=order, mode="constant", cval=0)
    return _sampled("deskew", image, out, AffineSampler(sampler, matrix, offset, tuple(made)), placed, kwargs)
