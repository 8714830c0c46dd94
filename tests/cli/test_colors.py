"""Colours are for terminals."""

from __future__ import annotations

import io

import pytest

from gzarr.cli.commands import colored, print_report
from gzarr.display.info import Report


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)


def test_only_terminals_get_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    assert colored("a", "red", stream=io.StringIO()) == "a"
    assert colored("a", "red", bold=True, stream=Terminal()) == "\x1b[31m\x1b[1ma\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert colored("a", "red", stream=Terminal()) == "a"


def test_terminals_without_codes_get_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert colored("a", "red", stream=Terminal()) == "a"


def test_the_names_of_a_report_are_in_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Terminal()
    monkeypatch.setattr("sys.stdout", out)
    print_report(Report([("Name", "/"), ("Order", "C")]))
    assert out.getvalue() == "\x1b[36mName \x1b[0m : /\n\x1b[36mOrder\x1b[0m : C\n"
