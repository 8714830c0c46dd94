"""The folder of the cache: the user's own, wherever the process runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from gzarr.gpu.detection.driver import cache_folder


def test_a_folder_that_others_can_write_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = cache_folder("self-checks")
    assert folder is not None
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    assert cache_folder("self-checks") is None


@pytest.mark.parametrize("given", ["relative", "", None])
def test_the_cache_does_not_depend_on_where_one_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if given is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", given)
    assert cache_folder("kernels") == tmp_path / "home" / ".cache" / "gzarr" / "kernels"
