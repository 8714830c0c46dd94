"""Which reads are for the compiled loop, odd files, shards that are replaced, threads; and where there is no loop."""

import os
import shutil
import signal
import stat
import struct
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import Empty
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.chunk_io import engine
from gzarr.codecs import BytesCodec, Crc32cCodec, NumcodecsCodec, ShardingCodec, TransposeCodec, ZstdCodec
from gzarr.concurrency import TimedQueue
from gzarr.config import config
from gzarr.cpu.compiled import library
from gzarr.cpu.compiled import read as compiled_read
from gzarr.errors import GzarrError
from gzarr.storage import LocalStore, MemoryStore, Request, Store
from gzarr.storage.base import Buffer
from tests.cpu.compiled.looping import CHAINS, KEYS, SHAPE, SIZE, SLOTS, STARTS, Watched, read, stored, wanted
from tests.properties.cases import same
from tests.properties.test_copies import job_for

pytestmark = pytest.mark.skipif(library.loop() is None, reason=f"the compiled loop is {library.status()}")

#: And some that it leaves alone.
OTHERS: dict[str, list[Any]] = {
    "bzip2": [BytesCodec(), NumcodecsCodec("bz2", {"level": 1})],
    "wrapped shards": [ShardingCodec((10, 5, 3), [BytesCodec()]), ZstdCodec(1)],
}


@pytest.fixture(autouse=True, scope="module")
def few_chunks_are_enough() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled_read, "_MIN_NCHUNKS_OF_SHARD", 2)
        yield


# -- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OTHERS)
def test_other_chains_take_the_reference_path(name: str, tmp_path: Path, watched: Watched) -> None:
    array, model = stored(OTHERS[name], "<i4", LocalStore(tmp_path))
    same(array[...], model)
    assert watched.files == 0


class Counting(LocalStore):
    def get_one(self, request: Request) -> Buffer | None:
        return self.get_many([request])[0]

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        self.asked = getattr(self, "asked", 0) + len(requests)
        return [LocalStore.get_one(self, request) for request in requests]


class Elsewhere(LocalStore):
    """Does not say that its objects are files."""

    files = Store.files


def test_other_reads_take_the_reference_path(tmp_path: Path, watched: Watched) -> None:
    array, model = stored(CHAINS["blosc"], "<i4", LocalStore(tmp_path))
    same(array[4, 4, 2], model[4, 4, 2])
    out: Any = np.ma.zeros(SHAPE, "<i4")
    array.get_basic_selection(..., out=out)
    same(gzarr.open_array(tmp_path, path="a/b", chunk_cache=1 << 20)[...], model)
    for store in (Counting(tmp_path), Elsewhere(tmp_path), MemoryStore(dict(LocalStore(tmp_path)))):
        same(gzarr.open_array(store, path="a/b")[...], model)
    assert watched.files == 0


@pytest.mark.parametrize("key", [np.s_[...], np.s_[21:23, 3:6], np.s_[::7, 12]])
def test_shards_in_shards_are_read_whatever_their_depth(key: Any, tmp_path: Path, watched: Watched) -> None:
    innermost = ShardingCodec((5, 5), [BytesCodec()], index_location="start")
    codecs = [ShardingCodec((20, 30), [ShardingCodec((20, 10), [innermost])])]
    for store in (LocalStore(tmp_path), MemoryStore()):
        array = gzarr.create_array(store, shape=(45, 70), chunks=(40, 30), dtype="i4", codecs=codecs, fill_value=9)
        model = np.arange(45 * 70, dtype="i4").reshape(45, 70)
        model[20:30] = model[:20, 40:] = 9
        array[...] = model
        before = watched.done
        same(gzarr.open_array(store)[key], model[key])
        assert watched.done > before or (isinstance(store, MemoryStore) and key is not ...)  # few in memory
    assert watched.left == 0


def test_views_of_a_local_store_are_read_by_the_loop(tmp_path: Path, watched: Watched) -> None:
    _, model = stored(CHAINS["blosc"], "<i4", LocalStore(tmp_path))
    gzarr.consolidate_metadata(tmp_path)
    views = [
        gzarr.open_array(tmp_path, path="a/b", mode="r"),
        gzarr.open_array(tmp_path / "a" / "b", synchronizer=gzarr.ThreadSynchronizer()),
        gzarr.open_consolidated(tmp_path)["a/b"],
    ]
    for array in views:
        before = watched.done
        same(array[...], model)
        assert watched.done == before + array.nchunks


def test_many_axes_and_far_offsets(tmp_path: Path, watched: Watched) -> None:
    for ndim, by_loop in ((32, True), (33, False)):
        shape = (1,) * (ndim - 2) + (6, 6)
        model = np.arange(36, dtype="i4").reshape(shape)
        array = gzarr.array(model, chunks=(1,) * (ndim - 1) + (3,), store=tmp_path / str(ndim))
        before = watched.done
        same(array[...], model)
        assert (watched.done > before) is by_loop
    huge = gzarr.create_array(tmp_path / "h", shape=(1 << 60,), chunks=(4,), dtype="i8", compressors=None)
    huge[-16:] = np.arange(16)
    same(huge[-20:], np.array([0] * 4 + list(range(16))))
    assert watched.left == 0


