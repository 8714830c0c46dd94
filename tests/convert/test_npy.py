"""NumPy's files into Zarr; pickles and hostile archives are refused."""

import zipfile

import numpy as np
import pytest

import gzarr
from gzarr import convert
from gzarr.errors import CopyError
from gzarr.storage import MemoryStore


@pytest.mark.parametrize("dtype", ["?", ">i4", "f2", "c16", "S4", "U3", "M8[D]", [("a", "i4"), ("b", "f8")]])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy(tmp_path, dtype, order):
    data = np.zeros((7, 5), dtype, order)
    data[2:5] = np.ones((), "i8").astype(dtype) if not isinstance(dtype, list) else (1, 2.5)
    np.save(tmp_path / "a.npy", data)
    dest = MemoryStore()
    convert.from_npy(tmp_path / "a.npy", dest, chunks=(3, 2))
    assert np.array_equal(gzarr.open(dest, mode="r")[:].astype(data.dtype), data)


def test_npz(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=np.arange(1000), y=np.float32(3), z=np.zeros((2, 0)))
    dest = MemoryStore()
    convert.from_npy(tmp_path / "a.npz", dest)
    root = gzarr.open(dest, mode="r")
    assert sorted(root) == ["x", "y", "z"]
    assert np.array_equal(root["x"][:], np.arange(1000))
    assert root["y"][()] == 3
    assert root["z"].shape == (2, 0)


def test_pickles_and_hostile_archives_are_refused(tmp_path):
    dest = MemoryStore()
    np.save(tmp_path / "a.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(CopyError, match="Python objects in dtype"):
        convert.from_npy(tmp_path / "a.npy", dest)
    for name in ("../x.npy", "/x.npy", "zarr.json.npy", "..npy"):
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
            archive.write(tmp_path / "a.npy", name)
        with pytest.raises(CopyError, match=r"a\.npz"):
            convert.from_npy(tmp_path / "a.npz", dest)
    assert dict(dest) == {}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npy", "a.npz"]


def test_a_npz_file_that_is_cut_off(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(1000))
    (tmp_path / "a.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:4000])
    with pytest.raises(CopyError, match="cannot read"):
        convert.from_file(tmp_path / "a.npz", MemoryStore())
