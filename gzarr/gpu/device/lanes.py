"""Lanes, the pipeline slots of waves in flight, each with its own stream and memory, and the threads that use them.

Theory of operation. One thread reads, parses and decodes a wave; there are as many threads as lanes, so that one wave
is read while another one is parsed and a third one is decoded and placed. Each wave holds a lane from its first byte to
its last. All callers share the lanes of a backend, so its device memory stays under the cap. A wave checks its own
results at its end, while others are under way. The lane that was used last is reused first, so that single waves always
get the same memory. Chance decides which of several waves gets which lane; after a read, its lanes are given the same
amount of memory, so that the next read needs no more.

Rules: a lane's stream waits for what the caller had submitted before the read began, and the caller's stream waits for
the lane; lanes do not wait for each other. Only the caller's thread touches the caller's stream, because a per-thread
stream would be another stream in another thread. A failure stops the waves after it, and nothing is under way when
`Lanes.run` ends. After a fork, all lanes of the child are idle.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import chain, islice
from queue import Empty, SimpleQueue
from traceback import clear_frames
from typing import Any
from weakref import WeakSet

from numpy.typing import NDArray

from gzarr.backend import T
from gzarr.concurrency import Pool, after_fork, run_in_threads
from gzarr.errors import DeviceError
from gzarr.gpu.device.memory import Arena
from gzarr.gpu.device.pinned import Block, Pinned, Staging, largest
from gzarr.gpu.device.protocol import Device

#: A wave uses three resources in turn: its store, the interpreter (headers, tables), and the device. With three lanes,
#: the slowest resource never waits for a lane; with two lanes, if all three take equally long, the rate drops to 2/3.
#: More lanes would only divide the memory.
N_LANES = 3


class Lane:
    """A pipeline slot: what one wave in flight has to itself.

    Attributes
    ----------
    device : Device
        Where the wave runs.
    stream
        Where its work is submitted.
    memory
        Device memory, a share of the cap.
    staging
        Pinned host memory.
    results
        Pinned memory for encoded chunks, which a store writes when the lane is another wave's.
    is_copying : bool
        Whether the lane was given back while the device may still copy from its pinned memory.
    """

    def __init__(self, device: Device, limit: int, pinned: Pinned | None = None) -> None:
        if pinned is None:
            pinned = Pinned(device.allocate_pinned)
        self.device = device
        self.stream = device.new_stream()
        self.memory = Arena(device.allocate, limit)
        self.staging = Staging(pinned)
        self.results = pinned.results
        self.is_copying = False

    def active(self) -> AbstractContextManager[Any]:
        """A context in which this thread's work goes to the lane's stream and its memory comes from the lane."""
        return self.device.activate(self.stream, self.memory, self.staging)

    def slab(self, nbytes: int) -> Block:
        """Take pinned memory for what is large, such as the encoded chunks of a wave; valid until the lane is rewound.

        Tables come from `Device.staging`.
        """
        return self.staging.slab(nbytes)

    def rewind(self) -> None:
        """Free the lane for another wave. Its stream must be idle."""
        self.memory.rewind()
        self.staging.rewind()

    def release(self) -> None:
        """Return all memory to the device."""
        self.memory.release()
        self.staging.release()


class _Call:
    """A read or write of one caller: its stream and thread, an event of its earlier work, and the ends of its waves."""

    def __init__(self, device: Device, stream: Any) -> None:
        current = device.current_stream()
        self.stream = current if stream is None else stream
        self.start = device.record(self.stream)
        self.current = None if stream is None else device.record(current)
        self.thread = threading.get_ident()
        self.ends: dict[Lane, Any] = {}


class _Turn:
    """One wave on one thread. private: within a wave that holds a lane, and so must not wait for one."""

    def __init__(self, call: _Call, *, private: bool = False) -> None:
        self.call = call
        self.private = private
        self.lane: Lane | None = None


class Lanes:
    """The lanes of a backend.

    Parameters
    ----------
    device : Device
        Where they run.
    cap : int
        Device memory of all lanes together, in bytes.
    stream : object
        The caller's stream; None for the one that is current when a read begins.
    """

    def __init__(self, device: Device, cap: int, stream: Any = None) -> None:
        self._device = device
        self._limit = cap // N_LANES
        self._stream = stream
        self._local = threading.local()
        self._streams: list[Any] = []
        self._pinned = Pinned(device.allocate_pinned)
        self._all = [self._new_lane() for _ in range(N_LANES)]
        self.take_back()
        _EVERY.add(self)

    def _new_lane(self) -> Lane:
        return Lane(self._device, self._limit, self._pinned)

    def take_back(self) -> None:
        """Make all lanes idle after a fork, in which the threads that held them do not exist."""
        # The lane that was used last is at the end. Tickets count the idle ones: who has one finds a lane.
        self._idle: list[Lane] = []
        self._tickets: SimpleQueue[None] = SimpleQueue()
        for lane in self._all:
            lane.rewind()
            self._put(lane)

    def _put(self, lane: Lane) -> None:
        self._idle.append(lane)
        self._tickets.put(None)

    def _take_idle(self, most: int) -> list[Lane]:
        """Up to so many of the idle lanes, the last used ones first."""
        lanes: list[Lane] = []
        with suppress(Empty):
            while len(lanes) < most:
                self._tickets.get_nowait()
                lanes.append(self._idle.pop())
        return lanes

    @property
    def stream(self) -> Any:
        """The stream that this thread's reads are ordered on; None for the one that is current when a read begins."""
        own = getattr(self._local, "own", None)
        return self._stream if own is None else own

    @contextmanager
    def own_stream(self) -> Iterator[None]:
        """A context in which this thread's work is submitted to, and its reads are ordered on, a stream of its own.

        Streams are used again, so memory that was allocated on one stays in an order.
        """
        try:
            stream = self._streams.pop()
        except IndexError:
            stream = self._device.new_stream()
        outer = getattr(self._local, "own", None)
        try:
            with self._device.use(stream):
                self._local.own = stream
                yield
        finally:
            self._local.own = outer
            self._streams.append(stream)

    @property
    def limit(self) -> int:
        """Device memory of one lane, in bytes."""
        return self._limit

    @property
    def under_way(self) -> bool:
        """Whether this thread carries out a wave."""
        return self._turn is not None

    def run(self, task: Callable[[T], None], waves: Iterable[T]) -> None:
        """Carry out a task for every wave, several at once; on the caller's thread if there is only one wave.

        A run within a task stays on the task's thread. If the task holds a lane (a store that reads with this backend),
        the run gets memory beyond the cap, which is freed afterwards; if not (a lazy value that is written), it takes
        lanes like any other run.
        Raises: the error of the first task that failed, with notes on the others.
        """
        source = iter(waves)
        head = list(islice(source, N_LANES))
        every = chain(head, source)
        call = _Call(self._device, self.stream)
        outer = self._turn
        private = outer is not None and (outer.private or outer.lane is not None)

        def carry_out(wave: T) -> None:
            self._carry_out(_Turn(call, private=private), task, wave)

        if outer is not None or len(head) < 2:
            for wave in every:
                carry_out(wave)
            return
        try:
            run_in_threads(carry_out, every, len(head), _pool, most=_MAX_THREADS)
        finally:
            for end in call.ends.values():
                self._device.wait(call.stream, end)
        self._level(len(head))

    @contextmanager
    def borrow(self) -> Iterator[Lane]:
        """A context with the lane of the wave that this thread carries out; outside of a run, with a lane of its own.

        In the context, work goes to the lane's stream, behind what the caller had submitted when the run began. What
        the caller submits after the context is ordered behind it.
        """
        turn = self._turn
        if turn is None:
            turn = _Turn(_Call(self._device, self.stream))
            try:
                with self._ordered(turn) as lane:
                    yield lane
            finally:
                self._give_back(turn)
        else:
            with self._ordered(turn) as lane:
                yield lane

    @contextmanager
    def borrow_to_write(self) -> Iterator[Lane]:
        """Like `borrow`, but the lane is returned when the context ends, when nothing may use its memory any more.

        Writes hold locks of stored objects when they ask for a lane. As they return it before they store anything, no
        holder of a lane waits for a lock. The value may have been made on the stream that was current when the run
        began, even if the caller has named another stream.
        """
        turn = self._turn
        if turn is None:
            turn = _Turn(_Call(self._device, self.stream))
        try:
            with self._ordered(turn) as lane:
                if turn.call.current is not None:
                    self._device.wait(lane.stream, turn.call.current)
                yield lane
        finally:
            self._give_back(turn)

    def upload(self, table: NDArray[Any]) -> Any:
        """Copy a table to the device in the order of the current stream, without a lane and without a wait."""
        with suppress(IndexError):  # by another thread
            while _UPLOADS and _UPLOADS[0][0].is_done(_UPLOADS[0][1]):
                _UPLOADS.popleft()
        block = self._pinned.results.take(table.nbytes).view(table.dtype).reshape(table.shape)
        block[...] = table
        there = self._device.upload(block)
        _UPLOADS.append((self._device, self._device.record(self._device.current_stream()), block))
        return there

    def release(self) -> None:
        """Free the memory of the idle lanes."""
        for lane in reversed(self._take_idle(N_LANES)):
            lane.release()
            self._put(lane)
        self._pinned.results.release()

    def _level(self, n: int) -> None:
        """Give the idle ones of the ``n`` lanes used last the memory of the largest of them."""
        lanes = self._take_idle(n)
        try:
            most = max((lane.memory.nbytes for lane in lanes), default=0)
            staging = largest([lane.staging.nbytes for lane in lanes])
            for lane in lanes:
                with suppress(DeviceError), lane.active():  # without it the next read may have to allocate
                    lane.memory.reserve(most)
                    lane.staging.reserve(staging)
        finally:
            for lane in reversed(lanes):
                self._put(lane)

    @property
    def _turn(self) -> _Turn | None:
        return getattr(self._local, "turn", None)

    def _carry_out(self, turn: _Turn, task: Callable[[T], None], wave: T) -> None:
        outer = self._turn
        self._local.turn = turn
        try:
            task(wave)
        finally:
            self._local.turn = outer
            self._give_back(turn)

    @contextmanager
    def _ordered(self, turn: _Turn) -> Iterator[Lane]:
        if turn.lane is None:
            turn.lane = self._new_lane() if turn.private else self._take()
        lane = turn.lane
        with lane.active():
            if lane.is_copying:  # of an earlier wave: the caller's own work comes after it
                self._device.synchronize()
                lane.is_copying = False
            self._device.wait(lane.stream, turn.call.start)
            try:
                yield lane
            except BaseException as error:
                # Submitted work may still use the lane's memory.
                self._device.synchronize()
                _clear_frames(error)
                raise
            finally:
                end = self._device.record(lane.stream)
                if turn.call.thread == threading.get_ident():
                    self._device.wait(turn.call.stream, end)
                else:
                    turn.call.ends[lane] = end

    def _take(self) -> Lane:
        """Wait for an idle lane."""
        self._tickets.get()
        return self._idle.pop()

    def _give_back(self, turn: _Turn) -> None:
        lane, turn.lane = turn.lane, None
        if lane is not None and not turn.private:
            lane.rewind()
            try:
                if lane.memory.is_split:
                    with suppress(DeviceError), lane.active():  # without it the next wave may not fit into the pieces
                        lane.memory.merge()
            finally:
                self._put(lane)


def _clear_frames(error: BaseException) -> None:
    """Clear the frames of an error's traceback: they would keep the lane's memory."""
    cause: BaseException | None = error
    while cause is not None:
        clear_frames(cause.__traceback__)
        cause = cause.__cause__ or cause.__context__


_EVERY: WeakSet[Lanes] = WeakSet()
#: Pinned memory that may still be read by a copy to a device, with the event after it. It must outlive its backend.
_UPLOADS: deque[tuple[Device, Any, Block]] = deque()
_pool = Pool()
#: For the waves of all backends and callers; a caller goes on alone when they are busy.
_MAX_THREADS = 64


@after_fork
def _take_all_back() -> None:
    for lanes in list(_EVERY):
        lanes.take_back()
