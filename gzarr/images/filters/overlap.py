"""`map_overlap` and `map_blocks`: a function applied to blocks of large arrays, with halos, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any, TypedDict, Unpack

import numpy as np

from gzarr.cpu.threads import thread_count
from gzarr.display.progress import ProgressLike, counted
from gzarr.dtypes import parse_dtype
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.options import check_keywords
from gzarr.identity.runs import Resume, identify
from gzarr.images.filters.inputs import Applied, check_result, computing, parse_block, parse_inputs
from gzarr.images.filters.outputs import (
    OutputKind,
    check_output,
    multiscale_like,
    new_output,
    output_build,
    result_of,
)
from gzarr.images.filters.where import telling
from gzarr.images.halo.blockwise import BlockwiseJob, done_groups, run_blockwise
from gzarr.images.halo.boundary import Depth, check_cval, parse_depths, parse_modes
from gzarr.images.halo.choosing import make_plan, plan_again
from gzarr.images.halo.dry_run import DryRun, dry_run
from gzarr.images.halo.planning import BlockwisePlan, Bounds, Costs, Geometry
from gzarr.images.image import Image
from gzarr.images.pyramid.building import Build
from gzarr.images.pyramid.cascade import unit_of
from gzarr.images.pyramid.device_memory import left_nbytes
from gzarr.images.pyramid.downsample import Method
from gzarr.images.pyramid.levels import Factors
from gzarr.images.pyramid.making import check_apart
from gzarr.images.pyramid.recipes import Recipe
from gzarr.images.shown import show_values
from gzarr.images.tasks import limit_of, with_memory

#: Blocks that are computed at once on a device: one while the one before is written.
DEVICE_WORKERS = 2
#: The part of the memory that is left to what waits for other blocks, of a pyramid: one of so many.
_PENDING_SHARE = 8


class BlockKeywords(TypedDict, total=False):
    """Keywords of `map_overlap` that `map_blocks` takes."""

    block: Any
    dtype: Any
    max_nbytes: int | None
    max_device_nbytes: int | None
    levels: int | None
    factors: Factors
    method: Method | None
    skip: Any
    resume: Resume
    overwrite: bool
    progress: ProgressLike
    device: str | None


def map_overlap(
    func: Callable[..., Any],
    inputs: Array | Image | Sequence[Array | Image],
    out: Any,
    depth: Any,
    boundary: Any = "reflect",
    *,
    cval: Any = 0,
    block: Any = None,
    dtype: Any = None,
    max_nbytes: int | None = None,
    max_device_nbytes: int | None = None,
    levels: int | None = None,
    factors: Factors = None,
    method: Method | None = None,
    skip: Any = None,
    resume: Resume = False,
    overwrite: bool = False,
    progress: ProgressLike = None,
    device: str | None = None,
) -> Array | Image:
    """Apply a function to blocks of an array that overlap, and store the results: filters of arrays of any size.

    The result is that of the function applied to the whole array, if no element of it depends on elements further away
    than ``depth``. Blocks are as large as the memory allows, and hardly any chunk is decoded twice.

    Parameters
    ----------
    func : callable
        Called with a block of every input, with its halo: NumPy arrays, or CuPy arrays on a device, which must not be
        changed. Returns an array of their shape. Several threads call it at once, and it is called on one block first,
        to see how much memory it needs. If it has a parameter ``where``, it is told where the block lies: see `Where`.
    inputs : Array, Image or sequence of these
        The arrays, of one shape; of an image, level 0. Data types and chunks may differ.
    out : Array, Image, path or Store
        Where the result is stored. Of an image, all levels are made in the same pass. A path makes an array or an image
        like the first input, with its chunks, shards and compressors; None makes it in memory.
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

    Returns
    -------
    Array or Image
        The output.

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
    """
    given = parse_inputs("map_overlap", func, inputs, device, max_device_nbytes)
    first = given.sources[0]
    depths = parse_depths(depth, first.ndim, given.axes)
    modes = parse_modes(boundary, first.ndim, given.axes)
    check_cval(cval, [source.dtype for source in given.sources], modes)
    wanted = None if block is None else parse_block(block, given)
    recipe = Recipe(
        levels,
        factors,
        method,
        left_nbytes(first.backend, max_nbytes, max_device_nbytes),
        resume,
        overwrite,
        progress,
        skip=skip,
        name=given.name,
        run=identify(
            given.name,
            resume,
            functions={"func": func},
            inputs={str(number): source for number, source in enumerate(given.sources)},
            arguments={
                "depth": depths,
                "boundary": modes,
                "cval": cval,
                "dtype": dtype and str(parse_dtype(dtype).dtype),
            },
        ),
    )
    if skip is not None and not isinstance(out, Image) and not isinstance(given.template, Image):
        raise ValueError(f"{given.name}: skip= is of the pyramid of an image, but the output is an array; leave it out")
    output = out if isinstance(out, (Array, Image)) else None
    if output is not None:
        check_output(given.name, output, first.shape, given.sources)
    for source in given.sources if output is None and overwrite else ():
        check_apart(source, out)
    trial = None if 0 in first.shape else dry_run(_trying(given, depths), given.sources, depths)
    stored = _dtype_of(given, trial, dtype) if output is None else output.dtype
    geometry = Geometry(
        shape=first.shape, depth=depths, modes=modes, factors=(1,) * first.ndim, unit=unit_of(first), cval=cval
    )
    if trial is not None:
        check_result(trial.result, trial.shape, stored, f"{given.name}: func", "the trial")
    if output is None:
        if trial is not None:  # nothing is created that cannot be filled
            _plan(given, geometry, trial, stored, recipe.max_nbytes, wanted)
        kind = OutputKind(
            given.template, stored, first.shape, tuple(range(first.ndim)), multiscale_like(given.template, stored)
        )
        output = new_output(kind, out, recipe)
    output = output.to(first.backend)
    if trial is None:
        return output
    build = output_build(output, recipe)
    with build.writing():
        _fill(given, build, replace(geometry, unit=build.cascade.unit), trial, wanted)
    made = result_of(build)
    return show_values(made, missing=build.cascade.missing[0]) if isinstance(made, Image) else made


def _trying(given: Applied, depths: Sequence[Depth]) -> Callable[..., Any]:
    """The function, called with the block at the begin of the array."""
    call = telling(given.func, given.template)

    def trying(*blocks: Any) -> Any:
        return call(
            tuple(slice(d.before, n - d.after) for n, d in zip(blocks[0].shape, depths, strict=True)), depths, *blocks
        )

    return trying


def _fill(given: Applied, build: Build, geometry: Geometry, trial: DryRun, block: tuple[int, ...] | None) -> None:
    """Compute everything that is not done. block: the shape of blocks, if it is given."""
    target, cascade, max_nbytes = build.levels[0], build.cascade, build.recipe.max_nbytes
    pending = 0 if build.multiscale is None else limit_of(max_nbytes) // _PENDING_SHARE
    costs, plan = _plan(given, geometry, trial, target.dtype, max_nbytes, block, pending)
    marks = build.begin(plan.to_json())
    if marks.n_done:
        grids = [source.metadata.chunk_grid for source in given.sources]
        plan = plan_again(geometry, grids, costs, marks.plan)
    limit = limit_of(max_nbytes, plan.nbytes + pending)
    name = with_memory(str(target.store_path), max_nbytes, limit)
    with counted(build.recipe.progress, target.nbytes) as add:

        def tell(group: Bounds) -> None:
            add(prod(stop - start for start, stop in group) * target.itemsize, name)

        job = BlockwiseJob(
            sources=given.sources,
            compute=computing(given, geometry.depth, target.dtype),
            put=cascade.put,
            geometry=geometry,
            costs=costs,
            plan=plan,
            dtype=target.dtype,
            max_nbytes=limit,
            pending=lambda: cascade.pending_nbytes,
            marks=marks,
            tell=tell,
        )
        done = done_groups(job) if marks.n_done else []
        for group in done:
            tell(group)
        build.restore([tuple(slice(*bounds) for bounds in group) for group in done])
        run_blockwise(job)


def _plan(
    given: Applied,
    geometry: Geometry,
    trial: DryRun,
    dtype: np.dtype[Any],
    max_nbytes: int | None,
    block: tuple[int, ...] | None,
    pending: int = 0,
) -> tuple[Costs, BlockwisePlan]:
    """Plan the blocks. pending: bytes of memory for other things. Raises: ValueError if what is left is too little."""
    costs = Costs(
        itemsizes=tuple(source.itemsize for source in given.sources),
        out_itemsize=dtype.itemsize,
        block_nbytes=trial.block_nbytes,
        workers=thread_count() if given.on_host else DEVICE_WORKERS,
        windows=2 if given.reads_ahead else 1,
        max_nbytes=limit_of(max_nbytes) - pending,
        grows=max_nbytes is None,
    )
    return costs, make_plan(geometry, [source.metadata.chunk_grid for source in given.sources], costs, block)


def map_blocks(
    func: Callable[..., Any],
    inputs: Array | Image | Sequence[Array | Image],
    out: Any,
    **kwargs: Unpack[BlockKeywords],
) -> Array | Image:
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
    return map_overlap(func, inputs, out, 0, **kwargs)


def _dtype_of(given: Applied, trial: DryRun | None, dtype: Any) -> np.dtype[Any]:
    """Data type of a new output."""
    if dtype is not None:
        return parse_dtype(dtype).dtype
    made: np.dtype[Any] = given.sources[0].dtype if trial is None else getattr(trial.result, "dtype", np.dtype("f8"))
    return made
