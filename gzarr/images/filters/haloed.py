"""The blocks of a result that are made of blocks with halos: which axes it has, what each needs, what it is cut to.

Theory of operation. A region of the result is made of the *core* of the inputs that lies under it, with its halo. Axes
of the result are those of the inputs, in steps or multiples (`ResultAxis.scale`), or whole: of another length, or new.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any, NamedTuple

from gzarr.backend import Array as AnyArray
from gzarr.hierarchy.array import Array
from gzarr.images.filters.inputs import check_result
from gzarr.images.filters.results import Box
from gzarr.images.halos import AxisSpan, Depth, axis_of, boxes_of, joined, per_axis, span_of
from gzarr.images.image import Image
from gzarr.images.ome.transformations import Transformation
from gzarr.indexing.keys import Coords
from gzarr.indexing.regions import Region


class ResultAxis(NamedTuple):
    """An axis of the result.

    Attributes
    ----------
    source : int or None
        The axis of the first input that it is; None for a new one.
    length : int
        How long it is.
    scale : Fraction
        Elements of the result for one of the input.
    is_whole : bool
        Whether each block has all of it, and of the axis of the input.
    name : str or None
        Of a new one.
    """

    source: int | None
    length: int
    scale: Fraction = Fraction(1)
    is_whole: bool = False
    name: str | None = None

    def core(self, part: slice, size: int) -> tuple[int, int]:
        """The elements of the input under a part of the result."""
        if self.is_whole:
            return 0, size
        return int(part.start / self.scale), min(ceil(part.stop / self.scale), size)

    def is_channel(self, template: Array | Image) -> bool:
        """Whether it is an axis of channels of which there are others than in the input."""
        if not isinstance(template, Image) or self.source is None or self.length == template.shape[self.source]:
            return False
        return template.metadata.axes[self.source].type == "channel"


def result_axes(
    first: Array, names: Sequence[str | None] | None, scale: Any, lengths: dict[Any, int], out_axes: Any
) -> tuple[ResultAxis, ...]:
    """The axes of the result. Raises: ValueError."""
    scales = [Fraction(one).limit_denominator(1 << 20) for one in per_axis(scale, "scale", first.ndim, names, 1)]
    for one in scales:
        if one <= 0 or 1 not in (one.numerator, one.denominator):
            raise ValueError(f"scale={scale!r} must be whole numbers, or parts such as 1/2")
    new = [key for key in out_axes or () if isinstance(key, str) and key not in (names or ())]
    known = {axis_of(key, "out_shape", first.ndim, names): int(n) for key, n in lengths.items() if key not in new}
    axes = []
    for key in range(first.ndim) if out_axes is None else out_axes:
        if key in new:
            if key not in lengths:
                raise ValueError(f"the new axis {key!r} of out_axes needs a length: out_shape={{{key!r}: n}}")
            axes.append(ResultAxis(None, int(lengths[key]), is_whole=True, name=key))
            continue
        axis = axis_of(key, "out_axes", first.ndim, names)
        length = known.get(axis, ceil(first.shape[axis] * scales[axis]))
        axes.append(ResultAxis(axis, length, scales[axis], is_whole=axis in known))
    if len(set(axes)) < len(axes):
        raise ValueError(f"out_axes={out_axes!r} names an axis twice")
    return tuple(axes)


def placed_by(template: Image, axes: Sequence[ResultAxis]) -> Transformation:
    """Where the voxels of the result lie."""
    scale, moved = template.metadata.transformation(0)
    made = []
    for axis in axes:
        if axis.source is None:
            made.append((1.0, 0.0))
            continue
        step = template.shape[axis.source] / axis.length if axis.is_whole else float(1 / axis.scale)
        made.append((scale[axis.source] * step, moved[axis.source] + scale[axis.source] * (step - 1) / 2))
    return Transformation(tuple(one for one, _ in made), tuple(one for _, one in made))


def parse_block(block: Any, axes: Sequence[ResultAxis], names: Sequence[str | None] | None) -> Coords:
    """The shape of blocks that is asked for. Raises: ValueError."""
    named = [axis.name if axis.source is None else (names[axis.source] if names else None) for axis in axes]
    sizes = per_axis(block, "block", len(axes), named, None)
    shape = tuple(
        axis.length if size is None or axis.is_whole else min(int(size), axis.length)
        for size, axis in zip(sizes, axes, strict=True)
    )
    if min(shape) < 1 and min(axis.length for axis in axes):
        raise ValueError(f"block {block!r} must be of positive integers")
    return shape


@dataclass(frozen=True)
class HaloedBlocks:
    """Blocks of the inputs with their halos, and what a function makes of them.

    Attributes
    ----------
    call : callable
        The function, of a region, a halo and blocks.
    shape : tuple of int
        Of the first input.
    steps : sequence of tuple
        For each input, `steps_of`.
    depths, modes, cval
        How blocks reach into their neighbours, and past the ends.
    axes : tuple of ResultAxis
        Of the result.
    """

    call: Callable[..., Any]
    shape: Coords
    steps: Sequence[tuple[int, ...]]
    depths: Sequence[Depth]
    modes: Sequence[str]
    cval: Any
    axes: tuple[ResultAxis, ...]

    def cores(self, region: Region) -> list[tuple[int, int]]:
        """What lies under a region of the result, for each axis of the input."""
        cores = [(0, n) for n in self.shape]
        for axis, part in zip(self.axes, region, strict=True):
            if axis.source is not None:
                cores[axis.source] = axis.core(part, self.shape[axis.source])
        return cores

    def spans(self, region: Region) -> list[list[AxisSpan]]:
        """What is read of each input."""
        along = list(zip(self.cores(region), self.depths, self.shape, self.modes, strict=True))
        return [
            [
                span_of(*core, depth, n, mode, step) if step else AxisSpan([slice(0, 1)])
                for (core, depth, n, mode), step in zip(along[len(along) - len(steps) :], steps, strict=True)
            ]
            for steps in self.steps
        ]

    def boxes(self, region: Region) -> list[Box]:
        """What is read, as `BoxMapping` has it."""
        return [(n, box) for n, spans in enumerate(self.spans(region)) for box in boxes_of(spans)]

    def compute(self, region: Region, boxes: Sequence[Box], parts: list[AnyArray]) -> Any:
        """The block of the result, of each output."""
        views = []
        for n, spans in enumerate(self.spans(region)):
            view = joined(
                spans, [part for (source, _), part in zip(boxes, parts, strict=True) if source == n], self.cval
            )
            views.append(view.reshape((1,) * (len(self.shape) - view.ndim) + view.shape))
        parts.clear()
        cores = self.cores(region)
        shape, inner = [], []
        for axis, part in zip(self.axes, region, strict=True):
            if axis.is_whole or axis.source is None:
                shape.append(axis.length)
                inner.append(slice(None))
                continue
            depth, (start, stop) = self.depths[axis.source], cores[axis.source]
            low = (depth.before - start) * axis.scale + part.start
            shape.append(ceil((stop - start + sum(depth)) * axis.scale))
            inner.append(slice(int(low), int(low) + part.stop - part.start))
        made = self.call(tuple(slice(*core) for core in cores), self.depths, *views)
        for one in made if isinstance(made, tuple) else (made,):
            check_result(one, tuple(shape), "func")
        return tuple(one[tuple(inner)] for one in made) if isinstance(made, tuple) else made[tuple(inner)]
