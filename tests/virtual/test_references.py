"""References that gzarr writes, read by gzarr and by fsspec with zarr-python; and those that others write."""

import json
import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import gzarr
from gzarr.errors import CopyError, MetadataError, MissingExtraError, StoreError
from tests.support.memory import traced

RNG = np.random.default_rng(0)
DATA = RNG.integers(0, 99, (30, 41))
DATA[10:20, 10:20] = 0


@pytest.fixture
def group(tmp_path: Path) -> gzarr.Group:
    """Arrays of several kinds, in files of two formats."""
    root = gzarr.group(tmp_path / "data.zarr", attributes={"title": "all"})
    root.create_array("a", data=DATA, chunks=(10, 10), dimension_names=["y", "x"], attributes={"units": "K"})
    root.create_array("deep/v2", data=DATA.astype("f4"), chunks=(30, 7))
    root.create_array("scalar", data=5.0)
    root.create_array("big", data=DATA, chunks=(10, 41), serializer=gzarr.codecs.BytesCodec("big"))
    root.create_array("text", data=np.array(["a", "bc", ""], object), dtype="string", chunks=2)
    return root


def hdf5(path: Path) -> gzarr.Group:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=DATA, chunks=(7, 9), compression="gzip", shuffle=True, fletcher32=True)
        file.create_dataset("flat", data=np.arange(400_003))  # the last chunk is cut off
        file["text"] = ["a", "bc"]
    opened = gzarr.open(path, mode="r")
    assert isinstance(opened, gzarr.Group)
    return opened


def check(found: Any, expected: gzarr.Group) -> None:
    """Compare what is read, by gzarr or by zarr-python."""
    for path, array in expected.members(None):
        if isinstance(array, gzarr.Array):
            np.testing.assert_array_equal(found[path][...], array[...], path)


def by_fsspec(path: Path) -> Any:
    """References, as zarr-python reads them through fsspec."""
    fsspec, zarr = pytest.importorskip("fsspec"), pytest.importorskip("zarr")
    if path.suffix == ".json":
        files = fsspec.filesystem("reference", fo=str(path))
    else:
        reference = pytest.importorskip("fsspec.implementations.reference")
        refs = reference.LazyReferenceMapper(str(path), fs=fsspec.filesystem("file"), engine="fastparquet")
        files = fsspec.filesystem("reference", fo=refs, remote_protocol="file")
    wrapped = pytest.importorskip("fsspec.implementations.asyn_wrapper").AsyncFileSystemWrapper(
        files, asynchronous=True
    )
    return zarr.open_group(zarr.storage.FsspecStore(wrapped, read_only=True, path=""), mode="r")


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore:The 'fastparquet' engine:DeprecationWarning")
@pytest.mark.parametrize("name", ["refs.json", "refs.parquet"])
def test_references_are_read_by_gzarr_and_by_zarr_python(group: gzarr.Group, tmp_path: Path, name: str) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    for node in (group, hdf5(tmp_path / "a.h5")):
        gzarr.save_references(node, tmp_path / name)
        found = gzarr.open(tmp_path / name, mode="r")
        check(found, node)
        assert found.attrs.asdict() == node.attrs.asdict()
        check(by_fsspec(tmp_path / name), node)
    assert found["x"].store is not node.store


def test_what_zarr_v2_lacks_is_written_in_v3(tmp_path: Path) -> None:
    root = gzarr.group(tmp_path / "data.zarr")
    root.create_array("sharded", data=DATA, chunks=(5, 5), shards=(10, 20))
    gzarr.save_references(root, tmp_path / "refs.json")
    assert "sharded/zarr.json" in json.loads((tmp_path / "refs.json").read_text())["refs"]
    check(gzarr.open(tmp_path / "refs.json", mode="r"), root)
    check(by_fsspec(tmp_path / "refs.json"), root)
    pytest.importorskip("pyarrow")
    with pytest.raises(MetadataError, match="save them in JSON"):
        gzarr.save_references(root, tmp_path / "refs.parquet")


def test_joined_arrays_are_saved_and_single_arrays_too(tmp_path: Path) -> None:
    parts = [gzarr.create_array(tmp_path / f"{n}.zarr", data=DATA[n : n + 10], chunks=(5, 20)) for n in (0, 10)]
    gzarr.save_references(gzarr.concat(parts), tmp_path / "refs.json")
    np.testing.assert_array_equal(gzarr.open(tmp_path / "refs.json", mode="r")[...], DATA[:20])
    with pytest.raises(MetadataError, match="know no array without a group; save it in JSON"):  # fsspec would fill it
        gzarr.save_references(parts[0], tmp_path / "refs.parquet")


