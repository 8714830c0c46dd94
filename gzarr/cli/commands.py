"""The table of commands (each registers itself, and its docstring is its help), and how they print."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, TextIO, TypeVar

import typer

from gzarr.errors.escaping import escaped

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


def colored(text: str, color: str | None = None, *, bold: bool = False, stream: TextIO | None = None) -> str:
    """Return a text, escaped, with the codes of a colour; without for files and pipes, and if ``NO_COLOR`` is set.

    Source: no-color.org, and ``TERM=dumb`` of terminals without codes.
    """
    shown, plain = sys.stdout if stream is None else stream, escaped(text)
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not shown.isatty():
        return plain
    return typer.style(plain, fg=color, bold=bold or None)


def print_report(report: object) -> None:
    """Print the lines of a report, their names in colour."""
    lines = repr(report).splitlines()
    width = lines[0].find(" : ") if lines else 0
    for line in lines:
        print(colored(line[:width], "cyan") + line[width:])
