"""Verification: every kind of damage, planted in both formats and several stores, is found and named."""

import json
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest

import gzarr
from gzarr.checking import chunks as chunks_module
from gzarr.codecs import BloscCodec, BytesCodec, ShardingCodec, ZstdCodec
from gzarr.errors import NodeNotFoundError, StoreError
from gzarr.storage import MemoryStore, SQLiteStore, Store, ZipStore
from gzarr.storage.wrappers import WrapperStore

DATA = np.arange(105 * 25, dtype="f8").reshape(105, 25)
STORES: dict[str, Callable[[Path], Any]] = {
    "local": lambda tmp: gzarr.LocalStore(tmp / "x.zarr"),
    "memory": lambda tmp: MemoryStore(),
    "zip": lambda tmp: ZipStore(tmp / "x.zip", mode="a"),
    "sqlite": lambda tmp: SQLiteStore(tmp / "x.sqlite"),
}


class NoListing(WrapperStore):
    """A server that lists nothing."""

    def list_prefix(self, prefix: str = "") -> Iterator[str]:
        raise StoreError("no listing")

    def list_dir(self, path: str = "") -> tuple[list[str], list[str]]:
        raise StoreError("no listing")


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with STORES[request.param](tmp_path) as opened:
        yield opened


@pytest.fixture(params=[2, 3])
def root(request: pytest.FixtureRequest, store: Store) -> gzarr.Group:
    """A consolidated hierarchy: ``a/x`` of 11 x 3 chunks, ``words`` of strings, in v3 ``s`` of 2 x 1 shards."""
    root = gzarr.group(store, zarr_format=request.param)
    root.create_array("a/x", data=DATA, chunks=(10, 10))
    root.create_array("words", data=np.array(["a", "bc", "d"], object), dtype=str, chunks=2)
    if request.param == 3:
        root.create_array("s", data=DATA, chunks=(10, 10), shards=(60, 30))
    gzarr.consolidate_metadata(store)
    return gzarr.open_group(store)


def chunk_key(root: gzarr.Group, *coords: int) -> str:
    array = root["a/x"]
    return array._io.layout.key(coords)


def found(root: Any) -> list[tuple[Any, ...]]:
    return [(p.kind, p.key, p.chunk_coords) for p in root.verify().problems]


def test_a_sound_hierarchy(root: gzarr.Group) -> None:
    report = gzarr.verify(root.store)
    assert report.ok
    assert (report.problems, report.leftover_files, report.unchecked) == ((), (), ())
    sharded = root.zarr_format == 3
    assert (report.ngroups, report.narrays, report.nobjects) == (2, 2 + sharded, 33 + 2 + 2 * sharded)
    assert report.nbytes == DATA.nbytes * (1 + sharded) + 3 * 8
    assert "no problems" in repr(report)
    report.raise_for_problems()
    assert json.loads(json.dumps(report.to_json()))["ok"]
    assert root["a/x"].verify().nobjects == 33
    assert gzarr.verify(root.store, path="a").narrays == 1


def test_bad_chunks_are_all_named(root: gzarr.Group) -> None:
    bad = [(0, 0), (3, 2), (10, 2)]
    for coords in bad:
        root.store[chunk_key(root, *coords)] = b"damaged"
    report = root.verify()
    assert {(p.kind, p.key, p.chunk_coords) for p in report.problems} == {
        ("chunk", chunk_key(root, *coords), coords) for coords in bad
    }
    assert {p.path for p in report.problems} == {"a/x"}
    assert all(p.codec and p.reason and p.codec in str(p) for p in report.problems)
    assert not report.ok
    with pytest.raises(StoreError, match=r"3 problems: chunk .*damaged|3 problems: chunk"):
        report.raise_for_problems()


def test_objects_that_belong_to_no_node(root: gzarr.Group) -> None:
    store = root.store
    for key in ("README", "a/x/notes.txt", "lost/0.0", "lost/0.1"):
        store[key] = b"text"
    report = root.verify()
    assert report.ok
    assert [(p.kind, p.key) for p in report.leftover_files] == [
        ("leftover", "README"),
        ("leftover", "lost/"),
        ("leftover", "a/x/notes.txt"),
    ]
    assert "2 objects" in report.leftover_files[1].reason


