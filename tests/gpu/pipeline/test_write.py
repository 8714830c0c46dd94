"""Writes of the GPU backend: where they run and why, memory, errors, order, threads."""

import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numcodecs
import numpy as np
import pytest

import gzarr
from gzarr import codecs
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.codecs import TABLE
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.emulated_streams import EmulatedStream
from gzarr.gpu.device.pipeline_slots import N_PIPELINE_SLOTS
from gzarr.gpu.pipeline.batches import NEVER, Crossover
from gzarr.storage import MemoryStore
from tests.gpu.counted import CountingDevice, assert_equal, on_device
from tests.gpu.pipeline.test_values import Foreign

DATA = np.random.default_rng(0).integers(0, 1000, (53, 41)).astype("i4")
WAIT_S = 60


@pytest.fixture
def device() -> CountingDevice:
    return CountingDevice()


def made(device, data=None, **keywords) -> gzarr.Array:
    options = {name: keywords.pop(name) for name in ("strict", "max_device_nbytes", "stream") if name in keywords}
    small = keywords.pop("small_writes", NEVER)
    array = gzarr.create_array(**{"store": {}, "shape": DATA.shape, "dtype": "i4", "chunks": (10, 7), **keywords})
    if data is not None:
        array[:] = data
    device.launches.clear()
    backend = GpuBackend(device, small_reads=NEVER, small_writes=small, **options)
    return gzarr.open_array(array.store, device=backend)


def check(array: gzarr.Array, expected: np.ndarray) -> None:
    assert_equal(array.to("cpu")[...], expected)
    assert_equal(array[...], expected)


# -- where it runs ---------------------------------------------------------------------------------------------------


def test_codecs_that_the_device_lacks_go_on_on_the_host(device):
    z = made(device, DATA, zarr_format=3, codecs=[codecs.BytesCodec(), codecs.ZstdCodec(1), numcodecs.BZ2(1)])
    why = {row.step: row.why for row in z.placement}
    assert why["numcodecs.bz2"] == "the device has no such codec"
    z[5:30, :9] = on_device(DATA[5:30, :9] * 2)
    assert "find_written" in device.launches
    expected = DATA.copy()
    expected[5:30, :9] *= 2
    check(z, expected)
    device.launches.clear()
    z[5:30, :9] = DATA[5:30, :9]  # a value on the host has nothing to do on the device
    assert device.launches == []
    check(z, DATA)


def write_parts(array: gzarr.Array, to_device: Callable[[np.ndarray], Any], dtype: str) -> None:
    """Write values of a dtype into an array of DATA's shape, by boxes, lists and points, and compare what is stored."""
    expected = DATA.copy()
    for key in (np.s_[:], np.s_[3:50:4, ::-2], np.s_[20, 5:30]):
        value = (DATA[key] % 90 + 1.75).astype(dtype)
        expected[key] = value
        array[key] = to_device(np.asfortranarray(value))
    rows, columns, value = [40, 3, 3, 52], [2, 0, 29, 9], (DATA[:4, :4] % 7 + 0.5).astype(dtype)
    array.oindex[rows, columns] = to_device(value)
    expected[np.ix_(rows, columns)] = value
    array.vindex[rows, [2, 0, 0, 9]] = to_device(value[0])
    expected[rows, [2, 0, 0, 9]] = value[0]
    np.testing.assert_array_equal(array.to("cpu")[...], expected)


@pytest.mark.parametrize("dtype", ["i4", ">f8"])
def test_where_the_device_would_only_copy_the_host_does_everything(device, dtype):
    z = made(device, compressor=numcodecs.BZ2(1), dtype=">i4", zarr_format=2)
    z[:] = on_device(DATA)
    assert device.launches == ["copy_plain"]  # which brings together what comes down at once
    assert [DATA.size * 4 <= n < z.nchunks * 10 * 7 * 4 for n in device.down] == [True]
    write_parts(z, lambda value: on_device(value.astype(np.dtype(dtype).newbyteorder("="))), dtype)


