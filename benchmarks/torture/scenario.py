"""The interface of a scenario: a function that is given a `Setting`, does harm for some seconds, and returns `Counts`.

A scenario runs in a process of its own, which has imported the library but never opens a store: whatever touches data
runs in a `Child` that it forks, so that nothing hangs, leaks or is damaged here. What a scenario draws at random
comes from the seed; what the operating system schedules does not, so a seed repeats the operations, not their timing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

MOST_NOTES = 6
REFUSED = "refused: "  # begins a note that matters less than others


@dataclass(frozen=True, slots=True)
class Counts:
    """What happened. Everything but ``operations`` and ``refused`` is a loss.

    Attributes
    ----------
    operations : int
        Calls that returned.
    refused : int
        Calls that raised an error of the library's own: nothing was promised, nothing is lost.
    lost : int
        Writes that returned and whose values are not there.
    wrong : int
        Values that no order of the operations explains: mixed, of an old version, or never written.
    damaged : int
        Objects or nodes that can no longer be read.
    hung : int
        Processes that had to be killed because they did not end.
    leftover_files : int
        Files left that are no objects of the store, beyond what the documentation allows.
    leaked : int
        Kinds of resources (descriptors, threads, memory) of which ever more are in use.
    raw_errors : int
        Errors of other libraries or of the language, and processes that died on their own.
    notes : tuple of str
        The first few losses in words.
    """

    operations: int = 0
    refused: int = 0
    lost: int = 0
    wrong: int = 0
    damaged: int = 0
    hung: int = 0
    leftover_files: int = 0
    leaked: int = 0
    raw_errors: int = 0
    notes: tuple[str, ...] = ()

    def __add__(self, other: Counts) -> Counts:
        added = {name: getattr(self, name) + getattr(other, name) for name in NUMBERS}
        notes = sorted(self.notes + other.notes, key=lambda note: note.startswith(REFUSED))
        return Counts(**added, notes=tuple(notes[:MOST_NOTES]))

    @property
    def losses(self) -> int:
        """The sum of all that must not happen."""
        return sum(getattr(self, name) for name in LOSSES)

    def to_json(self) -> dict[str, Any]:
        """As JSON values, without what is zero."""
        return {name: value for name, value in asdict(self).items() if value or name == "operations"}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Counts:
        """From the values of `to_json`, among others."""
        known = {name: value[name] for name in NUMBERS if name in value}
        return Counts(**known, notes=tuple(value.get("notes", ())))


NUMBERS = tuple(each.name for each in fields(Counts) if each.name != "notes")
LOSSES = NUMBERS[2:]


@dataclass(frozen=True, slots=True)
class Setting:
    """What a scenario is given: how long, which choices, which kind of store, which library, and an empty folder."""

    budget_s: float
    seed: int
    store: str
    writer: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario with its name, the row of the table that it fills, and where it runs.

    Attributes
    ----------
    name : str
        For ``--only``.
    what : str
        What happens, as the table says it.
    run : callable
        `Setting` -> `Counts`.
    stores : tuple of str
        Kinds of stores (`benchmarks.torture.stores`), or "none" where the scenario needs no store.
    writers : tuple of str
        Libraries that can take part (`benchmarks.torture.libraries`). Others than gzarr run on local directories only.
    unsafe : tuple of str
        Kinds of stores for which docs/reliability.md promises nothing here: shown, but no failure.
    weight : float
        Share of the time, compared with other scenarios.
    absence : callable
        Gives why this machine cannot run it; None if it can.
    """

    name: str
    what: str
    run: Callable[[Setting], Counts]
    stores: tuple[str, ...] = ("local",)
    writers: tuple[str, ...] = ("gzarr",)
    unsafe: tuple[str, ...] = ()
    weight: float = 1.0
    absence: Callable[[], str | None] = lambda: None


def rounds(setting: Setting) -> Iterator[tuple[int, np.random.Generator]]:
    """Numbered rounds until the time is spent, at least one, each with random numbers of its own."""
    end = time.monotonic() + setting.budget_s
    number = 0
    while number == 0 or time.monotonic() < end:
        yield number, np.random.default_rng([setting.seed, number])
        number += 1
