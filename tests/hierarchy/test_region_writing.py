"""Regions of whole stored objects, writers of one of them, and results that are published when they are whole."""

import errno
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import gzarr
from gzarr.errors import ContainsNodeError, NodeNotFoundError, SelectionError, StoreError
from gzarr.metadata.occupied import PROGRESS


@pytest.mark.parametrize("whole", ["shards", "chunks"])
@pytest.mark.parametrize("nbytes", [1, 3000, 1 << 30])
def test_regions_are_of_whole_objects_and_make_up_the_array(whole: Any, nbytes: int) -> None:
    z = gzarr.zeros((50, 70), chunks=(5, 10), shards=(20, 30), dtype="u2")
    grid = {"shards": (20, 30), "chunks": (5, 10)}[whole]
    regions, seen = z.regions(nbytes, whole), np.zeros(z.shape, int)
    for region in regions:
        assert [part.start % n for part, n in zip(region, grid, strict=True)] == [0, 0]
        assert seen[region].nbytes // 4 <= max(nbytes, grid[0] * grid[1] * 2)
        seen[region] += 1
    assert seen.min() == seen.max() == 1
    assert [regions.at(n) for n in range(len(regions))] == list(regions)
    for number in (-1, len(regions)):
        with pytest.raises(IndexError, match=f"there is no region {number}"):
            regions.at(number)
    with pytest.raises(ValueError, match="must be 'shards' or 'chunks'"):
        z.regions(whole="rows")  # type: ignore[arg-type]


def write(writer: Any, value: int) -> None:
    writer.write(value)


def test_processes_write_regions_of_their_own(tmp_path: Path) -> None:
    z = gzarr.zeros((50, 70), chunks=(5, 10), shards=(20, 30), dtype="u2", store=tmp_path / "a.zarr")
    regions = list(z.regions(1))
    with ProcessPoolExecutor(2, get_context("spawn")) as processes:
        list(processes.map(write, map(z.region_writer, regions), range(len(regions))))
    assert all((z[region] == n).all() for n, region in enumerate(regions))


def test_what_is_not_whole_or_not_its_own_is_refused() -> None:
    z = gzarr.zeros((50, 70), chunks=(5, 10), shards=(20, 30), dtype="u2")
    writer = z.region_writer(np.s_[20:, :60])
    writer[40:, 30:60] = 7
    assert (z[40:, 30:60] == 7).all()
    assert z[...].sum() == 7 * 300
    with pytest.raises(SelectionError, match=r"\[0:20, 0:60\] is not within \[20:50, 0:60\], which this writer owns"):
        writer[:20, :60] = 1
    with pytest.raises(SelectionError, match=r"cuts chunks or shards along axis 1, .* take 0:60 there"):
        writer[20:40, 10:60] = 1
    for bad in (np.s_[25:], np.s_[::2], 3, np.s_[:, :, :]):
        with pytest.raises(SelectionError):
            z.region_writer(bad)
    assert z[...].sum() == 7 * 300


def test_results_are_published_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gzarr.save(tmp_path / "part", a=np.arange(5))
    (tmp_path / "part" / PROGRESS).write_text('{"name": "label"}')
    with pytest.raises(NodeNotFoundError, match="is not finished: label"):
        gzarr.publish(tmp_path / "part", tmp_path / "b" / "whole")
    (tmp_path / "part" / PROGRESS).unlink()
    gzarr.publish(tmp_path / "part", tmp_path / "b" / "whole")
    assert [path.name for path in tmp_path.iterdir()] == ["b"]
    assert gzarr.load(tmp_path / "b" / "whole")["a"].tolist() == [0, 1, 2, 3, 4]
    gzarr.save(tmp_path / "part", np.arange(3))
    with pytest.raises(ContainsNodeError, match="something is at"):
        gzarr.publish(tmp_path / "part", tmp_path / "b" / "whole")
    with pytest.raises(NodeNotFoundError):
        gzarr.publish(tmp_path / "nothing", tmp_path / "c")
    with pytest.raises(StoreError, match="no folder, whose renaming is one step; commit to Icechunk"):
        gzarr.publish(tmp_path / "part", tmp_path / "x.zip")
    assert not (tmp_path / "x.zip").exists()
    monkeypatch.setattr("os.rename", Mock(side_effect=OSError(errno.EXDEV, "other device")))
    with pytest.raises(StoreError, match="different file systems: write on that of the destination, or copy"):
        gzarr.publish(tmp_path / "part", tmp_path / "c")