def test_where_the_device_would_save_nothing_the_host_encodes(device):
    z = made(device, compressors=None)
    z[:] = DATA
    assert device.launches == []
    z[:] = on_device(DATA * 2)
    assert "find_written" in device.launches
    check(z, DATA * 2)


def test_placement_tells_encoding_and_decoding_apart_where_they_differ(device):
    z = made(device, zarr_format=2, compressor=numcodecs.Blosc("blosclz"))
    (row,) = (row for row in z.placement if "blosc" in row.step)
    assert row.where == "emulated"  # blosclz goes to the host chunk by chunk, as odd frames do
    z = made(device, zarr_format=3, codecs=[codecs.BytesCodec(), codecs.ZstdCodec(1)])
    assert all("host" not in row.why for row in z.placement)
    plan = z._io.chain((0, 0)).prepared.plan.encoding
    assert (plan.obstacle, plan.host, plan.compresses) == (None, (), True)


def test_a_step_without_an_encoder_is_noted(device, monkeypatch):
    monkeypatch.setitem(TABLE, "zstd", replace(TABLE["zstd"], encoder=lambda step, device: "it has none"))
    z = made(device)
    rows = {row.step: (row.where, row.why) for row in z.placement}
    assert rows["zstd"] == ("emulated", "the device has it; encoded on the host: it has none")
    assert "zstd comes after it" in rows["bytes"][1]
    z[:] = on_device(DATA)
    assert device.launches == ["copy_plain"]
    check(z, DATA)
    z = made(device, DATA, strict=True)
    assert_equal(z[:], DATA)  # reads need no encoder
    with pytest.raises(gzarr.DeviceError, match=r"'zstd' does not encode on emulated.*strict=True.*device='cpu'"):
        z[0] = 1
    check(z, DATA)


def test_strict_writes_everything_on_the_device_or_says_why_not(device):
    z = made(device, DATA, strict=True)
    z[3:5] = 7
    assert "find_written" in device.launches
    with pytest.raises(gzarr.DeviceError, match=r"float32 become int32 on the host only \(strict=True\)"):
        z[:] = on_device(DATA.astype("f4"))
    z[:] = DATA.astype("f4")  # what is on the host is cast there anyway
    check(z, DATA)


def test_small_values_on_the_host_are_encoded_there(device):
    z = made(device, DATA, small_writes=Crossover(nchunks=8, nbytes=256 << 10))
    z[3:5, 2:30] = DATA[3:5, 2:30]
    assert device.launches == []
    z[3:5, 2:30] = on_device(DATA[3:5, 2:30])
    assert "find_written" in device.launches
    device.launches.clear()
    z[:] = DATA
    assert "compress zstd" in device.launches
    check(z, DATA)


# -- values ----------------------------------------------------------------------------------------------------------


def test_floats_on_the_device_become_integers_as_on_the_host(device):
    z = made(device, DATA)
    write_parts(z, on_device, "f4")
    device.forget()
    z[:] = on_device(DATA + 0.75)
    check(z, DATA)
    # What is cast on the host comes down at once, of whole chunks and of those at the edges.
    assert 25 * 10 * 7 * 8 in device.down
    assert len(device.down) < 20


@pytest.mark.parametrize("dtype", ["f4", "i2", "u1", "?", "i8"])
def test_casts_over_old_contents(device, dtype):
    z = made(device, np.zeros(DATA.shape), dtype=">f8", zarr_format=2, compressor=numcodecs.Zstd(1), fill_value=5)
    value = (DATA % 120).astype(dtype)
    z[3:50:2, 1:] = on_device(value[3:50:2, 1:])
    z.vindex[[0, 1, 0], [0, 2, 0]] = on_device(value[50, :3])
    expected = np.zeros(DATA.shape)
    expected[3:50:2, 1:] = value[3:50:2, 1:]
    expected[1, 2], expected[0, 0] = value[50, 1], value[50, 2]
    check(z, expected)


def test_values_of_other_arrays_come_in_parts(device):
    other = gzarr.array(DATA, chunks=(13, 9), store={})
    for source in (other, other.to(GpuBackend(device, small_reads=NEVER, small_writes=NEVER)), other.astype("f8")):
        z = made(device)
        z[:] = source
        check(z, DATA)
        assert "find_written" in device.launches
    itself = made(device, DATA)
    itself[:] = itself
    check(itself, DATA)


