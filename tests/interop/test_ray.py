"""Datasets of Ray Data over arrays of every layout, compared with NumPy; and arrays written by Ray."""

import doctest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr

pytest.importorskip("ray", reason="Ray is not installed: pip install 'gzarr[ray]'")
ray_data = pytest.importorskip("ray.data", reason="Ray Data is not installed: pip install 'gzarr[ray]'")
interop = pytest.importorskip("gzarr.interop.ray")

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own
DATA = np.arange(90 * 7 * 5).reshape(90, 7, 5)
LAYOUTS: dict[str, dict[str, Any]] = {
    "v2": {"zarr_format": 2, "chunks": (20, 4, 5)},
    "v3": {"chunks": (20, 4, 5)},
    "shards": {"chunks": (4, 7, 5), "shards": (24, 7, 5)},
}


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_windows_and_tiles_are_those_of_numpy(tmp_path: Path, layout: str) -> None:
    z = gzarr.array(DATA, store=tmp_path / "a", **LAYOUTS[layout])
    y = gzarr.array(np.arange(90), store=tmp_path / "y", chunks=30)
    rows = interop.read_zarr({"x": z, "y": str(tmp_path / "y")}, index="row", nbytes=4000, override_num_blocks=3)
    found = sorted(rows.take_all(), key=lambda row: row["row"])
    np.testing.assert_array_equal([row["x"] for row in found], DATA)
    np.testing.assert_array_equal([row["y"] for row in found], y[...])
    firsts = [
        block["row"][0].as_py()
        for task in interop.ZarrDatasource(z, index="row", nbytes=1).get_read_tasks(9)
        for block in task()
    ]
    assert {first % (24 if layout == "shards" else 20) for first in firsts} == {0}
    windows = interop.read_zarr(z, window=gzarr.Window(8, stride=3), index="n").take_all()
    assert len(windows) == 28
    assert all(np.array_equal(row["data"], DATA[3 * row["n"] : 3 * row["n"] + 8]) for row in windows)
    tiles = interop.read_zarr(z, crops=gzarr.Crops((30, 7, 5))).take_all()
    np.testing.assert_array_equal(sorted(int(row["data"].sum()) for row in tiles), DATA.reshape(3, -1).sum(1))


def test_examples_of_docstrings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert doctest.testmod(interop) == (0, 12)


def test_columns_are_tensors_without_a_copy(tmp_path: Path) -> None:
    z = gzarr.array(DATA, store=tmp_path / "a")
    block = next(iter(interop.ZarrDatasource(z).get_read_tasks(1)[0]()))
    column = block["data"].chunk(0)
    found = column.to_numpy(zero_copy_only=True) if hasattr(column, "to_numpy") else column
    assert np.asarray(found).reshape(DATA.shape)[3, 2, 1] == DATA[3, 2, 1]
    assert column.buffers()[-1].size == DATA.nbytes


def test_arrays_are_written_where_rows_belong(tmp_path: Path) -> None:
    gzarr.save(tmp_path / "a", DATA, **LAYOUTS["v3"])
    out = gzarr.create_array(tmp_path / "b", shape=DATA.shape, dtype=DATA.dtype, chunks=(8, 7, 5), shards=(32, 7, 5))
    dataset = interop.read_zarr(str(tmp_path / "a"), index="row", nbytes=4000, override_num_blocks=5)
    doubled = dataset.map_batches(lambda batch: {**batch, "data": 2 * batch["data"]}, batch_size=13)
    doubled.random_shuffle(seed=1).write_datasink(interop.ZarrDatasink(str(tmp_path / "b"), "row"))
    np.testing.assert_array_equal(out[...], 2 * DATA)
    with pytest.raises(Exception, match="is no column of the dataset"):
        interop.read_zarr(str(tmp_path / "a")).write_datasink(interop.ZarrDatasink(out, "row"))
    with pytest.raises(ValueError, match="leave pad= out"):
        interop.read_zarr(out, crops=gzarr.Crops((30, 7, 5), pad=0))
