"""``gzarr tree``."""

from __future__ import annotations

from pathlib import Path

import pytest

import gzarr
from gzarr.cli.main import main


def test_tree_draws_the_group(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tree", str(data)]) == 0
    out = capsys.readouterr().out
    assert out == "/\n└── foo\n    └── bar (10, 20) int32, chunks (5, 10), 800 B\n"
    assert main(["tree", str(data), "--level", "1"]) == 0
    assert capsys.readouterr().out == "/\n└── foo\n"
    assert main(["tree", str(data / "foo/bar"), "--stored"]) == 0
    assert "B stored" in capsys.readouterr().out


def test_tree_says_which_arrays_have_shards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gzarr.create_array(tmp_path / "a.zarr", shape=(8,), chunks=(2,), shards=(4,), dtype="u1")
    assert main(["tree", str(tmp_path / "a.zarr")]) == 0
    assert "chunks (2,), shards (4,), 8 B" in capsys.readouterr().out


def test_tree_needs_no_device(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with gzarr.config.set(device="cuda:99"):
        assert main(["tree", str(data)]) == 0
    assert "bar" in capsys.readouterr().out
