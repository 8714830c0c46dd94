"""The table of commands: each command registers itself, and its docstring is its help."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


class Command(NamedTuple):
    """A command.

    Attributes
    ----------
    function : callable
        What it does. It returns an exit code, or None for 0.
    heading : str
        Where the help lists it; "" for commands below ``gzarr ome``.
    tells : bool
        Whether its exit code says what it found, 0 or 1: it exits with 2 if it fails, others with 1.
    """

    function: Callable[..., Any]
    heading: str
    tells: bool


#: All commands, as they were imported.
COMMANDS: list[Command] = []


def command(heading: str, *, tells: bool = False) -> Callable[[Function], Function]:
    """Register a function as a command; the parameters are those of `Command`."""

    def register(function: Function) -> Function:
        COMMANDS.append(Command(function, heading, tells))
        return function

    return register


def show(report: Any, *, as_json: bool) -> None:
    """Print a report, or what its ``to_json`` gives."""
    print(json.dumps(report.to_json(), indent=2) if as_json else report)
