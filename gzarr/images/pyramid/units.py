"""Cuts level 0 into the units that a pyramid is built of, and puts them in an order that leaves little pending.

A unit holds whole cells of the first levels, as many levels as the budget allows. Integers only, no I/O.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.chunk_io.chunk_cache import ChunkCache
from gzarr.images.blocks import BlockGrid
from gzarr.images.tasks import limit_of
from gzarr.indexing.keys import Coords
from gzarr.indexing.regions import Region

#: Units grow to this size, so that what a read or a write costs besides its bytes does not matter.
TARGET_NBYTES = 4 << 20
#: There are at least so many units for each thread, if units can be as small, so that threads end together.
_UNITS_A_THREAD = 4
#: A unit that takes so many times the shortest time may be chosen for other reasons.
_AS_FAST = 1.1
#: Units of an axis that are looked at; the others are like them.
_LOOKED_AT = 256
#: Of the memory, one of so many parts is for decoded chunks that several units read.
_CACHE_SHARE = 4
#: A task holds its block, what is downsampled of it, and what is being encoded.
_BLOCKS_A_TASK = 2


class Cells(NamedTuple):
    """What the cells of a pyramid's levels are like.

    Attributes
    ----------
    shape : tuple[int, ...]
        Of level 0.
    itemsize : int
        Bytes of an element.
    footprints : tuple[tuple[int, ...], ...]
        For every level, what a cell covers of level 0.
    nbytes : tuple[int, ...]
        For every level, the bytes of a cell.
    chunk : tuple[int, ...]
        Shape of what is decoded whole where level 0 comes from; ones if it is in memory.
    method_share : float
        Bytes that downsampling takes for each byte of a block, if that was measured.
    halo : tuple[int, ...]
        How far what is read for a unit reaches beyond it, by axis; empty for no axis.
    more_nbytes : callable
        Bytes that are taken beside a block, given its shape.
    """

    shape: Coords
    itemsize: int
    footprints: tuple[Coords, ...]
    nbytes: tuple[int, ...]
    chunk: Coords
    method_share: float = 0.0
    halo: Coords = ()
    more_nbytes: Callable[[Coords], int] = lambda _unit: 0


@dataclass(frozen=True, slots=True)
class Units:
    """How level 0 is cut.

    Attributes
    ----------
    shape : tuple[int, ...]
        Of level 0.
    unit : tuple[int, ...]
        Extents of a unit.
    footprints : tuple[tuple[int, ...], ...]
        As of `Cells`: units in one footprint come one after the other.
    workers : int
        How many units are done at once.
    cost_nbytes : int
        Bytes that one unit holds while it is done.
    pending_nbytes : int
        Bytes that wait for other units, if units come in order.
    max_nbytes : int
        What all may hold.
    """

    shape: Coords
    unit: Coords
    footprints: tuple[Coords, ...]
    workers: int
    cost_nbytes: int
    pending_nbytes: int
    max_nbytes: int

    def __len__(self) -> int:
        return len(BlockGrid(self.shape, self.unit))

    def __iter__(self) -> Iterator[Region]:
        """The units in order: those of one cell of the highest level first, within it those of one cell of the next."""
        blocks = BlockGrid(self.shape, self.unit)
        yield from map(blocks.region, _walk([(0, n) for n in blocks.counts], self.unit, self.footprints[::-1]))

    def in_order(self, coords: NDArray[np.int64]) -> list[Region]:
        """Some units by their coordinates, each once, in the order in which all come."""
        starts = coords * np.array(self.unit, np.int64)
        keys = [starts // np.array(footprint, np.int64) for footprint in self.footprints[::-1]]
        order = np.lexsort(np.concatenate([*keys, coords], 1).T[::-1])
        blocks = BlockGrid(self.shape, self.unit)
        return [blocks.region(tuple(at)) for at in coords[order].tolist()]


def plan_units(
    cells: Cells, max_nbytes: int | None, workers: int, unit: Coords | None = None, cache: ChunkCache | None = None
) -> Units:
    """Choose units.

    Parameters
    ----------
    cells : Cells
        Of the pyramid.
    max_nbytes : int or None
        What all units under way and pending cells may hold; None for what `limit_of` says.
    workers : int
        How many units can be done at once.
    unit : tuple of int, optional
        The unit, if it is given: that of an earlier run.
    cache : ChunkCache, optional
        Of decoded chunks that several units need: it gets a part of the memory, if units leave that.

    Returns
    -------
    Units
        The units, and how many of them may be done at once.

    Raises
    ------
    ValueError
        If not even one unit fits what is given.
    """
    if cache is not None:
        limit = limit_of(max_nbytes)
        with suppress(ValueError):
            units = plan_units(cells, limit - limit // _CACHE_SHARE, workers, unit)
            cache.max_nbytes = limit - units.workers * units.cost_nbytes - units.pending_nbytes
            return replace(units, max_nbytes=limit)
        cache.max_nbytes = 0
    tried = list(_candidates(cells)) if unit is None else [unit]
    plans = [_units_of(cells, each, limit_of(max_nbytes), workers) for each in tried]
    fitting = [plan for plan in plans if plan.workers]
    if not fitting:
        least = min(plan.cost_nbytes + plan.pending_nbytes for plan in plans)
        if max_nbytes is None:
            return plan_units(cells, least, workers, unit)
        what, other = "smallest blocks that can be written whole", "make the shards (or chunks) of the levels smaller"
        if unit is not None:
            what, other = "blocks of the unfinished run", "begin anew"
        raise ValueError(
            f"max_nbytes={max_nbytes}: the {what} take {least} bytes; give max_nbytes={least} or more, or {other}"
        )
    decodes = any(n > 1 for n in cells.chunk)  # otherwise what is computed counts, with halos
    times = [(decodes + _n_reads(cells, plan.unit)) / plan.workers for plan in fitting]
    fast = [plan for plan, time in zip(fitting, times, strict=True) if time <= min(times) * _AS_FAST]
    most = max(plan.workers for plan in fast)
    enough = [plan for plan in fast if len(plan) >= _UNITS_A_THREAD * most] or fast[:1]
    block = [plan for plan in enough if math.prod(plan.unit) * cells.itemsize >= TARGET_NBYTES]
    return (block or enough[-1:])[0]


def _candidates(cells: Cells) -> Iterator[Coords]:
    """Possible units, small ones first: those that are read well, then whole cells of one level more each time."""
    first = cells.footprints[0]
    yield from _grown(cells, first)
    unit = tuple(map(math.lcm, first, cells.chunk))
    yield unit
    for footprint in cells.footprints[1:]:
        unit = tuple(map(math.lcm, unit, footprint))
        yield unit
    while any(u < n for u, n in zip(unit, cells.shape, strict=True)):
        unit = tuple(2 * u if u < n else u for u, n in zip(unit, cells.shape, strict=True))
        yield unit


def _grown(cells: Cells, unit: Coords) -> Iterator[Coords]:
    """Units that grow along the axis where chunks that are read are cut most often, until none is cut."""
    while True:
        cuts = _overreads(cells, unit)
        yield unit
        if max(cuts, default=1.0) == 1.0:
            return
        axis = cuts.index(max(cuts))
        unit = tuple(2 * u if number == axis else u for number, u in enumerate(unit))


def _n_reads(cells: Cells, unit: Coords) -> float:
    """How often an element is read, with the chunks that units meet."""
    return math.prod(_overreads(cells, unit))


def _overreads(cells: Cells, unit: Coords) -> list[float]:
    """How often an element is read along each axis."""
    halo = cells.halo or (0,) * len(unit)
    return [_overread(*axis) for axis in zip(cells.shape, unit, cells.chunk, halo, strict=True)]


def _overread(extent: int, unit: int, chunk: int, halo: int) -> float:
    """How often an element is read along one axis, as the first units show."""
    if (unit % chunk == 0 and not halo) or unit >= extent:
        return 1.0
    starts = range(0, extent, unit)[:_LOOKED_AT]
    read = sum(
        min(extent, -(-min(o + unit + halo, extent) // chunk) * chunk) - max(o - halo, 0) // chunk * chunk
        for o in starts
    )
    return read / min(extent, starts[-1] + unit)


def _units_of(cells: Cells, unit: Coords, max_nbytes: int, workers: int) -> Units:
    block = math.prod(map(min, unit, cells.shape)) * cells.itemsize
    pending = 0
    for footprint, nbytes in zip(cells.footprints[1:], cells.nbytes[1:], strict=True):
        ways = [1 if f % u == 0 else 2 for f, u in zip(footprint, unit, strict=True)]
        if any(u % f and u < n for f, u, n in zip(footprint, unit, cells.shape, strict=True)):
            pending += nbytes * math.prod(ways)
    cost = math.ceil(max(_BLOCKS_A_TASK, 1 + cells.method_share) * block)
    cost += cells.more_nbytes(tuple(map(min, unit, cells.shape)))
    n_units = len(BlockGrid(cells.shape, unit))
    fitting = max(0, (max_nbytes - pending) // max(cost, 1))
    workers = min(workers, fitting, max(n_units, 1))
    return Units(cells.shape, unit, cells.footprints, workers, cost, pending, max_nbytes)


def _walk(spans: Sequence[tuple[int, int]], unit: Coords, footprints: Sequence[Coords]) -> Iterator[tuple[int, ...]]:
    """Yield the units of some spans, by axis, each in the footprint of the highest level that has its start."""
    if not footprints:
        yield from itertools.product(*[range(*span) for span in spans])
        return
    runs = [list(_runs(*span, u, f)) for span, u, f in zip(spans, unit, footprints[0], strict=True)]
    for inner in itertools.product(*runs):
        yield from _walk(inner, unit, footprints[1:])


def _runs(low: int, high: int, unit: int, footprint: int) -> Iterator[tuple[int, int]]:
    """Cut a span of units where the next footprint begins."""
    while low < high:
        end = min(high, -(-((low * unit // footprint + 1) * footprint) // unit))
        yield low, end
        low = end
