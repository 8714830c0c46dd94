"""Writes that nobody waits for are all there after a flush, in their order, and each object is stored once."""

from __future__ import annotations

import gc
import os
import pickle
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gzarr
from gzarr.errors import ChunkError, ReadOnlyError, SelectionError, StoreError
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.hostbuild import find_compiler
from gzarr.storage import LocalStore, MemoryStore
from tests.support.processes import run_python

DATA = np.random.default_rng(0).integers(0, 1000, (20, 30, 40), "u2")


class Counting(MemoryStore):
    """Counts how often each object is stored; may be slow, and refuse objects."""

    def __init__(self, *, wait_s: float = 0.0) -> None:
        super().__init__()
        self.stored: Counter[str] = Counter()
        self.wait_s = wait_s
        self.goes_on: threading.Event | None = None
        self.refused = "none"

    def set(self, key: str, value: Any) -> None:
        self._note(key)
        super().set(key, value)

    def set_many(self, items: Sequence[tuple[str, Any]]) -> None:
        for key, _ in items:
            self._note(key)
        super().set_many(items)

    def _note(self, key: str) -> None:
        time.sleep(self.wait_s)
        if self.goes_on is not None:
            self.goes_on.wait(60)
        if self.refused in key:
            raise StoreError(f"no room for {key}")
        self.stored[key] += 1


def created(store: Any = None, **keywords: Any) -> gzarr.Array:
    keywords = {"shape": DATA.shape, "dtype": "u2", "chunks": (4, 16, 16)} | keywords
    return gzarr.create_array(Counting() if store is None else store, **keywords)


@pytest.mark.parametrize("shards", [None, (8, 32, 32)])
@pytest.mark.parametrize("device", ["cpu", "emulated"])
def test_frames_store_every_object_once(shards: Any, device: str, tmp_path: Path) -> None:
    if device == "emulated" and find_compiler() is None:
        pytest.skip("no C++ compiler: the kernels cannot be built")
    store = Counting()
    z = created(store, shards=shards, device=GpuBackend(EmulatedDevice()) if device == "emulated" else "cpu")
    store.stored.clear()
    frame = np.empty(DATA.shape[1:], "u2")
    for number, values in enumerate(DATA):
        frame[...] = values
        z.write_behind(number, frame)
        frame[...] = 0  # the caller's memory is the caller's
    z.flush()
    assert set(store.stored.values()) == {1}
    np.testing.assert_array_equal(gzarr.open_array(store, mode="r")[...], DATA)


def test_frames_reach_files(tmp_path: Path) -> None:
    z = created(LocalStore(tmp_path))
    for number, values in enumerate(DATA):
        z.write_behind(number, values.astype("f4"))
    z.flush()
    np.testing.assert_array_equal(gzarr.open_array(tmp_path, mode="r")[...], DATA)


def test_a_write_does_not_wait_for_the_store() -> None:
    store = Counting()
    z = created(store, chunks=(20, 30, 40))
    store.goes_on = goes_on = threading.Event()
    z.write_behind(..., DATA)
    assert "c/0/0/0" not in store.stored
    goes_on.set()
    np.testing.assert_array_equal(z[...], DATA)  # which waits


@given(st.data())
@settings(max_examples=40)
def test_later_values_win_as_if_each_write_were_waited_for(data: st.DataObject) -> None:
    shape = (7, 9)
    z = created(shape=shape, chunks=(2, 3), shards=data.draw(st.sampled_from([None, (4, 3)])), dtype="i4")
    model = np.zeros(shape, "i4")
    for number in range(data.draw(st.integers(1, 12))):
        key = tuple(
            slice(*sorted((data.draw(st.integers(0, extent)), data.draw(st.integers(0, extent))))) for extent in shape
        )
        if data.draw(st.booleans()):
            key = (data.draw(st.integers(0, 6)), slice(None, None, data.draw(st.sampled_from([1, 1, 2, -1]))))
        value = np.arange(model[key].size).reshape(model[key].shape) * 100 + number
        model[key] = value
        z.write_behind(key, value, max_nbytes=data.draw(st.sampled_from([1, 100, 1 << 20])))
        if data.draw(st.integers(0, 5)) == 0:
            np.testing.assert_array_equal(z[...], model)
    z.flush()
    np.testing.assert_array_equal(gzarr.open_array(z.store, mode="r")[...], model)


def copied(array: gzarr.Array) -> Any:
    dest = gzarr.create_group(MemoryStore())
    gzarr.copy(array, dest, name="copy")
    return dest["copy"][...]


