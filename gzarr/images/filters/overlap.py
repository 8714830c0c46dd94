"""`map_overlap` and `map_blocks`: a function applied to blocks of large arrays, with halos, in bounded memory."""

import os
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any, TypeAlias, Unpack, overload

from gzarr.dtypes import parse_dtype
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.options import check_keywords
from gzarr.hierarchy.reductions import fill_of
from gzarr.images.filters.haloed import HaloedBlocks, parse_block, placed_by, result_axes
from gzarr.images.filters.inputs import steps_of
from gzarr.images.filters.results import BoxMapping, ResultKeywords, on_device, write_results
from gzarr.images.filters.where import telling
from gzarr.images.halos import check_cval, parse_depths, parse_modes
from gzarr.images.image import Image
from gzarr.images.ome.axes import new_axis
from gzarr.storage.base import Store


class BlockKeywords(ResultKeywords, total=False):
    """Keywords of `map_overlap` that `map_blocks` takes."""

    block: Any
    scale: Any
    out_shape: Any
    out_axes: Any
    keeps_fill: bool


class OverlapKeywords(BlockKeywords, total=False):
    """Keywords of `map_overlap`."""

    cval: Any


Func: TypeAlias = Callable[..., Any]
Arrays: TypeAlias = Array | Sequence[Array]
Inputs: TypeAlias = Array | Image | Sequence[Array | Image]
OneArray: TypeAlias = Array | Store | str | os.PathLike[str] | None
Several: TypeAlias = list[Any] | tuple[Any, ...]


