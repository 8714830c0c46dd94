"""Processes that race lose nothing."""

import pytest

from benchmarks.torture import nodes, races
from benchmarks.torture.cell import Cell
from tests.benchmarks.torture.losses import cells_of, run_briefly

BUDGET_S = 0.3


@pytest.mark.parametrize("cell", cells_of([*races.SCENARIOS, *nodes.SCENARIOS]))
def test_nothing_is_lost(cell: Cell) -> None:
    run_briefly(cell, BUDGET_S)
