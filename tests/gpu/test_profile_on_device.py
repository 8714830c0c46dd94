"""Profiles on a device: batches that overlap, and clocks that are set by each other."""

import threading
from itertools import count

import numpy as np
import pytest

import gzarr
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.pipeline_slots import N_PIPELINE_SLOTS
from gzarr.profiling import recorder as stages
from gzarr.storage import MemoryStore

WAIT_S = 60
DATA = np.random.default_rng(0).integers(0, 1000, (64, 64)).astype("i4")


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


def test_a_mark_that_the_device_comes_to_late_moves_no_other_row_before_the_profile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
            return began + 1 if self.made <= 2 else clock()

        def seconds_between(self, start: float, end: float) -> float:
            return end - start

    def task(context: int) -> None:
        with stages.stage("decode", timed=True):
            pass

    ticks = count()
    clock = lambda: next(ticks) / 1000  # noqa: E731
    monkeypatch.setattr("gzarr.profiling.recorder.perf_counter", clock)
    with gzarr.profile() as p:
        recorder = stages.active.get()
        assert recorder is not None
        began = clock()
        carried = recorder.carry("locate", task, Late())
        carried(0)
        carried(1)
    starts = [row.start for row in p.timeline if row.thread.startswith("late, ")]
    assert len(starts) == 2
    assert 0 <= starts[0] < 0.5 < starts[1] < 1.5
