"""Waves in flight: lanes, each with a stream and memory of its own, and the threads that carry waves through them.

Theory of operation. A wave is read, parsed and decoded by one thread; as many threads as lanes take turns, so that one
wave is read while another is parsed and a third is decoded and placed. Each wave holds one of the backend's lanes from
its first byte to its last, whoever reads: several callers share them, and the backend's device memory stays under its
cap. A wave looks at its own results at its end, while the others are under way. Lanes are reused; the one used last
goes first, so that single waves always get the same memory. Chance decides which wave of several comes to which lane:
after a read the lanes that it used have the same memory, so that the next one needs no more.

Rules: a lane's stream waits for what the caller had submitted before the read began, and the caller's stream for the
lane; lanes do not wait for each other. The caller's stream is only touched by the caller's thread: one that is "of each
thread" would be another stream in another thread. A failure stops the waves after it, and nothing runs on when
`Lanes.run` ends. After a fork the child has lanes that nobody holds.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import chain, islice
from queue import Empty, LifoQueue
from traceback import clear_frames
from typing import Any
from weakref import WeakSet

from gzarr.backend import T
from gzarr.errors import DeviceError
from gzarr.gpu.device.memory import Arena
from gzarr.gpu.device.protocol import Device

#: A wave needs three things one after the other: its store, the interpreter (headers, tables), the device. With a lane
#: for each, the slowest of them never waits for a lane; with two lanes it does where the three take equally long (2/3
#: of the rate). More lanes would only take memory from these.
N_LANES = 3


class Lane:
    """What one wave in flight has to itself.

    Attributes:
        device: where it runs.
        stream: the wave's work is submitted here.
        memory: of the device; its share of the cap.
        staging: pinned host memory.
    """

    def __init__(self, device: Device, limit: int) -> None:
        self.device = device
        self.stream = device.new_stream()
        self.memory = Arena(device.allocate, limit)
        self.staging = Arena(device.allocate_pinned)

    def active(self) -> AbstractContextManager[Any]:
        """A context in which this thread's work goes to the lane's stream and its memory comes from the lane."""
        return self.device.activate(self.stream, self.memory, self.staging)

    def rewind(self) -> None:
        """Make the lane ready for another wave. Its stream must be idle."""
        self.memory.rewind()
        self.staging.rewind()

    def release(self) -> None:
        """Give all memory back."""
        self.memory.release()
        self.staging.release()


class _Call:
    """A read or write of one caller: its stream and thread, what it had submitted before, the last work of others."""

    def __init__(self, device: Device, stream: Any) -> None:
        current = device.current_stream()
        self.stream = current if stream is None else stream
        self.start = device.record(self.stream)
        self.current = None if stream is None else device.record(current)
        self.thread = threading.get_ident()
        self.ends: dict[Lane, Any] = {}


class _Turn:
    """One wave, carried out by one thread. private: within another that has a lane, which must not wait for one."""

    def __init__(self, call: _Call, *, private: bool = False) -> None:
        self.call = call
        self.private = private
        self.lane: Lane | None = None


class Lanes:
    """The lanes of a backend.

    Args:
        device: where they run.
        cap: device memory of all lanes together, in bytes.
        stream: the caller's stream; None for the one that is current when a read begins.
    """

    def __init__(self, device: Device, cap: int, stream: Any = None) -> None:
        self._device = device
        self._limit = cap // N_LANES
        self._stream = stream
        self._local = threading.local()
        self._all = [Lane(device, self._limit) for _ in range(N_LANES)]
        self._idle: LifoQueue[Lane] = LifoQueue()
        self.take_back()
        _EVERY.add(self)

    def take_back(self) -> None:
        """Make all lanes idle, whoever has them: threads that held them are not there after a fork."""
        self._idle = LifoQueue()
        for lane in self._all:
            lane.rewind()
            self._idle.put(lane)

    @property
    def stream(self) -> Any:
        """The caller's stream; None for the one that is current when a read begins."""
        return self._stream

    @property
    def limit(self) -> int:
        """Device memory of one lane, in bytes."""
        return self._limit

    @property
    def under_way(self) -> bool:
        """Whether this thread is carrying out a wave."""
        return self._turn is not None

    def run(self, task: Callable[[T], None], waves: Iterable[T]) -> None:
        """Carry out a task for every wave, several at once; on the caller's thread if there is only one.

        A run within a task stays on its thread. Where that has a lane already (a store that reads through this
        backend), it gets memory beyond the cap, which is given back after it; where not (a value that is read while it
        is written) it takes lanes like any other.
        Raises: what the first failing task raised; notes on it tell of the others.
        """
        source = iter(waves)
        head = list(islice(source, N_LANES))
        every = chain(head, source)
        call = _Call(self._device, self._stream)
        outer = self._turn
        private = outer is not None and (outer.private or outer.lane is not None)

        def carry_out(wave: T) -> None:
            self._carry_out(_Turn(call, private=private), task, wave)

        if outer is not None or len(head) < 2:
            for wave in every:
                carry_out(wave)
            return
        try:
            run_in_threads(carry_out, every, len(head))
        finally:
            for end in call.ends.values():
                self._device.wait(call.stream, end)
        self._level(len(head))

    @contextmanager
    def borrow(self) -> Iterator[Lane]:
        """The lane of the wave that this thread carries out; outside of a run, a lane for this context.

        Within the context device work goes to the lane, after what the caller had submitted when the run began; what
        the caller submits after the context comes after it.
        """
        turn = self._turn
        if turn is None:
            turn = _Turn(_Call(self._device, self._stream))
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
        """As `borrow`, but the lane goes back when the context ends, with nothing of it in use any more.

        Writes hold locks of stored objects when they ask for a lane. As they give it back before they store anything,
        nobody who holds a lane waits for a lock. The value may have been made on the stream that was current when the
        run began, even if the caller has named another.
        """
        turn = self._turn
        if turn is None:
            turn = _Turn(_Call(self._device, self._stream))
        try:
            with self._ordered(turn) as lane:
                if turn.call.current is not None:
                    self._device.wait(lane.stream, turn.call.current)
                yield lane
        finally:
            self._give_back(turn)

    def release(self) -> None:
        """Give back the memory of the lanes that are idle."""
        idle: list[Lane] = []
        with suppress(Empty):
            while True:
                idle.append(self._idle.get_nowait())
        for lane in reversed(idle):
            lane.release()
            self._idle.put(lane)

    def _level(self, n: int) -> None:
        """Give those of the ``n`` lanes used last that are idle as much memory as the one of them that has most."""
        lanes: list[Lane] = []
        with suppress(Empty):
            while len(lanes) < n:
                lanes.append(self._idle.get_nowait())
        try:
            for arenas in ([lane.memory for lane in lanes], [lane.staging for lane in lanes]):
                most = max((arena.nbytes for arena in arenas), default=0)
                for lane, arena in zip(lanes, arenas, strict=True):
                    if arena.nbytes < most:
                        with suppress(DeviceError), lane.active():  # without it the next read may have to allocate
                            arena.reserve(most)
        finally:
            for lane in reversed(lanes):
                self._idle.put(lane)

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
            turn.lane = Lane(self._device, self._limit) if turn.private else self._idle.get()
        lane = turn.lane
        with lane.active():
            self._device.wait(lane.stream, turn.call.start)
            try:
                yield lane
            except BaseException as error:
                # What was submitted may still be using the lane's memory.
                self._device.synchronize()
                _clear_frames(error)
                raise
            finally:
                end = self._device.record(lane.stream)
                if turn.call.thread == threading.get_ident():
                    self._device.wait(turn.call.stream, end)
                else:
                    turn.call.ends[lane] = end

    def _give_back(self, turn: _Turn) -> None:
        lane, turn.lane = turn.lane, None
        if lane is not None and not turn.private:
            lane.rewind()
            self._idle.put(lane)


