"""Compares the values of two arrays, in regions of bounded size."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import ne
from typing import Any, NamedTuple

import numpy as np

from gzarr.checking.chunks import read_region
from gzarr.checking.report import Place
from gzarr.chunk_io.array_io import ArrayIO
from gzarr.chunk_io.prepare import prepare_array
from gzarr.errors.escaping import escaped
from gzarr.indexing.grid import largest_chunk
from gzarr.indexing.keys import Coords
from gzarr.indexing.regions import Region, Regions, cut, size_of
from gzarr.metadata.model import ArrayMeta
from gzarr.scale.blocks import BlockPlan, parse_part
from gzarr.scale.running import run

#: Decoded bytes of each side that are held at a time, or one chunk.
REGION_NBYTES = 32 << 20
#: Differing elements of an array that are named.
MAX_FIRST = 5


class Tolerance(NamedTuple):
    """How far apart elements a and b may be to count as equal: ``abs(a - b) <= atol + rtol * abs(b)``."""

    rtol: float = 0.0
    atol: float = 0.0


@dataclass(frozen=True, slots=True)
class ValueDifferences:
    """How the values of two arrays differ.

    Attributes
    ----------
    count : int
        Number of elements that differ.
    size : int
        Number of elements.
    first : tuple of (coordinates, str, str)
        The first that were found, with both values.
    largest : float or None
        Largest difference of two numbers; None without numbers.
    """

    count: int
    size: int
    first: tuple[tuple[Coords, str, str], ...]
    largest: float | None

    def __str__(self) -> str:
        first = ", ".join(f"{a} != {b} at {coords}" for coords, a, b in self.first)
        largest = "" if self.largest is None else f"; the largest difference is {self.largest:g}"
        return escaped(f"{self.count:,} of {self.size:,} elements differ{largest}; first: {first}")


class _CompareBlock:
    """Compares the region with a number, in whichever process."""

    def __init__(self, sides: Sequence[tuple[Place, ArrayMeta]], tolerance: Tolerance, regions: Regions) -> None:
        self._sides, self._tolerance, self._regions = sides, tolerance, regions

    @cached_property
    def _opened(self) -> list[tuple[ArrayIO, Any]]:
        n, found = math.prod(self._regions.shape), []
        for place, meta in self._sides:
            io = prepare_array(meta, place.store, place.path, place.backend, None, place.allow_pickle)
            found.append((io, io.backend.empty((n,), meta.data_type.dtype)))
        return found

    def __call__(self, number: int) -> ValueDifferences | None:
        """How its values differ. On one thread at a time."""
        region = self._regions.at(number)
        one, two = (read_region(io, region, buffer) for io, buffer in self._opened)
        differ = unequal(one, two, self._tolerance)
        count = int(np.count_nonzero(differ))
        if not count:
            return None
        first = tuple(_first(region, differ, one, two, MAX_FIRST))
        return ValueDifferences(count, differ.size, first, _farthest(one[differ], two[differ]))

    def unit(self, numbers: range) -> list[ValueDifferences | None]:
        """How the values of some regions differ, read into memory of their own: other threads share this object."""
        return list(map(_CompareBlock(self._sides, self._tolerance, self._regions), numbers))


def compare_values(
    sides: Sequence[tuple[Place, ArrayMeta]],
    tolerance: Tolerance,
    done: Callable[[int], None],
    on: Any = None,
    part: tuple[int, int] | None = None,
) -> ValueDifferences | None:
    """Compare two arrays of one shape region by region, or a part of them. Raises: ChunkError, StoreError."""
    metas = [meta for _, meta in sides]
    itemsize = max(16 if meta.data_type.variable else meta.data_type.dtype.itemsize for meta in metas)
    # along the larger chunks, so that those of the other side are rarely read twice
    grids = sorted((meta.chunk_grid for meta in metas), key=lambda grid: math.prod(largest_chunk(grid)))
    regions = cut(grids[0], grids[1], itemsize, REGION_NBYTES, REGION_NBYTES)
    count, largest = 0, list[float]()
    first: dict[int, tuple[tuple[Coords, str, str], ...]] = {}

    def take(numbers: range, made: list[ValueDifferences | None]) -> None:
        nonlocal count, largest
        for number, found in zip(numbers, made, strict=True):
            if found is not None:
                count += found.count
                if found.largest is not None:
                    largest = [max([*largest, found.largest])]
                first[number] = found.first
                if len(first) > MAX_FIRST:
                    del first[max(first)]

    blocks = BlockPlan(
        name=str(sides[0][0]),
        n=len(regions),
        do=_CompareBlock(sides, tolerance, regions),
        size=lambda number: size_of(regions.at(number)) * metas[0].data_type.dtype.itemsize,
        take=take,
    )
    run([blocks], on, parse_part(part), lambda nbytes, _: done(nbytes))
    named = tuple(one for number in sorted(first) for one in first[number])[:MAX_FIRST]
    return ValueDifferences(count, math.prod(metas[0].shape), named, next(iter(largest), None)) if count else None


def unequal(one: Any, two: Any, tolerance: Tolerance) -> Any:
    """Which elements of two arrays differ; NaN equals NaN, and NaT equals NaT."""
    if one.dtype.names and one.dtype.names == two.dtype.names:
        fields = [unequal(one[name], two[name], tolerance) for name in one.dtype.names]
        return np.logical_or.reduce([field.reshape(*one.shape, -1).any(axis=-1) for field in fields])
    if one.dtype.hasobject or two.dtype.hasobject:
        pairs = zip(one.flat, two.flat, strict=True)
        return np.array([not _same(a, b) for a, b in pairs], bool).reshape(one.shape)
    differ = np.asarray(one != two)
    if differ.any():
        a, b = one[differ], two[differ]
        same = ne(a, a) & ne(b, b)  # also for the types that numpy.isnan does not know
        if any(tolerance) and (distance := _distance(a, b)) is not None:
            with np.errstate(all="ignore"):
                same |= distance <= tolerance.atol + tolerance.rtol * np.abs(b)
        differ[differ] = ~same
    return differ


def _same(a: Any, b: Any) -> bool:
    """Whether two objects are equal: strings, or arrays of any length."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        a, b = np.asarray(a), np.asarray(b)
        return a.shape == b.shape and not unequal(a, b, Tolerance()).any()
    return bool(a == b or (ne(a, a) and ne(b, b)))


def _distance(one: Any, two: Any) -> Any:
    """How far numbers are apart; None if they are no numbers."""
    kinds = {one.dtype.kind, two.dtype.kind}
    if not kinds <= set("biufc") or kinds == {"b"}:
        return None
    if one.dtype == two.dtype and kinds <= set("iu"):  # modulo 2**n, which is right without a sign
        return (np.maximum(one, two) - np.minimum(one, two)).view(f"u{one.dtype.itemsize}")
    with np.errstate(all="ignore"):
        return np.abs(np.subtract(one, two, dtype=np.result_type(one, two, np.float64)))


def _farthest(one: Any, two: Any) -> float | None:
    distance = _distance(one, two)
    known = None if distance is None else distance[~np.isnan(distance)]
    return None if known is None or not known.size else float(known.max())


def _first(region: Region, differ: Any, one: Any, two: Any, n: int) -> Iterator[tuple[Coords, str, str]]:
    """The first ``n`` elements of a region that differ."""
    for flat in np.flatnonzero(differ)[:n].tolist():
        local = np.unravel_index(flat, differ.shape)
        coords = tuple(int(i) + part.start for i, part in zip(local, region, strict=True))
        yield coords, str(one[local]), str(two[local])
