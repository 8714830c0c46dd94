"""The list of scenarios, in the order of the table."""

from __future__ import annotations

from benchmarks.torture import nodes, races
from benchmarks.torture.scenario import Scenario

SCENARIOS: tuple[Scenario, ...] = (*races.SCENARIOS, *nodes.SCENARIOS)
BY_NAME = {each.name: each for each in SCENARIOS}
