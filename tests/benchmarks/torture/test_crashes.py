"""Processes that are killed, interrupted or forked, and disks that are full, lose nothing that was reported written."""

import pytest

from benchmarks.torture import disk, forks, interrupts, kills
from benchmarks.torture.cell import Cell
from tests.benchmarks.torture.losses import cells_of, run_briefly

BUDGET_S = 0.3


@pytest.mark.parametrize("cell", cells_of([*kills.SCENARIOS, *disk.SCENARIOS, *interrupts.SCENARIOS, *forks.SCENARIOS]))
def test_nothing_is_lost(cell: Cell) -> None:
    run_briefly(cell, BUDGET_S)
