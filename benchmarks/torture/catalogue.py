"""The list of scenarios, in the order of the table."""

from __future__ import annotations

from benchmarks.torture import (
    clones,
    damage,
    disk,
    epochs,
    forks,
    interrupts,
    kills,
    leaks,
    nodes,
    plugin,
    programs,
    pyramids,
    races,
    sanitized,
)
from benchmarks.torture.scenario import Scenario

SCENARIOS: tuple[Scenario, ...] = (
    *races.SCENARIOS,
    *programs.SCENARIOS,
    *nodes.SCENARIOS,
    *kills.SCENARIOS,
    *disk.SCENARIOS,
    *clones.SCENARIOS,
    *interrupts.SCENARIOS,
    *forks.SCENARIOS,
    *epochs.SCENARIOS,
    *pyramids.SCENARIOS,
    *leaks.SCENARIOS,
    *damage.SCENARIOS,
    *plugin.SCENARIOS,
    *sanitized.SCENARIOS,
)
BY_NAME = {each.name: each for each in SCENARIOS}