@pytest.mark.parametrize("order", [(1, 0, 2), (2, 1, 0)])
@pytest.mark.parametrize("shape", [(30, 1), (1, 30), (5, 6)])
def test_indexes_that_are_transposed(
    shape: tuple[int, int], order: tuple[int, ...], tmp_path: Path, watched: Watched
) -> None:
    index_codecs = [TransposeCodec(order), BytesCodec(), Crc32cCodec()]
    codecs = [ShardingCodec((1, 1), [BytesCodec()], index_codecs=index_codecs)]
    array = gzarr.create_array(tmp_path, shape=shape, chunks=shape, dtype="i4", codecs=codecs)
    model = np.arange(30, dtype="i4").reshape(shape) + 1
    array[...] = model
    same(array[...], model)
    assert watched.done >= 30


def test_chunks_far_into_a_shard(tmp_path: Path, watched: Watched) -> None:
    """Past 4 GiB, in a file with a hole."""
    codecs = [ShardingCodec((4,), [BytesCodec()], [BytesCodec()], index_location="start")]
    array = gzarr.create_array(tmp_path, shape=(16,), chunks=(16,), dtype="i4", codecs=codecs)
    at, model = (1 << 32) + 12, np.arange(16, dtype="i4")
    with (tmp_path / "c").mkdir() or (tmp_path / "c" / "0").open("wb") as file:
        file.write(struct.pack("<8Q", *[n for i in range(4) for n in (at + 16 * i, 16)]))
        file.seek(at)
        file.write(model.tobytes())
    same(array[...], model)
    same(array[1:15:3], model[1:15:3])
    assert (watched.done, watched.left) == (8, 0)


# -- errors ----------------------------------------------------------------------------------------------------------


def outcome(array: gzarr.Array, read: Any) -> Any:
    """What a read gives, or the error that it raises, as something to compare."""
    try:
        return read(array).tobytes()
    except GzarrError as error:
        return type(error), str(error), vars(error).get("chunk_coords"), vars(error).get("codec")


READS = [lambda z: z[...], lambda z: z[3], lambda z: z.vindex[[3, 69, 3, 25], [44, 0, 1, 20], [0, 1, 2, 1]]]


def check_same_outcomes(path: Path) -> None:
    for reads in READS:
        found = []
        for on in (True, False):
            with config.set({"cpu.native": on, "threading.max_workers": 1}):
                found.append(outcome(gzarr.open_array(path, path="a/b", mode="r"), reads))
        assert found[0] == found[1]


@pytest.mark.parametrize("name", ["plain", "zstd", "shards"])
def test_files_that_are_none(name: str, tmp_path: Path) -> None:
    """A directory reads as missing, a link that leads round in circles does not."""
    stored(CHAINS[name], "<i4", LocalStore(tmp_path))
    file = tmp_path / "a/b/c/0/1/0"
    file.unlink()
    file.mkdir()
    check_same_outcomes(tmp_path)
    file.rmdir()
    file.symlink_to(file)
    check_same_outcomes(tmp_path)
    file.unlink()
    check_same_outcomes(tmp_path)
    shutil.rmtree(tmp_path / "a/b/c/0")
    (tmp_path / "a/b/c/0").write_bytes(b"a file where a folder was")
    check_same_outcomes(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0 if hasattr(os, "geteuid") else True, reason="nothing is forbidden here")
def test_files_that_may_not_be_read(tmp_path: Path) -> None:
    stored(CHAINS["plain"], "<i4", LocalStore(tmp_path))
    (tmp_path / "a/b/c/0/1/0").chmod(stat.S_IWUSR)
    check_same_outcomes(tmp_path)


def raw_frame(content: bytes) -> bytes:
    """A Zstandard frame of one raw block that does not say its size, as encoders that stream write them."""
    return struct.pack("<IBB", 0xFD2FB528, 0, 0x58) + struct.pack("<I", len(content) << 3 | 1)[:3] + content


def test_frames_without_a_size_are_read(tmp_path: Path, watched: Watched) -> None:
    """A single one by the loop; more of them are an error, which the reference path raises."""
    array, model = stored(CHAINS["zstd"], "<i4", LocalStore(tmp_path))
    content = model[:20, :15].tobytes()
    (tmp_path / "a/b/c/0/0/0").write_bytes(raw_frame(content))
    same(array[...], model)
    assert watched.left == 0
    for data in (content[:-4], content + b"more"):
        (tmp_path / "a/b/c/0/0/0").write_bytes(raw_frame(data))
        check_same_outcomes(tmp_path)
    (tmp_path / "a/b/c/0/0/0").write_bytes(raw_frame(content[:8]) + raw_frame(content[8:]))
    check_same_outcomes(tmp_path)
    with pytest.raises(gzarr.errors.ChunkError, match="do not say their size"):
        array[...]