def test_whatever_else_the_array_does_comes_after() -> None:
    z = created()
    for act, expected in [
        (lambda: z[...], DATA),
        (lambda: z.astype("f8")[...], DATA),
        (lambda: z.to("cpu")[...], DATA),
        (lambda: pickle.loads(pickle.dumps(z))[...], DATA),
        (lambda: copied(z), DATA),
        (lambda: gzarr.read_many([(z, ...)])[0], DATA),
        (lambda: z.nchunks_initialized, 5 * 2 * 3),
    ]:
        z[...] = 0
        z.write_behind(..., DATA)
        found = act()
        np.testing.assert_array_equal(found, expected)
    z.write_behind(..., DATA)
    z[0] = 7
    assert (z[0] == 7).all()


def test_the_shape_changes_after_the_writes() -> None:
    z = created()
    z.write_behind(slice(0, 19), DATA[:19])
    z.resize(22, 30, 40)
    z.write_behind(slice(19, 20), DATA[19:])
    assert z.append(DATA[:1]) == (23, 30, 40)
    np.testing.assert_array_equal(z[:20], DATA)
    np.testing.assert_array_equal(z[22], DATA[0])
    z.write_behind(22, DATA[1])
    z.flush()
    np.testing.assert_array_equal(gzarr.open_array(z.store)[22], DATA[1])


def test_memory_is_bounded() -> None:
    """Of a slow store: the writes wait for room."""
    store = Counting(wait_s=0.002)
    z = created(store, shape=(64, 64, 64), chunks=(1, 64, 64), compressors=None)
    seen = []
    for number in range(64):
        z.write_behind(number, np.full((64, 64), number), max_nbytes=4 * 64 * 64 * 2)
        behind: Any = z._bound
        seen.append(behind.nbytes)
    assert max(seen) <= 4 * 64 * 64 * 2
    z.flush()
    assert (z[:, 0, 0] == np.arange(64)).all()


def test_without_room_the_oldest_object_is_stored_in_parts() -> None:
    z = created(shape=(4, 40), chunks=(4, 4), dtype="u1")
    for row in range(4):
        for column in range(0, 40, 4):
            z.write_behind((row, slice(column, column + 4)), row + 1, max_nbytes=32)
    z.flush()
    np.testing.assert_array_equal(z[...], np.repeat([1, 2, 3, 4], 40).reshape(4, 40))


def test_the_first_error_is_raised_by_every_call_until_a_flush() -> None:
    store = Counting()
    z = created(store, compressors=None)
    store.refused = "c/1/0/0"
    z.write_behind(slice(0, 4), DATA[:4])
    z.write_behind(slice(4, 8), DATA[4:8])
    with pytest.raises(StoreError, match="no room for c/1/0/0"):
        z[...]
    with pytest.raises(StoreError, match="no room for c/1/0/0") as caught:
        z.write_behind(slice(8, 12), DATA[8:12])
    assert "flush" in caught.value.__notes__[0]
    with pytest.raises(StoreError, match="no room for c/1/0/0"):
        z.flush()
    store.refused = "none"
    z.flush()
    np.testing.assert_array_equal(z[:4], DATA[:4])  # what was together with the failing one is stored
    assert not z[8:].any()
    z.write_behind(slice(4, 8), DATA[4:8])
    np.testing.assert_array_equal(z[:8], DATA[:8])


def test_a_damaged_chunk_of_which_a_part_is_written_is_named() -> None:
    z = created(shape=8, chunks=4, dtype="i4")
    z[...] = 1
    z.store["c/1"] = b"damaged"
    z.write_behind(slice(0, 6), 2)
    with pytest.raises(ChunkError, match="c/1"):
        z.flush()
    z.write_behind(slice(4, 8), 3)
    assert z[4:].tolist() == [3, 3, 3, 3]


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [((slice(None),) * 4, 0, SelectionError), (0, np.zeros((2, 2)), ValueError), (20, 0, SelectionError)],
)
def test_what_does_not_fit_is_refused_at_once(key: Any, value: Any, error: type[Exception]) -> None:
    z = created()
    with pytest.raises(error):
        z.write_behind(key, value)
    z.flush()


def test_arrays_that_cannot_be_written_refuse_at_once() -> None:
    z = created()
    with pytest.raises(ReadOnlyError):
        gzarr.open_array(z.store, mode="r").write_behind(0, 0)


