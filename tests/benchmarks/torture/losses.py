"""Short runs of the cells of some scenarios, as tests."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from benchmarks.torture.cell import Cell, cells, run
from benchmarks.torture.scenario import Scenario

SEED = 1


def cells_of(scenarios: Iterable[Scenario]) -> list[object]:
    """The cells of scenarios, as parameters of a test."""
    names = {each.name for each in scenarios}
    return [pytest.param(cell, id=cell.name) for cell in cells() if cell.scenario.name in names]


def run_briefly(cell: Cell, budget_s: float) -> None:
    """Fail if a cell loses something; one that is not promised must only end by itself."""
    if cell.absence:
        pytest.skip(cell.absence)
    counts = run(cell, SEED, budget_s * cell.scenario.weight)
    assert cell.unsafe or counts.operations, f"nothing ran: {counts}"
    again = f"python -m benchmarks.torture --only '{cell.scenario.name}' --store {cell.store} --seed {SEED}"
    assert cell.unsafe or not counts.losses, f"{counts}\nRepeat it with: {again}"
