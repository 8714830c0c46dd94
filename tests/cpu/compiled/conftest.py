"""Fixtures of the tests of the compiled loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from gzarr.config import config
from gzarr.cpu.compiled import library
from tests.cpu.compiled.looping import Watched, build_sanitized


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    watched = Watched()
    monkeypatch.setattr(library, "loop", lambda: watched if config.get("cpu.native") else None)
    return watched


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The loop with sanitizers, and what to preload."""
    target = tmp_path_factory.mktemp("sanitized") / "loop.so"
    preload = build_sanitized(target)
    if preload is None:
        pytest.skip("there is no C compiler with sanitizers")
    return target, preload
