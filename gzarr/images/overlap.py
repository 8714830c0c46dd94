"""`map_overlap` and `map_blocks`: a function applied to blocks of large arrays, with halos, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from gzarr.backend import Array as AnyArray
from gzarr.backend import Backend
from gzarr.cpu.threads import thread_count
from gzarr.display.progress import ProgressLike, counted
from gzarr.dtypes import parse_dtype
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.node import lies_within
from gzarr.images.boundary import Depth, check_cval, parse_depths, parse_modes, per_axis
from gzarr.images.building import MAX_NBYTES
from gzarr.images.device_memory import left_nbytes, sharing
from gzarr.images.downsample import Method
from gzarr.images.dry_run import Trial, dry_run
from gzarr.images.image import Image
from gzarr.images.levels import Factors
from gzarr.images.outputs import Options, Output, Writing, new_output
from gzarr.images.planning import Bounds, Costs, Geometry, make_plan, plan_again
from gzarr.images.walk import Walk, done_groups, walk

#: Blocks that are computed at once on a device: one while the one before is written.
DEVICE_WORKERS = 2
#: The part of the memory that is left to what waits for other blocks, of a pyramid: one of so many.
_PENDING_SHARE = 8


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
    max_nbytes: int = MAX_NBYTES,
    max_device_nbytes: int | None = None,
    levels: int | None = None,
    factors: Factors = None,
    method: Method | None = None,
    resume: bool = False,
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
        to see how much memory it needs.
    inputs : Array, Image or sequence of these
        The arrays, of one shape; of an image, level 0. Data types and chunks may differ.
    out : Array, Image, path or Store
        Where the result is stored. Of an image, all levels are made in the same pass. A path makes an array or an image
        like the first input, with its chunks, shards and compressors; None makes it in memory.
    depth : int, sequence or mapping
        Elements that a block reaches into its neighbours: for all axes, for each in turn, or by name or number of the
        axis, otherwise 0. A pair gives those before and after.
    boundary : str, sequence or mapping
        How the array goes on past its ends, as scipy.ndimage names it: "reflect", "mirror", "nearest", "wrap" or
        "constant"; for all axes, for each in turn, or by axis, otherwise "reflect".
    cval : scalar
        The value of "constant".
    block : int, sequence or mapping, optional
        Shape of the blocks, without halos, where the function works best on some shape.
    dtype : dtype-like, optional
        Data type of the array that a path makes. By default that of what the function returns.
    max_nbytes : int
        Memory for everything: blocks, results, and what the function takes for itself.
    max_device_nbytes : int, optional
        On a device, memory for everything, decoding and encoding included. By default ``max_nbytes``, besides what
        the arrays were opened with for decoding and encoding.
    levels, factors, method : optional
        Of an image's pyramid: see `build_pyramid`. By default those that the image has; for one without, as there.
    resume : bool
        Whether to go on with a call that was interrupted: it needs the same arguments. At most one block of each thread
        is computed again.
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
        If something is at a path, or an unfinished call there is another one.
    ValueError
        If shapes differ, a depth is not smaller than its axis, the output overlaps an input, the memory is too little,
        or the function returns another shape or data type.
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
    given = _given("map_overlap", func, inputs, device, max_device_nbytes)
    first = given.sources[0]
    depths = parse_depths(depth, first.shape, given.axes)
    modes = parse_modes(boundary, first.ndim, given.axes)
    check_cval(cval, [source.dtype for source in given.sources], modes)
    wanted = None if block is None else _block(block, given)
    trial = None if 0 in first.shape else dry_run(func, given.sources, depths)
    options = Options(
        name=given.name,
        arguments=(given.described, depths, modes, cval),
        resume=resume,
        overwrite=overwrite,
        levels=levels,
        factors=factors,
        method=method,
    )
    output = _output(given, out, _dtype_of(given, trial, dtype), options)
    if trial is None:
        return output.image or output.array
    _check_result(trial.result, trial.shape, output.array.dtype, f"{given.name}: func", "the trial")
    with output.open() as writing:
        geometry = Geometry(shape=first.shape, depth=depths, modes=modes, factors=(1,) * first.ndim, unit=writing.unit)
        limit = left_nbytes(first.backend, max_nbytes, max_device_nbytes)
        _fill(given, writing, geometry, (trial, wanted, cval), limit, progress)
    return writing.result


def _fill(
    given: _Given,
    writing: Writing,
    geometry: Geometry,
    how: tuple[Trial, tuple[int, ...] | None, Any],
    max_nbytes: int,
    progress: ProgressLike,
) -> None:
    """Compute everything that is not done. how: the trial of the function, the shape of blocks, and `cval`."""
    (trial, block, cval), target = how, writing.array
    pending = 0 if writing.build is None else max_nbytes // _PENDING_SHARE
    costs = Costs(
        itemsizes=tuple(source.itemsize for source in given.sources),
        out_itemsize=target.itemsize,
        block_nbytes=trial.block_nbytes,
        workers=thread_count() if given.on_host else DEVICE_WORKERS,
        windows=2 if given.reads_ahead else 1,
        max_nbytes=max_nbytes - pending,
    )
    grids = [source.metadata.chunk_grid for source in given.sources]
    plan = make_plan(geometry, grids, costs, block)
    marks = writing.begin(plan.to_json())
    if marks.n_done:
        plan = plan_again(geometry, grids, costs, marks.plan)
    with counted(progress, target.nbytes) as add:

        def tell(group: Bounds) -> None:
            add(prod(stop - start for start, stop in group) * target.itemsize, target.store_path)

        def finished(number: int, group: Bounds) -> None:
            marks.note(number)
            tell(group)

        job = Walk(
            sources=given.sources,
            compute=_Compute(given, geometry.depth, target.dtype),
            put=writing.put,
            geometry=geometry,
            plan=plan,
            dtype=target.dtype,
            workers=costs.workers,
            max_nbytes=max_nbytes,
            pending=writing.pending,
            cval=cval,
            ahead=given.reads_ahead,
            is_done=marks.is_done,
            finished=finished,
        )
        done = done_groups(job) if marks.n_done else []
        for group in done:
            tell(group)
        writing.restore(done)
        walk(job)


def map_blocks(
    func: Callable[..., Any], inputs: Array | Image | Sequence[Array | Image], out: Any, **options: Any
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
    **options
        The other arguments of `map_overlap`, but for ``depth``, ``boundary`` and ``cval``.

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
    return map_overlap(func, inputs, out, 0, **options)


class _Given(NamedTuple):
    """What is applied to what.

    Attributes
    ----------
    name : str
        Of the function that was called, for messages.
    func : callable
        The user's function.
    sources : list[Array]
        The inputs, on one device.
    template : Array or Image
        The first input: what a new output is like.
    """

    name: str
    func: Callable[..., Any]
    sources: list[Array]
    template: Array | Image

    @property
    def axes(self) -> Sequence[str | None] | None:
        """Names of the axes."""
        return self.template.axes if isinstance(self.template, Image) else self.template.dimension_names

    @property
    def described(self) -> tuple[Any, ...]:
        """The function and the inputs, as far as another process can compare them."""
        name = getattr(self.func, "__qualname__", type(self.func).__qualname__)
        return name, [(source.shape, str(source.dtype), source.chunks) for source in self.sources]

    @property
    def on_host(self) -> bool:
        """Whether the function gets NumPy arrays on the host."""
        return self.sources[0].backend is self.sources[0].backend.host

    @property
    def reads_ahead(self) -> bool:
        """Whether the next layer is read while one is computed: it pays where threads would wait."""
        return not self.on_host or any(source.store.concurrency > 1 for source in self.sources)


def _given(
    name: str, func: Callable[..., Any], inputs: Any, device: str | None, max_device_nbytes: int | None
) -> _Given:
    if not callable(func):
        raise TypeError(f"{name}: func must be callable, got {type(func).__name__}")
    given = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    if not given:
        raise ValueError(f"{name}: there is no input")
    sources = [one.levels[0] if isinstance(one, Image) else one for one in given]
    for source in sources:
        if not isinstance(source, Array):
            raise TypeError(
                f"{name}: inputs must be gzarr arrays, got {type(source).__name__}; open it with gzarr.open_array, "
                "or put it into gzarr.array"
            )
        if source.shape != sources[0].shape:
            raise ValueError(
                f"{name}: {source.store_path} has shape {source.shape}, but {sources[0].store_path} has "
                f"{sources[0].shape}; inputs must have one shape"
            )
    if not sources[0].ndim:
        raise ValueError(f"{name}: {sources[0].store_path} has no axes")
    moved = sources[0].to(sharing(device or sources[0].backend, max_device_nbytes))
    return _Given(name, func, [moved, *(source.to(moved.backend) for source in sources[1:])], given[0])


class _Compute:
    """Calls the function for a block, and checks what it returns."""

    def __init__(self, given: _Given, depths: Sequence[Depth], dtype: np.dtype[Any]) -> None:
        self._given, self._depths, self._dtype = given, depths, dtype

    def __call__(self, block: Bounds, views: list[AnyArray]) -> AnyArray:
        """A block of the output, from the inputs with halos."""
        where = "the block " + "[" + ", ".join(f"{start}:{stop}" for start, stop in block) + "]"
        try:
            result = self._given.func(*views)
        except Exception as error:
            error.add_note(f"{self._given.name}: in {where} of {self._given.sources[0].store_path}")
            raise
        _check_result(result, views[0].shape, self._dtype, f"{self._given.name}: func", where)
        return result[
            tuple(
                slice(before, before + stop - start)
                for (start, stop), (before, _) in zip(block, self._depths, strict=True)
            )
        ]


def _check_result(result: Any, shape: tuple[int, ...], dtype: np.dtype[Any], what: str, where: str) -> None:
    if not hasattr(result, "shape") or not hasattr(result, "dtype"):
        raise TypeError(f"{what} returned {type(result).__name__} for {where}, expected an array")
    if tuple(result.shape) != shape:
        raise ValueError(
            f"{what} returned shape {tuple(result.shape)} for {where}, expected that of its input, {shape}"
        )
    if result.dtype != dtype:
        raise ValueError(
            f"{what} returned {result.dtype} for {where}, but the output is of {dtype}; convert the result, as by "
            "result.astype, or give dtype= and a path"
        )


def _dtype_of(given: _Given, trial: Trial | None, dtype: Any) -> np.dtype[Any]:
    """Data type of a new output."""
    if dtype is not None:
        return parse_dtype(dtype).dtype
    made: np.dtype[Any] = given.sources[0].dtype if trial is None else getattr(trial.result, "dtype", np.dtype("f8"))
    return made


def _output(given: _Given, out: Any, dtype: np.dtype[Any], options: Options) -> Output:
    """The output, made if it is a path."""
    first = given.sources[0]
    if not isinstance(out, (Array, Image)):
        made = new_output(given.template, out, dtype, options)
        return _on(made, first.backend)
    image = out if isinstance(out, Image) else None
    levels = out.levels if isinstance(out, Image) else (out,)
    if levels[0].shape != first.shape:
        raise ValueError(
            f"{given.name}: the output {levels[0].store_path} has shape {levels[0].shape}, but the input {first.shape}"
        )
    for source, level in product(given.sources, levels):
        if lies_within(source.store, source.path, level.store, level.path):
            raise ValueError(
                f"{given.name}: the output {level.store_path} is an input, and would be read after it was written; "
                "give another output"
            )
    levels[0].check_writable()
    return _on(Output(array=levels[0], image=image, options=options), first.backend)


def _on(output: Output, backend: Backend) -> Output:
    """The same output, written from a device."""
    image = None if output.image is None else output.image.to(backend)
    return replace(output, array=output.array.to(backend) if image is None else image.levels[0], image=image)


def _block(block: Any, given: _Given) -> tuple[int, ...]:
    """The shape of blocks that is asked for."""
    array = given.sources[0]
    sizes = per_axis(block, "block", array.ndim, given.axes, None)
    shape = tuple(n if size is None else min(int(size), n) for size, n in zip(sizes, array.shape, strict=True))
    if min(shape) < 1:
        raise ValueError(f"block {block!r} must be of positive integers")
    return shape
