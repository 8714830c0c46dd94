"""Units: level 0 is cut once, in Morton order, within the budget."""

import numpy as np
import pytest

from gzarr.images.pyramid.units import Cells, plan_units


def cells_of(shape: tuple[int, ...], chunk: tuple[int, ...], n_levels: int, itemsize: int = 2) -> Cells:
    """A pyramid with one chunk shape and factors of 2."""
    footprints = tuple(tuple(max(2, n) << level for n in chunk) for level in range(n_levels + 1))
    nbytes = int(np.prod(chunk)) * itemsize
    return Cells(shape, itemsize, footprints, (nbytes,) * (n_levels + 1), chunk)


@pytest.mark.parametrize("shape", [(64, 64), (61, 45), (1, 300)])
def test_units_cover_everything_once(shape: tuple[int, ...]) -> None:
    units = plan_units(cells_of(shape, (8, 8), 3), 1 << 20, 2)
    seen = np.zeros(shape, int)
    for region in units:
        seen[region] += 1
    assert (seen == 1).all()
    assert len(list(units)) == len(units)


def test_units_come_in_morton_order() -> None:
    units = plan_units(cells_of((32, 32), (8, 8), 2), 1 << 20, 64)
    assert units.unit == (8, 8)
    starts = [tuple(s.start // 8 for s in region) for region in units]
    quad = [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert starts == [(2 * a + c, 2 * b + d) for a, b in quad for c, d in quad]


def test_units_grow_to_a_size_worth_a_task() -> None:
    units = plan_units(cells_of((1 << 16, 1 << 16), (64, 64), 8), 256 << 20, 2)
    assert units.unit == (2048, 2048)
    assert plan_units(cells_of((1 << 16, 1 << 16), (64, 64), 1), 256 << 20, 2).unit == (2048, 2048)


def test_small_images_leave_work_for_all_threads() -> None:
    assert len(plan_units(cells_of((1024, 1024), (64, 64), 3), 256 << 20, 4)) >= 16


def test_fewer_tasks_run_at_once_in_less_memory() -> None:
    cells = cells_of((1 << 12, 1 << 12, 1 << 12), (128, 128, 128), 3)
    assert plan_units(cells, 256 << 20, 8).workers == 8
    few = plan_units(cells, 24 << 20, 8)
    assert 1 <= few.workers < 8
    assert few.workers * few.cost_nbytes + few.pending_nbytes <= 24 << 20


@pytest.mark.parametrize("chunk", [(1, 512, 512), (128, 16, 16), (30, 50, 70)])
def test_chunks_that_are_read_are_cut_as_little_as_the_budget_allows(chunk: tuple[int, ...]) -> None:
    cells = cells_of((128, 512, 512), (32, 32, 32), 2, itemsize=1)._replace(chunk=chunk)
    n_reads = [float("inf")]
    for budget in (1 << 19, 4 << 20, 300 << 20):
        units = plan_units(cells, budget, 2)
        assert units.workers * units.cost_nbytes <= budget
        assert all(u % 32 == 0 for u in units.unit)
        seen = np.zeros(3)
        for axis, (n, u, c) in enumerate(zip(cells.shape, units.unit, chunk, strict=True)):
            seen[axis] = sum(min(n, -(-min(o + u, n) // c) * c) - o // c * c for o in range(0, n, u)) / n
        n_reads.append(float(seen.prod()))
        assert n_reads[-1] <= n_reads[-2]
    assert n_reads[-1] <= 1.3
    with pytest.raises(ValueError, match=r"the blocks of the unfinished run take \d+ bytes; .* begin anew"):
        plan_units(cells, 1 << 10, 2, units.unit)