def test_other_selections_and_types_are_written_at_once() -> None:
    z = created()
    z.write_behind(0, 1)
    z.write_behind(([0, 5], 0, 0), [2, 3])
    other = gzarr.open_array(z.store, mode="r")
    assert (other[0, 0, 0], other[5, 0, 0], other[0, 1, 1]) == (2, 3, 1)
    words = gzarr.create_array(MemoryStore(), shape=3, dtype=str, chunks=2)
    words.write_behind(slice(0, 2), ["a", "bc"])
    assert gzarr.open_array(words.store)[...].tolist() == ["a", "bc", ""]
    empty = created(shape=(0, 3), chunks=(1, 3))
    empty.write_behind(..., np.zeros((0, 3)))
    scalar = created(shape=(), chunks=())
    scalar.write_behind((), 5)
    assert scalar[()] == 5


def test_threads_write_behind_together() -> None:
    z = created(Counting(wait_s=0.0005))

    def write(first: int) -> None:
        for number in range(first, 20, 4):
            z.write_behind(number, DATA[number], max_nbytes=100_000)

    threads = [threading.Thread(target=write, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(z[...], DATA)


def test_an_array_object_that_is_collected_leaves_its_writes() -> None:
    store = Counting()
    z = created(store)
    z.write_behind(slice(0, 3), DATA[:3])  # no whole chunk
    del z
    gc.collect()
    again = gzarr.open_array(store)
    until = time.monotonic() + 10
    while time.monotonic() < until and not (again[:3] == DATA[:3]).all():
        time.sleep(0.01)
    np.testing.assert_array_equal(again[:3], DATA[:3])


def test_views_that_are_collected_while_others_write_lose_nothing() -> None:
    store = Counting(wait_s=0.001)
    created(store)
    for number in range(20):
        gzarr.open_array(store).write_behind(number, DATA[number])
    again = gzarr.open_array(store)
    until = time.monotonic() + 10
    while time.monotonic() < until and not (again[...] == DATA).all():
        time.sleep(0.01)
    np.testing.assert_array_equal(again[...], DATA)


def test_the_end_of_the_program_waits_for_all_writes_and_shows_errors(tmp_path: Path) -> None:
    path, damaged = str(tmp_path / "a.zarr"), str(tmp_path / "b.zarr")
    code = f"""
import sys, gzarr, numpy as np
sys.excepthook = lambda kind, error, _: print(kind.__name__, error)
def lost():
    w = gzarr.open_array({path!r})
    w.write_behind((slice(8, 9), slice(4, 8)), 9)
z = gzarr.create_array({path!r}, shape=(9, 8), chunks=(4, 4), dtype="i4")
z.write_behind(slice(0, 6), np.arange(48).reshape(6, 8))
lost()
d = gzarr.create_array({damaged!r}, shape=8, chunks=4, dtype="i4")
d[...] = 1
d.store["c/0"] = b"damaged"
d.write_behind(slice(0, 2), 5)
"""
    assert "ChunkError" in run_python(code)
    z = gzarr.open_array(path, mode="r")
    np.testing.assert_array_equal(z[:6], np.arange(48).reshape(6, 8))
    assert z[8].tolist() == [0] * 4 + [9] * 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_leaves_the_writes_to_its_parent(tmp_path: Path) -> None:
    code = f"""
import os, gzarr
z = gzarr.create_array({str(tmp_path / "a.zarr")!r}, shape=8, chunks=4, dtype="i4")
z.write_behind(slice(0, 2), 5)
child = os.fork()
if not child:
    assert z[...].tolist() == [0] * 8
    z.write_behind(slice(6, 8), 3)
    z.flush()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
w = gzarr.open_array(z.store.live())
assert w[...].tolist() == [0, 0, 0, 0, 0, 0, 3, 3], w[...]
assert z[...].tolist() == [5, 5, 0, 0, 0, 0, 3, 3]
"""
    run_python(code)


def test_uncompressed_chunks_in_memory_keep_their_values() -> None:
    """A buffer that is used again must not be what a store holds."""
    z = created(chunks=(1, 30, 40), compressors=None)
    for number, values in enumerate(DATA):
        z.write_behind(number, values, max_nbytes=3 * 30 * 40 * 2)
    np.testing.assert_array_equal(z[...], DATA)


@pytest.mark.parametrize("dtype", ["u2", "S3"])
def test_an_array_of_no_axes_is_written_too(dtype: str) -> None:
    z = gzarr.create_array(shape=(), dtype=dtype, zarr_format=2)
    z.write_behind((), 12)
    z.flush()
    assert z[()] == np.array(12).astype(dtype)
