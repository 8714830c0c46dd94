"""Compares candidates for the storage of an array by the cost of reads, and picks the one with the fewest problems.

A number is a problem if it exceeds the best candidate's by a factor, and a floor below which it does not matter. The
present storage comes first and wins ties, so advice that was taken is not given again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gzarr.advising.model import FULL_STREAMS, Cost, StoredLayout


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to store an array.

    Attributes
    ----------
    changes : dict
        Keywords that make it so; empty for the present storage.
    stored : Stored
        Input of the model.
    costs : tuple of Cost
        Cost of every read.
    """

    changes: dict[str, Any]
    stored: StoredLayout
    costs: tuple[Cost, ...]


@dataclass(frozen=True, slots=True)
class Measure:
    """One number of a read; less is better.

    Attributes
    ----------
    name : str
        Name of the gain.
    about : {"chunks", "shards"}
        Subject of the finding.
    unit : str
        Name of the number in reports.
    of : callable
        The number, of a `Cost`.
    factor, floor : float
        A problem is more than ``floor``, and more than ``factor`` times the best.
    """

    name: str
    about: str
    unit: str
    of: Callable[[Cost], float]
    factor: float
    floor: float

    def worst(self, candidate: Candidate) -> float:
        """The number for the worst read."""
        return max(map(self.of, candidate.costs))


def lack_of_streams(cost: Cost) -> float:
    """How many times too few streams are decoded at once; 1 if they are enough, or nothing is to be decoded."""
    return max(FULL_STREAMS / cost.streams_at_once, 1.0) if cost.streams_at_once else 1.0


MEASURES = (
    Measure("amplification", "chunks", "decoded bytes per requested byte", lambda cost: cost.amplification, 2.0, 2.0),
    Measure(
        "read_amplification",
        "chunks",
        "stored bytes per requested byte",
        lambda cost: cost.read_amplification,
        1.5,
        0.02,
    ),
    Measure("streams_per_batch", "chunks", "streams decoded at once", lack_of_streams, 2.0, 2.0),
    Measure("chunks", "chunks", "chunks decoded", lambda cost: cost.chunks, 8.0, FULL_STREAMS),
    Measure("objects", "shards", "objects opened", lambda cost: cost.objects, 4.0, 16.0),
    Measure("requests", "shards", "requests", lambda cost: cost.requests, 4.0, 64.0),
)


def problems(candidate: Candidate, candidates: Sequence[Candidate]) -> list[Measure]:
    """The problems of one candidate, compared with all."""

    def is_problem(measure: Measure) -> bool:
        value, best = measure.worst(candidate), min(map(measure.worst, candidates))
        return value > measure.floor and value > best * measure.factor

    return list(filter(is_problem, MEASURES))


def pick(candidates: Sequence[Candidate]) -> Candidate:
    """The first candidate with the fewest problems."""
    return min(candidates, key=lambda candidate: len(problems(candidate, candidates)))


def explain(measure: Measure, now: Candidate, better: Candidate) -> str:
    """A problem in words and numbers. Raises KeyError for a measure that is not in `MEASURES`."""
    cost = max(now.costs, key=measure.of)
    value, possible = measure.of(cost), measure.worst(better)
    streams = min(other.streams_at_once for other in better.costs)
    text = {
        "amplification": f"decodes {value:,.1f} bytes for each byte requested ({possible:,.1f} possible)",
        "read_amplification": f"fetches {value:,.2f} stored bytes for each byte requested ({possible:,.2f} possible)",
        "streams_per_batch": f"decodes {cost.streams_at_once:,.0f} of the about {FULL_STREAMS:,} streams "
        f"that keep a large GPU busy ({streams:,.0f} possible)",
        "chunks": f"decodes {value:,.0f} chunks ({possible:,.0f} possible)",
        "objects": f"opens {value:,.0f} objects ({possible:,.0f} possible)",
        "requests": f"takes {value:,.0f} requests ({possible:,.0f} possible)",
    }
    return f"{cost.name} {text[measure.name]}"
