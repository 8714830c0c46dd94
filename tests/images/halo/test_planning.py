"""Plans of walks fit the budget, and decode and compute little twice."""

from __future__ import annotations

from math import prod

import pytest

from gzarr.images.halo.boundary import Depth
from gzarr.images.halo.choosing import make_plan
from gzarr.images.halo.planning import BlockwisePlan, Costs, Geometry, frontier
from gzarr.indexing.grid import RegularAxis, VaryingAxis


def plan_of(
    shape: tuple[int, ...],
    chunk: int,
    depth: int,
    mib: float,
    *,
    unit: int = 0,
    itemsize: int = 2,
    block_nbytes: int = 4,
) -> BlockwisePlan:
    geometry = Geometry(
        shape=shape,
        depth=(Depth(depth, depth),) * len(shape),
        modes=("reflect",) * len(shape),
        factors=(1,) * len(shape),
        unit=(unit or chunk,) * len(shape),
    )
    costs = Costs((2,), 2, block_nbytes, 2, 1, int(mib * 2**20))
    return make_plan(geometry, [tuple(RegularAxis(n, chunk) for n in shape)], costs, None)


def decoded(plan: BlockwisePlan, shape: tuple[int, ...], chunk: int, depth: int) -> float:
    """Elements of chunks that are read for all bars, over those of the array."""
    ratio = 1.0
    for axis, (n, width) in enumerate(zip(shape, plan.bar, strict=True)):
        if axis != plan.axis:
            ends = [(max(low - depth, 0), min(low + width + depth, n)) for low in range(0, n, width)]
            ratio *= sum(min(-(-b // chunk) * chunk, n) - a // chunk * chunk for a, b in ends) / n
    return ratio


def test_a_flat_volume_is_walked_along_a_long_axis() -> None:
    """The case that is measured: nothing is decoded twice, and little computed."""
    plan = plan_of((128, 1024, 1024), 64, 8, 256)
    assert plan.axis != 0
    assert decoded(plan, (128, 1024, 1024), 64, 8) == 1
    assert prod(b + 16 for b in plan.block) / prod(plan.block) < 1.3


@pytest.mark.parametrize("mib", [64, 256, 1024])
def test_plans_fit_the_budget(mib: int) -> None:
    shape = (1024, 1024, 1024)
    plan = plan_of(shape, 64, 8, mib)
    assert plan.nbytes <= mib << 20
    past = [56 * (axis == plan.axis) for axis in range(3)]  # to the end of the chunk that the halo ends in
    window = prod(b + 16 + p for b, p in zip(plan.bar, past, strict=True))
    assert plan.windows_nbytes == 2 * window
    assert plan.nbytes == plan.windows_nbytes + 2 * plan.block_nbytes
    assert decoded(plan, shape, 64, 8) < {64: 2.3, 256: 1.6, 1024: 1.2}[mib]


def test_more_memory_costs_less_time() -> None:
    shape = (2048, 2048, 2048)
    plans = [plan_of(shape, 64, 8, mib) for mib in (64, 512, 8192)]
    costs = [plan.cost for plan in plans]
    assert costs == sorted(costs, reverse=True)
    assert decoded(plans[-1], shape, 64, 8) < 1.2


def test_blocks_stay_in_cache_where_their_halos_are_thin() -> None:
    assert plan_of((16384, 16384), 1024, 8, 256).block_nbytes < 40 << 20


def test_groups_are_whole_units() -> None:
    """Shards larger than the blocks that the function's memory allows are put together of blocks."""
    plan = plan_of((512, 512, 512), 32, 4, 256, unit=256, block_nbytes=64)
    assert all(n % 256 == 0 for n in (*plan.bar, *plan.group))
    assert prod(plan.block) < prod(plan.group)


def test_blocks_keep_the_workers_busy() -> None:
    plan = plan_of((4096, 4096), 256, 2, 1024)
    assert plan.n_blocks(tuple((0, n) for n in plan.bar)) % 2 == 0


def test_windows_reach_to_the_ends_of_chunks() -> None:
    assert frontier(RegularAxis(100, 16), 17, whole=True) == 32
    assert frontier(RegularAxis(100, 16), 97, whole=True) == 100
    assert frontier(RegularAxis(100, 16), 17, whole=False) == 17
    assert frontier(VaryingAxis(10, (3, 7)), 4, whole=True) == 10


def test_planning_takes_no_time_for_each_chunk() -> None:
    long = 10**12
    plan = plan_of((long,), 1, 5, 256)
    assert plan.bar[0] < long
    plan_of((1, long), 1, 0, 256)
