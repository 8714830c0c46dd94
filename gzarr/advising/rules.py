"""Judges ways to store an array by what reads cost in each, and picks the one that changes least of those that do well.

A number is a problem if it is both worse than the best way's by a factor and beyond a floor below which it does not
matter. The way that is there wins ties, so advice that was taken is not given again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gzarr.advising.model import FULL_STREAMS, Cost, Stored


@dataclass(frozen=True, slots=True)
class Way:
    """One way to store an array.

    Attributes:
        changes: keywords that make it so; none for what is there.
        stored: what the model wants to know.
        costs: of every read.
    """

    changes: dict[str, Any]
    stored: Stored
    costs: tuple[Cost, ...]


@dataclass(frozen=True, slots=True)
class Measure:
    """One number to judge by; less is better.

    Attributes:
        name: of the gain. about: of the finding: "chunks" or "shards".
        of: the number of one read.
        factor: how much worse than the best is a problem. floor: up to which it never is.
    """

    name: str
    about: str
    of: Callable[[Cost], float]
    factor: float
    floor: float

    def worst(self, way: Way) -> float:
        """The number of the read for which it is worst."""
        return max(map(self.of, way.costs))


def lack_of_streams(cost: Cost) -> float:
    """How many times too few streams there are in a wave; 1 for enough, or for nothing to decode."""
    return max(FULL_STREAMS / cost.streams_per_wave, 1.0) if cost.streams_per_wave else 1.0


MEASURES = (
    Measure("amplification", "chunks", lambda cost: cost.amplification, 2.0, 2.0),
    Measure("read_amplification", "chunks", lambda cost: cost.read_amplification, 1.5, 0.02),
    Measure("streams_per_wave", "chunks", lack_of_streams, 2.0, 2.0),
    Measure("chunks", "chunks", lambda cost: cost.chunks, 8.0, FULL_STREAMS),
    Measure("objects", "shards", lambda cost: cost.objects, 4.0, 16.0),
    Measure("requests", "shards", lambda cost: cost.requests, 4.0, 64.0),
)


def problems(way: Way, ways: Sequence[Way]) -> list[Measure]:
    """What is a problem of one way, compared with all."""
    found = []
    for measure in MEASURES:
        value, best = measure.worst(way), min(map(measure.worst, ways))
        if value > measure.floor and value > best * measure.factor:
            found.append(measure)
    return found


def pick(ways: Sequence[Way]) -> Way:
    """The first of those with the fewest problems."""
    return min(ways, key=lambda way: len(problems(way, ways)))


def explain(measure: Measure, now: Way, then: Way) -> str:
    """A problem in words and numbers. Raises: KeyError for a measure that is not in `MEASURES`."""
    cost = max(now.costs, key=measure.of)
    value, better = measure.of(cost), measure.worst(then)
    most = min(other.streams_per_wave for other in then.costs)
    text = {
        "amplification": f"{cost.name} decodes {value:,.1f} bytes for each that is wanted, {better:,.1f} would do",
        "read_amplification": f"{cost.name} fetches {value:,.2f} stored bytes for each that is wanted, "
        f"{better:,.2f} would do",
        "streams_per_wave": f"{cost.name} has {cost.streams_per_wave:,.0f} streams to decode at once, where about "
        f"{FULL_STREAMS:,} keep a large GPU busy; {most:,.0f} are to be had",
        "chunks": f"{cost.name} takes {value:,.0f} chunks apart, {better:,.0f} would do",
        "objects": f"{cost.name} opens {value:,.0f} objects, {better:,.0f} would do",
        "requests": f"{cost.name} takes {value:,.0f} requests, {better:,.0f} would do",
    }
    return text[measure.name]
