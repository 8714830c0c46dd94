"""Basic selections of few chunks, done by one call: what the reference path reads and stores, and nothing else."""

import os
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gzarr
from gzarr.codecs import BytesCodec, ShardingCodec, ZstdCodec
from gzarr.config import config
from gzarr.cpu.compiled import basic as compiled_basic
from gzarr.cpu.compiled import library
from gzarr.cpu.compiled.basic import BasicSelections
from gzarr.errors import ChunkError, StoreError
from gzarr.storage import LocalStore, MemoryStore
from tests.cpu.compiled.looping import CHAINS, DTYPES, SHAPE, made_to_lie, stored
from tests.properties.cases import basic_keys, same

pytestmark = pytest.mark.skipif(library.loop() is None, reason=f"the compiled loop is {library.status()}")

FILES = [name for name in CHAINS if "shards" not in name]
#: Of one chunk.
KEYS: list[Any] = [
    (3, 4, 1),
    (np.int64(-1), -1, -1),
    (slice(20, 40), slice(15, 30)),
    np.s_[2:19:3, 5:14, ...],
    np.s_[5, :9],
]


def basic_of(array: gzarr.Array) -> BasicSelections:
    basic = array._basic()
    assert isinstance(basic, BasicSelections)
    return basic


def is_read(array: gzarr.Array, key: Any) -> bool:
    return basic_of(array).read(key, array.dtype) is not None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("basic")


@cache
def made(name: str, which: int, missing: bool, folder: Path) -> tuple[gzarr.Array, np.ndarray]:
    return stored(CHAINS[name], DTYPES[which], LocalStore(folder / f"{name}-{which}-{missing}"), missing)


@pytest.fixture
def array(tmp_path: Path) -> gzarr.Array:
    return stored(CHAINS["blosc"], "<i4", LocalStore(tmp_path))[0]


# -- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CHAINS)
@settings(max_examples=8)
@given(data=st.data())
def test_every_basic_selection_reads_what_numpy_does(name: str, folder: Path, data: st.DataObject) -> None:
    array, model = made(name, data.draw(st.integers(0, len(DTYPES) - 1)), data.draw(st.booleans()), folder)
    key = data.draw(basic_keys(SHAPE))
    same(array[key], model[key])


@pytest.mark.parametrize("which", range(len(DTYPES)))
@pytest.mark.parametrize("missing", [False, True])
def test_one_call_does_it(which: int, missing: bool, folder: Path) -> None:
    array, model = made("zstd", which, missing, folder)
    for key in [*KEYS, np.s_[10:30], np.s_[...], np.s_[19:22, 14:16], np.s_[::21, 40], np.s_[5:6, ..., -2:]]:
        read = basic_of(array).read(key, array.dtype)
        same(read, model[key])
        assert type(read) is type(model[key])
        assert read.dtype == array.dtype


@pytest.mark.parametrize("name", [name for name in CHAINS if name not in FILES])
def test_chunks_of_a_shard_whose_index_is_known(name: str, tmp_path: Path) -> None:
    array, model = stored(CHAINS[name], "<i4", LocalStore(tmp_path), missing=True)
    keys = [(23, 16, 1), np.s_[20:40, 15:30], np.s_[39:23:-1], np.s_[21, 16:24, ...]]
    array._io.layout.forget("a/b/c/1/1/0")
    assert not is_read(array, np.s_[23, 16, 1])
    same(array[23, 16, 1], model[23, 16, 1])
    assert is_read(array, np.s_[23, 16, 1])
    for key in (*keys, np.s_[19:21, :4], np.s_[:20, :15], np.s_[3, 4, 1]):
        same(array[key], model[key])
    assert not is_read(array, np.s_[20:24, 10:20])  # of two shards


def test_a_shard_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    array, model = stored(CHAINS["shards"], "<i4", LocalStore(tmp_path))
    same(array[20, 16], model[20, 16])
    assert is_read(array, np.s_[20, 16])
    other = gzarr.open_array(tmp_path, path="a/b")
    other[20:40, 15:30] = model[20:40, 15:30] + 1
    assert not is_read(array, np.s_[20, 16])
    same(array[20, 16], model[20, 16] + 1)
    shutil.rmtree(tmp_path / "a" / "b" / "c")
    assert not is_read(array, np.s_[20, 16])
    assert (array[20, 16] == 7).all()


