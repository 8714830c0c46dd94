"""Arrays written as TIFF, read by tifffile and back."""

import numpy as np
import pytest
import tifffile

import gzarr
from gzarr import convert
from gzarr.convert import tiff
from gzarr.errors import CopyError
from gzarr.storage import MemoryStore


@pytest.mark.parametrize("dtype", ["u1", "i2", ">u4", "f4", "f8", "c8", "?"])
@pytest.mark.parametrize("compression", ["zlib", None])
def test_elements_are_kept(tmp_path, dtype, compression):
    data = np.random.default_rng(0).integers(0, 200, (3, 50, 70)).astype(dtype)
    convert.to_tiff(gzarr.array(data, chunks=(2, 32, 16)), tmp_path / "a.tif", compression=compression)
    assert np.array_equal(tifffile.imread(tmp_path / "a.tif"), data)
    with tifffile.TiffFile(tmp_path / "a.tif") as file:
        assert (file.pages[0].tilelength, file.pages[0].tilewidth) == (32, 16)


@pytest.mark.parametrize(
    ("shape", "names", "axes"),
    [
        ((40, 50), ("y", "x"), "YX"),
        ((2, 3, 4, 40, 50), ("t", "c", "z", "y", "x"), "TCZYX"),
        ((4, 40, 50), ("time", "lat", "lon"), "TYX"),
        ((40, 50, 3), ("y", "x", "c"), "YXS"),
        ((2, 40, 50, 4), None, "QYXS"),
        ((5, 40, 50), ("batch", "y", "x"), "QYX"),
        ((1, 1), ("y", "x"), "YX"),
    ],
)
def test_axes_are_named_and_come_back(tmp_path, shape, names, axes):
    data = np.random.default_rng(0).integers(0, 200, shape).astype("u1")
    z = gzarr.array(data, chunks=True, dimension_names=names)
    convert.to_tiff(z, tmp_path / "a.tif", tile=(16, 32))
    with tifffile.TiffFile(tmp_path / "a.tif") as file:
        assert file.series[0].axes == axes
        assert file.pages[0].photometric.name == ("RGB" if axes[-1] == "S" else "MINISBLACK")
    convert.from_tiff(tmp_path / "a.tif", dest := MemoryStore())
    assert np.array_equal(gzarr.open(dest)[...], data)


def test_pages_larger_than_the_budget_are_read_in_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(tiff, "BUDGET_NBYTES", 2000)
    data = np.arange(3 * 50 * 60, dtype="u1").reshape(3, 50, 60)
    convert.to_tiff(gzarr.array(data, chunks=(2, 20, 60)), tmp_path / "a.tif", tile=(16, 16))
    assert np.array_equal(tifffile.imread(tmp_path / "a.tif"), data)


def test_what_tiff_cannot_hold_is_refused(tmp_path):
    root = gzarr.group()
    root["a"] = np.zeros((4, 5))
    for source, match in (
        (root, "is a group"),
        (gzarr.zeros(5), "at least two axes"),
        (gzarr.zeros((0, 5)), "none of them empty"),
        (gzarr.zeros((4, 5), dtype="M8[s]"), "holds numbers"),
    ):
        with pytest.raises(CopyError, match=match):
            convert.to_tiff(source, tmp_path / "a.tif")
    with pytest.raises(CopyError, match="no file was made"):
        convert.to_tiff(root["a"], tmp_path / "a.tif", tile=(15, 15))
    (tmp_path / "a.tif").write_bytes(b"precious")
    with pytest.raises(CopyError, match="exists"):
        convert.to_tiff(root["a"], tmp_path / "a.tif")