def test_values_of_other_libraries(device):
    z = made(device, DATA)
    z[::2] = Foreign(np.asfortranarray(DATA[::2] * 3))
    expected = DATA.copy()
    expected[::2] *= 3
    check(z, expected)


RECORD = np.dtype([("a", "<i4"), ("b", ">f8"), ("c", "u2")])


def write_fields(array: gzarr.Array, to_device: Callable[[np.ndarray], Any]) -> None:
    """Write fields of records, (41, 30) in missing chunks, and compare what is stored then."""
    expected = np.zeros((41, 30), RECORD)
    expected[:] = array.fill_value
    for key in ((slice(None), slice(None)), (slice(3, 40, 4), slice(None, None, -1)), (7, slice(5, 9))):
        for name in RECORD.names:
            expected[name][key] = np.arange(41 * 30).reshape(41, 30)[key] + len(name)
            array.set_basic_selection(key, to_device(expected[name][key]), fields=name)
    array.set_basic_selection(..., to_device(expected["a"].astype("f4")), fields="b")
    expected["b"] = expected["a"]
    rows, columns = [40, 3, 3, 17], [2, 0, 29, 9]
    array.set_orthogonal_selection((rows, columns), to_device(np.arange(16.0).reshape(4, 4)), fields="b")
    expected["b"][np.ix_(rows, columns)] = np.arange(16).reshape(4, 4)
    array.set_coordinate_selection((rows, columns), to_device(np.arange(4, dtype="u2")), fields="c")
    expected["c"][rows, columns] = np.arange(4)
    np.testing.assert_array_equal(array.to("cpu")[...], expected)
    for name in RECORD.names:
        array.set_basic_selection(..., to_device(np.full((41, 30), array.fill_value[name])), fields=name)
    assert array.nchunks_initialized == 0


#: Of one compressor, records with an order of each field, and all in one order.
OF_RECORDS = (
    {"compressor": None, "zarr_format": 2},
    {"compressor": numcodecs.Blosc("zstd"), "zarr_format": 2, "order": "F"},
    {"compressors": codecs.ZstdCodec(1), "serializer": codecs.BytesCodec(endian="big")},
    {"compressors": codecs.ZstdCodec(1), "shards": (20, 30)},
)


@pytest.mark.parametrize("options", OF_RECORDS, ids=["none", "blosc", "big", "shards"])
@pytest.mark.parametrize("fill", [(0, 0, 0), (1, -2.5, 3)], ids=["zeros", "numbers"])
def test_fields_of_records_are_written_on_the_device(device, options, fill):
    z = made(device, shape=(41, 30), chunks=(5, 5), dtype=RECORD, fill_value=np.array(fill, RECORD)[()], **options)
    write_fields(z, on_device)
    z[...] = np.zeros((41, 30), RECORD)
    assert type(z[:]) is np.ndarray
    assert {row.where for row in z.placement} == {"host"}
    assert "one field of numbers is read and written on emulated" in z.placement[0].why
    device.forget()
    z["b"] = on_device(np.arange(1230.0).reshape(41, 30))
    stored = sum(len(z.store[key]) for key in z.store if key[-1].isdigit())
    assert len(device.down) <= 7
    assert sum(device.down) <= stored + 100 * z.nchunks  # values do not come down


def test_what_is_stored_follows_neither_the_value_nor_memory_that_is_used_again(device):
    for compressors in (None, "auto"):
        store = MemoryStore()
        gzarr.create_array(store, shape=DATA.shape, dtype="i4", chunks=(10, 7), compressors=compressors)
        z = gzarr.open_array(store, device=GpuBackend(device, small_reads=NEVER, small_writes=NEVER))
        value = on_device(DATA)
        z[:] = value
        value[:] = -1
        kept = {key: bytes(store[key]) for key in store if "/" in key}
        other = made(device)
        for _ in range(3):
            other[:] = on_device(DATA[::-1])
        assert all(store[key] == data for key, data in kept.items())
        assert_equal(z[:], DATA)