@pytest.mark.parametrize(
    "key",
    [
        np.s_[70],
        np.s_[-71],
        np.s_[0, 0, 0, 0],
        np.s_[..., 0, ...],
        np.s_[5:5],
        np.s_[9:3],
        np.s_[::-1],
        np.s_[None],
        np.s_[True],
        np.s_[::0],
        np.s_["a"],
        np.s_[[1, 2]],
        np.s_[1.0],
        np.s_[1 << 70],
        np.s_["a":],
        np.s_[1, 2, 3, "a"],
        np.array(3),
        {},
    ],
)
def test_other_keys_are_left(array: gzarr.Array, key: Any) -> None:
    assert not is_read(array, key)
    assert not basic_of(array).write(key, 1, keep_empty=False)


def test_many_chunks_are_left_to_several_threads(tmp_path: Path) -> None:
    array = gzarr.create_array(tmp_path, shape=(1 << 40, 64), chunks=(8, 8), dtype="i4")
    assert is_read(array, np.s_[:16, :64])
    assert not is_read(array, np.s_[:17, :64])
    assert not is_read(array, np.s_[:])
    assert not is_read(array, np.s_[:: 1 << 30, 0])
    large = gzarr.create_array(tmp_path / "large", shape=(1024, 1024), chunks=(512, 512), dtype="i4")
    assert is_read(large, np.s_[:512, 512:])
    assert not is_read(large, np.s_[:513, 512:])


def test_the_setting_profiles_and_views_count_at_once(array: gzarr.Array) -> None:
    model = array[:20, :15]
    with config.set({"cpu.native": False}):
        assert array._basic() is None
    with gzarr.profile() as profile:
        same(array[:20, :15], model)
    assert profile.stages["decode"].chunks == 1
    assert basic_of(array)
    same(array.astype("f8")[3, 4], model[3, 4].astype("f8"))
    array.resize((30, 15, 3))
    same(array[-30:, -15:][:20], model)
    with pytest.raises(gzarr.errors.SelectionError):
        array[30]


def test_damage_is_named(array: gzarr.Array, tmp_path: Path) -> None:
    file = tmp_path / "a" / "b" / "c" / "0" / "0" / "0"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ChunkError, match="c/0/0/0"):
        array[3, 4, 1]
    with pytest.raises(ChunkError, match="c/0/0/0"):
        array[3, 4, 1] = 5
    array[:20, :15] = 6
    assert array[3, 4, 1] == 6


def test_caches_and_missing_chunks_that_raise_have_plans(tmp_path: Path) -> None:
    _, model = stored(CHAINS["blosc"], "<i4", LocalStore(tmp_path))
    cache = gzarr.ChunkCache(1 << 20)
    cached = gzarr.open_array(tmp_path, path="a/b", chunk_cache=cache)
    assert cached._basic() is None
    same(cached[3, 4], model[3, 4])
    gzarr.open_array(tmp_path, path="a/b")[3, 4, 0] = 77
    assert cached[3, 4, 0] == 77
    strict = gzarr.open_array(tmp_path, path="a/b", read_missing_chunks=False)
    shutil.rmtree(tmp_path / "a" / "b" / "c" / "0")
    with pytest.raises(gzarr.errors.ChunkNotFoundError):
        strict[3, 4, 1]


# -- writing ---------------------------------------------------------------------------------------------------------


