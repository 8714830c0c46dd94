"""Results whose elements are displaced by a field."""

from typing import Any, Unpack

import numpy as np

from gzarr.api.namespaces import array_namespace, scipy_namespace
from gzarr.backend import Array as AnyArray
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.options import check_keywords
from gzarr.images.filters.results import BoxMapping, ResultKeywords, on_device, write_result
from gzarr.images.image import Image
from gzarr.images.transforms.sampling import Mode, Sampler, check_sampler
from gzarr.indexing.regions import Region

#: Blocks are cut while their points lie in a box of more than so many times their elements, without what splines need.
_MOST_OF_BOX = 8


def warp(
    image: Array | Image,
    out: Any,
    displacement: Array,
    *,
    order: int = 1,
    mode: Mode = "constant",
    cval: Any = 0,
    **kwargs: Unpack[ResultKeywords],
) -> Array | Image:
    """Move the elements of an array by a field of displacements.

    Element ``o`` of the result is that of the input at ``o + displacement[:, o]``, as
    `scipy.ndimage.map_coordinates` interpolates it.

    Parameters
    ----------
    image : Array or Image
        The input; of an image, level 0.
    out : Array, Image, path or Store
        Where the result goes: see `map_overlap`.
    displacement : Array
        In elements of the input: of shape (n, ...), one field for each of the n axes, of the shape of the result.
    order, mode, cval
        See `affine`.
    **kwargs
        See `crop`.

    Returns
    -------
    Array or Image
        The result, of the shape of the fields.

    Examples
    --------
    >>> import gzarr, gzarr.images, numpy as np
    >>> z = gzarr.array(np.arange(4.0))
    >>> gzarr.images.warp(z, None, gzarr.array(np.array([[0.5, 0.5, 0.5, 0.0]])))[...]
    array([0.5, 1.5, 2.5, 3. ])
    """
    check_keywords(kwargs, ResultKeywords, warp)
    sources = on_device("warp", [image, displacement], kwargs.get("device"), kwargs.get("max_device_nbytes"))
    source, field = sources
    if field.ndim != source.ndim + 1 or field.shape[0] != source.ndim or not source.size:
        raise ValueError(
            f"warp: displacement has shape {field.shape}, the input {source.shape}; expected ({source.ndim}, ...), a "
            "field for each axis"
        )
    dtype = np.dtype(kwargs.get("dtype") or source.dtype)
    sampler = Sampler(shape=source.shape, order=order, mode=mode, cval=cval)
    check_sampler("warp", sampler)
    mapping = BoxMapping(
        name="warp",
        sources=sources,
        template=image,
        shape=field.shape[1:],
        boxes=lambda region: [(1, (slice(0, source.ndim), *region))],
        compute=lambda region, _boxes, blocks: _warped(source, sampler, dtype, region, blocks[0]),
        dtype=dtype,
        chunk=field.chunks[1:],
        halo=(sampler.margin,) * source.ndim if order > 1 else (),
        arguments={"sampler": list(sampler.keywords.values())},
    )
    return write_result(mapping, out, kwargs)


def _warped(source: Array, sampler: Sampler, dtype: np.dtype[Any], region: Region, field: AnyArray) -> AnyArray:
    """A block of the result, in halves if the box that it needs is much larger."""
    xp, ndim = array_namespace(field), source.ndim
    where = field.astype(np.float64)
    for axis, part in enumerate(region):
        steps = xp.arange(part.start, part.stop, dtype=np.float64)
        where[axis] += steps.reshape([-1 if n == axis else 1 for n in range(ndim)])
    flat = where.reshape(ndim, -1)
    low, high = (np.array(end.tolist()) for end in (flat.min(1), flat.max(1)))
    box, spread = sampler.box(low, high), np.prod(np.minimum(high - low, source.shape) + 1)
    longest = max(range(ndim), key=lambda axis: where.shape[axis + 1])
    n = where.shape[longest + 1]
    if n > 1 and spread > _MOST_OF_BOX * max(flat.shape[1], 1 << 15):
        start, lead = region[longest].start, (slice(None),) * (longest + 1)
        parts = []
        for half in (slice(0, n // 2), slice(n // 2, n)):
            there = (*region[:longest], slice(start + half.start, start + half.stop), *region[longest + 1 :])
            parts.append(_warped(source, sampler, dtype, there, field[(*lead, half)]))
        return xp.concatenate(parts, axis=longest)
    for axis, part in enumerate(box):
        where[axis] -= part.start
    return scipy_namespace(field).ndimage.map_coordinates(source[box], where, output=dtype, **sampler.keywords)