def test_the_order_of_the_callers_stream():
    device, stream = EmulatedDevice(), EmulatedStream()
    z = made(device, stream=stream)
    z[:] = DATA
    pipeline_slots = [
        pipeline_slot for pipeline_slot in z.backend._pipeline_slots._all if pipeline_slot.stream.waited_for
    ]
    for pipeline_slot in pipeline_slots:
        assert {id(event) for event in pipeline_slot.stream.waited_for} == {id(stream), id(device.current_stream())}
    assert pipeline_slots
    assert stream.waited_for


# -- memory and errors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["whole", "partial", "points", "cast", "host"])
def test_a_cap_cuts_batches(device, kind):
    z = made(device, DATA, max_device_nbytes=36_000, shards=(20, 21), compressors=None, strict=True)
    before = device.memory.live
    device.memory.peak = before
    expected = DATA[::-1].copy()
    if kind == "points":
        rows, columns = np.divmod(np.random.default_rng(1).permutation(DATA.size), DATA.shape[1])
        z.vindex[rows, columns] = on_device(expected[rows, columns])
    elif kind == "partial":
        expected[0], expected[:, 20] = DATA[0], DATA[:, 20]
        z[1:, :20], z[1:, 21:] = on_device(expected[1:, :20]), on_device(expected[1:, 21:])
    else:
        z[:] = expected if kind == "host" else on_device(expected.astype("i8") if kind == "cast" else expected)
    assert device.memory.peak <= before + 36_000
    assert device.launches.count("find_written") > 2
    check(z, expected)


def test_a_value_that_is_read_as_it_is_written_stays_under_the_cap(device):
    """Its chunks are read in pipeline slots of the backend, before the write has one."""
    cap = 3 << 20
    data = np.random.default_rng(2).integers(0, 9, (1024, 512)).astype("i4")
    z = made(device, shape=data.shape, chunks=(128, 128), compressors=None, max_device_nbytes=cap)
    source = gzarr.array(data, chunks=(64, 64), store={}, compressors=None).to(z.backend)
    before = device.memory.live
    device.memory.peak = before
    z[:] = source
    assert device.memory.peak <= before + cap
    check(z, data)
    n = device.memory.n
    z[:] = source
    assert device.memory.n == n  # nor do pipeline slots of its own come and go


def test_a_chunk_that_does_not_fit_is_named(device):
    z = made(device, max_device_nbytes=1500)
    with pytest.raises(gzarr.DeviceError, match=r"chunk \(0, \d\): 280 bytes of shape.*encode.*500 bytes.*1500"):
        z[:] = on_device(DATA)
    assert z.nchunks_initialized == 0


@pytest.mark.parametrize("shards", [None, (20, 14)])
def test_a_damaged_old_chunk_is_named_and_nothing_is_written(device, shards):
    z = made(device, DATA, shards=shards, compressors=[codecs.ZstdCodec(1), codecs.Crc32cCodec()])
    key = "c/1/1" if shards else "c/2/3"
    good = z.store[key]
    bad = bytearray(good)
    bad[9] ^= 255
    z.store[key] = bytes(bad)
    before = dict(z.store)
    with pytest.raises(gzarr.ChunkError) as caught:
        z[25:30, 15:40] = on_device(DATA[25:30, 15:40])
    assert caught.value.key == key
    assert dict(z.store) == before
    z.store[key] = good
    z[25:30, 15:40] = on_device(DATA[25:30, 15:40])
    check(z, DATA)


def test_memory_is_not_kept_after_writes(device):
    z = made(device, DATA)

    def held_after_writes() -> tuple[int, int]:
        for _ in range(5):
            z[:] = on_device(DATA)
            z[1:, 1:] = on_device(DATA[1:, 1:])
        return device.memory.live, device.pinned.live  # results have gone with the stored bytes

    # A pipeline slot that gets a batch for the first time takes memory, however late that is.
    assert any(held_after_writes() == held_after_writes() for _ in range(3))


