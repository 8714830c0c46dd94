"""NumPy's files into Zarr; pickles and hostile archives are refused."""

import zipfile

import numcodecs
import numpy as np
import pytest

import gzarr
from gzarr import convert
from gzarr.convert.writing import replacing
from gzarr.errors import CopyError
from gzarr.storage import MemoryStore


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


@pytest.mark.parametrize("dtype", ["i4", ">f8", "?", "c8", "M8[D]", "S3", "U2", [("a", "i4"), ("b", "f8")]])
@pytest.mark.parametrize("shape", [(), (0, 3), (7, 5)])
def test_arrays_become_npy(tmp_path, dtype, shape):
    z = gzarr.zeros(shape, chunks=(3, 2)[: len(shape)], dtype=dtype)
    if np.dtype(dtype).names is None and shape == (7, 5):
        z[...] = np.arange(35).reshape(7, 5).astype(dtype)
    convert.to_npy(z, tmp_path / "a.npy")
    found = np.load(tmp_path / "a.npy", allow_pickle=False)
    assert (found.shape, found.dtype) == (shape, z.dtype.newbyteorder("="))
    assert np.array_equal(found, z[...])


def test_groups_become_npz_and_come_back(tmp_path):
    root = gzarr.group()
    root["a/x"], root["y"] = np.arange(12).reshape(3, 4), np.ones(2)
    root.create_array("words", data=np.array(["één", ""], object), dtype=str)
    for compressed in (False, True):
        convert.to_npy(root, tmp_path / "a.npz", compressed=compressed, overwrite=compressed)
        with np.load(tmp_path / "a.npz", allow_pickle=False) as found:
            assert found["a/x"].tolist() == np.arange(12).reshape(3, 4).tolist()
            assert found["words"].tolist() == ["één", ""]
    convert.from_npy(tmp_path / "a.npz", dest := MemoryStore())
    assert sorted(path for path, _ in gzarr.open(dest).members(None)) == ["a", "a/x", "words", "y"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npz"]


def test_objects_are_not_pickled(tmp_path):
    z = gzarr.array(np.array([{}, []], object), object_codec=numcodecs.JSON(), zarr_format=2)
    with pytest.raises(CopyError, match=r"cannot hold.*no file was made|cannot hold"):
        convert.to_npy(z, tmp_path / "a.npy")
    with pytest.raises(CopyError, match="bfloat16, which"):
        convert.to_npy(gzarr.zeros(3, dtype="bfloat16"), tmp_path / "a.npy")
    assert list(tmp_path.iterdir()) == []


def test_files_are_written_where_others_can_put_no_link(tmp_path):
    with replacing(tmp_path / "x.npy", overwrite=False) as partial:
        assert partial.parent.stat().st_mode & 0o077 == 0
        partial.write_bytes(b"x")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("x.npy", b"x")]
