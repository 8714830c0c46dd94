"""Plans the levels of a pyramid: shapes, factors and where their voxels lie. Integers and floats only, no I/O."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

#: A factor for all spatial axes, factors by name of axis, or one of these for every level.
Factors: TypeAlias = "int | Mapping[str, int] | Sequence[int | Mapping[str, int]] | None"

#: Levels are made until no spatial axis has more elements: what a viewer shows first, and a thumbnail is made of.
SMALLEST = 256
#: An axis is halved while its voxels are at most so much longer than the shortest ones: twice as long ones wait.
ANISOTROPY = math.sqrt(2)
#: No image has more levels: 2^40 elements along an axis.
_MOST = 40


class PyramidLevel(NamedTuple):
    """One level of a pyramid.

    Attributes
    ----------
    path : str
        Name of its array in the image's group.
    shape : tuple[int, ...]
        Extents.
    factors : tuple[int, ...]
        How many elements of the level before become one, by axis; ones for level 0.
    scale, translation : tuple[float, ...]
        Length of a voxel, and the place of the first voxel's center, by axis.
    """

    path: str
    shape: tuple[int, ...]
    factors: tuple[int, ...]
    scale: tuple[float, ...]
    translation: tuple[float, ...]


class AxisKind(NamedTuple):
    """What downsampling has to know of an axis.

    Attributes
    ----------
    name : str
        As in the image's metadata.
    is_spatial : bool
        Whether it is downsampled unless told otherwise.
    unit : float
        Length of the unit of its scale, to compare it with other axes.
    """

    name: str
    is_spatial: bool
    unit: float = 1.0


def plan_levels(
    base: PyramidLevel,
    axes: Sequence[AxisKind],
    levels: int | None = None,
    factors: Factors = None,
    *,
    centered: bool = True,
) -> tuple[PyramidLevel, ...]:
    """Plan the levels above a base.

    Parameters
    ----------
    base : Level
        Level 0, or the last level that exists.
    axes : sequence of AxisKind
        The axes of all levels.
    levels : int, optional
        How many to add. By default, until no spatial axis is longer than `SMALLEST`.
    factors : int, mapping, or sequence of these, optional
        Of each level to the one before. An integer goes for all spatial axes; axes that a mapping leaves out keep
        their length. By default, spatial axes are halved, those with long voxels only once the others are as long.
    centered : bool
        Whether a new voxel lies in the middle of its window, or (method "nearest") at its first element.

    Returns
    -------
    tuple of Level
        The new levels.

    Raises
    ------
    ValueError
        If a factor is no positive integer, or names no axis, or too many levels are asked for.
    """
    if levels is not None and (isinstance(levels, bool) or not isinstance(levels, int) or not 0 <= levels <= _MOST):
        raise ValueError(f"levels={levels!r}: expected how many levels to add, from 0 to {_MOST}, or None")
    chosen = _chooser(axes, factors)
    n = len(factors) if levels is None and isinstance(factors, Sequence) else levels
    planned: list[PyramidLevel] = []
    last = base
    while len(planned) < (_MOST if n is None else n):
        if n is None and _is_small(last.shape, axes):
            break
        step = chosen(len(planned), last)
        if all(f == 1 for f in step):
            if n is None:
                break
            raise ValueError(
                f"level {len(planned) + 1} of {n} would equal the one before, of shape {last.shape}: ask for fewer "
                "levels, or give factors= above 1"
            )
        last = _above(last, step, centered=centered)
        planned.append(last)
    return tuple(planned)


def next_path(path: str) -> str:
    """Name of the level above one: the number at its end counts on."""
    match = re.fullmatch(r"(.*?)(\d+)", path)
    return f"{match[1]}{int(match[2]) + 1}" if match else "1"


def _above(level: PyramidLevel, factors: tuple[int, ...], *, centered: bool) -> PyramidLevel:
    shift = [(f - 1) / 2 if centered else 0.0 for f in factors]
    return PyramidLevel(
        next_path(level.path),
        tuple(-(-n // f) for n, f in zip(level.shape, factors, strict=True)),
        factors,
        tuple(s * f for s, f in zip(level.scale, factors, strict=True)),
        tuple(t + s * d for t, s, d in zip(level.translation, level.scale, shift, strict=True)),
    )


def _is_small(shape: Sequence[int], axes: Sequence[AxisKind]) -> bool:
    return all(n <= SMALLEST for n, axis in zip(shape, axes, strict=True) if axis.is_spatial)


def _chooser(axes: Sequence[AxisKind], factors: Factors) -> Callable[[int, PyramidLevel], tuple[int, ...]]:
    """A function of a level's number and the level below it that gives the factors between them."""
    if factors is None:
        return lambda _, level: _halving(axes, level)
    if isinstance(factors, str) or not isinstance(factors, Sequence):
        step = _by_axis(axes, factors)
        # An axis of one element has nothing left to join.
        return lambda _, level: tuple(f if n > 1 else 1 for f, n in zip(step, level.shape, strict=True))
    steps = [_by_axis(axes, item) for item in factors]

    def choose(number: int, _: PyramidLevel) -> tuple[int, ...]:
        if number >= len(steps):
            raise ValueError(f"factors={factors!r} are of {len(steps)} levels: give one for every level")
        return steps[number]

    return choose


def _halving(axes: Sequence[AxisKind], level: PyramidLevel) -> tuple[int, ...]:
    """Halve the spatial axes with the shortest voxels."""
    lengths = [
        s * axis.unit if axis.is_spatial and n > 1 else math.inf
        for s, n, axis in zip(level.scale, level.shape, axes, strict=True)
    ]
    most = min(lengths) * ANISOTROPY
    return tuple(2 if length <= most and length < math.inf else 1 for length in lengths)


def _by_axis(axes: Sequence[AxisKind], factors: Any) -> tuple[int, ...]:
    """Factors of one level, by axis."""
    names = [axis.name for axis in axes]
    if isinstance(factors, Mapping):
        unknown = [name for name in factors if name not in names]
        if unknown:
            raise ValueError(f"factors={factors!r} name {unknown[0]!r}, which is none of the axes {', '.join(names)}")
        step = tuple(factors.get(name, 1) for name in names)
    else:
        step = tuple(factors if axis.is_spatial else 1 for axis in axes)
    for f in (factors, *step) if not isinstance(factors, Mapping) else step:
        if isinstance(f, bool) or not isinstance(f, int) or f < 1:
            raise ValueError(f"factors={factors!r}: expected integers from 1 on, by axis or for all spatial axes")
    return step
