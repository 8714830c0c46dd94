"""The loop's copies of boxes: every chain, dtype and layout; damage; shards that are replaced; tables that lie."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gzarr
from gzarr.chunk_io import engine
from gzarr.chunk_io.waves import ReadJob
from gzarr.config import config
from gzarr.cpu.compiled import library, read
from gzarr.errors import GzarrError
from gzarr.storage import LocalStore, MemoryStore
from gzarr.storage.base import Versions
from gzarr.storage.wrappers import ForwardedVersions
from tests.cpu.compiled.looping import CHAINS, DTYPES, STRUCT, Recorder, Watched, read_is_refused_or_left, stored
from tests.properties.test_copies import check, job_for

pytestmark = pytest.mark.skipif(library.loop() is None, reason=f"the compiled loop is {library.status()}")

STARTS = [(0, 0, 0), (60, 35, 0), (13, 5, 1), (13, 5, 1), (33, 33, 0), (20, 15, 1), (5, 30, 0)]
SIZE = (10, 10, 2)
SLOTS = [3, 1, 0, 5, 7, 2, 6]


def boxes(array: gzarr.Array, dtype: Any = None) -> ReadJob:
    """A read of some boxes into two blocks."""
    job = job_for(array, STARTS, SIZE, SLOTS, (np.dtype(dtype or array.dtype), 2, 4))
    for block in job.out:
        block[...] = np.zeros((), block.dtype)
    return job


def rows_of(array: gzarr.Array, ids: Any) -> ReadJob:
    """A read of some rows of axis 0 into a block."""
    starts = [(int(i), *[0] * (array.ndim - 1)) for i in ids]
    return job_for(array, starts, (1, *array.shape[1:]), range(len(starts)), (array.dtype, 1, len(starts)))


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in (("_MIN_NCHUNKS", 2), ("_MIN_NCHUNKS_OF_SHARD", 2), ("_BATCH_S", 0), ("STORE_NCHUNKS", 2)):
        monkeypatch.setattr(read, name, value)
    monkeypatch.setattr(read, "_FEW_NCHUNKS", 2)
    with config.set({"threading.max_workers": 3}):
        yield


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("name", CHAINS)
def test_the_loop_makes_all_copies(name: str, missing: bool, tmp_path: Path, watched: Watched) -> None:
    for dtype in DTYPES:
        array, model = stored(CHAINS[name], dtype, LocalStore(tmp_path), missing)
        array = gzarr.open_array(LocalStore(tmp_path), path="a/b", mode="r")
        for _ in range(2):  # the index of a shard is not cached, then it is
            watched.done = 0
            job = boxes(array)
            engine.read([job])
            check(job, model, STARTS, SLOTS)
            taken = dtype is not STRUCT or watched.done  # the bytes of fields are not swapped
            assert (watched.done, watched.left) == (job.plan.nparts if taken else 0, 0)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("name", CHAINS)
def test_the_loop_makes_copies_of_what_is_in_memory(name: str, missing: bool, watched: Watched) -> None:
    array, model = stored(CHAINS[name], "<i4", store := MemoryStore(), missing)
    assert store.files is None
    for dtype in ("i4", "f4"):
        watched.done, job = 0, boxes(array, dtype)
        engine.read([job])
        check(job, model.astype(dtype), STARTS, SLOTS)
        assert (watched.done, watched.left) == (job.plan.nparts, 0)


@pytest.mark.parametrize("name", ["zstd", "shards"])
def test_damage_in_memory_has_the_outcome_of_the_reference_path(name: str) -> None:
    for at in (0, 5, -1, -9):
        objects = dict[str, Any]()
        array, _ = stored(CHAINS[name], "<i4", MemoryStore(objects))
        key = next(key for key in sorted(objects) if key.startswith("a/b/c/"))
        sound = bytes(objects[key])
        outcomes = []
        for native in (True, False):
            objects[key] = bytearray(sound)
            objects[key][at] ^= 0x5A
            with config.set({"cpu.native": native}):
                job = boxes(array)
                try:
                    engine.read([job])
                    outcomes.append([block.tobytes() for block in job.out])
                except GzarrError as error:
                    outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]


def test_a_large_chunk_of_one_box_is_read_in_blocks(tmp_path: Path) -> None:
    model = np.random.default_rng(0).integers(0, 9, (2, 600, 600)).astype("u1")
    array = gzarr.create_array(tmp_path, data=model, chunks=(1, 600, 600), compressors=gzarr.codecs.BloscCodec("lz4"))
    job = job_for(array, [(1, 300, 5)], (1, 20, 590), [0], (array.dtype, 1, 1))
    with gzarr.profile() as report:
        engine.read([job])
    check(job, model, [(1, 300, 5)], [0])
    whole = (tmp_path / "c/1/0/0").stat().st_size
    assert 0 < report.stages["loop"].bytes_in < whole


def outcome(array: gzarr.Array, native: bool) -> tuple[Any, Any]:
    job = boxes(array)
    with config.set({"cpu.native": native}):
        try:
            engine.read([job])
        except GzarrError as error:
            return type(error), str(error)
    return None, np.concatenate(job.out).tolist()


@pytest.mark.parametrize("name", ["zstd with checksum", "shards", "blosc"])
def test_damage_has_the_outcome_of_the_reference_path(name: str, tmp_path: Path) -> None:
    stored(CHAINS[name], "<i4", LocalStore(tmp_path))
    path = next(path for path in sorted((tmp_path / "a/b/c").rglob("*")) if path.is_file())
    whole = path.read_bytes()
    for at, damaged in [(0, whole[:-1]), (0, whole[: len(whole) // 2]), (0, b""), (3, None), (len(whole) // 3, None)]:
        flipped = bytearray(whole)
        flipped[at] ^= 0x55
        path.write_bytes(flipped if damaged is None else damaged)
        array = gzarr.open_array(LocalStore(tmp_path), path="a/b")
        assert outcome(array, native=True) == outcome(array, native=False)


def test_damage_in_an_index_that_is_cached_is_found(tmp_path: Path) -> None:
    array, model = stored(CHAINS["shards"], "<i4", LocalStore(tmp_path))
    job = boxes(array)
    engine.read([job])
    path = tmp_path / "a/b/c/0/0/0"
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(GzarrError, match="c/0/0/0"):
        engine.read([job])
    path.unlink()
    engine.read([job])
    model[:20, :15] = 7
    check(job, model, STARTS, SLOTS)


class Looks(ForwardedVersions):
    n = 0

    def token(self, key: str) -> object | None:
        Looks.n += 1
        return super().token(key)

    def tokens(self, keys: Any) -> list[object | None]:
        return [self.token(key) for key in keys]


class Opaque(Looks):
    """Hides what the tokens are made of."""

    def token(self, key: str) -> object | None:
        found = super().token(key)
        return None if found is None else ("version", found)


class Watching(LocalStore):
    files = LocalStore.files
    kind: type[Looks] = Looks

    @property
    def versions(self) -> Versions | None:
        found = super().versions
        return None if found is None else self.kind(found)


class Hiding(Watching):
    kind = Opaque


@pytest.mark.parametrize("kind", [Watching, Hiding])
def test_nobody_looks_at_a_shard_whose_index_is_cached(kind: type[Watching], tmp_path: Path, watched: Watched) -> None:
    model = np.arange(4000).reshape(1000, 4)
    gzarr.create_array(tmp_path, data=model, chunks=(1, 4), shards=(100, 4))
    array = gzarr.open_array(kind(tmp_path), mode="r")
    job = rows_of(array, range(0, 1000, 7))
    engine.read([job])
    Looks.n = 0
    engine.read([job])
    np.testing.assert_array_equal(job.out[0][:, 0], model[::7])
    assert (Looks.n == 0) == (kind is Watching)
    assert watched.left == 0


@pytest.mark.parametrize("kind", [LocalStore, Hiding])
@pytest.mark.parametrize("in_place", [False, True])
def test_a_shard_that_was_replaced_is_read_again(kind: type[LocalStore], in_place: bool, tmp_path: Path) -> None:
    """in_place: by a program that writes over the file."""
    other = gzarr.create_array(tmp_path / "other", shape=(256,), chunks=(1,), shards=(256,), dtype="i4")
    other[...] = 1
    array = gzarr.create_array(kind(tmp_path / "it"), shape=(256,), chunks=(1,), shards=(256,), dtype="i4")
    array[...] = 2
    files = [(tmp_path / name / "c/0").read_bytes() for name in ("other", "it")]
    job = rows_of(array, range(0, 256, 3))
    for times in range(6):
        engine.read([job])
        for values in (job.out[0], array[::3]):
            assert set(values.ravel().tolist()) == {2 - times % 2}
        if in_place:
            (tmp_path / "it/c/0").write_bytes(files[times % 2])
        else:
            array.store.set("c/0", files[times % 2])


@pytest.mark.parametrize("kind", [LocalStore, Hiding])
def test_a_shard_replaced_meanwhile_is_of_one_version(kind: type[LocalStore], tmp_path: Path) -> None:
    store = kind(tmp_path)
    array = gzarr.create_array(store, shape=(512,), chunks=(1,), shards=(512,), dtype="i4", compressors=None)
    files = []
    for value in (1, 2):
        array[::value] = value  # another number of chunks, so the chunks are elsewhere
        array[...] = value
        files.append(store["c/0"])
    ids = list(range(0, 512, 2))
    job = rows_of(array, ids)
    over = threading.Event()

    def replace() -> None:
        n = 0
        while not over.is_set():
            n += 1
            store.set("c/0", files[n % 2])

    writer = threading.Thread(target=replace)
    writer.start()
    try:
        found = set()
        for _ in range(30):
            engine.read([job])
            for values in (job.out[0], array[::2], array.oindex[ids], array.vindex[ids]):
                assert len(np.unique(values)) == 1, "torn"
                found.add(int(values.ravel()[0]))
    finally:
        over.set()
        writer.join()
    assert found <= {1, 2}


@pytest.mark.parametrize("out", [np.empty((64, 1, 4)), np.empty((64, 2, 4))[:, ::2]])
def test_scattered_chunks_of_shards_are_read_at_once(out: Any, tmp_path: Path, watched: Watched) -> None:
    model = np.random.default_rng(1).random((1000, 2, 4))
    array = gzarr.create_array(tmp_path, data=model, chunks=(1, 1, 4), shards=(20, 2, 4))
    ids = np.random.default_rng(2).permutation(1000)[:64]
    array.get_orthogonal_selection((ids, slice(1), slice(None)), out=out)
    np.testing.assert_array_equal(out, model[ids, :1])
    assert watched.done == 64
    path = tmp_path / f"c/{ids[0] // 20}/0/0"
    path.write_bytes(path.read_bytes()[:-9] + bytes(9))
    with pytest.raises(GzarrError, match=f"c/{ids[0] // 20}/0/0"):
        array.get_orthogonal_selection((ids, slice(1), slice(None)), out=out)
    path.unlink()
    found = array.oindex[ids, :1]
    model[ids[0] // 20 * 20 :][:20] = 0
    np.testing.assert_array_equal(found, model[ids, :1])


def test_reads_know_what_a_chunk_took_before(tmp_path: Path) -> None:
    array, _ = stored(CHAINS["zstd"], "<i4", LocalStore(tmp_path))
    array = gzarr.open_array(LocalStore(tmp_path), path="a/b")
    compiled, job = array._io.compiled, boxes(array)
    assert compiled is not None
    found = []
    for _ in range(2):
        taken: Any = compiled.take_read(job.plan, job.plan.nparts, job.out, None)
        found.append(taken.work.chunk_s)
        engine.read([job, job])
        array[:60]
    assert (found[0], found[1] > 0) == (0, True)


@pytest.mark.parametrize("ndim", [0, -1, 33, 1 << 60, -10 * pow(3, -1, 1 << 61) % (1 << 61)])
def test_numbers_of_axes_that_lie_are_refused(ndim: int) -> None:
    """The last one makes the rows of the table of shards empty, modulo 2^64 bytes."""
    job, columns = struct.pack("q", ndim) + bytes(72), (b"", b"", bytes(16), b"")
    more = bytes(8), 1, bytes(80), None, b"", bytes(8), b"", bytearray(8), bytearray(1)
    with pytest.raises(ValueError, match="tables"):
        library.extension().read(job, None, columns, *more)


@settings(max_examples=50)
@given(data=st.data())
def test_tables_that_lie_are_refused_or_left(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Every number of every table may be anything, but for those that say where memory is and how much.

    `test_read` does this under sanitizers, too.
    """
    name = data.draw(st.sampled_from(["plain", "shards", "blosc"]))
    path = tmp_path_factory.getbasetemp() / f"lies-{name}"
    if not path.exists():
        stored(CHAINS[name], "<i4", LocalStore(path))
    array = gzarr.open_array(LocalStore(path), path="a/b")
    job, recorder = boxes(array, data.draw(st.sampled_from(["<i4", "<f4"]))), Recorder()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "loop", lambda: recorder)
        engine.read([job])
    read_is_refused_or_left(data, recorder.calls)
