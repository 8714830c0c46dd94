"""Random programs find nothing: briefly, and that their checks would notice."""

import numpy as np
import pytest

from benchmarks.torture import epochs, plugin, programs, pyramids
from benchmarks.torture.cell import Cell
from benchmarks.torture.programs import Call
from tests.benchmarks.torture.losses import cells_of, run_briefly

BUDGET_S = 0.1


@pytest.mark.parametrize(
    "cell", cells_of([*programs.SCENARIOS, *plugin.SCENARIOS, *epochs.SCENARIOS, *pyramids.SCENARIOS])
)
def test_nothing_is_lost(cell: Cell) -> None:
    run_briefly(cell, BUDGET_S)


@pytest.mark.parametrize(
    ("value", "lost", "wrong"),
    [(7, 0, 0), (8, 0, 0), (9, 0, 0), (5, 1, 0), (0, 1, 0), (6, 0, 1)],
    ids=["the last", "one at the same time", "one under way", "overwritten", "what was there", "of another element"],
)
def test_reads_are_judged_by_the_order_of_the_writes(value: int, lost: int, wrong: int) -> None:
    one = np.array([1])
    writes = [Call("", began, ended, one, n) for n, began, ended in ((5, 0, 1), (7, 2, 4), (8, 3, 5), (9, 6, 9))]
    writes.append(Call("", 0, 1, np.array([0]), 6))
    counts = programs.check(np.zeros(3, "i8"), writes, [Call("", 7, 8, one, np.array([value]))])
    assert (counts.lost, counts.wrong) == (lost, wrong)
    assert programs.check(np.zeros(3, "i8"), [], [Call("", 7, 8, one, np.zeros(2))]).wrong == 1


@pytest.mark.parametrize(
    ("ids", "drop_last", "right"),
    [
        ([0, 1, 2, 3, 4], False, True),
        ([0, 1, 2, 3, 4, 0], False, True),  # two ranks
        ([0, 1, 2, 3, 4, 0, 1], False, False),
        ([0, 1, 2, 3], False, False),
        ([0, 1, 2], True, True),
        ([0, 1, 2, 2], True, False),
        ([0, 1, 2, 3, 5], True, False),
    ],
)
def test_epochs_are_judged(ids: list[int], drop_last: bool, right: bool) -> None:
    kept = {"ids": ids, "corners": [10 * i for i in ids]}
    options = {"drop_last": drop_last, "batch_size": 2}
    assert (epochs.compare(kept, [0, 10, 20, 30, 40], options, [2]) == "") == right
    assert epochs.compare({**kept, "corners": [7 for _ in ids]}, [0, 10, 20, 30, 40], options, [2])
