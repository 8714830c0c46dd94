"""Files stay open for the next reads, within the limits of the process, and are opened at once."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from gzarr.gpu.reading.open_files import N_THREADS, FileCache, Limits, file_version
from gzarr.gpu.reading.open_files import limits as limits_of_process
from tests.gpu.direct_files import DirectFiles


def test_file_handles_are_bounded_and_closed(tmp_path) -> None:
    direct = DirectFiles()
    cache = FileCache(direct, Limits(3, 10))
    paths = [tmp_path / str(i) for i in range(10)]
    for path in paths:
        path.write_bytes(b"x")
    versions = {str(path): file_version(path.stat()) for path in paths}
    with cache.open(versions) as found:
        assert len(found) == 10
        assert direct.closed == 0  # all are in use
        cache.close()
        assert direct.closed == 0
    assert (direct.opened, direct.closed, len(cache)) == (10, 10, 0)
    for _ in range(2):
        with cache.open(dict(list(versions.items())[:3])):
            pass
    assert (direct.opened, direct.closed, len(cache)) == (13, 10, 3)
    with cache.open({str(paths[9]): versions[str(paths[9])]}):
        pass
    assert (direct.opened, direct.closed, len(cache)) == (14, 11, 3)
    paths[9].write_bytes(b"another")
    another = {str(paths[9]): (*versions[str(paths[9])][:2], 0, 0)}
    with pytest.raises(OSError, match="replaced"), cache.open(another):
        pass
    cache.close()
    assert direct.opened == direct.closed


def made(folder: Path, n: int) -> dict[str, tuple[int, ...]]:
    """Some files, and their versions."""
    versions = {}
    for i in range(n):
        (folder / str(i)).write_bytes(b"x")
        versions[str(folder / str(i))] = file_version((folder / str(i)).stat())
    return versions


def test_files_are_opened_at_once(tmp_path: Path) -> None:
    versions = made(tmp_path, 40)
    direct, barrier = DirectFiles(), threading.Barrier(N_THREADS)

    def open_file(path: str) -> Any:
        if int(Path(path).name) < N_THREADS:
            barrier.wait(30)  # for as many as are opened at once
        return direct(path)

    cache = FileCache(open_file)
    with cache.open(versions) as found:
        assert list(found) == list(versions)
        assert all(file.path == path for path, file in found.items())
    assert direct.opened == 40
    cache.close()
    assert direct.closed == 40


def test_a_file_that_cannot_be_opened_leaves_the_others_open_for_later(tmp_path: Path) -> None:
    versions = made(tmp_path, 5)
    direct = DirectFiles()
    cache = FileCache(direct)
    with pytest.raises(OSError, match="nowhere"), cache.open(versions | {str(tmp_path / "nowhere"): (1, 2, 3, 4)}):
        pass
    with cache.open(versions):
        assert cache.has_all(versions)
    cache.close()
    assert direct.opened == direct.closed


@pytest.mark.parametrize(("limits", "opened"), [(Limits(4096, 512), 2048), (Limits(192, 64), 2 * 2048)])
def test_files_stay_open_for_the_next_read(tmp_path: Path, limits: Limits, opened: int) -> None:
    versions = list(made(tmp_path, 2048).items())
    direct = DirectFiles()
    cache = FileCache(direct, limits)
    for _ in range(2):
        for first in range(0, 2048, limits.at_once):
            with cache.open(dict(versions[first : first + limits.at_once])):
                assert direct.opened - direct.closed <= sum(limits)
    assert direct.opened == opened
    cache.close()
    assert direct.opened == direct.closed


def test_files_that_were_used_least_recently_make_room(tmp_path: Path) -> None:
    versions = list(made(tmp_path, 30).items())
    cache = FileCache(DirectFiles(), Limits(20, 10))
    for first in (0, 10, 0, 20):
        with cache.open(dict(versions[first : first + 10])):
            pass
    assert [cache.has_all(dict(versions[first : first + 10])) for first in (0, 10, 20)] == [True, False, True]
    cache.close()


def test_the_limits_follow_those_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    for soft, expected in ((1024, (192, 64)), (20_000, (3750, 1250)), (2, (1, 1))):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        assert limits_of_process() == expected
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert limits_of_process().cached > 100_000
