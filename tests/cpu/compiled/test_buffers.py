"""Chunks in memory are read by the compiled loop, with the values and the errors of the reference path."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gzarr
from gzarr.config import config
from gzarr.cpu.compiled import eligibility, library, read
from gzarr.errors import GzarrError
from gzarr.storage import MemoryStore, Request, WrapperStore
from gzarr.storage.base import Buffer
from tests.cpu.compiled.looping import (
    CHAINS,
    CHUNK,
    DTYPES,
    SHAPE,
    Recorder,
    Watched,
    read_is_refused_or_left,
    stored,
    write_is_refused_or_left,
)
from tests.properties.cases import basic_keys, orthogonal_index, orthogonal_keys, same

pytestmark = pytest.mark.skipif(library.loop() is None, reason=f"the compiled loop is {library.status()}")


class Waiting(WrapperStore):
    """A store that takes many requests at once: its chunks come in waves."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.concurrency = 8


class Changeable(WrapperStore):
    """Returns views that could change."""

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        return [None if item is None else memoryview(bytearray(item)) for item in super().get_many(requests)]


STORES = {"memory": MemoryStore, "waiting": lambda: Waiting(MemoryStore()), "views": lambda: Changeable(MemoryStore())}


@pytest.fixture(autouse=True)
def few_chunks_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "_FEW_NCHUNKS", 2)
    monkeypatch.setattr(eligibility, "make_basic", lambda *_: None)  # so that plans are made for all selections


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", CHAINS)
def test_the_loop_reads_chunks_in_memory(store: str, name: str, watched: Watched) -> None:
    array, model = stored(CHAINS[name], "<i4", STORES[store](), missing=True)
    same(array[...], model)
    assert watched.done == array.nchunks
    same(array[5:60, 3, 1], model[5:60, 3, 1])
    same(array[::7, ::11], model[::7, ::11])
    same(array.oindex[[3, 69, 3, 20], [44, 0]], model[np.ix_([3, 69, 3, 20], [44, 0])])
    same(array.vindex[[3, 69, 3], [44, 0, 1], [0, 1, 2]], model[[3, 69, 3], [44, 0, 1], [0, 1, 2]])
    out = np.zeros((3, SHAPE[1] * 2, SHAPE[0]), model.dtype).T[:, ::-2]
    array.get_basic_selection(..., out=out)
    same(out, model)
    assert watched.left == 0


@pytest.mark.parametrize("name", ["blosc", "shards"])
@settings(max_examples=5)
@given(data=st.data())
def test_every_selection_reads_what_numpy_does(name: str, data: st.DataObject) -> None:
    array, model = stored(CHAINS[name], data.draw(st.sampled_from(DTYPES)), MemoryStore(), data.draw(st.booleans()))
    key = data.draw(basic_keys(SHAPE))
    same(array[key], model[key])
    key = data.draw(orthogonal_keys(SHAPE))
    index, shape = orthogonal_index(key, SHAPE)
    same(array.oindex[key], model[index].reshape(shape))


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", ["plain", "plain with checksum", "zstd", "blosc", "lz4", "shards"])
@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_damage_is_found_by_either_path(store: str, name: str, damage: str) -> None:
    inner: dict[str, bytes] = {}
    stored(CHAINS[name], "<i4", MemoryStore(inner))
    key = next(key for key in sorted(inner) if "/c/" in key)
    sound = inner[key]
    flipped = bytes([byte ^ 0xFF for byte in sound[:8]]) + sound[8:-3] + bytes([byte ^ 0xFF for byte in sound[-3:]])
    inner[key] = {"cut": sound[:-5], "flip": flipped, "empty": b""}[damage]
    kinds = {"memory": lambda s: s, "waiting": Waiting, "views": Changeable}
    array = gzarr.open_array(kinds[store](MemoryStore(inner)), path="a/b")
    outcomes = []
    for native in (True, False):
        with config.set({"cpu.native": native}):
            try:
                outcomes.append(array[...].tobytes())
            except GzarrError as error:
                outcomes.append((type(error), str(error)))
    assert outcomes[0] == outcomes[1]


def test_a_shard_that_is_replaced_is_read_anew(watched: Watched) -> None:
    inner: dict[str, bytes] = {}
    array, model = stored(CHAINS["shards"], "<i4", MemoryStore(inner))
    same(array[...], model)
    array[...] = model + 1
    same(array[...], model + 1)
    key = next(key for key in sorted(inner) if "/c/" in key)
    del inner[key]
    same(array[: CHUNK[0], : CHUNK[1]], np.full_like(model[: CHUNK[0], : CHUNK[1]], 7))