@overload
def map_overlap(
    func: Func, inputs: Inputs, out: Several, depth: Any, boundary: Any = ..., **kwargs: Unpack[OverlapKeywords]
) -> list[Array | Image]: ...
@overload
def map_overlap(
    func: Func, inputs: Arrays, out: OneArray, depth: Any, boundary: Any = ..., **kwargs: Unpack[OverlapKeywords]
) -> Array: ...
@overload
def map_overlap(
    func: Func, inputs: Inputs, out: Any, depth: Any, boundary: Any = ..., **kwargs: Unpack[OverlapKeywords]
) -> Array | Image: ...
def map_overlap(
    func: Func,
    inputs: Inputs,
    out: Any,
    depth: Any,
    boundary: Any = "reflect",
    *,
    cval: Any = 0,
    block: Any = None,
    scale: Any = 1,
    out_shape: Mapping[Any, int] | None = None,
    out_axes: Sequence[Any] | None = None,
    keeps_fill: bool = False,
    **kwargs: Unpack[ResultKeywords],
) -> Array | Image | list[Array | Image]:
    """Apply a function to blocks of an array that overlap, and store the results: filters of arrays of any size.

    The result is that of the function applied to the whole array, if no element of it depends on elements further away
    than ``depth``. Blocks are as large as the memory allows, and hardly any chunk is decoded twice.

    Parameters
    ----------
    func : callable
        Called with a block of every input, with its halo: NumPy arrays, or CuPy arrays on a device. Returns an array of
        their shape; for several outputs a tuple of arrays. Several threads call it at once, and it is called on one
        block first, to see how much memory it needs. If it has a parameter ``where``, it is told where the block lies:
        see `Where`.
    inputs : Array, Image or sequence of these
        The arrays; of an image, level 0. Others than the first may have fewer axes, or axes of one element, as NumPy
        broadcasts them, or be smaller levels of it, whose elements are repeated. Data types and chunks may differ.
    out : Array, Image, path or Store
        Where the result is stored. Of an image, all levels are made in the same pass. A path makes an array or an image
        like the first input, with its chunks, shards and compressors; None makes it in memory. A list of these for a
        function that returns a tuple. What is made keeps attributes that say where elements lie, such as
        ``grid_mapping``, ``coordinates``, ``crs``, ``proj:code`` and ``spatial:transform``, and of the same data type
        what stands for missing data. Other attributes are not kept, nor places if the shape or the axes change.
    depth : int, sequence or mapping
        Elements that a block reaches into its neighbours: for all axes, for each in turn, or by name or number of the
        axis, otherwise 0. A pair gives those before and after. They may be more than the axis has.
    boundary : str, sequence or mapping
        How the array goes on past its ends, as scipy.ndimage names it: "reflect", "mirror", "nearest", "wrap" or
        "constant"; for all axes, for each in turn, or by axis, otherwise "reflect".
    cval : scalar
        The value of "constant".
    block : int, sequence or mapping, optional
        Shape of the blocks, without halos, where the function works best on some shape.
    scale : float, sequence or mapping
        Elements of the result for one of the input, along each axis: whole numbers, or parts such as 1/2. The function
        then returns a block that is so much larger or smaller.
    out_shape : mapping, optional
        Lengths of axes of the result, by name or number of the axis. Blocks have all of such an axis.
    out_axes : sequence, optional
        The axes of the result, by name or number. Blocks have all of an axis that is left out, and the function returns
        an array without it. New names are new axes, whose lengths ``out_shape`` has.
    keeps_fill : bool
        Whether the function makes nothing but the fill value of it, so that chunks that are not stored cost nothing.
    dtype : dtype-like, optional
        Data type of the array that a path makes. By default that of what the function returns.
    max_nbytes : int, optional
        Memory for everything: blocks, results, and what the function takes for itself. By default 256 MiB, or what one
        block needs if that is more, as progress then says: a shard of the output is written whole.
    max_device_nbytes : int, optional
        On a device, memory for everything, decoding and encoding included. By default ``max_nbytes``, besides what
        the arrays were opened with for decoding and encoding.
    levels, factors, method : optional
        Of an image's pyramid: see `build_pyramid`. By default those that the image has; for one without, as there.
    skip : number, array of bool or False, optional
        Elements of the output that the pyramid leaves out: see `build_pyramid`. The function gets all elements. By
        default what the output records as missing data; an image that a path makes records what the first input does,
        if it has the same data type.
    resume : bool or str
        Whether to go on with a call that was interrupted: it needs the same function, inputs and arguments, else it is
        refused. At most one block of each thread is computed again. Functions are compared by their code, defaults,
        closures and the globals that they refer to. For one that cannot be compared, give a text that stands for it,
        from the first call on: ``resume="sigma 2"``.
    overwrite : bool
        Whether to replace what is at a path.
    progress : bool or callable, optional
        True for a bar, or a function of (bytes done, bytes in all, name).
    device : str, optional
        Where the function runs: "auto", "cpu", "cuda" or "cuda:N". By default where the first input is read to.
    on : optional
        What computes blocks, such as a `distributed.Client`, each in ``max_nbytes``: see `gzarr.transfer`. Levels of an
        image are made after level 0.
    part : (int, int), optional
        Do part k of n of a job, ``(k, n)``: see `gzarr.transfer`. The last part to end completes the output.

    Returns
    -------
    Array or Image
        The output, or a list of them.

    Raises
    ------
    ContainsNodeError
        If something is at a path, or an unfinished call there was of another function, input or argument.
    ValueError
        If shapes differ, the output overlaps an input, ``max_nbytes`` is too little, the function returns another shape
        or data type, or cannot be compared with that of an unfinished call.
    ChunkError
        If a stored chunk is damaged.
    StoreError
        If a store cannot be read or written. What was written before stays.

    Examples
    --------
    >>> import gzarr, gzarr.images, numpy as np
    >>> z = gzarr.array(np.arange(12).reshape(3, 4), chunks=(2, 2))
    >>> out = gzarr.images.map_overlap(lambda x: x + np.roll(x, 1, axis=1), z, None, depth={1: 1})
    >>> out[...]
    array([[ 0,  1,  3,  5],
           [ 8,  9, 11, 13],
           [16, 17, 19, 21]])

    The mean of an axis, which the result lacks, and two results at once:

    >>> gzarr.images.map_overlap(lambda x: x.mean(1), z, None, 0, out_axes=[0])[...]
    array([1.5, 5.5, 9.5])
    >>> low, high = gzarr.images.map_blocks(lambda x: (x < 6, x > 6), z, [None, None])
    >>> int(low[...].sum()), int(high[...].sum())
    (6, 5)
    """
    check_keywords(kwargs, ResultKeywords, map_overlap)
    if not callable(func):
        raise TypeError(f"func must be callable, got {type(func).__name__}")
    given: list[Any] = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    if not given:
        raise ValueError("inputs: there is no input; give an array or an image")
    sources = on_device("map_overlap", given, kwargs.get("device"), kwargs.get("max_device_nbytes"))
    first, template = sources[0], given[0]
    if not first.ndim:
        raise ValueError(f"inputs: {first.store_path} has no axes")
    names = template.axes if isinstance(template, Image) else first.dimension_names
    depths, modes = parse_depths(depth, first.ndim, names), parse_modes(boundary, first.ndim, names)
    check_cval(cval, [source.dtype for source in sources], modes)
    axes = result_axes(first, names, scale, dict(out_shape or {}), out_axes)
    wanted = None if block is None else parse_block(block, axes, names)
    steps = [steps_of("inputs", source, first) for source in sources]
    blocks = HaloedBlocks(telling(func, template), first.shape, steps, depths, modes, cval, axes)
    dtype = kwargs.get("dtype") and parse_dtype(kwargs["dtype"]).dtype
    for axis in axes:
        if axis.source is not None and any(n * axis.scale % 1 for n in depths[axis.source]):
            raise ValueError(f"depth {depth!r} must be a multiple of {1 / axis.scale} where scale= is less than 1")
    halo = tuple(0 if axis.source is None else int(max(depths[axis.source]) * axis.scale) for axis in axes)
    changed = any(axis.source != n or axis.length != first.shape[n] for n, axis in enumerate(axes))
    unit = tuple(axis.length if axis.is_whole else 1 for axis in axes)
    mapping = BoxMapping(
        name="map_overlap",
        sources=sources,
        template=template,
        shape=tuple(axis.length for axis in axes),
        boxes=blocks.boxes,
        compute=blocks.compute,
        axes=tuple(axis.source for axis in axes),
        dtype=dtype,
        placed=placed_by(template, axes) if changed and isinstance(template, Image) else None,
        new_axes=[new_axis(axis.name) for axis in axes if axis.source is None and axis.name],
        kept_channels=() if changed and any(axis.is_channel(template) for axis in axes) else None,
        chunk=tuple(
            1 if axis.is_whole or halo[n] else max(ceil(first.chunks[axis.source] * axis.scale), 1)  # type: ignore[index]
            for n, axis in enumerate(axes)
        ),
        halo=halo if any(halo) else (),
        functions={"func": func},
        arguments={"depth": depths, "boundary": modes, "cval": cval, "axes": [str(axis) for axis in axes]},
        keeps_fill=keeps_fill and ("constant" not in modes or all(bool(fill_of(one) == cval) for one in sources)),
        unit=wanted or (unit if any(axis.is_whole for axis in axes) else None),
        block=wanted,
        keeps_place=not changed,
        casts=False,
    )
    several = isinstance(out, (list, tuple))
    made = write_results(mapping, list(out) if several else [out], kwargs)
    return made if several else made[0]


