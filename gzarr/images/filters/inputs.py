"""What a function of blocks is applied to: arrays of one shape, or that broadcast, and what it may return."""

from collections.abc import Sequence
from typing import Any

from gzarr.hierarchy.array import Array
from gzarr.images.image import Image


def first_levels(name: str, inputs: Sequence[Any]) -> list[Array]:
    """The inputs, of images level 0. Raises: TypeError."""
    arrays = [one.levels[0] if isinstance(one, Image) else one for one in inputs]
    for one in arrays:
        if not isinstance(one, Array):
            raise TypeError(
                f"{name}: inputs must be gzarr arrays or images, got {type(one).__name__}; open it with "
                "gzarr.open_array, or put it into gzarr.array"
            )
    return arrays


def arrays_of(name: str, inputs: Sequence[Any]) -> list[Array]:
    """As `first_levels`. Raises: TypeError, ValueError if there is none, or their shapes differ."""
    if not inputs:
        raise ValueError(f"{name}: there is no input")
    sources = first_levels(name, inputs)
    for source in sources:
        if source.shape != sources[0].shape:
            raise ValueError(
                f"{name}: {source.store_path} has shape {source.shape}, but {sources[0].store_path} has "
                f"{sources[0].shape}; inputs must have one shape"
            )
    return sources


def steps_of(name: str, source: Array, first: Array) -> tuple[int, ...]:
    """How many elements of the first input lie along one of another, for each axis that both have, 0 for all of them.

    Missing axes come first, as in NumPy. Raises: ValueError.
    """
    steps = []
    for n, whole in zip(source.shape, first.shape[max(first.ndim - source.ndim, 0) :], strict=False):
        factor = round(whole / n) if n and source.ndim == first.ndim else 0
        steps.append(1 if n == whole else 0 if n == 1 else factor if factor and -(-whole // factor) == n else -1)
    if -1 in steps or source.ndim > first.ndim:
        raise ValueError(
            f"{name}: {source.store_path} has shape {source.shape}, but {first.store_path} has {first.shape}; inputs "
            "must have one shape, or broadcast to that of the first one, or be smaller levels of it"
        )
    return tuple(steps)


def check_result(result: Any, shape: tuple[int, ...], what: str) -> None:
    """Raise ValueError or TypeError if a function did not return an array of a shape."""
    if not hasattr(result, "shape") or not hasattr(result, "dtype"):
        raise TypeError(f"{what} returned {type(result).__name__}, expected an array")
    if tuple(result.shape) != shape:
        raise ValueError(f"{what} returned shape {tuple(result.shape)}, expected {shape}")
