"""Chunks decoded straight into given memory, and parts of chunks read and decoded by blocks, are what NumPy says."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numcodecs import Blosc

import gzarr
from gzarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    NumcodecsCodec,
    ShardingCodec,
    TransposeCodec,
    ZstdCodec,
)
from gzarr.cpu import decode_into, window
from gzarr.cpu.codecs.blosc_blocks import HEADER, cut_frame, read_table
from gzarr.errors import ChunkError
from gzarr.storage import CountingStore, LocalStore, MemoryStore
from tests.properties.cases import as_array, basic_keys, coordinate_keys, orthogonal_index, orthogonal_keys, same

SHAPE, CHUNK = (70, 45, 3), (40, 30, 3)
STRUCT = np.dtype([("a", "<i4"), ("b", ">f4"), ("c", "u1", (3,))])

#: Chains whose last codecs decode into given memory; small blocks make small chunks have many.
CHAINS: dict[str, list[Any]] = {
    "plain": [BytesCodec()],
    "big-endian": [BytesCodec("big")],
    "blosc": [BytesCodec(), BloscCodec("lz4", 5, "shuffle", typesize=4, blocksize=256)],
    "blosc odd typesize": [BytesCodec(), BloscCodec("zstd", 1, "shuffle", typesize=7, blocksize=700)],
    "blosc bits": [BytesCodec("big"), BloscCodec("blosclz", 5, "bitshuffle", typesize=4, blocksize=1024)],
    "blosc stored": [BytesCodec(), BloscCodec("lz4", 0, "noshuffle", typesize=4)],
    "blosc of transposed": [TransposeCodec((2, 0, 1)), BytesCodec(), BloscCodec("lz4", 5, "shuffle", 4, 256)],
    "twice transposed": [TransposeCodec((2, 0, 1)), TransposeCodec((0, 2, 1)), BytesCodec()],
    "zstd": [BytesCodec(), ZstdCodec(1)],
    "lz4 with checksum": [BytesCodec(), NumcodecsCodec("lz4", {}), Crc32cCodec()],
    "gzip": [BytesCodec(), NumcodecsCodec("zlib", {"level": 1})],
    "shards": [ShardingCodec((10, 15, 3), [BytesCodec(), BloscCodec("lz4", 5, "shuffle", 4, 256)])],
    "shards of plain": [ShardingCodec((10, 15, 3), [BytesCodec()])],
}


@pytest.fixture(autouse=True, scope="module")
def small_chunks_count_as_large() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode_into, "MIN_NBYTES", 1)
        patch.setattr(decode_into, "MIN_SCRATCH_NBYTES", 1)
        patch.setattr(window, "NBYTES_PER_POINT", 1)
        yield


@pytest.fixture(autouse=True, scope="module")
def without_the_compiled_loop() -> Iterator[None]:
    with gzarr.config.set({"cpu.native": False}):
        yield


def values(dtype: Any) -> np.ndarray:
    numbers = np.random.default_rng(1).integers(0, 250, SHAPE)
    dtype = np.dtype(dtype)
    if dtype.names is None:
        return numbers.astype(dtype)
    out = np.zeros(SHAPE, dtype)
    out["a"], out["b"], out["c"] = numbers, numbers / 2, numbers[..., None] % 200
    return out


def stored(name: str, dtype: Any, store: Any, missing: bool = False) -> tuple[gzarr.Array, np.ndarray]:
    model = values(dtype)
    if missing:
        model[: CHUNK[0], : CHUNK[1]] = np.zeros((), model.dtype)
    array = gzarr.create_array(
        store, shape=SHAPE, chunks=CHUNK, dtype=dtype, fill_value=None, codecs=CHAINS[name], overwrite=True
    )
    array[...] = model
    return array, model


DTYPES = ["<i4", ">f4", "u1", "<c16", STRUCT]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("direct")


@cache
def made(name: str, kind: str, which: int, missing: bool, folder: Path) -> tuple[gzarr.Array, np.ndarray]:
    store = MemoryStore() if kind == "memory" else LocalStore(folder / f"{name}-{which}-{missing}")
    return stored(name, DTYPES[which], store, missing)


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("kind", ["memory", "local"])
@settings(max_examples=15)
@given(data=st.data())
def test_every_selection_reads_what_numpy_does(name: str, kind: str, folder: Path, data: st.DataObject) -> None:
    which = data.draw(st.integers(0, len(DTYPES) - 1))
    array, model = made(name, kind, which, data.draw(st.booleans()), folder)
    key = data.draw(basic_keys(SHAPE))
    same(array[key], model[key])
    key = data.draw(orthogonal_keys(SHAPE))
    index, shape = orthogonal_index(key, SHAPE)
    same(array.oindex[key], as_array(model[index]).reshape(shape))
    key = data.draw(coordinate_keys(SHAPE))
    same(array.vindex[key], model[key])
    if model.dtype.names is not None:
        same(array[("b", 3, slice(2, 30))], model["b"][3, 2:30])
    out = np.empty((SHAPE[0], SHAPE[1] * 2, 3), model.dtype)[:, ::2]
    array.get_basic_selection(..., out=out)
    same(out, model)
    if model.dtype.names is None and model.dtype.kind != "c":
        same(array.astype("f8")[5], model[5].astype("f8"))


@pytest.mark.parametrize("name", ["plain", "blosc", "blosc stored", "shards", "shards of plain"])
def test_a_row_reads_little_of_its_chunks(name: str, tmp_path: Path) -> None:
    array, model = stored(name, "<i4", LocalStore(tmp_path))
    whole = sum(LocalStore(tmp_path).getsize(key) or 0 for key in LocalStore(tmp_path) if key.startswith("c/"))
    store = CountingStore(LocalStore(tmp_path))
    opened = gzarr.open_array(store, mode="r")
    same(opened[33], model[33])  # reads the indexes of shards too
    store.reset()
    same(opened[33], model[33])
    read = sum(request.length if request.length is not None else whole for request in store.requests)
    assert read < whole / 3
    same(array[33], model[33])


def test_points_read_only_their_blocks(tmp_path: Path) -> None:
    _, model = stored("blosc", "<i4", LocalStore(tmp_path))
    store = CountingStore(LocalStore(tmp_path))
    array = gzarr.open_array(store, mode="r")
    store.reset()
    same(array.vindex[[0, 39], [0, 29], [0, 2]], model[[0, 39], [0, 29], [0, 2]])
    assert len(store.requests) == 3  # the table and two blocks, one at each end
    store.reset()
    assert array[0, 0, 0] == model[0, 0, 0]
    assert len(store.requests) == 2


@pytest.mark.parametrize("name", ["blosc", "blosc stored", "plain", "shards"])
def test_damage_that_a_window_meets_names_the_chunk(name: str, tmp_path: Path) -> None:
    array, model = stored(name, "<i4", LocalStore(tmp_path))
    path = tmp_path / "c" / "0" / "0" / "0"
    data = path.read_bytes()
    rng = np.random.default_rng(5)
    for _ in range(150):
        position = int(rng.integers(0, 64 if name != "shards" else len(data)))
        path.write_bytes(data[:position] + bytes([data[position] ^ int(rng.integers(1, 256))]) + data[position + 1 :])
        with suppress(ChunkError):
            assert array[3, :, 1].shape == model[3, :, 1].shape
    for size in (0, 3, 17, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(ChunkError, match="c/0/0/0"):
            array[39]
    path.unlink()
    assert not array[3, : CHUNK[1]].any()


@settings(max_examples=60)
@given(
    nbytes=st.integers(1, 6000),
    typesize=st.sampled_from([1, 2, 4, 7, 8]),
    shuffle=st.sampled_from([0, 1, 2]),
    cname=st.sampled_from(["lz4", "zstd", "blosclz", "zlib"]),
    blocksize=st.sampled_from([128, 256, 1000]),
    data=st.data(),
)
def test_a_cut_frame_decodes_to_its_blocks(
    nbytes: int, typesize: int, shuffle: int, cname: str, blocksize: int, data: st.DataObject
) -> None:
    raw = (np.arange(nbytes) // 5 % 97).astype(np.uint8)
    typed = raw if nbytes % typesize else raw.view(f"V{typesize}")
    codec = Blosc(cname, 5, shuffle, blocksize)
    frame = codec.encode(typed)

    def read(start: int, n: int) -> bytes:
        return frame[start : start + n]

    table = read_table(read, len(frame), nbytes)
    if table.plain:
        assert frame[HEADER.size :] == raw.tobytes()
        return
    n = table.starts.size
    blocks = np.array(sorted(data.draw(st.sets(st.integers(0, n - 1), min_size=1))))
    cut, taken = cut_frame(read, table, blocks)
    wanted = b"".join(raw.tobytes()[b * table.blocksize : (b + 1) * table.blocksize] for b in taken.tolist())
    assert bytes(codec.decode(cut)) == wanted
    assert set(blocks.tolist()) <= set(taken.tolist())


@pytest.mark.parametrize("cname", ["lz4", "zstd"])
@pytest.mark.parametrize("shuffle", [0, 1, 2])
def test_blocks_of_split_streams_are_cut_too(cname: str, shuffle: int) -> None:
    raw = np.random.default_rng(2).integers(0, 1000, 300_001).astype("<i4")
    codec = Blosc(cname, 5, shuffle)
    frame = codec.encode(raw)
    table = read_table(lambda start, n: frame[start : start + n], len(frame), raw.nbytes)
    n = table.starts.size
    assert n > 2
    for blocks in ([0], [n - 1], [1, n - 1], [0, 1]):
        cut, taken = cut_frame(lambda start, n: frame[start : start + n], table, np.array(blocks))
        size = table.blocksize
        assert bytes(codec.decode(cut)) == b"".join(raw.tobytes()[b * size : (b + 1) * size] for b in taken.tolist())


def test_threads_leave_scratch_memory_for_as_many_as_decode_at_once() -> None:
    """Threads that wait for servers are many more than cores, and do not end."""
    n_threads = 3 * (os.cpu_count() or 1)
    meeting = threading.Barrier(n_threads + 1, timeout=60)
    lent: list[weakref.ref[Any]] = []

    def decode() -> None:
        with decode_into.lent_scratch() as scratch:
            lent.append(weakref.ref(scratch.room(1 << 20).base))
            meeting.wait()
        del scratch
        meeting.wait()
        meeting.wait()

    threads = [threading.Thread(target=decode) for _ in range(n_threads)]
    for thread in threads:
        thread.start()
    meeting.wait()
    meeting.wait()
    n_kept = sum(memory() is not None for memory in lent)
    meeting.wait()
    for thread in threads:
        thread.join()
    assert len(lent) == n_threads
    assert n_kept == n_threads // 3


def test_results_do_not_share_the_scratch_memory() -> None:
    array, model = stored("blosc", "<i4", MemoryStore())
    first, second = array[3], array[50]
    same(first, model[3])
    same(second, model[50])


def stored_in_compressed_rows() -> tuple[gzarr.Array, np.ndarray]:
    model = np.arange(120, dtype="<i4").reshape(4, 30)
    codecs = [BytesCodec(), BloscCodec("lz4", 5, "shuffle", 4)]
    array = gzarr.create_array(MemoryStore(), shape=model.shape, chunks=(1, 30), dtype="<i4", codecs=codecs)
    array[...] = model
    return array, model


class Collected:
    """Something to read into that keeps what it is given."""

    def __init__(self, model: np.ndarray) -> None:
        self.shape, self.dtype = model.shape, model.dtype
        self.pieces: list[tuple[Any, Any]] = []

    def __setitem__(self, index: Any, value: Any) -> None:
        self.pieces.append((index, value))


def test_what_keeps_the_pieces_given_to_it_keeps_their_values() -> None:
    array, model = stored_in_compressed_rows()
    out: Any = Collected(model)
    array.get_basic_selection(..., out=out)
    assert len(out.pieces) == 4
    for index, piece in out.pieces:
        same(piece, model[index])


def test_masked_arrays_are_unmasked_where_they_are_read_into() -> None:
    array, model = stored_in_compressed_rows()
    out = np.ma.masked_all(model.shape, model.dtype)
    array.get_basic_selection(..., out=out)
    assert not np.ma.getmaskarray(out).any()
    same(out.data, model)


def test_a_read_in_the_midst_of_another_does_not_touch_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    array, model = stored_in_compressed_rows()
    piece_of = decode_into._piece
    inner: list[np.ndarray] = []

    def interrupted(*args: Any) -> Any:
        piece = piece_of(*args)
        if not inner:  # as a signal handler would, between decoding and copying
            inner.append(np.empty(0))
            inner[0] = array[3, ::2]
        return piece

    monkeypatch.setattr(decode_into, "_piece", interrupted)
    same(array[0, ::2], model[0, ::2])
    same(inner[0], model[3, ::2])


def test_a_result_that_refuses_values_does_not_make_the_chunk_a_damaged_one() -> None:
    words = np.array(["one", "two"])
    array = gzarr.create_array(
        MemoryStore(), shape=2, chunks=2, dtype=words.dtype, codecs=[BytesCodec()], fill_value="0"
    )
    array[...] = words
    with pytest.raises(ValueError, match="one"):
        array.astype("i4")[...]


def test_points_are_found_in_elements_longer_than_a_block() -> None:
    words = np.array([chr(65 + i % 26) * 300 for i in range(60)])
    codecs = [BytesCodec(), BloscCodec("zstd", 5, "noshuffle", 1, 256)]
    array = gzarr.create_array(MemoryStore(), shape=60, chunks=60, dtype=words.dtype, codecs=codecs, fill_value="")
    array[...] = words
    for points in ([0], [0, 16], [59, 5, 5]):
        same(array.vindex[points], words[points])
