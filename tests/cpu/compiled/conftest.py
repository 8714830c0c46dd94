"""Fixtures of the tests of the compiled loop."""

from __future__ import annotations

import pytest

from gzarr.config import config
from gzarr.cpu.compiled import library
from tests.cpu.compiled.looping import Watched


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    watched = Watched()
    monkeypatch.setattr(library, "loop", lambda: watched if config.get("cpu.native") else None)
    return watched
