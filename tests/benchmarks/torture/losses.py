"""Short runs of the cells of some scenarios, as tests."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from benchmarks.torture.cell import Cell, cells, run
from benchmarks.torture.scenario import Scenario

SEED = 1
#: Cells that lose something today although it is promised. A cell that no longer does must leave the list.
NOT_YET: set[str] = set()
#: The same for cells that do not lose something in every short run.
NOT_ALWAYS = {
    *(f"{name}, {kind}" for name in ("parts of chunks", "readers") for kind in ("local", "views")),
    *("kills, local", "kills of appends, local", "kills beside writers, local"),
}


def cells_of(scenarios: Iterable[Scenario]) -> list[object]:
    """The cells of scenarios, as parameters of a test."""
    names = {each.name for each in scenarios}
    return [pytest.param(cell, id=cell.name) for cell in cells() if cell.scenario.name in names]


def run_briefly(cell: Cell, budget_s: float) -> None:
    """Fail if a cell loses something; one that is not promised must only end by itself."""
    if cell.absence:
        pytest.skip(cell.absence)
    counts = run(cell, SEED, budget_s * cell.scenario.weight)
    if cell.unsafe or cell.name in NOT_ALWAYS:
        return
    assert counts.operations or counts.losses, "nothing ran"
    again = f"python -m benchmarks.torture --only '{cell.scenario.name}' --store {cell.store} --seed {SEED}"
    if cell.name in NOT_YET:
        assert counts.losses, f"{cell.name} loses nothing any more: take it off NOT_YET"
    else:
        assert not counts.losses, f"{counts}\nRepeat it with: {again}"
