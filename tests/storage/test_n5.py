"""N5 containers: what zarr 2 wrote is read, and what is written has the layout that N5 describes."""

import json
import struct
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest

import gzarr
from gzarr.errors import ChunkError, ContainsGroupError, MetadataError, StoreError
from gzarr.storage import LocalStore, MemoryStore, N5FSStore, N5Store, ZipStore, open_store

GOLDEN = Path(__file__).parent / "data" / "zarr2.n5.zip"
VALUES = np.arange(70, dtype="i4").reshape(10, 7) * 1000


def attributes(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "attributes.json").read_text())


def test_what_zarr_2_wrote_is_read() -> None:
    root = gzarr.open(N5Store(ZipStore(GOLDEN)), mode="r")
    assert dict(root.attrs) == {"resolution": [4, 4, 40]}
    assert sorted(root.array_keys()) == sorted([*(f"c-{n}" for n in ("raw", "blosc", "bz2", "gzip", "xz", "zlib"))])
    for name, array in root.arrays():
        assert (array.dtype, array.shape) == ("<i4", (10, 7))
        assert array.chunks == (4, 3)
        assert np.array_equal(array[...], VALUES), name
    deep = root["deep"]
    assert {n: a.dtype.name for n, a in deep.arrays()} == {n: n for n in ("uint8", "int64", "float32", "float64")}
    for name, array in deep.arrays():
        assert array.fill_value == 0
        assert np.array_equal(array[:, :, 1], np.arange(24).reshape(2, 3, 4)[:, :, 1].astype(name))


@pytest.mark.parametrize(
    ("compressor", "compression"),
    [
        (None, {"type": "raw"}),
        (numcodecs.GZip(5), {"type": "gzip", "level": 5, "useZlib": False}),
        (numcodecs.Zlib(3), {"type": "gzip", "level": 3, "useZlib": True}),
        (numcodecs.BZ2(7), {"type": "bzip2", "blockSize": 7}),
        (numcodecs.LZMA(preset=2), {"type": "xz", "preset": 2}),
        (numcodecs.LZ4(), {"type": "lz4", "acceleration": 1}),
        (numcodecs.Zstd(3), {"type": "zstd", "level": 3}),
        (numcodecs.Blosc("lz4", 5, 1), {"type": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}),
    ],
    ids=lambda value: "" if isinstance(value, dict) else type(value).__name__,
)
def test_arrays_are_stored_as_n5_says(tmp_path: Path, compressor: Any, compression: dict[str, Any]) -> None:
    place = tmp_path / "x.n5"
    z = gzarr.open(str(place / "a"), mode="w", shape=(10, 7), chunks=(4, 3), dtype="i4", compressor=compressor)
    assert z.zarr_format == 2
    z[...] = VALUES
    z[2:9, 1] += 1
    found = attributes(place / "a")
    assert found == {"dimensions": [7, 10], "blockSize": [3, 4], "dataType": "int32", "compression": compression}
    block = (place / "a" / "2" / "1").read_bytes()  # the fastest axis first: chunk (1, 2)
    assert block[:12] == struct.pack(">HHII", 0, 2, 3, 4)
    if compressor is None:
        assert np.array_equal(np.frombuffer(block[12:], ">i4").reshape(4, 3)[:, 0], z[4:8, 6])
    expected = VALUES.copy()
    expected[2:9, 1] += 1
    again = gzarr.open(str(place), mode="r")["a"]
    assert np.array_equal(again[...], expected)
    assert again.compressor == compressor
    assert again.nchunks_initialized == 9


