"""The compiled loop writes the bytes that the reference path writes; whatever fails, nothing is lost."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.codecs import BloscCodec, BytesCodec, GzipCodec, NumcodecsCodec, ShardingCodec, ZstdCodec
from gzarr.config import config
from gzarr.cpu.compiled import library
from gzarr.cpu.compiled import read as compiled_read
from gzarr.cpu.compiled import write as compiled_write
from gzarr.storage import LocalStore, MemoryStore
from gzarr.storage.base import Buffer, token_of
from tests.cpu.compiled.looping import CHAINS, CHUNK, SHAPE, Watched, both_ways, files, needs_loop, stored, values
from tests.properties.cases import same
from tests.support.threads import side_by_side

pytestmark = [needs_loop, pytest.mark.usefixtures("few_chunks_are_enough")]

#: Shards whose index is transposed are put together by the reference path.
WRITTEN = [name for name in CHAINS if name != "transposed shards"]


# -- bytes -----------------------------------------------------------------------------------------------------------


PARAMETERS: list[Any] = [
    *[BloscCodec(cname, 3, shuffle, typesize) for cname in ("lz4", "lz4hc", "blosclz", "zlib", "zstd")
      for shuffle in ("noshuffle", "shuffle", "bitshuffle") for typesize in (1, 4, 7)],
    *[BloscCodec("lz4", level, "shuffle", 4, blocksize) for level in (0, 1, 9) for blocksize in (0, 256, 5000)],
    BloscCodec("lz4", 5, "shuffle", 300),
    *[ZstdCodec(level, checksum) for level in (-131072, -1, 0, 1, 5) for checksum in (False, True)],
    *[NumcodecsCodec("lz4", {"acceleration": n}) for n in (-1, 0, 1, 9, 70000)],
    NumcodecsCodec("blosc", {"cname": "lz4", "clevel": 5, "shuffle": -1, "blocksize": 0}),
    NumcodecsCodec("zstd", {"level": 2}),
    *[GzipCodec(level) for level in (0, 1, 9)],
    *[NumcodecsCodec("zlib", {"level": level}) for level in (-1, 0, 6)],
    NumcodecsCodec("gzip", {"level": 5}),
]  # fmt: skip


@pytest.mark.parametrize("codec", PARAMETERS, ids=repr)
@pytest.mark.parametrize("dtype", ["u1", "<i4"])
def test_compressors_have_the_parameters_of_numcodecs(codec: Any, dtype: str, tmp_path: Path, watched: Watched) -> None:
    smooth = np.cumsum(np.random.default_rng(0).integers(0, 3, 6000)).astype(dtype)
    noise = np.random.default_rng(1).integers(0, 256, 4000).astype(dtype)

    def write(folder: Path) -> None:
        array = gzarr.create_array(folder, shape=10_000, chunks=1500, dtype=dtype, codecs=[BytesCodec(), codec])
        array[...] = np.concatenate([smooth, noise])

    both_ways(tmp_path, write)
    assert (watched.written, watched.refused) == (7, 0)


@pytest.mark.parametrize("where", ["files", "memory"])
@pytest.mark.parametrize("codec", [BytesCodec(), BloscCodec("lz4", 1, "shuffle", 4)], ids=repr)
@pytest.mark.parametrize("shards", [False, True])
def test_lists_of_everything_cover_chunks(
    codec: Any, shards: bool, where: str, tmp_path: Path, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ranges do. What is stored behind the edge of the array is treated alike by both paths."""
    monkeypatch.setattr(compiled_read, "_FEW_NCHUNKS", 2)
    order = np.random.default_rng(0).permutation(25)
    order = np.concatenate([order, order[:3]])

    def write(folder: Path) -> None:
        store = LocalStore(folder) if where == "files" else MemoryStore()
        codecs: list[Any] = [codec] if codec.name == "bytes" else [BytesCodec(), codec]
        codecs = [ShardingCodec((5,), codecs)] if shards else codecs
        gzarr.create_array(store, name="wide", shape=30, chunks=10, dtype="i4", codecs=codecs)[...] = 9
        for name, key, value in (("lists", order, np.arange(28, dtype="i4")), ("ranges", np.s_[3:], 7)):
            array = gzarr.create_array(store, name=name, shape=25, chunks=10, dtype="i4", codecs=codecs)
            for i in range(3):
                store[f"{name}/c/{i}"] = bytes(store[f"wide/c/{i}"])
            array.oindex[key] = value
        if where == "memory":
            LocalStore(folder).set_many([(key, bytes(store[key])) for key in store])

    both_ways(tmp_path, write)
    assert watched.written > 0
    assert not watched.refused


def test_tiny_chunks_take_no_more_memory_than_they_may_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, module = list[int](), library._loaded()[0]

    class Looking:
        def write(self, *args: Any) -> Any:
            sizes.append(len(args[5][0]))
            return module.write(*args)

    array = gzarr.create_array(tmp_path, shape=50_000, chunks=1, shards=50_000, dtype="i4", compressors=None)
    with monkeypatch.context() as patch:
        patch.setattr(library, "loop", Looking)
        array[...] = np.arange(50_000, dtype="i4")
    assert max(sizes) < 50_000 * 200
    same(array[...], np.arange(50_000, dtype="i4"))


