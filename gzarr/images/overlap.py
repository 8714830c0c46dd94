"""`map_overlap` and `map_blocks`: a function applied to blocks of large arrays, with halos, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from gzarr.api.create import create_array
from gzarr.backend import Array as AnyArray
from gzarr.cpu.threads import thread_count
from gzarr.display.progress import ProgressLike, counted
from gzarr.dtypes import parse_dtype
from gzarr.hierarchy import new_nodes
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.node import lies_within
from gzarr.images.boundary import Depth, check_cval, parse_depths, parse_modes, per_axis
from gzarr.images.dry_run import Trial, dry_run
from gzarr.images.planning import Bounds, Costs, Geometry, make_plan
from gzarr.images.walk import Walk, walk
from gzarr.indexing.grid import RegularAxis

#: Default memory in bytes.
MAX_NBYTES = 256 << 20
#: Blocks that are computed at once on a device: one while the one before is written.
DEVICE_WORKERS = 2


def map_overlap(
    func: Callable[..., Any],
    inputs: Array | Sequence[Array],
    out: Any,
    depth: Any,
    boundary: Any = "reflect",
    *,
    cval: Any = 0,
    block: Any = None,
    dtype: Any = None,
    max_nbytes: int = MAX_NBYTES,
    max_device_nbytes: int | None = None,
    progress: ProgressLike = None,
    device: str | None = None,
) -> Array:
    """Apply a function to blocks of an array that overlap, and store the results: filters of arrays of any size.

    The result is that of the function applied to the whole array, if no element of it depends on elements further away
    than ``depth``. Blocks are as large as the memory allows, and hardly any chunk is decoded twice.

    Parameters
    ----------
    func : callable
        Called with a block of every input, with its halo: NumPy arrays, or CuPy arrays on a device, which must not be
        changed. Returns an array of their shape. Several threads call it at once, and it is called on one block first,
        to see how much memory it needs.
    inputs : Array or sequence of Array
        The arrays, of one shape. Data types and chunks may differ.
    out : Array, path or Store
        Where the result is stored. A path makes an array with the chunks, shards and compressors of the first input.
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
        The same on a device. By default ``max_nbytes``.
    progress : bool or callable, optional
        True for a bar, or a function of (bytes done, bytes in all, name).
    device : str, optional
        Where the function runs: "auto", "cpu", "cuda" or "cuda:N". By default where the first input is read to.

    Returns
    -------
    Array
        The output.

    Raises
    ------
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
    names = first.dimension_names
    depths = parse_depths(depth, first.shape, names)
    modes = parse_modes(boundary, first.ndim, names)
    check_cval(cval, [source.dtype for source in given.sources], modes)
    trial = None if 0 in first.shape else dry_run(func, given.sources, depths)
    target = _target(given, out, _dtype_of(given, trial, dtype))
    if trial is None:
        return target
    _check_result(trial.result, trial.shape, target.dtype, f"{given.name}: func", "the trial")
    geometry = Geometry(shape=first.shape, depth=depths, modes=modes, factors=(1,) * first.ndim, unit=unit_of(target))
    limit = max_nbytes if given.on_host or max_device_nbytes is None else max_device_nbytes
    costs = Costs(
        itemsizes=tuple(source.itemsize for source in given.sources),
        out_itemsize=target.itemsize,
        block_nbytes=trial.block_nbytes,
        workers=thread_count() if given.on_host else DEVICE_WORKERS,
        windows=2 if given.reads_ahead else 1,
        max_nbytes=limit,
    )
    plan = make_plan(geometry, [source.metadata.chunk_grid for source in given.sources], costs, _block(block, first))
    with counted(progress, target.nbytes) as add:

        def finished(group: Bounds) -> None:
            add(prod(stop - start for start, stop in group) * target.itemsize, target.store_path)

        def put(start: tuple[int, ...], values: AnyArray) -> None:
            target[tuple(slice(a, a + n) for a, n in zip(start, values.shape, strict=True))] = values

        walk(
            Walk(
                sources=given.sources,
                compute=_Compute(given, depths, target.dtype),
                put=put,
                geometry=geometry,
                plan=plan,
                dtype=target.dtype,
                workers=costs.workers,
                max_nbytes=limit,
                cval=cval,
                ahead=given.reads_ahead,
                finished=finished,
            )
        )
    return target


def map_blocks(func: Callable[..., Any], inputs: Array | Sequence[Array], out: Any, **options: Any) -> Array:
    """Apply a function to blocks of an array, element by element say, and store the results.

    Parameters
    ----------
    func : callable
        Called with a block of every input; returns an array of their shape. See `map_overlap`.
    inputs : Array or sequence of Array
        The arrays, of one shape. Data types and chunks may differ.
    out : Array, path or Store
        Where the result is stored. A path makes an array with the chunks, shards and compressors of the first input.
    **options
        ``block``, ``dtype``, ``max_nbytes``, ``max_device_nbytes``, ``progress``, ``device``: see `map_overlap`.

    Returns
    -------
    Array
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
    """

    name: str
    func: Callable[..., Any]
    sources: list[Array]

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
    sources = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    if not sources:
        raise ValueError(f"{name}: there is no input")
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
    where = device or sources[0].backend
    options = {} if max_device_nbytes is None else {"max_device_nbytes": max_device_nbytes}
    moved = sources[0].to(where, **options)
    return _Given(name, func, [moved, *(source.to(moved.backend) for source in sources[1:])])


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


def _target(given: _Given, out: Any, dtype: np.dtype[Any]) -> Array:
    """The output, made if it is a path."""
    first = given.sources[0]
    if not isinstance(out, Array):
        return _create(first, out, dtype)
    if out.shape != first.shape:
        raise ValueError(
            f"{given.name}: the output {out.store_path} has shape {out.shape}, but the input {first.shape}"
        )
    for source in given.sources:
        if lies_within(source.store, source.path, out.store, out.path):
            raise ValueError(
                f"{given.name}: the output {out.store_path} is an input, and would be read after it was written; give "
                "another output"
            )
    out.check_writable()
    return out.to(first.backend)


def _create(first: Array, out: Any, dtype: np.dtype[Any]) -> Array:
    """Create an array like the first input."""
    keywords: dict[str, Any] = {"store": out}
    if dtype != first.dtype or first.is_view:
        name = "compressor" if first.zarr_format == 2 else "compressors"
        keywords |= {"dtype": dtype, name: getattr(first, name)}
    return create_array(**new_nodes.like(first, keywords)).to(first.backend)


def unit_of(array: Array) -> tuple[int, ...]:
    """The smallest block of an array that is stored as a whole."""
    return tuple(axis.length if isinstance(axis, RegularAxis) else axis.extent for axis in array.metadata.grid)


def _block(block: Any, array: Array) -> tuple[int, ...] | None:
    """The shape of blocks that is asked for."""
    if block is None:
        return None
    sizes = per_axis(block, "block", array.ndim, array.dimension_names, None)
    shape = tuple(n if size is None else min(int(size), n) for size, n in zip(sizes, array.shape, strict=True))
    if min(shape) < 1:
        raise ValueError(f"block {block!r} must be of positive integers")
    return shape
