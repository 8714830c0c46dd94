"""``gzarr consolidate``."""

from __future__ import annotations

from pathlib import Path

import pytest

import gzarr
from gzarr.cli.main import main


def test_a_group_is_consolidated(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["consolidate", str(data)]) == 0
    assert "2 members" in capsys.readouterr().out
    assert list(gzarr.open_consolidated(data, mode="r")) == ["foo"]
    assert main(["consolidate", str(data / "foo/bar")]) == 0
    assert "nothing to consolidate" in capsys.readouterr().out
    assert main(["consolidate", str(data / "none")]) == 1
