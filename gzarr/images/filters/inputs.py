"""What a filter is applied to: the function, the inputs, and what the function may return."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from gzarr.backend import Array as AnyArray
from gzarr.hierarchy.array import Array
from gzarr.images.filters.where import telling
from gzarr.images.halo.boundary import Depth, per_axis
from gzarr.images.halo.planning import Bounds
from gzarr.images.image import Image
from gzarr.images.pyramid.device_memory import sharing
from gzarr.images.pyramid.downsample import resident


class Applied(NamedTuple):
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
    def on_host(self) -> bool:
        """Whether the function gets NumPy arrays on the host."""
        return self.sources[0].backend is self.sources[0].backend.host

    @property
    def reads_ahead(self) -> bool:
        """Whether the next layer is read while one is computed: it pays where threads would wait."""
        return not self.on_host or any(source.store.concurrency > 1 for source in self.sources)


def arrays_of(name: str, inputs: Sequence[Any]) -> list[Array]:
    """The inputs, of images level 0. Raises: TypeError, ValueError if there is none, or their shapes differ."""
    if not inputs:
        raise ValueError(f"{name}: there is no input")
    sources = [one.levels[0] if isinstance(one, Image) else one for one in inputs]
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
    return sources


def parse_inputs(
    name: str, func: Callable[..., Any], inputs: Any, device: str | None, max_device_nbytes: int | None
) -> Applied:
    """Check what is applied to what, and take it to a device. Raises: TypeError, ValueError, DeviceError."""
    if not callable(func):
        raise TypeError(f"{name}: func must be callable, got {type(func).__name__}")
    given = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    sources = arrays_of(name, given)
    if not sources[0].ndim:
        raise ValueError(f"{name}: {sources[0].store_path} has no axes")
    moved = sources[0].to(sharing(device or sources[0].backend, max_device_nbytes))
    return Applied(name, func, [moved, *(source.to(moved.backend) for source in sources[1:])], given[0])


def computing(
    applied: Applied, depths: Sequence[Depth], dtype: np.dtype[Any]
) -> Callable[[Bounds, list[AnyArray]], AnyArray]:
    """A function that makes a block of the output from the inputs with halos, and checks what the user's returns."""
    call = telling(applied.func, applied.template)

    def compute(block: Bounds, views: list[AnyArray]) -> AnyArray:
        where = "the block [" + ", ".join(f"{start}:{stop}" for start, stop in block) + "]"
        try:
            result = call(tuple(slice(*ends) for ends in block), depths, *views)
        except Exception as error:
            error.add_note(f"{applied.name}: in {where} of {applied.sources[0].store_path}")
            raise
        check_result(result, views[0].shape, dtype, f"{applied.name}: func", where)
        core = [slice(low, low + stop - start) for (start, stop), (low, _) in zip(block, depths, strict=True)]
        return resident(applied.sources[0].backend, result[tuple(core)])

    return compute


def check_result(result: Any, shape: tuple[int, ...], dtype: np.dtype[Any], what: str, where: str) -> None:
    """Raise ValueError or TypeError if a function did not return an array of a shape and data type."""
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


def parse_block(block: Any, applied: Applied) -> tuple[int, ...]:
    """The shape of blocks that is asked for. Raises: ValueError."""
    array = applied.sources[0]
    sizes = per_axis(block, "block", array.ndim, applied.axes, None)
    shape = tuple(n if size is None else min(int(size), n) for size, n in zip(sizes, array.shape, strict=True))
    if min(shape) < 1:
        raise ValueError(f"block {block!r} must be of positive integers")
    return shape
