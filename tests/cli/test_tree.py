"""``gzarr tree``."""

from __future__ import annotations

from pathlib import Path

import pytest

import gzarr
from gzarr.cli.main import main


def test_tree_draws_the_group(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tree", str(data)]) == 0
    out = capsys.readouterr().out
    assert out == f"{gzarr.open_group(data, mode='r').tree()}\n"
    assert "foo" in out
    assert "bar (10, 20) int32" in out


def test_tree_needs_no_device(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with gzarr.config.set(device="cuda:99"):
        assert main(["tree", str(data)]) == 0
    assert "bar" in capsys.readouterr().out
