"""Fixtures of the tests of the compiled loop."""

from collections.abc import Iterator

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


@pytest.fixture(scope="module")
def few_chunks_are_enough() -> Iterator[None]:
    """The loop is called for shards and chunks however few, where a program would not gain from it, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(eligibility, "MIN_SAVED", -1_000_000)
        patch.setattr(eligibility, "MIN_NCHUNKS", 1)
        yield
