"""``gzarr ls``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gzarr.cli.main import main


def test_members_are_listed(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", str(data)]) == 0
    assert capsys.readouterr().out == "foo/\n"
    assert main(["ls", str(data), "-r"]) == 0
    assert capsys.readouterr().out == "foo/\nfoo/bar\n"
    assert main(["ls", str(data / "foo"), "--long"]) == 0
    assert capsys.readouterr().out == "bar  (10, 20) int32, chunks (5, 10), 800 B\n"
    assert main(["ls", str(data / "foo/bar"), "--stored"]) == 0
    assert capsys.readouterr().out.endswith("B stored\n")
    assert main(["ls", str(data / "foo/bar")]) == 0
    assert capsys.readouterr().out == f"{data / 'foo/bar'}\n"


def test_members_for_programs(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", str(data), "-r", "--json"]) == 0
    group, array = json.loads(capsys.readouterr().out)
    assert group == {"name": "foo", "type": "group"}
    assert (array["name"], array["shape"], array["nbytes"]) == ("foo/bar", [10, 20], 800)
