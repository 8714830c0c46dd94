"""N5 containers: what zarr 2 and other writers wrote is read, and nothing is written."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest

import gzarr
from gzarr.errors import ChunkError, ReadOnlyError
from gzarr.storage import MemoryStore, N5FSStore, N5Store, ZipStore, open_store

GOLDEN = Path(__file__).parent / "data" / "zarr2.n5.zip"
VALUES = np.arange(70, dtype="i4").reshape(10, 7) * 1000


def test_what_zarr_2_wrote_is_read() -> None:
    root = gzarr.open(N5Store(ZipStore(GOLDEN)), mode="r")
    assert dict(root.attrs) == {"resolution": [4, 4, 40]}
    assert sorted(root.array_keys()) == sorted([*(f"c-{n}" for n in ("raw", "blosc", "bz2", "gzip", "xz", "zlib"))])
    for name, array in root.arrays():
        assert array.dtype == "<i4"
        assert array.shape == (10, 7)
        assert array.chunks == (4, 3)
        assert np.array_equal(array[...], VALUES), name
    deep = root["deep"]
    assert {n: a.dtype.name for n, a in deep.arrays()} == {n: n for n in ("uint8", "int64", "float32", "float64")}
    for name, array in deep.arrays():
        assert array.fill_value == 0
        assert np.array_equal(array[:, :, 1], np.arange(24).reshape(2, 3, 4)[:, :, 1].astype(name))


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


def test_a_path_that_ends_in_n5_is_a_container_that_refuses_changes(tmp_path: Path) -> None:
    with zipfile.ZipFile(GOLDEN) as archive:
        archive.extractall(tmp_path / "x.n5")
    store, inner = open_store(tmp_path / "x.n5" / "deep" / "int64")
    assert isinstance(store, N5Store)
    assert (inner, store) == ("deep/int64", N5Store(tmp_path / "x.n5"))
    root = gzarr.open_group(tmp_path / "x.n5")
    assert root.read_only
    assert sorted(root["c-gzip"].store.list_prefix("c-gzip"))[:2] == ["c-gzip/.zarray", "c-gzip/0.0"]
    for change in (lambda: root.create_group("new"), lambda: root["c-gzip"].__setitem__(..., 1), store.clear):
        with pytest.raises(ReadOnlyError, match="does not write N5"):
            change()
    pytest.importorskip("fsspec")
    copied = gzarr.open_group(N5FSStore(f"file://{tmp_path}/x.n5"), "r")["c-gzip"]
    assert np.array_equal(copied[...], VALUES)
