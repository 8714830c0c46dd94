"""``gzarr compare``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import gzarr
from gzarr.cli.main import main


def test_status_and_report(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.zarr"
    gzarr.transfer(data, other, zarr_format=2)
    assert main(["compare", str(data), str(other)]) == 0
    assert "equal" in capsys.readouterr().out
    assert main(["compare", str(data), str(other), "--strict"]) == 1
    capsys.readouterr()
    array = gzarr.open(other / "foo/bar")
    array[9, 19] = 3
    assert main(["compare", str(data), str(other), "--json"]) == 1
    assert not json.loads(capsys.readouterr().out)["equal"]
    assert main(["compare", str(data), str(other), "--atol=2"]) == 0
    assert main(["compare", str(data), str(other), "--metadata-only"]) == 0
    assert main(["compare", str(data), str(tmp_path / "none")]) == 2
