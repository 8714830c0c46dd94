"""Chooses the plan by which a large array is computed in blocks (`gzarr.images.halo.planning`): the cheapest that fits.

Cost model. Time is counted in elements decoded. The cost of an element of the output is ::

    decoded / size + COMPUTE * (computed / size) * imbalance * cache + MOVED * moved / size + STEP * steps / size

``decoded`` counts the elements of all chunks that bars touch, ``computed`` those of all blocks with their halos;
``imbalance`` is 1 if the blocks of a layer keep all workers equally busy, and ``cache`` if blocks, with what the
function takes for them, stay in the processor's cache. The planner takes the cheapest plan whose memory fits the
budget: windows, and for each worker a block with the function's temporary memory, and a group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import gcd, log2, prod
from typing import Any

from gzarr.images.halo.boundary import span_of
from gzarr.images.halo.planning import BlockwisePlan, Costs, Geometry, count_blocks, frontier
from gzarr.indexing.grid import Axis, Grid, RegularAxis

#: Time that the function takes for an element, and moving one, in times that decoding one takes: a Gaussian filter of
#: three axes takes 40 ns, a chunk of zstd 2.
COMPUTE, MOVED = 8.0, 0.1
#: Time that a layer or a block costs by itself, in elements.
STEP = 100_000
#: Blocks above this size take the function longer, by so much for each doubling: a Gaussian filter of 16,384 x 16,384
#: elements takes 7.5 s in blocks of 64 MB, and 5.4 s in those of 8 to 32 MB.
CACHE_NBYTES, PER_DOUBLING = 16 << 20, 0.05
#: Steps of an axis that are looked at; the others are like them.
_LOOKED_AT = 256
#: The smallest plan has blocks of single elements: one of so many parts is added to its memory for larger ones.
_ROOM_SHARE = 8
#: Blocks of a layer for each worker, at which smaller ones gain nothing.
_ENOUGH = 4


def window_shape(geometry: Geometry, grid: Grid, plan: BlockwisePlan) -> tuple[int, ...]:
    """The shape of the window that all layers of all bars fit into. grid: of the chunks of the input."""
    axes = [_PlannedAxis(geometry, axis, grid[axis]) for axis in range(len(grid))]
    return tuple(
        axis.window(n, whole=plan.whole and axis.number == plan.axis) for axis, n in zip(axes, plan.bar, strict=True)
    )


class _PlannedAxis:
    """An axis of an input, for any length of parts that it is cut into."""

    def __init__(self, geometry: Geometry, number: int, chunks: Axis) -> None:
        self.number = number
        self._geometry, self._chunks = geometry, chunks
        self._depth, self._size = geometry.depth[number], geometry.shape[number]
        self.longest = _longest(chunks)
        self._touched: dict[int, float] = {}

    def window(self, n: int, *, whole: bool) -> int:
        """Length of the window that every part of n elements of the output fits into, with its halo."""
        core = min(n * self._geometry.factors[self.number], self._size)
        return min(core + self._past(core) * whole, self._size) + sum(self._depth)

    def _past(self, core: int) -> int:
        """How far the end of a chunk lies behind that of a halo, at most."""
        if not isinstance(self._chunks, RegularAxis):
            return self.longest - 1
        step = gcd(core, self._chunks.length)
        return self._chunks.length - step + -self._depth.after % step

    def touched(self, n: int) -> float:
        """Elements of the chunks that parts touch, over all elements."""
        if n not in self._touched:
            self._touched[n] = self._count(n)
        return self._touched[n]

    def _count(self, n: int) -> float:
        geometry, chunks, total = self._geometry, self._chunks, 0
        size = geometry.out_shape[self.number]
        starts, half = range(0, size, n), _LOOKED_AT // 2
        some = starts if len(starts) <= _LOOKED_AT else [*starts[:half], *starts[-half:]]
        for start in some:
            core = geometry.core(self.number, start, min(start + n, size))
            first, last = span_of(*core, self._depth, self._size)
            total += frontier(chunks, last, whole=True) - chunks.bounds(chunks.locate(first))[0]
        return total * len(starts) / (len(some) * self._size)


def _longest(chunks: Axis) -> int:
    """Elements of the longest chunk of an axis, of those within its extent."""
    if isinstance(chunks, RegularAxis):
        return max(min(chunks.length, chunks.extent), 1)
    return max((b - a for a, b in pairwise(chunks.edges())), default=1)


def make_plan(geometry: Geometry, grids: Sequence[Grid], costs: Costs, block: tuple[int, ...] | None) -> BlockwisePlan:
    """The cheapest plan that fits the budget.

    Parameters
    ----------
    geometry : Geometry
        What is gone through.
    grids : sequence of Grid
        The chunks of every input.
    costs : Costs
        What memory is needed for.
    block : tuple of int, optional
        The shape of blocks. By default they are as large as fits.

    Raises
    ------
    ValueError
        If no plan fits; it says how much memory the smallest one takes.
    """
    planner = _Planner(geometry, grids, costs, block)
    plans = list(planner.plans())
    fitting = [plan for plan in plans if plan.nbytes <= costs.max_nbytes]
    if not fitting:
        least = min(plan.nbytes for plan in plans)
        least += least // _ROOM_SHARE
        if costs.grows:
            return make_plan(geometry, grids, costs._replace(max_nbytes=least, grows=False), block)
        raise ValueError(
            f"max_nbytes={costs.max_nbytes} is too small: blocks of {geometry.unit} elements, which the output stores "
            f"whole, take {least} bytes with their halos; give at least that, or an output of smaller chunks or shards"
        )
    return min(fitting, key=lambda plan: plan.cost)


def plan_again(geometry: Geometry, grids: Sequence[Grid], costs: Costs, saved: Mapping[str, Any]) -> BlockwisePlan:
    """The plan of an earlier run. saved: `BlockwisePlan.to_json`. Raises: ValueError if it does not fit."""
    bar, block, group = (tuple(saved[name]) for name in ("bar", "block", "group"))
    plan = _Planner(geometry, grids, costs, None).plan(saved["axis"], bar, block, whole=saved["whole"])
    if plan.nbytes > costs.max_nbytes and not costs.grows:
        raise ValueError(
            f"max_nbytes={costs.max_nbytes} is less than what the run took that is resumed: give at least {plan.nbytes}"
        )
    return replace(plan, group=group)


class _Planner:
    """Goes through the plans that may be the cheapest."""

    def __init__(self, geometry: Geometry, grids: Sequence[Grid], costs: Costs, block: tuple[int, ...] | None) -> None:
        self._geometry, self._costs, self._block = geometry, costs, block
        self._shape = geometry.out_shape
        self._axes = [[_PlannedAxis(geometry, i, axis) for i, axis in enumerate(grid)] for grid in grids]
        # Bars and layers are of whole groups.
        self._unit = tuple(map(min, geometry.unit, self._shape))
        if block is not None:
            self._unit = tuple(min(-(-b // u) * u, n) for b, u, n in zip(block, self._unit, self._shape, strict=True))

    def plans(self) -> Iterator[BlockwisePlan]:
        """Plans, of which some fit if any do."""
        for axis, n in enumerate(self._shape):
            if n > 1 or max(self._shape) == 1:
                for height in _lengths(n, self._unit[axis]):
                    for bar in self._bars(axis, height):
                        for whole in (True, False):
                            yield self._with_blocks(axis, bar, whole=whole)

    def _bars(self, sweep: int, height: int) -> Iterator[tuple[int, ...]]:
        """Bars with layers of a height, each narrower than the one before, where that costs least."""
        bar: tuple[int, ...] = (*self._shape[:sweep], height, *self._shape[sweep + 1 :])
        while True:
            yield bar
            narrower = [
                _with(bar, i, _below(n, self._unit[i])) for i, n in enumerate(bar) if i != sweep and n > self._unit[i]
            ]
            if not narrower:
                return
            bar = min(narrower, key=lambda some: self._decoded(sweep, some, whole=True))

    def plan(self, sweep: int, bar: tuple[int, ...], block: tuple[int, ...], *, whole: bool) -> BlockwisePlan:
        """The plan with given bars and blocks."""
        known = self._windows(sweep, bar, whole=whole), self._decoded(sweep, bar, whole=whole)
        return self._plan(sweep, bar, block, known, whole=whole)

    def _with_blocks(self, sweep: int, bar: tuple[int, ...], *, whole: bool) -> BlockwisePlan:
        """The cheapest plan that fits, of those with smaller and smaller blocks; the last of them if none fits."""
        windows, decoded = self._windows(sweep, bar, whole=whole), self._decoded(sweep, bar, whole=whole)
        plan = self._plan(sweep, bar, self._block or bar, (windows, decoded), whole=whole)
        best = plan if self._fits(plan) else None
        while windows <= self._costs.max_nbytes and self._block is None:
            if best is not None and count_blocks(bar, plan.block) >= _ENOUGH * self._costs.workers:
                break
            smaller = [
                self._plan(sweep, bar, _with(plan.block, i, _below(n, self._unit[i])), (windows, decoded), whole=whole)
                for i, n in enumerate(plan.block)
                if n > 1
            ]
            if not smaller:
                break
            plan = min(smaller, key=lambda some: some.cost)
            if self._fits(plan) and (best is None or plan.cost < best.cost):
                best = plan
        return best or plan

    def _fits(self, plan: BlockwisePlan) -> bool:
        return plan.nbytes <= self._costs.max_nbytes

    def _plan(
        self, sweep: int, bar: tuple[int, ...], block: tuple[int, ...], known: tuple[int, float], *, whole: bool
    ) -> BlockwisePlan:
        """A plan with its memory and cost. known: the bytes of its windows, and what is decoded."""
        costs, (windows, decoded) = self._costs, known
        group = tuple(map(max, block, self._unit)) if self._block is None else self._unit
        n_blocks, per_group = count_blocks(bar, block), count_blocks(group, block)
        block_nbytes = self._widened(block) * costs.block_nbytes
        nbytes = windows + min(costs.workers, n_blocks) * block_nbytes
        if per_group > 1:
            in_flight = min((costs.workers - 1) // per_group + 2, count_blocks(bar, group))
            nbytes += in_flight * prod(group) * costs.out_itemsize
        n_bars = count_blocks(self._shape, bar)
        turns = -(-n_blocks // costs.workers) * costs.workers / n_blocks
        moved = sum(self._geometry.depth[sweep]) + max(axes[sweep].longest for axes in self._axes)
        doublings = max(log2(max(block_nbytes, 1) / CACHE_NBYTES), 0)
        cost = (
            decoded
            + COMPUTE * self._computed(block, bar) * turns * (1 + PER_DOUBLING * doublings)
            + MOVED * moved / (bar[sweep] * self._geometry.factors[sweep])
            + STEP * n_bars * (n_blocks + 1) / max(prod(self._geometry.shape), 1)
        )
        return BlockwisePlan(
            axis=sweep,
            bar=bar,
            block=block,
            group=group,
            whole=whole,
            nbytes=nbytes,
            windows_nbytes=windows,
            block_nbytes=block_nbytes,
            cost=cost,
        )

    def _windows(self, sweep: int, bar: tuple[int, ...], *, whole: bool) -> int:
        """Bytes of the windows of all inputs."""
        sizes = [
            prod(axis.window(n, whole=whole and axis.number == sweep) for axis, n in zip(axes, bar, strict=True))
            for axes in self._axes
        ]
        nbytes = sum(size * itemsize for size, itemsize in zip(sizes, self._costs.itemsizes, strict=True))
        return nbytes * (self._costs.windows if bar != self._shape else 1)

    def _decoded(self, sweep: int, bar: tuple[int, ...], *, whole: bool) -> float:
        """Elements that are decoded, over those of all inputs."""
        return sum(
            prod(axis.touched(n) for axis, n in zip(axes, bar, strict=True) if axis.number != sweep or not whole)
            for axes in self._axes
        )

    def _computed(self, block: tuple[int, ...], bar: tuple[int, ...]) -> float:
        """Elements of all blocks with their halos, over those of the input."""
        ratio = 1.0
        for axis, (b, width, n) in enumerate(zip(block, bar, self._shape, strict=True)):
            count = -(-n // width) * -(-width // b)
            ratio *= 1 + count * sum(self._geometry.depth[axis]) / max(self._geometry.shape[axis], 1)
        return ratio

    def _widened(self, block: tuple[int, ...]) -> int:
        """Elements of a block of the inputs with its halo."""
        factors, depth = self._geometry.factors, self._geometry.depth
        return prod(b * f + sum(d) for b, f, d in zip(block, factors, depth, strict=True))


def _with(lengths: tuple[int, ...], axis: int, n: int) -> tuple[int, ...]:
    return (*lengths[:axis], n, *lengths[axis + 1 :])


def _lengths(n: int, unit: int) -> Iterator[int]:
    """Lengths that an axis may be cut into, from all of it down to a unit."""
    yield n
    while n > unit:
        n = _below(n, unit)
        yield n


def _below(n: int, unit: int) -> int:
    """About two thirds or half of a length: whole units, or a part of one."""
    units = -(-n // unit)
    if units > 1:
        return (units + 1) // 2 * unit
    return (n + 1) // 2
