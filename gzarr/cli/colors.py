"""Colours, for terminals whose users want them."""

from __future__ import annotations

import os
import sys
from typing import TextIO

import typer

from gzarr.errors.escaping import escaped


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
