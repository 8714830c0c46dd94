"""Finds out whether what a function makes of a block lies where the block does, so that it must not be combined.

Theory of operation. A function that leaves axes of its block, such as a projection, returns an array that is as long as
the block along them, or a multiple. Other results, such as histograms, may be as long by chance. So the function is
called again with each half of one block along the axis in question: what follows the block is then half as long. It
matters only if results are combined element by element; those that `combine` puts behind each other get longer.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from gzarr.concurrency import new_lock

Shape = tuple[int, ...]


class _Followed(NamedTuple):
    """A result that follows its block.

    Attributes
    ----------
    number : int
        Of the array, if the result has several.
    axis : int
        The axis of the block.
    shape, block : tuple of int
        Of the array, and of the block.
    """

    number: int
    axis: int
    shape: Shape
    block: Shape


class Alike:
    """The functions of a reduction to results that are alike, wherever their blocks lie.

    Parameters
    ----------
    func, combine : callable
        The user's functions.
    axes : sequence of int
        The axes along which there are several chunks.
    """

    def __init__(self, func: Callable[..., Any], combine: Callable[[Any, Any], Any], axes: Sequence[int]) -> None:
        self._func, self._combine, self._axes = func, combine, axes
        self._followed: _Followed | None = None
        self._is_known = False
        self._lock = new_lock()

    def reduce(self, *blocks: Any) -> Any:
        """What the function makes of a block."""
        part = self._func(*blocks)
        with self._lock:
            if not self._is_known:
                self._followed, self._is_known = self._look(blocks, part), True
        return part

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=new_lock())

    def combine(self, one: Any, two: Any) -> Any:
        """Combine two results. Raises ValueError if they are merged, but follow their blocks."""
        made, followed = self._combine(one, two), self._followed
        if followed is not None:
            made_of = [_shapes(part)[followed.number :][:1] for part in (one, two)]
            if _shapes(made)[followed.number :][:1] in made_of:
                raise ValueError(
                    f"reduce_blocks: func returns an array of shape {followed.shape} for a block of shape "
                    f"{followed.block}, which it follows along axis {followed.axis}; combine would merge what lies at "
                    "different places of this axis. Name the axes that func takes away, as by axis=0 for block.max(0), "
                    "or return what does not depend on the shape of the block"
                )
        return made

    def _look(self, blocks: Sequence[Any], part: Any) -> _Followed | None:
        before, shape = _shapes(part), tuple(blocks[0].shape)
        for axis in self._axes:
            n, lead = shape[axis], (slice(None),) * axis
            if not any(length % n == 0 for one in before for length in one):
                continue
            parts: list[Any] = [slice(n // 2), slice(-(n // 2), None)] if n > 1 else [[0, 0]]
            found = set(range(len(before)))
            for index in parts if found else ():
                after: list[Shape] = []
                with suppress(Exception):  # a function may take whole chunks only
                    after = _shapes(self._func(*(block[(*lead, index)] for block in blocks)))
                ratio = n // 2 or 2, n
                found &= {k for k, pair in enumerate(zip(before, after, strict=False)) if _follows(*pair, *ratio)}
            if found:
                return _Followed(min(found), axis, before[min(found)], shape)
        return None


def _follows(before: Shape, after: Shape, less: int, more: int) -> bool:
    """Whether one axis of a result has changed as the block has."""
    changed = [(a, b) for a, b in zip(before, after, strict=False) if a != b]
    return len(before) == len(after) and len(changed) == 1 and changed[0][0] * less == changed[0][1] * more


def _shapes(part: Any) -> list[Shape]:
    """The shapes of the arrays of a result: one, or those of a sequence."""
    several = part if isinstance(part, (tuple, list)) else [part]
    return [tuple(one.shape) for one in several if hasattr(one, "shape")]