def test_large_chunks_are_read_in_blocks(watched: Watched) -> None:
    model = np.random.default_rng(0).integers(0, 99, (300, 1000)).astype("i4")
    array = gzarr.create_array({}, shape=model.shape, chunks=(150, 500), dtype="i4", compressors=CHAINS["blosc"][1:])
    array[...] = model
    same(array[...], model)
    same(array[149:151, ::3], model[149:151, ::3])
    assert (watched.done, watched.left) == (8, 0)


@settings(max_examples=60)
@given(data=st.data())
def test_tables_that_lie_are_refused_or_left(data: st.DataObject) -> None:
    """Every number of every table may be anything, but for those that say where memory is and how much."""
    inner, recorder = MemoryStore(), Recorder()
    array, _ = stored(CHAINS[data.draw(st.sampled_from(["plain", "blosc", "shards"]))], "<i4", inner)
    out = np.zeros(SHAPE, "i4")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "loop", lambda: recorder)
        patch.setattr(read, "_FEW_NCHUNKS", 2)
        some = gzarr.open_array(Waiting(inner), path="a/b") if data.draw(st.booleans()) else array
        with suppress(GzarrError):
            some.get_basic_selection(..., out=out)
    read_is_refused_or_left(data, recorder.calls)


def test_items_that_are_no_memory_are_refused() -> None:
    array, _ = stored(CHAINS["plain"], "<i4", MemoryStore())
    recorder = Recorder()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "loop", lambda: recorder)
        array[...]
    args = recorder.calls[0]
    items = args[6]
    for wrong, kind in [
        (["text"] * len(items), TypeError),
        ([memoryview(b"12345678")[::2]] * len(items), BufferError),
        (items[:-1], ValueError),
        (5, TypeError),
    ]:
        args[6] = wrong
        with pytest.raises(kind):
            library.extension().read(*args)


# -- writes ----------------------------------------------------------------------------------------------------------


def both_ways(write: Any, codecs: list[Any], store: Any = MemoryStore, **options: Any) -> tuple[dict[str, bytes], ...]:
    """What is stored after a write by the loop, and by the reference path."""
    found = []
    for native in (True, False):
        inner: dict[str, bytes] = {}
        with config.set({"cpu.native": native}):
            array, model = stored(
                codecs, "<i4", store(MemoryStore(inner)) if store is not MemoryStore else store(inner)
            )
            write(array, model, **options)
            same(array[...], model)
        found.append({key: bytes(value) for key, value in inner.items()})
    return tuple(found)


def in_part(array: gzarr.Array, model: np.ndarray) -> None:
    array[5:61, 2:44] = model[5:61, 2:44] = model[5:61, 2:44] + 1
    array[::3, 1] = model[::3, 1] = model[::3, 1] * 2
    array[20:60, 15:30] = model[20:60, 15:30] = 7
    array.oindex[[3, 69, 20], [44, 0]] = model[np.ix_([3, 69, 20], [44, 0])] = 5


@pytest.mark.parametrize("store", [MemoryStore, Changeable])
@pytest.mark.parametrize("name", CHAINS)
def test_the_loop_writes_what_the_reference_path_does(store: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gzarr.cpu.compiled.eligibility.MIN_SAVED", 0)
    ours, theirs = both_ways(in_part, CHAINS[name], store)
    assert ours == theirs


def test_the_loop_writes_all_of_it(watched: Watched) -> None:
    array, model = stored(CHAINS["blosc"], "<i4", MemoryStore())
    assert (watched.written, watched.refused) == (array.nchunks, 0)
    array[1:, 1:] = model[1:, 1:] = 3
    same(array[...], model)
    array.resize((80, 50, 3))
    array.resize(SHAPE)
    array[...] = model[...] = 7
    assert watched.refused == 0
    assert not [key for key in array.store if "/c/" in key]


def test_damaged_chunks_that_are_written_in_part_are_an_error() -> None:
    inner: dict[str, bytes] = {}
    array, model = stored(CHAINS["zstd"], "<i4", MemoryStore(inner))
    key = min(key for key in inner if "/c/" in key)
    inner[key] = b"damage"
    with pytest.raises(gzarr.ChunkError, match="zstd"):
        array[1:60] = model[1:60]
    array[...] = model
    same(array[...], model)


@settings(max_examples=60)
@given(data=st.data())
def test_tables_of_a_write_that_lie_are_refused_or_left(data: st.DataObject) -> None:
    array, model = stored(CHAINS[data.draw(st.sampled_from(["plain", "blosc", "zstd"]))], "<i4", MemoryStore())
    recorder = Recorder()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "loop", lambda: recorder)
        array[1:] = model[1:]
    write_is_refused_or_left(data, recorder.calls)