def test_what_is_no_references_is_not_replaced(group: gzarr.Group, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "table.parquet").mkdir()
    (tmp_path / "table.parquet/part.0.parquet").write_bytes(b"data")
    with pytest.raises(StoreError, match="holds no references"):
        gzarr.save_references(group, tmp_path / "table.parquet")
    assert (tmp_path / "table.parquet/part.0.parquet").read_bytes() == b"data"


def test_a_view_has_no_references(group: gzarr.Group, tmp_path: Path) -> None:
    with pytest.raises(MetadataError, match="is a view as float32"):
        gzarr.save_references(group["a"].astype("f4"), tmp_path / "refs.json")


def test_what_others_cannot_reach_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no reference leads to"):
        gzarr.save_references(gzarr.group(gzarr.MemoryStore({})).create_array("a", data=[1]), tmp_path / "refs.json")
    with pytest.raises(StoreError, match="a name that ends in"):
        gzarr.save_references(gzarr.group(tmp_path / "x.zarr"), tmp_path / "refs.txt")
    with pytest.raises(MissingExtraError, match=r"need Icechunk 2\.3 or newer"):  # that of a session of 1.1
        gzarr.save_references(gzarr.group(tmp_path / "x.zarr"), object())
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=np.zeros(10 << 20), chunks=(1 << 20,), compression="lzf")
    with pytest.raises(StoreError, match="only a library reads them"):
        gzarr.save_references(tmp_path / "a.h5", tmp_path / "refs.json")


# -- Parquet by others ---------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:The 'fastparquet' engine:DeprecationWarning")
@pytest.mark.parametrize("engine", ["pyarrow", "fastparquet"])
def test_references_by_fsspec_in_parquet(tmp_path: Path, engine: str) -> None:
    pytest.importorskip(engine)
    pytest.importorskip("kerchunk")
    reference = pytest.importorskip("fsspec.implementations.reference")
    fsspec = pytest.importorskip("fsspec")
    stored = gzarr.create_array(tmp_path / "data.zarr", data=DATA, chunks=(10, 10), zarr_format=2)
    fs = fsspec.filesystem("file")
    refs = reference.LazyReferenceMapper.create(str(tmp_path / "refs.parq"), fs=fs, record_size=7, engine=engine)
    refs[".zgroup"] = b'{"zarr_format": 2}'
    refs["a/.zarray"] = (tmp_path / "data.zarr/.zarray").read_bytes()
    for file in sorted(tmp_path.glob("data.zarr/[0-9]*")):
        refs[f"a/{file.name}"] = [str(file)] if file.name == "2.1" else [str(file), 0, file.stat().st_size]
    refs["a/0.1"] = (tmp_path / "data.zarr/0.1").read_bytes()
    refs.flush()
    array = gzarr.open(tmp_path / "refs.parq/a", mode="r")
    np.testing.assert_array_equal(array[...], DATA)
    np.testing.assert_array_equal(array[3:25:4, [0, 40]], DATA[3:25:4, [0, 40]])
    assert array.nchunks_initialized == stored.nchunks_initialized
    os.truncate(tmp_path / "refs.parq/a/refs.1.parq", 100)
    with pytest.raises(CopyError, match=r"refs\.1\.parq"):
        gzarr.open(tmp_path / "refs.parq/a", mode="r")[...]


def test_references_in_parquet_are_read_when_an_array_is_first_used(group: gzarr.Group, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "x").mkdir()
    gzarr.save_references(group, tmp_path / "x/refs.parquet")
    opened = gzarr.open(tmp_path / "x/refs.parquet", mode="r")
    assert opened["a"].shape == DATA.shape
    with pytest.raises(StoreError, match="which is not beside it"):
        opened["a"][...]
    with pytest.raises(StoreError, match="which is not beside it"):
        opened["a"][...]
    allowed = gzarr.open(tmp_path / "x/refs.parquet", mode="r", virtual_containers=tmp_path)
    (tmp_path / "x/refs.parquet/deep/v2/refs.0.parq").unlink()
    np.testing.assert_array_equal(allowed["a"][...], DATA)


def test_a_million_references_are_opened_in_little_memory(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (tmp_path / "blob").write_bytes(bytes(range(250)))
    root = gzarr.group(tmp_path / "data.zarr", zarr_format=2)
    root.create_array("a", shape=(1000, 1000), chunks=(1, 1), dtype="u1", compressor=None)
    gzarr.save_references(root, tmp_path / "refs.parquet")
    names = [str(tmp_path / "blob")] * 10_000
    table = pyarrow.table({"path": names, "offset": np.arange(10_000) % 250, "size": np.ones(10_000, "i8")})
    for number in range(100):
        parquet.write_table(table, tmp_path / f"refs.parquet/a/refs.{number}.parq")
    with traced() as peak:
        array = gzarr.open_array(tmp_path / "refs.parquet/a", mode="r")
        assert array[7, 3] == 3
        assert peak() < 60e6
    assert array[999, 998:].tolist() == [248, 249]