BAD: list[Any] = [
    *[NumcodecsCodec("lz4", {"acceleration": n}) for n in (1 << 40, 1 << 70, 1.5)],
    *[NumcodecsCodec("zstd", {"level": n}) for n in (1 << 40, 1.5)],
    *[NumcodecsCodec("blosc", {"cname": "lz4"} | wrong)
      for wrong in ({"clevel": 11}, {"shuffle": 7}, {"blocksize": -1}, {"blocksize": 1 << 40}, {"cname": "none" * 9})],
]  # fmt: skip


@pytest.mark.parametrize("codec", BAD, ids=repr)
def test_bad_parameters_are_refused_by_the_codec(codec: Any, tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        array = gzarr.create_array(folder, shape=100, chunks=10, dtype="i4", codecs=[BytesCodec(), codec])
        array[...] = np.arange(1, 101, dtype="i4")

    both_ways(tmp_path, write, Exception)


@pytest.mark.parametrize("extent", [2**62, 2**63 - 1, 2**63, 2**80])
def test_arrays_that_no_memory_holds_are_written_as_ever(extent: int, tmp_path: Path) -> None:
    said = list[str]()

    def write(folder: Path) -> None:
        array = gzarr.create_array(folder, shape=extent, chunks=10, dtype="i4", compressors=None)
        for first in (0, 2**40, extent - 95):
            try:
                array[first : first + 95] = np.arange(1, 96, dtype="i4")
                same(array[first : first + 95], np.arange(1, 96, dtype="i4"))
            except Exception as error:  # noqa: BLE001 - compared
                said.append(f"{first} {type(error).__name__}: {error}".replace(str(folder), ""))

    both_ways(tmp_path, write)
    assert said[: len(said) // 2] == said[len(said) // 2 :]


@pytest.mark.parametrize("first", [0.0, 1.0])
def test_long_runs_are_written_from_where_they_lie(first: float, tmp_path: Path, watched: Watched) -> None:
    """300 runs of 1,200 bytes a chunk, of every layout of the value."""
    model = np.random.default_rng(0).random((700, 610)).astype("f4")
    model[::300, ::300] = first  # equal to the fill value, or not
    model[300:600, :300] = 0

    def write(folder: Path) -> None:
        options: Any = {"shape": model.shape, "chunks": (300, 300), "dtype": "f4", "compressors": None}
        gzarr.create_array(folder / "c", **options)[...] = model
        gzarr.create_array(folder / "f", **options)[...] = np.asfortranarray(model)
        gzarr.create_array(folder / "n", **options)[...] = np.flip(np.flip(model).copy())
        gzarr.create_array(folder / "b", **options)[...] = np.broadcast_to(model[1], model.shape)
        gzarr.create_array(folder / "s", **options)[...] = np.repeat(model, 2, axis=0)[::2]

    # One thread: of several, the one whose chunk is empty may remove its folder, and what another has begun to write
    # there, which the loop then leaves.
    with config.set({"threading.max_workers": 1}):
        both_ways(tmp_path, write)
    assert (watched.written, watched.refused) == (5 * 9, 0)


def test_chunks_that_become_empty_are_deleted(tmp_path: Path, watched: Watched) -> None:
    array = gzarr.create_array(tmp_path, shape=(8, 8), chunks=(2, 2), dtype="f4", fill_value=np.nan)
    array[...] = 1
    array[...] = np.nan
    assert files(tmp_path).keys() == {"zarr.json"}
    assert not (tmp_path / "c").exists()
    array[...] = np.where(np.arange(8) < 4, -0.0, np.nan)[None].astype("f4")
    assert sorted(files(tmp_path)) == [*(f"c/{i}/{j}" for i in range(4) for j in range(2)), "zarr.json"]
    assert watched.written == 48
    assert watched.refused <= 8  # another thread may remove a folder that has just become empty


def test_chunks_in_memory_that_were_cut_off_are_deleted(watched: Watched) -> None:
    array, _ = stored(CHAINS["blosc"], "<i4", MemoryStore())
    array.resize((80, 50, 3))
    array.resize(SHAPE)
    array[...] = 7
    assert (watched.written, watched.refused) == (2 * array.nchunks, 0)
    assert not [key for key in array.store if "/c/" in key]


@pytest.mark.parametrize("dtype", ["<i4", ">i4"])
@pytest.mark.parametrize("stored_as", ["little", "big"])
def test_fill_values_have_the_byte_order_of_the_values(dtype: str, stored_as: str, tmp_path: Path) -> None:
    array = gzarr.create_array(
        tmp_path, shape=(8, 8), chunks=(4, 4), dtype="i4", fill_value=5, codecs=[BytesCodec(stored_as)]
    )
    model = np.full((8, 8), 5, "i4")
    array[1:6, 3] = model[1:6, 3] = np.arange(5, dtype=dtype)
    array[6, 6] = model[6, 6] = np.array(9, dtype)
    np.testing.assert_array_equal(array[...], model)
    array[...] = np.full((8, 8), 5, dtype)
    assert list(files(tmp_path)) == ["zarr.json"]


@pytest.mark.parametrize("location", ["start", "end"])
def test_several_threads_put_one_shard_together(
    location: Any, tmp_path: Path, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled_write, "_SHARE_NBYTES", 1)
    model = np.random.default_rng(1).integers(0, 9, (40, 40))
    codec = ShardingCodec((5, 5), [BytesCodec(), BloscCodec("zstd", 1)], index_location=location)

    def write(folder: Path) -> None:
        array = gzarr.create_array(folder, shape=(40, 40), chunks=(40, 40), dtype="i8", codecs=[codec])
        for box in np.s_[3:22, 12:33], np.s_[:, 20:27], np.s_[7:8], np.s_[...], np.s_[21:39:3, ::2]:
            array[box] = model[box] + 1
        array[5:25] = 0
        array[10:31, 3:4] = model[10:31, 3:4]

    with config.set({"threading.max_workers": 3}):
        both_ways(tmp_path, write)
    assert (watched.written > 0, watched.refused) == (True, 0)


# -- what is not for the loop ----------------------------------------------------------------------------------------


def test_other_writes_take_the_reference_path(tmp_path: Path, watched: Watched) -> None:
    model = values("<i4")
    bzip2 = gzarr.create_array(
        tmp_path / "g", shape=SHAPE, chunks=CHUNK, dtype="<i4", codecs=[BytesCodec(), NumcodecsCodec("bz2")]
    )
    bzip2[...] = model
    array, _ = stored(CHAINS["blosc"], "<i4", Own(tmp_path / "o"))
    assert watched.written == 0
    array, _ = stored(CHAINS["blosc"], "<i4", LocalStore(tmp_path / "a"))
    before = watched.written
    array[...] = model.astype("i8")
    assert watched.written == before
    array[3, 4, 1] = 4  # a single chunk is for the loop
    assert watched.written == before + 1
    before += 1
    with config.set({"cpu.native": False}):
        array[...] = 1
    assert watched.written == before


class Own(LocalStore):
    """Counts what is stored; sees nothing if it is passed by."""

    count = 0

    def set_many(self, items: Iterable[tuple[str, Buffer]]) -> None:
        for key, value in items:
            self.count += 1
            super().set(key, value)


# -- locks, versions, failures ---------------------------------------------------------------------------------------


class Synchronizer:
    """Notes which keys are held."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        self.most = 0

    def __getitem__(self, key: str) -> Any:
        notes = self

        class Lock:
            def __enter__(self) -> None:
                notes.held.add(key)
                notes.most = max(notes.most, len(notes.held))

            def __exit__(self, *_: object) -> None:
                notes.held.discard(key)

        return Lock()


@pytest.mark.parametrize("shards", [None, (40, 15, 3)])
def test_the_loop_locks_objects_as_it_writes_them(shards: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes, seen, module = Synchronizer(), list[int](), library._loaded()[0]

    class Looking:
        def write(self, *args: Any) -> Any:
            seen.append(len(notes.held))
            return module.write(*args)

    gzarr.create_array(tmp_path, shape=SHAPE, chunks=CHUNK, shards=shards, dtype="i4")
    array = gzarr.open_array(tmp_path, mode="r+", synchronizer=notes)
    monkeypatch.setattr(library, "loop", Looking)
    with config.set({"threading.max_workers": 1}):
        array[...] = 5
    assert seen
    assert all(seen)
    assert not notes.held


def test_a_file_has_its_version_before_it_can_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a cache takes it for an older file, which had the same inode and times."""
    seen, module = list[object](), library._loaded()[0]
    array = gzarr.create_array(tmp_path, shape=4, chunks=1, dtype="i4", compressors=None)

    class Looking:
        def write(self, *args: Any) -> Any:
            found = module.write(*args)
            seen.append(token_of(array.store, "c/0"))
            return found

    monkeypatch.setattr(library, "loop", Looking)
    with config.set({"threading.max_workers": 1}):
        array[...] = 5
    assert seen[0] == token_of(array.store, "c/0") != None  # noqa: E711 - both


def test_writers_that_empty_and_fill_the_same_directories(tmp_path: Path) -> None:
    """One thread's last chunk of a directory goes, and the directory with it, while another one's comes."""
    array = gzarr.create_array(tmp_path, shape=(4, 8), chunks=(1, 1), dtype="i4")

    def write(columns: slice) -> None:
        for i in range(60):
            array[:, columns] = i % 2
        array[:, columns] = 3

    side_by_side(write, [slice(2 * i, 2 * i + 2) for i in range(4)])
    same(array[...], np.full((4, 8), 3, "i4"))


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="the system does not list descriptors")
def test_no_file_and_no_directory_stays_open(tmp_path: Path) -> None:
    array = gzarr.create_array(tmp_path, shape=(4, 8), chunks=(1, 1), dtype="i4")
    for value in (1, 2, 0, 3):
        array[...] = value
    links = [path.resolve() for path in Path("/proc/self/fd").iterdir()]
    assert not [path for path in links if path.is_relative_to(tmp_path)]
