"""Nothing leaks, and damage gives errors of the library's own: briefly, and that the scenarios would notice."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.torture import damage, leaks
from benchmarks.torture.cell import Cell
from benchmarks.torture.leaks import Usage, grown
from tests.benchmarks.torture.losses import cells_of, run_briefly

BUDGET_S = 0.3


@pytest.mark.parametrize("cell", cells_of([*leaks.SCENARIOS, *damage.SCENARIOS]))
def test_nothing_is_lost(cell: Cell) -> None:
    run_briefly(cell, BUDGET_S)


def test_growth_is_noticed() -> None:
    before = Usage(10, 4, 50_000, 1 << 26)
    assert not grown(before, Usage(10, 5, 50_500, (1 << 26) + (8 << 20)), 100).losses
    assert grown(before, before._replace(descriptors=11), 100).leaked == 1
    assert grown(before, Usage(10, 6, 80_000, 1 << 27), 1000).leaked == 3


@pytest.mark.parametrize(
    ("results", "wrong", "raw"),
    [
        ({"loop": ("right", ""), "reference": ("right", ""), "emulated": ("right", "")}, 0, 0),
        ({"loop": ("refused", ""), "reference": ("refused", ""), "emulated": ("refused", "")}, 0, 0),
        ({"loop": ("other", "1"), "reference": ("other", "1"), "emulated": ("other", "1")}, 1, 0),
        ({"loop": ("right", ""), "reference": ("refused", ""), "emulated": ("right", "")}, 1, 0),
        ({"loop": ("raw", "ValueError"), "reference": ("refused", ""), "emulated": ("refused", "")}, 0, 1),
    ],
)
def test_what_reading_gives_is_judged(
    results: dict[str, tuple[str, str]], wrong: int, raw: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(damage, "_read", lambda _, way: results[way])
    counts = damage._damage("objects", "crc32c", tmp_path / "a", np.random.default_rng(1))
    assert (counts.wrong, counts.raw_errors) == (wrong, raw)