def _clear_frames(error: BaseException) -> None:
    """Clear the variables of frames that an error came through: whoever keeps it would keep the lane's memory."""
    cause: BaseException | None = error
    while cause is not None:
        clear_frames(cause.__traceback__)
        cause = cause.__cause__ or cause.__context__


_EVERY: WeakSet[Lanes] = WeakSet()


def _take_all_back() -> None:
    for lanes in _EVERY:
        lanes.take_back()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_take_all_back)


def run_in_threads(task: Callable[[T], None], waves: Iterable[T], n_threads: int) -> None:
    """Carry out a task for every wave on some threads, which pull waves from one iterator.

    Raises: what the first failing task raised, after all threads have ended; notes on it tell of the others.
    """
    source = iter(waves)
    pull_lock = threading.Lock()
    stopped = threading.Event()
    errors: list[BaseException] = []

    def pull() -> None:
        while not stopped.is_set():
            try:
                with pull_lock:
                    found = list(islice(source, 1))
                if not found:
                    return
                task(found[0])
            except BaseException as error:  # noqa: BLE001 - raised again below, on the caller's thread
                errors.append(error)
                stopped.set()

    with ThreadPoolExecutor(n_threads, "gzarr-wave") as pool:
        try:
            wait([pool.submit(pull) for _ in range(n_threads)])
        finally:
            stopped.set()  # an interrupt: leaving the pool waits for the waves under way
    if errors:
        first = errors[0]
        for text in map(str, errors[1:]):
            first.add_note(f"another chunk failed too: {text}")
        errors.clear()
        try:
            raise first
        finally:
            del first  # no circle of an error, its frames and what they refer to keeps the wave's memory
