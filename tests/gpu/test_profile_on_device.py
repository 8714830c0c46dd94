"""Profiles on a device: the device's own times, NVTX ranges, overlapping batches; profiling waits for nothing."""

from __future__ import annotations

import threading
from time import perf_counter

import numpy as np
import pytest
from numcodecs import Blosc

import gzarr
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.hostbuild import find_compiler
from gzarr.gpu.device.pipeline_slots import N_PIPELINE_SLOTS
from gzarr.profiling import recorder as stages
from gzarr.storage import MemoryStore
from tests.gpu import fake_cupy
from tests.gpu.device.test_cuda import cuda  # noqa: F401 - a fixture
from tests.gpu.hardware.opening import cuda_backend

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")

WAIT_S = 20
DATA = np.random.default_rng(0).integers(0, 1000, (64, 64)).astype("i4")


@pytest.fixture
def array(cuda) -> gzarr.Array:  # noqa: F811
    stored = gzarr.create_array(data=DATA, chunks=(16, 16), compressor=Blosc("lz4", 5, Blosc.SHUFFLE))
    fake_cupy.Nvtx.ended.clear()
    return gzarr.open_array(stored.store, mode="r+", device=cuda_backend(cuda))


def test_stages_are_nvtx_ranges_while_there_is_a_profile(array) -> None:
    array[:]
    assert not fake_cupy.Nvtx.ended
    with gzarr.profile():
        array[:]
        array[:8] = 1
    ended = fake_cupy.Nvtx.ended
    names = {ranges[-1] for ranges in ended}
    assert {"locate", "read", "upload", "parse", "decode", "place", "check"} <= {
        n.removeprefix("gzarr:") for n in names
    }
    assert {"gzarr:load old", "gzarr:encode", "gzarr:store", "gzarr:build"} <= names
    assert ("gzarr:locate", "gzarr:read") in ended
    assert not fake_cupy.nvtx.open


def test_stages_are_nvtx_ranges_if_the_settings_say_so(array, monkeypatch) -> None:
    with gzarr.config.set({"gpu.nvtx": True}):
        array[:]
    assert ("gzarr:locate", "gzarr:place", "gzarr:decode", "gzarr:parse") in fake_cupy.Nvtx.ended
    fake_cupy.Nvtx.ended.clear()
    array[:]
    assert not fake_cupy.Nvtx.ended
    monkeypatch.setenv("GZARR_GPU__NVTX", "true")
    gzarr.config.reset()
    try:
        assert gzarr.config["gpu.nvtx"] is True
    finally:
        monkeypatch.undo()
        gzarr.config.reset()


def test_ranges_end_where_a_read_fails(array) -> None:
    array.store["c/0/0"] = array.store["c/0/0"][:30]
    with pytest.raises(gzarr.ChunkError), gzarr.profile() as p:
        array[:]
    assert not fake_cupy.nvtx.open
    assert p.stages["decode"].calls == 2  # by tables, and once more by the reference path, which says what is wrong


def test_a_device_s_seconds_are_collected_at_the_end(array, monkeypatch) -> None:
    array[:]
    asked: list[tuple] = []
    waits: list[int] = []
    between = fake_cupy.get_elapsed_time
    wait = fake_cupy.Event.synchronize
    monkeypatch.setattr(array.backend._device, "seconds_between", lambda *marks: asked.append(marks) or 0.25)
    monkeypatch.setattr(fake_cupy.Event, "synchronize", lambda event: waits.append(1) or wait(event))
    with gzarr.profile() as p:
        array[:]
        assert not asked
        assert not waits
    assert asked
    assert p.stages["place"].device_seconds == 0.25
    assert p.stages["read"].device_seconds is None
    monkeypatch.undo()
    assert fake_cupy.get_elapsed_time is between
    with gzarr.profile() as p:
        array[:]
    on_device = [row for row in p.timeline if row.thread.startswith("cuda:0, ")]
    assert {"upload", "parse", "decode", "place"} == {row.stage for row in on_device}
    for name in ("upload", "decode", "place"):
        seconds = sum(row.end - row.start for row in on_device if row.stage == name)
        assert p.stages[name].device_seconds == pytest.approx(seconds)
        assert seconds > 0
    assert all(0 <= row.start <= row.end < p.span_s + 1 for row in on_device)