def plant(store: Store, path: str, zarr_format: int) -> None:
    """Put an array where gzarr itself would not make one."""
    array = gzarr.create_array(MemoryStore(), shape=2, zarr_format=zarr_format)
    for name in array.store:
        store[f"{path}/{name}"] = array.store[name]


def test_what_nothing_reaches(root: gzarr.Group) -> None:
    store = root.store
    outside = chunk_key(root, 0, 7)
    store[outside] = store[chunk_key(root, 0, 0)]
    plant(store, "a/x/inner", root.zarr_format)
    plant(store, "other", 5 - root.zarr_format)
    plant(store, "gone/orphan", root.zarr_format)
    problems = found(root)
    assert ("unreachable", outside, (0, 7)) in problems
    assert ("unreachable", "a/x/inner/", None) in problems
    assert ("unreachable", "other/.zarray" if root.zarr_format == 3 else "other/zarr.json", None) in problems
    assert ("group", "gone/", None) in problems
    assert len(problems) == 4


def test_documents(root: gzarr.Group) -> None:
    store, v3 = root.store, root.zarr_format == 3
    document = "words/zarr.json" if v3 else "words/.zarray"
    store[document] = b'{"shape": '
    store["a/.zgroup" if v3 else "a/zarr.json"] = (
        b'{"zarr_format": 2}' if v3 else b'{"zarr_format": 3, "node_type": "group"}'
    )
    store["lonely/.zattrs"] = b"{}"
    report = root.verify()
    kinds = {(p.kind, p.key) for p in report.problems}
    assert ("document", document) in kinds
    assert ("conflict", "a/.zgroup") in kinds
    assert [p.key for p in report.leftover_files][:1] == ["lonely/.zattrs"]
    assert any("malformed" in reason for reason in report.unchecked)
    assert root["a/x"].verify().ok


def test_attributes_that_are_no_json(tmp_path: Path) -> None:
    z = gzarr.create_array(tmp_path / "x.zarr", data=DATA, zarr_format=2, attributes={"a": 1})
    z.store[".zattrs"] = b"{"
    assert found(z) == [("document", ".zattrs", None)]


def test_consolidated_metadata_that_differ(root: gzarr.Group) -> None:
    store, v3 = root.store, root.zarr_format == 3
    key = "zarr.json" if v3 else ".zmetadata"
    name = "words/zarr.json" if v3 else "words/.zarray"
    document = json.loads(store[name])
    document["shape"] = [4]
    store[name] = json.dumps(document).encode()
    (problem,) = root.verify().problems
    assert (problem.kind, problem.key) == ("consolidated", key)
    assert repr(name) in problem.reason
    # written otherwise, it says the same
    document["shape"] = [3]
    store[name] = json.dumps(document, indent=None, sort_keys=True).encode()
    assert root.verify().ok
    block = json.loads(store[key])
    if not v3:  # as zarr-python 3 writes it
        block["metadata"]["a/.zgroup"]["consolidated_metadata"] = {"metadata": {}}
        store[key] = json.dumps(block).encode()
        assert root.verify().ok
    members = block["consolidated_metadata"]["metadata"] if v3 else block["metadata"]
    members["ghost" if v3 else "ghost/.zgroup"] = {"zarr_format": root.zarr_format, "node_type": "group"}
    store[key] = json.dumps(block).encode()
    assert "not stored" in root.verify().problems[0].reason
    store[key] = store[key].replace(b'"metadata"', b'"metadatum"')
    assert [p.kind for p in root.verify().problems] == ["consolidated"]


@pytest.mark.parametrize("root", [3], indirect=True)
def test_shards(root: gzarr.Group) -> None:
    store = root.store
    store["s/c/0/0"] = bytes(store["s/c/0/0"])[:-1] + b"\0"
    start = bytearray(store["s/c/1/0"])
    start[:4] = b"\0\0\0\0"
    store["s/c/1/0"] = bytes(start)
    assert found(root) == [("shard", "s/c/0/0", None), ("chunk", "s/c/1/0", (6, 0))]


def with_entry(shard: bytes, n: int, number: int, entry: tuple[int, int]) -> bytes:
    """A shard of n chunks with another entry in its index, whose checksum is right."""
    raw = bytearray(shard[-16 * n - 4 : -4])
    raw[16 * number : 16 * number + 16] = struct.pack("<QQ", *entry)
    return shard[: -16 * n - 4] + bytes(raw) + struct.pack("<I", google_crc32c.value(bytes(raw)))