def files(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


@pytest.mark.parametrize("value", [7, 7.5, True, np.float32(3), np.int64(9), np.arange(9, dtype="i4"), [1] * 9, "8"])
def test_values_of_other_kinds_are_cast_as_ever(array: gzarr.Array, value: Any) -> None:
    model = array[...]
    array[3, :9, 1] = value
    model[3, :9, 1] = value
    same(array[...], model)


def test_one_call_writes_it(array: gzarr.Array) -> None:
    for key in KEYS:
        assert basic_of(array).write(key, 5, keep_empty=False)
        equal = np.array(array[key], np.dtype("i4").newbyteorder("="))
        assert basic_of(array).write(key, equal, keep_empty=False)
        assert not basic_of(array).write(key, [1], keep_empty=False)
        assert not basic_of(array).write(key, np.ones((2, 2, 2, 2), "i4"), keep_empty=False)
    assert not basic_of(array).write(np.s_[10:30], 5, keep_empty=False)
    with pytest.raises(OverflowError):
        array[3, 4, 1] = 1 << 40


class Fickle:
    """An index that is larger each time."""

    def __init__(self, at: int) -> None:
        self.at = at

    def __index__(self) -> int:
        self.at += 10
        return self.at


def test_only_the_chunk_that_is_locked_is_written(tmp_path: Path) -> None:
    array = gzarr.create_array(tmp_path, name="a", shape=100, chunks=10, dtype="i4", fill_value=0)
    array[0] = 1
    assert not basic_of(array).write(slice(Fickle(0), Fickle(7)), 5, keep_empty=False)
    assert array[...].sum() == 1


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not say what a process takes")
def test_memory_for_large_chunks_is_given_back(tmp_path: Path) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    array = gzarr.create_array(
        tmp_path, name="a", shape=1 << 24, chunks=1 << 24, dtype="u1", codecs=[BytesCodec(), ZstdCodec(1)]
    )
    array[...] = np.broadcast_to(np.uint8(1), array.shape)
    before = resident()
    assert array[-1] == 1
    assert resident() - before < 1 << 22


def test_a_write_within_a_write_of_the_same_chunk_is_refused(array: gzarr.Array) -> None:
    before = array[...]
    with array.store.locked(["a/b/c/0/0/0"]), pytest.raises(gzarr.StoreError, match="this very thread"):
        array[3, 4, 1] = 5  # as a finalizer may do
    same(array[...], before)


class Own(MemoryStore):
    """Gives memory that may change."""

    def get_many(self, requests: Any) -> list[Any]:
        return [None if found is None else bytearray(found) for found in super().get_many(requests)]


@pytest.mark.parametrize("kind", [MemoryStore, Own])
@pytest.mark.parametrize("missing", [False, True])
def test_stores_in_memory(kind: type[MemoryStore], missing: bool) -> None:
    array, model = stored(CHAINS["zstd with checksum"], "<i4", kind(), missing)
    for key in [*KEYS, np.s_[18:22, 14:16]]:
        assert is_read(array, key)
        same(array[key], model[key])
    array[3, 4, 1] = 5
    array.store["a/b/c/0/0/0"] = damaged = array.store["a/b/c/0/0/0"][:-1]
    with pytest.raises(ChunkError, match="c/0/0/0"):
        array[3, 4, 1]
    assert not basic_of(array).write((3, 4, 1), 5, keep_empty=False)
    with pytest.raises(ChunkError, match="c/0/0/0"):
        array[3, 4, 1] = 5
    assert array.store["a/b/c/0/0/0"] == damaged
    assert basic_of(array).write(np.s_[:20, :15], model[:20, :15], keep_empty=False)
    same(array[:20, :15], model[:20, :15])


class Writing(MemoryStore):
    """Changes the array while it is asked for a chunk."""

    array: gzarr.Array | None = None

    def get_many(self, requests: Any) -> list[Any]:
        found = super().get_many(requests)
        if Writing.array is not None:
            array, Writing.array = Writing.array, None
            array[5] = 2
        return found


def test_no_file_is_read_past_its_store(tmp_path: Path) -> None:
    class Counting(LocalStore):
        def get_many(self, requests: Any) -> list[Any]:
            self.asked = [*getattr(self, "asked", []), *(request.key for request in requests)]
            return super().get_many(requests)

    array = stored(CHAINS["blosc"], "<i4", Counting(tmp_path))[0]
    array.store.asked = []
    assert is_read(array, (3, 4, 1))
    assert array.store.asked == ["a/b/c/0/0/0"]


# -- writing parts of shards -----------------------------------------------------------------------------------------


SHARDS = {
    **{name: CHAINS[name] for name in CHAINS if name not in FILES and "transposed" not in name},
    "shards without a checksum": [ShardingCodec((10, 5, 3), [BytesCodec(), ZstdCodec(1)], [BytesCodec()])],
}


def test_only_parts_of_one_shard_that_is_not_large_are_written(tmp_path: Path) -> None:
    array, _ = stored(CHAINS["shards"], "<i4", LocalStore(tmp_path))
    assert basic_of(array).write(np.s_[20:40, 15:30], 5, keep_empty=False)
    assert not basic_of(array).write(np.s_[20:41, 15:30], 5, keep_empty=False)
    transposed, _ = stored(CHAINS["transposed shards"], "<i4", LocalStore(tmp_path))
    assert not basic_of(transposed).write((3, 4, 1), 5, keep_empty=False)
    large = gzarr.create_array(tmp_path / "c", shape=1 << 24, shards=1 << 24, chunks=1 << 20, dtype="u1", filters=None,
                               compressors=None)  # fmt: skip
    large[...] = np.broadcast_to(np.uint8(1), large.shape)
    assert not basic_of(large).write(3, 5, keep_empty=False)
    large[3] = 5
    assert large[2:5].tolist() == [1, 5, 1]


def test_a_shard_without_chunks_is_deleted(tmp_path: Path) -> None:
    array, _ = stored(CHAINS["shards"], "<i4", LocalStore(tmp_path))
    shard = tmp_path / "a" / "b" / "c" / "3" / "2" / "0"
    assert shard.exists()
    assert basic_of(array).write(np.s_[60:, 30:], 7, keep_empty=False)
    assert not shard.exists()
    assert basic_of(array).write(np.s_[60, 30, 0], 5, keep_empty=False)
    assert shard.exists()
    assert (array[60:, 30:].ravel()[:2] == [5, 7]).all()


@pytest.mark.parametrize("name", ["shards", "shards of plain"])
@pytest.mark.parametrize("damage", ["short", "checksum", "half", "outside", "chunk", "folder"])
def test_damaged_shards_are_named_and_stay(tmp_path: Path, name: str, damage: str) -> None:
    array, _ = stored(CHAINS[name], "<i4", LocalStore(tmp_path))
    shard = tmp_path / "a" / "b" / "c" / "1" / "1" / "0"
    stored_ = bytearray(shard.read_bytes())
    n = 16 * (6 if name == "shards" else 18)
    at = 0 if name == "shards of plain" else len(stored_) - n - 4
    if damage == "checksum":
        stored_[at] ^= 1
    elif damage in ("half", "outside"):
        stored_[at + 8 : at + 16] = (b"\xff" if damage == "half" else b"\x01") * 8
        stored_[at + n : at + n + 4] = google_crc32c.value(bytes(stored_[at : at + n])).to_bytes(4, "little")
    elif damage == "chunk":
        stored_[at + n + 5 if at == 0 else 5] ^= 255
    shard.unlink()
    if damage == "folder":
        shard.mkdir()
    else:
        shard.write_bytes(stored_[:7] if damage == "short" else stored_)
    before = files(tmp_path)
    assert not basic_of(array).write((20, 15, 0), 5, keep_empty=False)
    with pytest.raises((ChunkError, StoreError), match="c/1/1/0"):
        array[20, 15, 0] = 5
    assert files(tmp_path) == before


# -- hostile tables --------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(data=st.data())
def test_tables_that_lie(folder: Path, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["plain with checksum", "shards", "memory"]))
    array, _ = stored(CHAINS["blosc"], "<i4", MemoryStore()) if kind == "memory" else made(kind, 0, False, folder)
    given: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            library, "extension", lambda: type("Extension", (), {"Basic": staticmethod(lambda *a: given.extend(a))})
        )
        compiled_basic._make_basic(basic_of(array)._source, basic_of(array)._target, writes=True)
    job, extents, counts, _, fill, *rest = given
    lies = [made_to_lie(data, table, is_job=table is job) for table in (job, extents, counts)]
    arrays, (encoder, *target, checksum, _), shards, fetch = rest
    lying = (
        made_to_lie(data, encoder, is_job=False),
        *target,
        checksum and data.draw(st.booleans()),
        data.draw(st.booleans()),
    )
    sources = shards and (shards[0], made_to_lie(data, shards[1], is_job=False)), fetch
    cut = fill[: data.draw(st.integers(3, 4))]
    try:
        made_of_lies = library.extension().Basic(
            *lies, b"%s/lies/" % str(folder).encode(), cut, arrays, lying, *sources
        )
    except ValueError:
        return
    key = tuple(data.draw(st.integers(0, 80)) for _ in SHAPE)
    for some in (key, np.s_[2:18, 1:14]):
        coords = made_of_lies.locate(some) or (0, 0, 0)
        made_of_lies.write(coords, some, np.array(5, "i4"), True)
    made_of_lies.read(key, np.dtype("i4"))
    made_of_lies.read(np.s_[:], np.dtype("i4"))


@pytest.mark.parametrize("native", [True, False])
def test_chunks_of_the_fill_value_are_kept_or_dropped_as_is_wanted(native: bool, tmp_path: Path) -> None:
    for store in (LocalStore(tmp_path), MemoryStore()):
        array = gzarr.create_array(store, shape=(8, 8), chunks=(4, 4), dtype="i4", overwrite=True)
        with config.set({"cpu.native": native}):
            keeping = array.with_config({"write_empty_chunks": True})
            for key in (np.s_[1, 2], np.s_[:4, :4]):
                keeping[key] = 0
                assert "c/0/0" in store
                array[key] = 0
                assert "c/0/0" not in store