@overload
def map_blocks(func: Func, inputs: Inputs, out: Several, **kwargs: Unpack[BlockKeywords]) -> list[Array | Image]: ...
@overload
def map_blocks(func: Func, inputs: Arrays, out: OneArray, **kwargs: Unpack[BlockKeywords]) -> Array: ...
@overload
def map_blocks(func: Func, inputs: Inputs, out: Any, **kwargs: Unpack[BlockKeywords]) -> Array | Image: ...
def map_blocks(
    func: Func, inputs: Inputs, out: Any, **kwargs: Unpack[BlockKeywords]
) -> Array | Image | list[Array | Image]:
    """Apply a function to blocks of an array, element by element say, and store the results.

    Parameters
    ----------
    func : callable
        Called with a block of every input; returns an array of their shape. See `map_overlap`.
    inputs : Array, Image or sequence of these
        The arrays, of one shape; of an image, level 0.
    out : Array, Image, path or Store
        Where the result is stored: see `map_overlap`.
    **kwargs
        The other keywords of `map_overlap`, without ``depth``, ``boundary`` and ``cval``.

    Returns
    -------
    Array or Image
        The output.

    Examples
    --------
    >>> import gzarr, gzarr.images
    >>> z = gzarr.array([[1, 2], [3, 4]])
    >>> gzarr.images.map_blocks(lambda x: x > 2, z, None)[...]
    array([[False, False],
           [ True,  True]])
    """
    check_keywords(kwargs, BlockKeywords, map_blocks)
    made: Array | Image | list[Array | Image] = map_overlap(func, inputs, out, 0, **kwargs)
    return made