@pytest.mark.parametrize("make", [MemoryStore, None])
@pytest.mark.parametrize(
    ("entry", "kind", "reason"),
    [
        ((4, 40), "index", "1 chunks overlap others, the first at byte 4"),
        ((3 * 40 - 2, 40), "index", "overlap"),
        ((4 * 40 - 8, 40), "index", "outside"),
        ((40, 40), "", ""),  # the very bytes of another chunk
        ((10**6, 40), "chunk", ""),
    ],
)
def test_indexes_of_shards(make: Any, entry: tuple[int, int], kind: str, reason: str, tmp_path: Path) -> None:
    store = make() if make else tmp_path / "x.zarr"
    z = gzarr.create_array(store, data=np.arange(20.0), chunks=5, shards=20, compressors=None)
    z.store["c/0"] = with_entry(z.store["c/0"], 4, 0, entry)
    report = gzarr.open(z.store).verify()
    assert [p.kind for p in report.problems] == [kind] * bool(kind)
    assert all(reason in p.reason for p in report.problems)


def test_nested_shards_and_codecs_around_them() -> None:
    inner = ShardingCodec((4,), codecs=[BytesCodec()])
    for codecs in ([ShardingCodec((16,), codecs=[inner])], [ShardingCodec((16,), codecs=[BytesCodec()]), ZstdCodec()]):
        z = gzarr.create_array(shape=64, chunks=64, dtype="i4", codecs=codecs)
        z[...] = np.arange(1, 65)
        assert z.verify().ok
    z = gzarr.create_array(shape=64, chunks=64, dtype="i4", codecs=[ShardingCodec((16,), codecs=[inner])])
    z[...] = np.arange(1, 65)
    shard = bytes(z.store["c/0"])
    size = 16 * 4 + 4 * 16 + 4
    broken = with_entry(shard[:size], 4, 1, (2, 16))
    z.store["c/0"] = broken + shard[size:]
    assert [(p.kind, p.codec) for p in z.verify().problems] == [("index", "sharding_indexed")]


