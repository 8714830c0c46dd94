"""As many batches are under way as there are pipeline slots, in the caller's order; failures stop the rest."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import numpy as np
import pytest
from numcodecs import Blosc

import gzarr
from gzarr import concurrency
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.emulated_streams import EmulatedStream
from gzarr.gpu.device.pipeline_slots import N_PIPELINE_SLOTS, PipelineSlots
from gzarr.storage import LocalStore, MemoryStore
from tests.gpu.direct_files import DirectFiles
from tests.support.meeting import Meeting

DATA = np.random.default_rng(0).integers(0, 1000, (640, 64)).astype("i4")
CHUNKS = (16, 64)  # 4 KiB each, 40 in all
CAP_NBYTES = 200_000
COMPRESSORS = {"none": None, "blosc": Blosc("lz4", 5, Blosc.SHUFFLE), "default": "auto"}
WAIT_S = 60


def stored(where=None, **options) -> gzarr.Array:
    store = MemoryStore() if where is None else LocalStore(where)
    return gzarr.create_array(store, data=DATA, chunks=CHUNKS, **options)


def opened(array: gzarr.Array, device: EmulatedDevice, **options) -> gzarr.Array:
    options.setdefault("max_device_nbytes", CAP_NBYTES)
    return gzarr.open_array(array.store, mode="r", device=GpuBackend(device, **options))


class SlowDevice(EmulatedDevice):
    """Lets a test do something when a batch is placed."""

    def __init__(self) -> None:
        super().__init__()
        self.on_place = lambda: None

    def launch(self, kernel: str, n_threads: int, args: tuple) -> None:
        if kernel == "copy_plain":
            self.on_place()
        super().launch(kernel, n_threads, args)


class WatchedStore(MemoryStore):
    """Lets a test do something when chunks are read."""

    on_read = staticmethod(lambda keys: None)

    def get_many(self, requests):
        self.on_read([request[0] for request in requests])
        return super().get_many(requests)


def watched() -> WatchedStore:
    store = WatchedStore()
    gzarr.create_array(store, data=DATA, chunks=CHUNKS, compressor=None)
    return store


def test_a_batch_is_read_while_the_one_before_it_is_placed() -> None:
    device, store = SlowDevice(), watched()
    array = gzarr.open_array(store, mode="r", device=GpuBackend(device, max_device_nbytes=CAP_NBYTES))
    second_read, first_placed = threading.Event(), threading.Event()
    met: list[bool] = []
    reads: list[int] = []

    def on_read(keys: list[str]) -> None:
        if any(key.startswith("c/") for key in keys):
            reads.append(len(keys))
            if len(reads) == 2:
                second_read.set()
                # The first batch is placed, or waits to be, before this read ends.
                met.append(first_placed.wait(WAIT_S))

    def on_place() -> None:
        if not first_placed.is_set():
            met.append(second_read.wait(WAIT_S))
            first_placed.set()

    store.on_read, device.on_place = on_read, on_place
    np.testing.assert_array_equal(array[:], DATA)
    assert len(met) >= 2
    assert all(met)
    assert len(reads) > 2


def test_there_are_never_more_batches_than_pipeline_slots_whoever_reads() -> None:
    device, store = SlowDevice(), watched()
    array = gzarr.open_array(store, mode="r", device=GpuBackend(device, max_device_nbytes=CAP_NBYTES))
    meeting = Meeting(N_PIPELINE_SLOTS)
    device.on_place = meeting.attend
    with ThreadPoolExecutor(6) as pool:
        for found in pool.map(lambda _: array[:], range(12)):
            np.testing.assert_array_equal(found, DATA)
    assert meeting.most == N_PIPELINE_SLOTS
    assert device.memory.peak <= CAP_NBYTES


@pytest.mark.parametrize("compressor", COMPRESSORS)
@pytest.mark.parametrize(("sharded", "where"), [(False, "files"), (False, "direct"), (True, "memory")])
def test_device_memory_stays_under_the_cap(tmp_path, compressor, sharded, where) -> None:
    device = EmulatedDevice()
    options = {"compressor": COMPRESSORS[compressor]} if compressor != "default" else {}
    shards = {"shards": (64, 64)} if sharded else {}
    array = stored(None if where == "memory" else tmp_path / "a", **options, **shards)
    reader = DirectFiles().reader() if where == "direct" else "host"
    array = opened(array, device, reader=reader, max_device_nbytes=100_000)
    for selection in (np.s_[:], np.s_[5:600:7, ::3], np.s_[3]):
        np.testing.assert_array_equal(array[selection], DATA[selection])
    points = np.arange(0, 640, 3), np.arange(0, 640, 3) % 64
    np.testing.assert_array_equal(array.vindex[points], DATA[points])
    assert 0 < device.memory.peak <= 100_000


def test_batches_of_a_read_share_the_memory_of_the_pipeline_slots() -> None:
    device = EmulatedDevice()
    array = opened(stored(compressor=None), device)
    array[:]
    assert device.memory.n <= N_PIPELINE_SLOTS  # each pipeline slot has one block, however many batches there are
    assert device.memory.live <= CAP_NBYTES


def test_released_memory_is_allocated_anew() -> None:
    device = EmulatedDevice()
    backend = GpuBackend(device, max_device_nbytes=CAP_NBYTES)
    array = gzarr.open_array(stored().store, mode="r", device=backend)
    array[:]
    assert device.memory.live > 0
    backend.release()
    assert device.memory.live == device.pinned.live == 0
    np.testing.assert_array_equal(array[:], DATA)


def test_batches_that_do_not_fit_are_cut() -> None:
    """Many tiny zstd streams need far more scratch memory than their decoded size suggests."""
    data = np.arange(4096, dtype="i4")
    array = gzarr.create_array(data=data, chunks=8)
    device = EmulatedDevice()
    np.testing.assert_array_equal(opened(array, device, max_device_nbytes=300_000)[:], data)
    assert device.launches.count("zstd") > 10
    assert device.memory.peak <= 300_000


@pytest.mark.parametrize("where", ["memory", "direct"])
def test_a_chunk_that_does_not_fit_is_named_and_others_are_still_read(tmp_path, where) -> None:
    large = gzarr.create_array(LocalStore(tmp_path / "a"), data=DATA, chunks=(320, 64), compressor=None)
    device = EmulatedDevice()
    backend = GpuBackend(device, max_device_nbytes=100_000, reader=DirectFiles().reader())
    store = large.store if where == "direct" else MemoryStore(dict(large.store.items()))
    with pytest.raises(gzarr.DeviceError, match=r"chunk \(0, 0\): 81920 bytes of shape \(320, 64\).*max_device_nbytes"):
        gzarr.open_array(store, mode="r", device=backend)[:]
    np.testing.assert_array_equal(gzarr.open_array(stored().store, mode="r", device=backend)[:], DATA)
    assert device.memory.peak <= 100_000


@pytest.mark.parametrize("failure", [gzarr.StoreError("the store broke"), KeyboardInterrupt()])
def test_a_failing_read_stops_the_batches_after_it(failure) -> None:
    device, store = EmulatedDevice(), watched()
    array = gzarr.open_array(store, mode="r", device=GpuBackend(device, max_device_nbytes=CAP_NBYTES))
    reads: list[int] = []

    def on_read(keys: list[str]) -> None:
        reads.append(len(keys))
        if len(reads) == 2:
            raise failure

    meeting = Meeting(N_PIPELINE_SLOTS)
    store.on_read = lambda keys: meeting.attend()
    array[:]
    live = device.memory.live, device.pinned.live  # of every pipeline slot
    store.on_read = lambda keys: None
    device.launches.clear()
    array[:]
    n_batches = device.launches.count("copy_plain")
    device.launches.clear()
    store.on_read = on_read
    with pytest.raises(type(failure)):
        array[:]
    assert device.launches.count("copy_plain") <= N_PIPELINE_SLOTS < n_batches - 1
    assert (device.memory.live, device.pinned.live) == live
    store.on_read = lambda keys: None
    np.testing.assert_array_equal(array[:], DATA)
    assert (device.memory.live, device.pinned.live) == live


@pytest.fixture
def stopped(monkeypatch) -> threading.Event:
    """Set when a run on several threads begins no further batch: the thread of what failed may be late with that."""
    stopped = threading.Event()

    class Run(concurrency._SharedRun):
        def __setattr__(self, name, value) -> None:
            super().__setattr__(name, value)
            if name == "_stopped" and value:
                stopped.set()

    monkeypatch.setattr(concurrency, "_SharedRun", Run)
    return stopped


@pytest.mark.parametrize("failure", [gzarr.DeviceError("the device broke"), KeyboardInterrupt()])
@pytest.mark.parametrize("single", [False, True])
def test_a_failing_batch_leaves_the_device_usable(failure, single, stopped) -> None:
    device, store = SlowDevice(), watched()
    cap = None if single else CAP_NBYTES
    array = gzarr.open_array(store, mode="r", device=GpuBackend(device, max_device_nbytes=cap))
    meeting = Meeting(1 if single else N_PIPELINE_SLOTS)
    store.on_read = lambda keys: meeting.attend()
    array[:]
    store.on_read = lambda keys: None
    live = device.memory.live, device.pinned.live  # of every pipeline slot

    def on_place() -> None:
        number = next(numbers)
        if number == (1 if single else 2):
            raise failure
        if number > 2:
            stopped.wait(WAIT_S)

    device.on_place = on_place
    for _ in range(2 * N_PIPELINE_SLOTS):  # no pipeline slot is lost
        numbers = count(1)
        stopped.clear()
        with pytest.raises(type(failure)):
            array[:]
        assert next(numbers) <= N_PIPELINE_SLOTS + 2
    device.on_place = lambda: None
    np.testing.assert_array_equal(array[:], DATA)
    assert (device.memory.live, device.pinned.live) == live


def test_an_interrupt_of_the_caller_waits_for_the_batches_under_way(stopped) -> None:
    device = SlowDevice()
    array = gzarr.open_array(watched(), mode="r", device=GpuBackend(device, max_device_nbytes=CAP_NBYTES))
    under_way = threading.Semaphore(0)
    ended: list[int] = []

    def on_place() -> None:
        if threading.current_thread() is threading.main_thread():
            under_way.acquire(timeout=WAIT_S)
            raise KeyboardInterrupt
        under_way.release()
        stopped.wait(WAIT_S)
        time.sleep(0.05)
        ended.append(1)

    device.on_place = on_place
    with pytest.raises(KeyboardInterrupt):
        array[:]
    device.on_place = lambda: None
    n = len(ended)
    time.sleep(0.1)
    assert 1 <= len(ended) == n < N_PIPELINE_SLOTS
    np.testing.assert_array_equal(array[:], DATA)


@pytest.mark.parametrize("codecs", ["default", "blosc"])
def test_damage_in_one_of_many_batches_is_named(codecs) -> None:
    array = stored(**({} if codecs == "default" else {"compressor": COMPRESSORS[codecs]}))
    array.store["c/33/0"] = array.store["c/33/0"][:40]
    device = EmulatedDevice()
    array = opened(array, device)
    with pytest.raises(gzarr.ChunkError, match="c/33/0") as caught:
        array[:]
    assert caught.value.chunk_coords == (33, 0)
    np.testing.assert_array_equal(array[:500], DATA[:500])


def test_pipeline_slots_wait_for_the_caller_and_the_caller_for_them() -> None:
    stream = EmulatedStream()
    device = EmulatedDevice()
    array = opened(stored(), device, stream=stream)
    pipeline_slots = array.backend._pipeline_slots._all
    array[:]
    own = {id(pipeline_slot.stream) for pipeline_slot in pipeline_slots}
    assert len(own) == N_PIPELINE_SLOTS
    for pipeline_slot in pipeline_slots:
        # Pipeline slots wait for the caller's stream alone: if they waited for each other, they would take turns.
        assert {id(event) for event in pipeline_slot.stream.waited_for} <= {id(stream)}
    assert {id(event) for event in stream.waited_for} <= own
    assert stream.waited_for
    assert array.backend._pipeline_slots._all == pipeline_slots
    with pytest.raises(gzarr.DeviceError, match="stream: expected"):
        GpuBackend(device, stream="mine")


def test_reads_on_a_stream_of_their_own_leave_the_caller_s_alone() -> None:
    device, callers = EmulatedDevice(), EmulatedStream()
    array = opened(stored(), device, stream=callers)
    backend = array.backend
    own = []
    for _ in range(2):
        with backend.own_stream():
            own.append(backend.current_stream())
            np.testing.assert_array_equal(array[:], DATA)
            with backend.own_stream():
                assert backend.current_stream() not in (own[0], callers)
            assert backend.current_stream() is own[0]
        assert backend.current_stream() is callers
    assert own[0] is own[1] is not callers
    assert not callers.waited_for
    assert own[0].waited_for
    for pipeline_slot in backend._pipeline_slots._all:
        assert {id(event) for event in pipeline_slot.stream.waited_for} <= {id(own[0])}


def test_only_the_caller_s_thread_makes_its_stream_wait() -> None:
    """The stream "of each thread" of CUDA is another one in every thread that names it."""
    waits: list[tuple[EmulatedStream, int]] = []

    class Noting(EmulatedDevice):
        def wait(self, stream, event):
            waits.append((stream, threading.get_ident()))
            super().wait(stream, event)

    device, stream = Noting(), EmulatedStream()
    array = opened(stored(), device, stream=stream)
    for selection in (np.s_[:], np.s_[3, 4]):
        waits.clear()
        np.testing.assert_array_equal(array[selection], DATA[selection])
        assert {thread for waiting, thread in waits if waiting is stream} == {threading.get_ident()}
    pipeline_slots = array.backend._pipeline_slots._all
    assert {id(event) for event in stream.waited_for} <= {id(pipeline_slot.stream) for pipeline_slot in pipeline_slots}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_that_was_forked_in_a_read_reads_too() -> None:
    device, store = SlowDevice(), watched()
    array = gzarr.open_array(store, mode="r", device=GpuBackend(device, max_device_nbytes=CAP_NBYTES))
    busy, go_on, parent = threading.Semaphore(0), threading.Event(), os.getpid()

    def on_read(keys: list[str]) -> None:
        if os.getpid() == parent:
            busy.release()
            go_on.wait(WAIT_S)

    store.on_read = on_read
    reading = threading.Thread(target=lambda: array[:])
    reading.start()
    assert all(busy.acquire(timeout=WAIT_S) for _ in range(N_PIPELINE_SLOTS))
    child = os.fork()
    if child == 0:
        signal.alarm(WAIT_S)
        os._exit(0 if np.array_equal(array[:], DATA) else 1)
    go_on.set()
    reading.join(WAIT_S)
    assert os.waitpid(child, 0)[1] == 0


def test_a_run_within_a_batch_has_memory_of_its_own() -> None:
    device = EmulatedDevice()
    pipeline_slots = PipelineSlots(device, 1 << 20)
    seen: list[np.ndarray] = []

    def inner(number: int) -> None:
        with pipeline_slots.borrow():
            seen.append(device.empty(1000))

    def outer(number: int) -> None:
        with pipeline_slots.borrow():
            mine = device.empty(1000)
            mine[:] = number
            pipeline_slots.run(inner, [1, 2, 3])
            assert (mine == number).all()

    pipeline_slots.run(outer, range(6))
    assert len(seen) == 18


def test_writes_and_copies_between_arrays_of_one_backend_end() -> None:
    device = EmulatedDevice()
    backend = GpuBackend(device, max_device_nbytes=10 * CAP_NBYTES)
    source = gzarr.open_array(stored().store, mode="r", device=backend)
    copy = gzarr.create_array(shape=DATA.shape, chunks=(32, 32), dtype="i4", device=backend)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(copy.__setitem__, slice(None), source).result(timeout=WAIT_S)
    np.testing.assert_array_equal(copy[:], DATA)
