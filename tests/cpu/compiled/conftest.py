"""Fixtures of the tests of the compiled loop."""

import pytest

from gzarr.config import config
from gzarr.cpu.compiled import eligibility, library
from tests.cpu.compiled.looping import Watched


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    watched = Watched()
    monkeypatch.setattr(eligibility, "make_basic", lambda *_: None)  # so that plans are made for all selections
    monkeypatch.setattr(library, "loop", lambda: watched if config.get("cpu.native") else None)
    return watched