def test_padding_is_checked_too(tmp_path: Path) -> None:
    """A read of the array decodes only the blocks that it touches."""
    data = np.random.default_rng(0).integers(0, 100, 300_000)
    z = gzarr.create_array(tmp_path / "x.zarr", data=data, chunks=300_000, compressors=BloscCodec(cname="zstd"))
    document = json.loads(z.store["zarr.json"])
    document["shape"] = [100]
    z.store["zarr.json"] = json.dumps(document).encode()
    chunk = bytearray(z.store["c/0"])
    chunk[len(chunk) // 2 :] = b"\xff" * (len(chunk) - len(chunk) // 2)
    z.store["c/0"] = bytes(chunk)
    cut = gzarr.open_array(z.store)
    assert cut[:50].tolist() == data[:50].tolist()
    assert found(cut) == [("chunk", "c/0", (0,))]


def test_sizes_of_raw_chunks(tmp_path: Path) -> None:
    z = gzarr.create_array(tmp_path / "x.zarr", data=np.arange(100.0), chunks=30, compressors=None)
    z.store["c/3"] = bytes(z.store["c/3"]) + b"1"
    z.store["c/0"] = bytes(z.store["c/0"])[:10]
    assert found(z) == [("chunk", "c/0", (0,)), ("chunk", "c/3", (3,))]


@pytest.mark.parametrize("region", [1, 5000, 1 << 26])
def test_regions_of_any_size(region: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks_module, "REGION_NBYTES", region)
    for shards in (None, (60, 30)):
        z = gzarr.create_array(tmp_path / "x.zarr", data=DATA, chunks=(10, 10), shards=shards, overwrite=True)
        assert z.verify().ok
        key = "c/1/0"
        whole = bytes(z.store[key])
        z.store[key] = b"damaged" + whole[7:]
        coords = (1, 0) if shards is None else (6, 0)
        assert found(z) == [("chunk", key, coords)]
        if shards is not None:  # the last chunk, right before the index
            damaged = bytearray(whole)
            index = np.frombuffer(whole[-16 * 18 - 4 : -4], "<u8").reshape(6, 3, 2)
            start = int(index[4, 2, 0])
            damaged[start : start + 4] = b"\0\0\0\0"
            z.store[key] = bytes(damaged)
            assert found(z) == [("chunk", key, (10, 2))]


def test_sparse_arrays_take_no_time(tmp_path: Path) -> None:
    z = gzarr.create_array(tmp_path / "x.zarr", shape=(10**6,) * 3, chunks=(10,) * 3, dtype="u1")
    z[5 * 10**5, 3, 3] = 1
    assert z.verify().nobjects == 1
    huge = gzarr.create_array(shape=10, chunks=10**12, dtype="u1")
    assert huge.verify().ok
    huge.store["zarr.json"] = bytes(huge.store["zarr.json"]).replace(b"1000000000000", b"9" * 30)
    assert [p.kind for p in gzarr.verify(huge.store).problems] == ["codec"]
    long = gzarr.create_array(shape=2**61, chunks=10, dtype="u1")
    long[2**60] = 1
    assert (long.verify().ok, long.verify().nobjects) == (True, 1)
    z.store["zarr.json"] = bytes(z.store["zarr.json"]).replace(b"1000000,", b"1" + b"0" * 30 + b",", 1)
    assert [p.kind for p in gzarr.verify(tmp_path / "x.zarr").problems] == ["codec"]


def test_chunks_for_which_there_is_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    z = gzarr.create_array(data=np.arange(4), chunks=2)

    def read(io: Any, region: Any, room: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(chunks_module, "read_region", read)
    assert found(z) == [("codec", "c/0", None), ("codec", "c/1", None)]


@pytest.mark.parametrize(
    ("shape", "chunks", "n"), [((10,), [[3, 2, 5]], 3), ((10,), 4, 3), ((), (), 1), ((0, 3), 2, 0), ((3,), 5, 1)]
)
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_grids(shape: tuple[int, ...], chunks: Any, n: int, zarr_format: Any) -> None:
    if zarr_format == 3 or not isinstance(chunks, list):
        z = gzarr.create_array(data=np.ones(shape), chunks=chunks, zarr_format=zarr_format)
        assert z.verify().ok
        assert z.verify().nobjects == n


def test_other_devices_are_verified_on_the_cpu() -> None:
    z = gzarr.create_array(data=np.arange(10), chunks=3, device="emulated")
    z.store["c/1"] = b"damaged"
    assert found(z) == [("chunk", "c/1", (1,))]
    assert gzarr.array([1, 2]).astype("f4").verify().ok


def test_pickles_are_not_loaded_unasked(tmp_path: Path) -> None:
    numcodecs = pytest.importorskip("numcodecs")
    data = np.array([1, "a", None], object)
    z = gzarr.create_array(
        tmp_path / "x.zarr", data=data, dtype=object, zarr_format=2, object_codec=numcodecs.Pickle(), allow_pickle=True
    )
    assert z.verify().ok
    (problem,) = gzarr.verify(tmp_path / "x.zarr").problems
    assert problem.kind == "codec"
    assert "allow_pickle=True" in problem.reason
    assert gzarr.verify(tmp_path / "x.zarr", allow_pickle=True).ok
    assert not gzarr.repair(tmp_path / "x.zarr", "chunks").actions


def test_an_unknown_codec(tmp_path: Path) -> None:
    z = gzarr.create_array(tmp_path / "x.zarr", data=DATA)
    z.store["zarr.json"] = z.store["zarr.json"].replace(b'"zstd"', b'"nope"')
    assert [p.kind for p in gzarr.verify(tmp_path / "x.zarr").problems] == ["codec"]


def test_stores_that_cannot_list(tmp_path: Path) -> None:
    below = MemoryStore()
    root = gzarr.group(below)
    root.create_array("a/x", data=DATA, chunks=(10, 10))
    below["a/x/c/3/1"] = b"damaged"
    report = gzarr.verify(NoListing(below))
    assert (report.ngroups, report.narrays) == (1, 0)
    assert report.unchecked
    gzarr.consolidate_metadata(below)
    report = gzarr.verify(NoListing(below))
    assert [(p.kind, p.key) for p in report.problems] == [("chunk", "a/x/c/3/1")]
    assert (report.narrays, report.nobjects) == (1, 33)
    assert any("no listing" in reason for reason in report.unchecked)
    assert "not checked" in repr(report)


class Failing(WrapperStore):
    """A store that fails for some keys and folders."""

    def __init__(self, store: Store, *failing: str) -> None:
        super().__init__(store)
        self.failing = failing

    def get_many(self, requests: Any) -> Any:
        if any(request.key in self.failing for request in requests):
            raise StoreError("broken disk")
        return super().get_many(requests)

    def list_dir(self, path: str = "") -> tuple[list[str], list[str]]:
        if path in self.failing:
            raise StoreError("may not be listed")
        return super().list_dir(path)


def test_documents_and_folders_that_cannot_be_read() -> None:
    store = MemoryStore()
    root = gzarr.group(store)
    root.create_array("a/x", data=DATA, chunks=(10, 10))
    root.create_array("b/y", data=DATA, chunks=(10, 10))
    store["b/y/c/0/0"] = b"damaged"
    assert found(gzarr.open_group(Failing(store, "a"))) == [("unreadable", "a/", None), ("chunk", "b/y/c/0/0", (0, 0))]
    problems = gzarr.verify(Failing(store, "a/x/zarr.json")).problems
    assert ("unreadable", "a/x/zarr.json") in {(p.kind, p.key) for p in problems}
    assert ("chunk", "b/y/c/0/0") in {(p.kind, p.key) for p in problems}
    problems = gzarr.verify(Failing(store, "b/y/c/3/0")).problems
    assert [(p.kind, p.key) for p in problems] == [("chunk", "b/y/c/0/0"), ("unreadable", "b/y/c/3/0")]
    names = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
    with pytest.raises(StoreError, match="broken disk"):
        gzarr.verify(Failing(store, *names))


def test_unfinished_copies_and_nothing(tmp_path: Path) -> None:
    with pytest.raises(NodeNotFoundError):
        gzarr.verify(tmp_path / "none.zarr")
    (tmp_path / "copy.zarr").mkdir()
    (tmp_path / "copy.zarr" / "gzarr-unfinished-copy.json").write_text("{}")
    assert [p.kind for p in gzarr.verify(tmp_path / "copy.zarr").problems] == ["unfinished"]


def test_what_killed_writers_leave(tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    root = gzarr.open_group(tmp_path / "x.zarr", "w")
    root.create_array("a/x", data=DATA, chunks=(10, 10))
    folder = tmp_path / "x.zarr"
    (folder / "a/x/c/3/.__gzarr_tmp_1").write_bytes(b"half a chunk")
    (folder / "a/x/c/3/1").unlink()
    (folder / "a/x/c/3/1").mkdir()
    (folder / ".__gzarr_tmp_deleted_old/c").mkdir(parents=True)
    fd = os.open(folder / "a/.__gzarr_tmp_held", os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        assert found(root) == [
            ("unreadable", "a/x/c/3/1/", (3, 1)),
            ("temporary", ".__gzarr_tmp_deleted_old/", None),
            ("temporary", "a/x/c/3/.__gzarr_tmp_1", None),
        ]
    finally:
        os.close(fd)
    assert len(found(root)) == 4


def test_old_files_that_cannot_be_locked_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gzarr.storage import leftover_files

    z = gzarr.create_array(tmp_path / "x.zarr", data=DATA)
    path = tmp_path / "x.zarr/.__gzarr_tmp_1"
    path.touch()
    monkeypatch.setattr(leftover_files, "fcntl", None)
    assert found(z) == []
    os.utime(path, (0, 0))
    assert found(z) == [("temporary", ".__gzarr_tmp_1", None)]


def test_progress_ends_at_the_whole(tmp_path: Path) -> None:
    root = gzarr.open_group(tmp_path / "x.zarr", "w")
    root.create_array("x", data=DATA, chunks=(10, 10))
    root.create_array("empty", shape=(1000, 1000), chunks=(10, 10))
    seen: list[tuple[int, int, str]] = []
    root.verify(lambda *args: seen.append(args))
    assert seen[-1][:2] == (DATA.nbytes + 8_000_000,) * 2
    assert sorted(done for done, *_ in seen) == [done for done, *_ in seen]