# -- the machine -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", [None, (512, 1024)])
def test_threads_share_a_few_large_chunks(shards: Any, tmp_path: Path, watched: Watched) -> None:
    layout = {"chunks": (256, 512), "shards": shards, "compressors": ZstdCodec(1)}
    array = gzarr.create_array(tmp_path / "a", shape=(512, 1024), dtype="f8", device="cpu", **layout)
    array[...] = model = np.arange(1 << 19, dtype="f8").reshape(512, 1024)
    with config.set({"threading.max_workers": 2}):
        same(array[3:, :], model[3:, :])
    assert (watched.done, watched.calls) == (4, 4)


class Nested(MemoryStore):
    """Reads another array in a thread of its own before it answers."""

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        thread = threading.Thread(target=lambda: small(MemoryStore())[...])
        thread.start()
        thread.join()
        return super().get_many(requests)


def small(store: Store) -> gzarr.Array:
    return gzarr.create_array(store, data=np.arange(4000), chunks=20)


def test_stores_may_wait_for_threads_that_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """These wait in vain for their turn, which the first reader has, but not for long."""
    waited_s, get = list[float](), TimedQueue.get

    def timed(queue: TimedQueue[None], timeout_s: float) -> None:
        try:
            get(queue, timeout_s)
        except Empty:
            waited_s.append(timeout_s)
            raise

    monkeypatch.setattr(TimedQueue, "get", timed)
    same(small(Nested())[...], np.arange(4000))
    assert 0 < sum(waited_s) < 1


def test_an_interrupt_is_taken_between_pieces(tmp_path: Path) -> None:
    array = gzarr.create_array(tmp_path, shape=(2_000_000,), chunks=(1,), dtype="u1", compressors=None)
    timer = threading.Timer(0.1, signal.raise_signal, (signal.SIGINT,))
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - this thread may be held up when the timer has begun
        timer.start()
        deque((array[...] for _ in range(100)), maxlen=0)
    timer.join()


def test_reads_know_what_a_chunk_took_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_read, "_TELLING_S", 0)
    stored(CHAINS["zstd"], "<i4", LocalStore(tmp_path))
    array = gzarr.open_array(LocalStore(tmp_path), path="a/b")
    job, found = job_for(array, STARTS, SIZE, SLOTS, (array.dtype, 2, 4)), []
    for _ in range(2):
        taken: Any = array._io.compiled.take_read(job.plan, job.plan.nparts, job.out, None)
        found.append(taken.work.chunk_s)
        engine.read([job, job])
        array[:60]
    assert (found[0], found[1] > 0) == (0, True)


@pytest.mark.parametrize("kind", KEYS)
def test_a_loop_switched_off_meanwhile_leaves_all(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("zstd", "shards"):
        array, model = stored(CHAINS[name], "<i4", LocalStore(tmp_path / name))
        monkeypatch.setattr(library, "loop", lambda: None)
        same(read(kind, array), wanted(kind, model))
        array[1:] = model[1:] = 5
        monkeypatch.undo()
        same(array[...], model)


def test_a_reason_is_given_where_there_is_no_loop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert library.status() == "on"
    monkeypatch.setitem(library._loaded()[1], "LZ4_compress_fast", 0)
    assert library.status().startswith(
        "on, except for numcodecs.lz4: the installed package 'numcodecs' lacks functions"
    )
    monkeypatch.undo()
    with config.set({"cpu.native": False}):
        assert library.status() == "off: disabled by the setting cpu.native"
        assert library.loop() is None
    monkeypatch.setitem(sys.modules, "gzarr.cpu._loop", None)
    monkeypatch.delattr("gzarr.cpu._loop")
    library._loaded.cache_clear()
    try:
        assert "no extension was built" in library.status()
        array, model = stored(CHAINS["blosc"], "<i4", LocalStore(tmp_path))
        same(array[...], model)
        # One that an earlier version was built with.
        monkeypatch.setattr("gzarr.cpu._loop", SimpleNamespace(do=None, bind=None), raising=False)
        library._loaded.cache_clear()
        assert "another version" in library.status()
        assert library.loop() is None
    finally:
        monkeypatch.undo()
        library._loaded.cache_clear()
    assert library.status() == "on"


def test_decoders_that_are_not_exported_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    module, addresses = library._loaded()
    some = {**addresses, "crc32c_value": 0, "ZSTD_createDCtx": 0}
    monkeypatch.setattr(library, "_loaded", lambda: (module, some))
    assert library.codec_number("blosc", checksum=False) is not None
    assert library.codec_number("blosc", checksum=True) is None
    assert library.codec_number("zstd", checksum=False) is None
    assert library.codec_number("bz2", checksum=False) is None
    assert "package 'numcodecs' lacks" in library.lacking("zstd", checksum=False)
    assert library._address("gzarr.errors", "ZSTD_createDCtx") == 0
    assert library._address("gzarr.no_such_module", "ZSTD_createDCtx") == 0
