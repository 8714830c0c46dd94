"""Chunks decoded straight into given memory are what NumPy says."""

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
from gzarr.cpu import decode_into
from gzarr.errors import ChunkError
from gzarr.storage import LocalStore, MemoryStore
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
        patch.setattr(decode_into, "MIN_SCRATCH_NBYTES", 1)
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


@pytest.mark.parametrize("name", ["blosc", "blosc stored", "plain", "shards"])
def test_damage_names_the_chunk(name: str, tmp_path: Path) -> None:
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