def test_groups_attributes_and_shapes_change(tmp_path: Path) -> None:
    place = tmp_path / "x.n5"
    root = gzarr.open(str(place), mode="w")
    assert attributes(place) == {"n5": "2.0.0"}
    z = root.create_group("volumes").create_array("raw", shape=(5,), chunks=(2,), dtype="f4")
    z[:] = [1, 2, 3, 4, 5]
    z.attrs["unit"] = "nm"
    root.attrs["resolution"] = [1, 2]
    assert (attributes(place)["resolution"], attributes(place / "volumes" / "raw")["unit"]) == ([1, 2], "nm")
    z.append(np.array([6, 7], "f4"))
    assert attributes(place / "volumes" / "raw")["dimensions"] == [7]
    z.attrs.clear()
    assert "unit" not in attributes(place / "volumes" / "raw")
    again = gzarr.open_group(str(place), mode="r")
    assert again["volumes/raw"][:].tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert sorted(again.group_keys()) == ["volumes"]
    assert str(again.tree()).count("raw (7,) float32") == 1
    with pytest.raises(MetadataError, match="'dimensions'"):
        z.attrs["dimensions"] = 5
    del root["volumes"]
    assert not (place / "volumes").exists()
    gzarr.open(str(place), mode="w")
    assert gzarr.open(str(place), mode="r").attrs.asdict() == {}


def block(shape: tuple[int, ...], values: Any, mode: int = 0) -> bytes:
    header = struct.pack(f">HH{len(shape)}I", mode, len(shape), *reversed(shape))
    return header + (struct.pack(">I", len(values)) if mode else b"") + np.asarray(values, ">u2").tobytes()


def test_what_other_writers_do_is_read() -> None:
    """Groups without documents, blocks cut at the edge, blocks of mode 1, the compression field before N5 1.1."""
    data: dict[str, bytes] = {
        "attributes.json": b'{"n5": "4.0.0"}',
        "plain/group/a/attributes.json": json.dumps(
            {"dimensions": [5], "blockSize": [3], "dataType": "uint16", "compressionType": "raw"}
        ).encode(),
        "plain/group/a/0": block((3,), [1, 2, 3], mode=1),
        "plain/group/a/1": block((2,), [4, 5]),
    }
    root = gzarr.open_group(N5Store(MemoryStore(data)), mode="r")
    assert root["plain/group/a"][:].tolist() == [1, 2, 3, 4, 5]
    assert list(root.group_keys()) == ["plain"]
    assert "plain/group" in root


def test_frames_of_java_lz4_are_read() -> None:
    raw = np.arange(12, dtype=">u2").tobytes()
    packed = numcodecs.LZ4().encode(raw)[4:]
    frame = struct.pack("<8sBiii", b"LZ4Block", 0x20, len(packed), len(raw), 0) + packed
    frame += struct.pack("<8sBiii", b"LZ4Block", 0x10, 0, 0, 0)
    meta = {"dimensions": [12], "blockSize": [12], "dataType": "uint16"}
    meta["compression"] = {"type": "lz4", "blockSize": 65536}
    data = {"attributes.json": json.dumps(meta).encode(), "0": struct.pack(">HHI", 0, 1, 12) + frame}
    data_store = MemoryStore(data)
    assert gzarr.open_array(N5Store(data_store), mode="r")[:].tolist() == list(range(12))
    data_store["0"] = data["0"][:-30]
    with pytest.raises(ChunkError, match="damaged"):
        gzarr.open_array(N5Store(data_store), mode="r")[:]


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        (b"", "truncated: 0 bytes are too few"),
        (b"\0\0\0", "truncated: 3 bytes are too few"),
        (block((4,), [1, 2, 3, 4]), "the data set has blocks of"),
        (block((1, 3), [1, 2, 3]), "the data set has blocks of"),
        (block((3,), [1, 2]), "expected 3 elements, got 2"),
        (b"\0\2" + block((3,), [1, 2, 3])[2:], "mode 2"),
    ],
)
def test_damaged_blocks_raise(damaged: bytes, reason: str) -> None:
    meta = {"dimensions": [3], "blockSize": [3], "dataType": "uint16", "compression": {"type": "raw"}}
    store = N5Store(MemoryStore({"attributes.json": json.dumps(meta).encode(), "0": damaged}))
    with pytest.raises(ChunkError, match=reason):
        gzarr.open_array(store, mode="r")[:]


def test_zarr_below_a_folder_named_as_a_container_is_zarr(tmp_path: Path) -> None:
    gzarr.create_array(LocalStore(tmp_path / "x.n5" / "a.zarr"), data=[1, 2])
    assert gzarr.open_array(tmp_path / "x.n5" / "a.zarr", mode="r")[:].tolist() == [1, 2]
    gzarr.group(LocalStore(tmp_path / "y.n5"))
    gzarr.create_group(tmp_path / "y.n5" / "in" / "it")
    assert "it" in gzarr.open_group(tmp_path / "y.n5" / "in")