def test_a_device_that_failed_has_no_times(cuda, monkeypatch) -> None:  # noqa: F811
    device = cuda.CudaDevice()

    def fail(*_: object) -> None:
        raise fake_cupy.CUDARuntimeError(719)

    mark = device.mark()
    monkeypatch.setattr(fake_cupy.Stream, "record", fail)
    assert device.mark() is None
    monkeypatch.setattr(fake_cupy.Event, "synchronize", fail)
    assert device.seconds_between(mark, mark) == 0
    assert device.seconds_between(mark, None) == 0


class Meeting:
    """The batch with some chunk that is read, the second that is decoded and the first that is placed meet.

    There are two chunks to a batch, so the one that is read is the third.
    """

    def __init__(self) -> None:
        self._barrier = threading.Barrier(3)
        self._lock = threading.Lock()
        self._left = {"read": 1, "decode": 2, "place": 1}

    def come(self, stage: str) -> None:
        with self._lock:
            self._left[stage] -= 1
            left = self._left[stage]
        if left == 0:
            self._barrier.wait(WAIT_S)


class MeetingStore(MemoryStore):
    meeting: Meeting | None = None

    def get_many(self, requests):
        if self.meeting is not None and any(request[0] == "c/4/0" for request in requests):
            self.meeting.come("read")
        return super().get_many(requests)


class MeetingDevice(EmulatedDevice):
    meeting: Meeting | None = None

    def decompress(self, *args, **options):
        if self.meeting is not None:
            self.meeting.come("decode")
        return super().decompress(*args, **options)

    def launch(self, kernel, n_threads, args):
        if self.meeting is not None and kernel == "copy_plain":
            self.meeting.come("place")
        super().launch(kernel, n_threads, args)


def test_a_batch_is_read_while_another_is_decoded_and_a_third_placed() -> None:
    store, device = MeetingStore(), MeetingDevice()
    gzarr.create_array(store, data=DATA, chunks=(8, 64))
    array = gzarr.open_array(
        store, mode="r", device=GpuBackend(device, max_device_nbytes=N_PIPELINE_SLOTS * (32 << 10))
    )
    array[:, 1:]  # parts of chunks, which are placed
    store.meeting = device.meeting = Meeting()
    with gzarr.profile() as p:
        np.testing.assert_array_equal(array[:, 1:], DATA[:, 1:])
    by_stage = {name: [row for row in p.timeline if row.stage == name] for name in ("read", "decode", "place")}
    met = [
        (read, decode, place)
        for read in by_stage["read"]
        for decode in by_stage["decode"]
        for place in by_stage["place"]
        if len({read.batch, decode.batch, place.batch}) == 3
        and max(read.start, decode.start, place.start) < min(read.end, decode.end, place.end)
    ]
    assert met
    assert p.overlap_s("read", "decode") > 0
    assert p.overlap_s("decode", "place") > 0
    assert p.overlap > 1
    assert "a batch was read while another was" in str(p)


def test_a_mark_that_the_device_comes_to_late_moves_no_other_row_before_the_profile() -> None:
    """The clocks are set by the mark that was past soonest after it was submitted, not by the first one."""

    class Late:
        """Its first two marks are past a second after the profile began; the others at once."""

        name = "late"

        def __init__(self) -> None:
            self.made = 0

        def push_range(self, name: str) -> None: ...

        def pop_range(self) -> None: ...

        def mark(self) -> float:
            self.made += 1
            return began + 1 if self.made <= 2 else perf_counter()

        def seconds_between(self, start: float, end: float) -> float:
            return end - start

    def task(context: int) -> None:
        with stages.stage("decode", timed=True):
            pass

    with gzarr.profile() as p:
        recorder = stages.active.get()
        assert recorder is not None
        began = perf_counter()
        carried = recorder.carry("locate", task, Late())
        carried(0)
        carried(1)
    starts = [row.start for row in p.timeline if row.thread.startswith("late, ")]
    assert len(starts) == 2
    assert 0 <= starts[0] < 0.5 < starts[1] < 1.5
