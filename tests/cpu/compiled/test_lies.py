"""Tables that lie are refused by the compiled loop, or it leaves their chunks: it stays within its memory.

They are tried a second time in a process in which the loop is built with AddressSanitizer and UBSan.
"""

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gzarr
from gzarr.config import config
from gzarr.cpu.compiled import eligibility, library
from gzarr.cpu.compiled import read as compiled_read
from gzarr.storage import LocalStore, MemoryStore
from tests.cpu.compiled.looping import (
    CHAINS,
    CHUNK,
    KEYS,
    Recorder,
    read,
    read_into,
    read_is_refused_or_left,
    stored,
    write_is_refused_or_left,
)
from tests.cpu.compiled.test_either_path import made

pytestmark = pytest.mark.skipif(library.loop() is None, reason=f"the compiled loop is {library.status()}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lies")


@settings(max_examples=200)
@given(data=st.data())
def test_reads_by_tables_that_lie_are_refused_or_left(folder: Path, data: st.DataObject) -> None:
    """Every number of every table may be anything, but for those that say where memory is and how much."""
    name = data.draw(st.sampled_from(["plain", "shards", "blosc", "large", "large blosc"]))
    where = data.draw(st.sampled_from(["files", "memory", "waiting"]))
    array, _ = made(name, where, 0, False, folder)
    kind, dtype, recorder = data.draw(st.sampled_from(list(KEYS))), data.draw(st.sampled_from(["i4", "f4"])), Recorder()
    with pytest.MonkeyPatch.context() as patch, config.set({"threading.max_workers": 1}):
        for constant, value in (("_BATCH_S", 0), ("_FEW_NCHUNKS", 2)):
            patch.setattr(compiled_read, constant, value)
        patch.setattr(eligibility, "make_basic", lambda *_: None)  # so that plans are made for all selections
        read(kind, array)  # the indexes of shards are known now
        patch.setattr(library, "loop", lambda: recorder)
        memory, _ = read_into(kind, array, dtype)
    if recorder.calls:
        read_is_refused_or_left(data, recorder.calls)
    del memory  # until now


@settings(max_examples=100)
@given(data=st.data())
def test_lying_writes_are_refused_or_left(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Every number of every table but those that say where the value is may be anything."""
    store = LocalStore(tmp_path_factory.mktemp("lies")) if data.draw(st.booleans()) else MemoryStore()
    codecs, recorder = (
        CHAINS[data.draw(st.sampled_from(["plain with checksum", "blosc", "zstd", "shards"]))],
        Recorder(),
    )
    array, model = stored(codecs, "<i4", store)
    with pytest.MonkeyPatch.context() as patch, config.set({"threading.max_workers": 1}):
        patch.setattr(eligibility, "MIN_SAVED", -1_000_000)
        patch.setattr(library, "loop", lambda: recorder)
        if data.draw(st.booleans()):
            array[...] = model
        else:
            model = model[3:, 2:].copy()
            array[3:, 2:] = model
    write_is_refused_or_left(data, recorder.calls)


@pytest.mark.parametrize("ndim", [0, -1, 33, 1 << 60])
def test_numbers_of_axes_that_lie_are_refused(ndim: int) -> None:
    job, columns = struct.pack("q", ndim) + bytes(120), (b"", b"", bytes(16), b"", bytes(8))
    sources = bytes(16), struct.pack("2q", 0, 1), bytes(48), b"\0"
    more = sources, None, b"", b"", bytearray(8), bytearray(1)
    with pytest.raises(ValueError, match="tables"):
        library.extension().read(job, columns, *more)


def test_lists_that_end_one_behind_a_chunk_are_left(folder: Path) -> None:
    (array, _), recorder = made("plain", "files", 0, False, folder), Recorder()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "loop", lambda: recorder)
        memory, _ = read_into("lists", array)
    n_left = 0
    for job, (spans, lists, *more), *rest in recorder.calls:
        beyond = np.where(lists >= 0, CHUNK[0], lists)
        n_left += library.extension().read(job, (spans, beyond, *more), *rest)[0]
        assert lists.size
    assert n_left > 0
    del memory


def test_items_that_are_no_memory_are_refused(folder: Path) -> None:
    (array, _), recorder = made("plain", "memory", 0, False, folder), Recorder()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "loop", lambda: recorder)
        memory, _ = read_into("all", array)
    *before, items, path, fill, scratch, status = recorder.calls[0]
    for wrong, kind in [
        (["text"] * len(items), TypeError),
        ([memoryview(b"12345678")[::2]] * len(items), BufferError),
        (items[:-1], ValueError),
        (5, TypeError),
    ]:
        with pytest.raises(kind):
            library.extension().read(*before, wrong, path, fill, scratch, status)
    del memory


@pytest.mark.parametrize("chain", [name for name in CHAINS if "shards" not in name])
def test_chunks_with_a_byte_more_or_less_are_refused_by_either_path(chain: str, tmp_path: Path) -> None:
    array = gzarr.create_array(
        tmp_path, data=np.arange(600.0).reshape(60, 10, 1), chunks=(5, 10, 1), codecs=CHAINS[chain]
    )
    stored = (tmp_path / "c/3/0/0").read_bytes()
    for damaged in (stored + b"\1", stored[:-1]):
        (tmp_path / "c/3/0/0").write_bytes(damaged)
        for native in (True, False):
            with config.set({"cpu.native": native}), pytest.raises(gzarr.ChunkError, match="c/3/0/0"):
                array[...]


@pytest.mark.parametrize("location", ["start", "end"])
def test_a_shard_with_a_damaged_index_is_not_written_by_either_path(location: str, tmp_path: Path) -> None:
    shards = {"shape": 64, "index_location": location}
    array = gzarr.create_array(tmp_path, data=np.arange(64), chunks=4, shards=shards)
    good = (tmp_path / "c/0").read_bytes()
    at = 0 if location == "start" else len(good) - 4 - 16 * 16  # the place of another chunk, a byte away
    damaged = good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]
    (tmp_path / "c/0").write_bytes(damaged)
    for native in (True, False):
        for key in (np.s_[5], np.s_[2:50]):  # a chunk in one call, and many
            with config.set({"cpu.native": native}), pytest.raises(gzarr.ChunkError, match="c/0"):
                array[key] = 1
            assert (tmp_path / "c/0").read_bytes() == damaged