@pytest.mark.parametrize(
    ("keywords", "reason"),
    [
        ({"dtype": "U5"}, "data type"),
        ({"dtype": "i4", "fill_value": 5}, "fill_value"),
        ({"dtype": "i4", "order": "F"}, "order|filters"),
        ({"dtype": "i4", "filters": [numcodecs.Delta("i4")]}, "filters"),
        ({"dtype": "i4", "zarr_format": 3}, "zarr_format=2"),
        ({"dtype": "i4", "dimension_separator": "/"}, "dimension_separator"),
    ],
)
def test_what_n5_has_not_is_refused(tmp_path: Path, keywords: dict[str, Any], reason: str) -> None:
    with pytest.raises((MetadataError, StoreError), match=reason):
        gzarr.create_array(str(tmp_path / "x.n5"), shape=(4, 4), chunks=(2, 2), **keywords)


def test_a_folder_of_other_files_is_not_wiped(tmp_path: Path) -> None:
    (tmp_path / "x.n5" / "photos").mkdir(parents=True)
    (tmp_path / "x.n5" / "photos" / "a.jpg").write_bytes(b"1")
    with pytest.raises(ContainsGroupError, match="not Zarr data"):
        gzarr.open(str(tmp_path / "x.n5"), mode="w")
    assert (tmp_path / "x.n5" / "photos" / "a.jpg").exists()


def test_stores_and_paths(tmp_path: Path) -> None:
    store, inner = open_store(tmp_path / "x.n5" / "a" / "b")
    assert isinstance(store, N5Store)
    assert inner == "a/b"
    assert store == N5Store(tmp_path / "x.n5")
    root = gzarr.group(N5Store(LocalStore(tmp_path / "y")))
    z = root.create_array("a", shape=(4, 4), chunks=(2, 2), dtype="u1")
    z[...] = 7
    assert sorted(root.store.list_prefix("a")) == ["a/.zarray", "a/0.0", "a/0.1", "a/1.0", "a/1.1"]
    assert root.store["a/0.1"] == (tmp_path / "y" / "a" / "1" / "0").read_bytes()
    assert root.store.list_dir() == ([".zgroup"], ["a"])
    pytest.importorskip("fsspec")
    w = gzarr.zeros((4, 4), chunks=(2, 2), store=N5FSStore(f"file://{tmp_path}/z.n5"), path="a", dtype="u1")
    w[...] = 9
    assert gzarr.open(f"{tmp_path}/z.n5/a", mode="r")[:].tolist() == [[9] * 4] * 4


def test_zero_dimensions_and_one(tmp_path: Path) -> None:
    for n, shape in enumerate([(), (3,), (2, 2, 2, 2)]):
        z = gzarr.zeros(shape, chunks=(1,) * len(shape), store=str(tmp_path / f"{n}.n5"), dtype="i2")
        z[...] = 5
        assert np.all(gzarr.open(str(tmp_path / f"{n}.n5"), mode="r")[...] == 5)


def test_a_document_is_not_stored_again_after_another_process_has_changed_it() -> None:
    class Shared(MemoryStore):
        others: Any = None  # what another process stores as soon as it can

        def set_many(self, items: Any) -> None:
            super().set_many(items)
            if self.others:
                others, self.others = self.others, None
                self["a/attributes.json"] = json.dumps({**json.loads(self["a/attributes.json"]), **others}).encode()

    below = Shared()
    z = gzarr.create_array(N5Store(below), name="a", shape=(2,), dtype="i4", zarr_format=2)
    below.others = {"theirs": 1}
    z.attrs["ours"] = 2
    assert dict(gzarr.open_array(N5Store(below), "r", path="a").attrs) == {"ours": 2, "theirs": 1}
    below.others = {"dimensions": [9]}
    z.resize(4)
    assert gzarr.open_array(N5Store(below), "r", path="a").shape == (9,)