@pytest.mark.parametrize("cap", [None, 40_000], ids=["one batch", "some batches"])
@pytest.mark.parametrize("failing", ["copy_plain", "find_written"])
def test_an_error_that_is_kept_keeps_no_memory(device, monkeypatch, cap, failing):
    """Otherwise new blocks would lie beside those that its frames refer to, and exceed the cap."""
    z = made(device, DATA, compressors=None, max_device_nbytes=cap)
    before = device.memory.live
    launch = type(device).launch

    def fail(self, kernel, *args):
        if kernel == failing:
            raise gzarr.DeviceError("the launch failed")
        launch(self, kernel, *args)

    monkeypatch.setattr(type(device), "launch", fail)
    gc.disable()
    try:
        with pytest.raises(gzarr.DeviceError, match="the launch failed") as kept:
            z[1:, 1:] = on_device(DATA[1:, 1:])
        z.backend.release()
        assert device.memory.live == before
    finally:
        gc.enable()
    assert kept.value.__traceback__ is not None
    monkeypatch.undo()
    z[:] = on_device(DATA * 2)
    check(z, DATA * 2)


# -- threads ---------------------------------------------------------------------------------------------------------


class SlowDevice(CountingDevice):
    """Says how many batches are on the device at once."""

    def __init__(self) -> None:
        super().__init__()
        self.lock, self.met, self.now, self.most = threading.Lock(), threading.Event(), 0, 0

    def launch(self, kernel, n_threads, args):
        if kernel == "find_written":
            with self.lock:
                self.now += 1
                self.most = max(self.most, self.now)
                if self.now == 2:
                    self.met.set()
            self.met.wait(WAIT_S)
            super().launch(kernel, n_threads, args)
            with self.lock:
                self.now -= 1
            return
        super().launch(kernel, n_threads, args)


def test_two_batches_of_a_write_are_under_way_at_once():
    device = SlowDevice()
    z = made(device, max_device_nbytes=40_000, compressors=None)
    z[:] = on_device(DATA)
    assert device.met.is_set()
    assert device.most >= 2
    check(z, DATA)


def test_writers_and_readers_of_the_same_objects_never_wait_for_each_other_in_a_circle():
    """More threads than pipeline slots, each with locks that the others want too: locks come before slots."""
    device = CountingDevice()
    z = made(device, DATA, shards=(20, 14), max_device_nbytes=60_000, compressors=None)

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        for _ in range(6):
            first, last = np.sort(rng.integers(0, 53, 2))
            if number % 3 == 2:
                z[first:last]
            elif number % 3 == 1:
                z[first:last] = z  # reads within the write
            else:
                z[first:last, ::2] = on_device(DATA[first:last, ::2])

    def checked(number: int) -> None:
        if number % 3 == 1:  # values of an array of its own, read within the write
            source = gzarr.array(DATA, chunks=(9, 9), store={}).to(z.backend)
            for _ in range(3):
                z[:] = source
        else:
            work(number)

    with ThreadPoolExecutor(9) as pool:
        for future in [pool.submit(checked, number) for number in range(9)]:
            future.result(WAIT_S)
    check(z, DATA)


def test_pipeline_slots_are_free_while_objects_are_stored():
    """A thread that holds a pipeline slot never waits for a lock: a store that needs a pipeline slot gets one."""
    device = EmulatedDevice()
    mirror = made(device)
    pipeline_slot_counts = []

    class Mirroring(MemoryStore):
        def set_many(self, items):
            items = list(items)
            if any(key.startswith("c/") for key, _ in items):
                pipeline_slot_counts.append(mirror.backend._pipeline_slots._tickets.qsize())
                mirror[0] = 1
            super().set_many(items)

    array = gzarr.create_array(Mirroring(), shape=DATA.shape, dtype="i4", chunks=(10, 7))
    z = gzarr.open_array(array.store, device=mirror.backend)
    whole = np.s_[:50, :35]  # a single batch
    z[whole] = DATA[whole]
    assert set(pipeline_slot_counts) == {N_PIPELINE_SLOTS}
    z[:] = DATA
    check(z, DATA)
