"""``gzarr demo``."""

from __future__ import annotations

from pathlib import Path

import pytest

from gzarr.cli.main import main
from gzarr.demo import tour


def test_demo_hands_its_arguments_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(tour, "run_tour", lambda *args: calls.append(args))
    assert main(["demo", "--out", str(tmp_path), "--device", "cuda:1"]) == 0
    assert main(["demo"]) == 0
    assert calls == [(tmp_path, "cuda:1"), (Path("demo-out"), "auto")]
