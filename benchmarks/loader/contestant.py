"""The interface of a contestant: an array opened in one library, and epochs over it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from benchmarks.loader.cases import Task


class AbsentError(Exception):
    """The library cannot take part in a case; the message says why."""


class Batch(NamedTuple):
    """Samples by number, and their values.

    Attributes
    ----------
    ids : array or function of nothing
        Asked for only where contents are checked.
    starts : array or function of nothing, optional
        Where the crops begin, if they are not those of the task.
    """

    ids: Any
    values: Any
    starts: Any = None


class Contestant:
    """A library that loads the data of a task. Raises: AbsentError for what it lacks.

    Attributes
    ----------
    place : str
        The path or the URL of the array.
    caches : bool
        Whether it keeps anything from batch to batch. If not, its rate is the same all through an epoch, and a part
        of one is timed where a whole one takes long.
    """

    caches = True
    version = ""

    def __init__(self, task: Task, place: str) -> None:
        self.task, self.place = task, place

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of an epoch."""
        raise NotImplementedError

    def fresh(self) -> Contestant:
        """One that has read nothing yet, on the same open array; for the time of the first batch."""
        return self

    def decodes(self) -> float | None:
        """Chunks decoded in the last epoch, if the library counts them."""
        return None

    def close(self) -> None:
        """Let go of threads and processes."""


def ask(value: Any) -> Any:
    """A value, or that of a function of nothing."""
    return value() if callable(value) else value


Make = Callable[[Task, str], Contestant]
