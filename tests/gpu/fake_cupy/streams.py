"""Streams, events and devices of the double.

Work is queued, and done when something waits for it, by whoever waits. Streams are ordered by events only: before each
piece of work that is needed, chance lets other streams advance or not (`SCHEDULE`). What lacks an event thus happens in
the wrong order sooner or later.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from tests.gpu.fake_cupy.clock import Costs, clock, spend
from tests.gpu.fake_cupy.errors import INVALID_HANDLE, NOT_READY, CUDARuntimeError

N_DEVICES = 2
#: All tests run with another order for each value.
SEED = int(os.environ.get("GZARR_TEST_SEED", "0"))


class Schedule:
    """Which stream advances next, by chance."""

    def __init__(self, seed: int | None) -> None:
        self.start(seed)

    def start(self, seed: int | None) -> None:
        """Begin anew. seed: None to do only what is waited for."""
        self._random = None if seed is None else random.Random(seed)

    def others_first(self) -> float:
        """For one wait: how likely another stream advances before the one that is waited for."""
        return 0.0 if self._random is None else self._random.choice((0.0, 0.5, 1.0))

    def choose(self, queues: list[Queue], likely: float) -> Queue | None:
        """One of the queues; None for what is waited for."""
        if self._random is None or not queues or self._random.random() >= likely:
            return None
        return self._random.choice(queues)


SCHEDULE = Schedule(SEED)


@contextmanager
def schedule(seed: int | None) -> Iterator[None]:
    """A context with another order of work. seed: None to do nothing but what is waited for."""
    before = SCHEDULE._random
    SCHEDULE.start(seed)
    try:
        yield
    finally:
        SCHEDULE._random = before


class _Current(threading.local):
    def __init__(self) -> None:
        self.device = 0
        self.streams: list[list[Stream]] = [[Stream.null] for _ in range(N_DEVICES)]


#: Work of all streams is done under one lock, by whoever waits: several threads may wait for each other's streams.
DOING = threading.RLock()
#: Queues with work that was not done yet.
_waiting: dict[int, Queue] = {}


class Work:
    """One piece of work on a stream.

    Attributes:
        after: work of another stream that must be done before; None for none.
        asked, end: when it was submitted, and when it has ended, in virtual time.
    """

    def __init__(self, queue: Queue, task: Callable[[], Any] | None, after: Work | None, engine: str) -> None:
        self.queue, self.task, self.after, self.engine = queue, task, after, engine
        self.asked = now()
        self.end = 0.0
        self.done = False

    @property
    def is_ready(self) -> bool:
        return self.after is None or self.after.done

    def carry_out(self) -> None:
        """Do it. Tasks may return what it costs: a function that takes `Costs` and returns seconds."""
        task, after = self.task, self.after
        self.task = self.after = None
        cost = None
        try:
            cost = None if task is None else task()
        finally:
            self.done = True
            self._end(after, cost)

    def _end(self, after: Work | None, cost: Callable[[Costs], float] | None) -> None:
        running = clock()
        if running is None:
            return
        ready = max(self.asked, self.queue.end, 0.0 if after is None else after.end)
        seconds = cost(running.costs) if callable(cost) else 0.0
        self.end = self.queue.end = running.engines[self.engine].take(ready, seconds)


class Queue:
    """The work of a stream, in order."""

    def __init__(self) -> None:
        self.pending: deque[Work] = deque()
        self.submitted = self.done = 0
        self.end = 0.0
        self.latest: Work | None = None

    def submit(self, task: Callable[[], Any] | None, after: Work | None = None, engine: str = "kernels") -> None:
        spend("submit", lambda costs: costs.launch_s)
        with DOING:
            self.latest = Work(self, task, after, engine)
            self.pending.append(self.latest)
            self.submitted += 1
            _waiting[id(self)] = self

    def advance(self) -> None:
        """Do the next piece of work."""
        work = self.pending.popleft()
        try:
            work.carry_out()
        finally:
            self.done += 1
            if not self.pending:
                del _waiting[id(self)]

    def run(self) -> None:
        """Wait for the work that was submitted so far."""
        last = self.latest
        if last is not None:
            reach(last)
            wait_until(last.end)


def now() -> float:
    """The host's time."""
    running = clock()
    return 0.0 if running is None else running.now


def wait_until(end: float, *, costs: bool = True) -> None:
    """Let the host wait."""
    running = clock()
    if running is not None:
        running.now = max(running.now, end)
        running.spend("wait", running.costs.wait_s if costs else 0.0)


_busy = False


def reach(work: Work) -> None:
    """Do work of any streams until some piece of it is done."""
    global _busy  # noqa: PLW0603 - of all threads, under the lock
    with DOING:
        if _busy:  # memory is freed, and work with it done, while other work is done
            return
        likely = SCHEDULE.others_first()
        _busy = True
        try:
            while not work.done:
                _needed(work, likely).advance()
        finally:
            _busy = False


def _needed(work: Work, likely: float) -> Queue:
    """The queue that advances next, on the way to some piece of work."""
    queue = work.queue
    while not queue.pending[0].is_ready:
        after = queue.pending[0].after
        assert after is not None
        queue = after.queue
    if likely:
        waiting = list(_waiting.values())  # finalizers, which may run at any step, queue work
        others = [other for other in waiting if other is not queue and other.pending[0].is_ready]
        queue = SCHEDULE.choose(others, likely) or queue
    return queue


class Stream:
    """A queue of work: done when it is waited for, in order."""

    null: Stream
    numbers = itertools.count(0x1000)
    queues: weakref.WeakValueDictionary[int, Queue] = weakref.WeakValueDictionary()
    made = 0

    def __init__(self, null: bool = False, non_blocking: bool = False, ptds: bool = False, priority: Any = None):
        self.ptr = 0 if null else next(Stream.numbers)
        self.device_id = -1 if null else current.device
        self._own = None if null else Queue()
        if self._own is not None:
            Stream.queues[self.ptr] = self._own
        Stream.made += not null

    @classmethod
    def from_external(cls, obj: Any) -> Self:
        if not hasattr(obj, "__cuda_stream__"):
            raise TypeError(f"Object of type {type(obj).__name__} does not implement the CUDA stream protocol")
        _, pointer = obj.__cuda_stream__()
        made = cls.__new__(cls)
        made.ptr, made.device_id, made._own = pointer, -1, None if pointer == 0 else Stream.queues[pointer]
        return made

    @property
    def queue(self) -> Queue:
        """Each device has a default stream; the address 0 means that of the current one."""
        return _default_queues[current.device] if self._own is None else self._own

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.ptr

    @property
    def pending(self) -> deque[Work]:
        return self.queue.pending

    @property
    def done(self) -> bool:
        return not self.queue.pending

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.ptr == self.ptr

    def __hash__(self) -> int:
        return hash(self.ptr)

    def __enter__(self) -> Self:
        if self.device_id not in (-1, current.device):
            raise RuntimeError("The device that the stream is created on does not match with the current device")
        current.streams[current.device].append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        current.streams[current.device].pop()

    def synchronize(self) -> None:
        self.queue.run()

    def record(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        # An event that is recorded again counts as it was when it was waited for.
        if event.work is not None:
            wait_until(event.asked, costs=False)  # whoever knows the event is not earlier than who recorded it
            self.queue.submit(None, event.work)


class Event:
    """A point on a stream; waiting for it does what comes before it."""

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False):
        self.work: Work | None = None
        self.asked = 0.0
        self.ptr = 1
        self.device_id = current.device
        self.timed = not disable_timing
        self.time = 0.0

    @property
    def done(self) -> bool:
        return self.work is None or self.work.done

    def record(self, stream: Stream | None = None) -> None:
        stream = stream or get_current_stream()
        if (current.device if stream.ptr == 0 else stream.device_id) not in (-1, self.device_id):
            raise CUDARuntimeError(INVALID_HANDLE)
        if self.timed:
            stream.queue.submit(lambda: setattr(self, "time", time.perf_counter()))
        self.work, self.asked = stream.queue.latest, now()

    def synchronize(self) -> None:
        if self.work is not None:
            reach(self.work)
            wait_until(self.work.end)


def get_elapsed_time(start_event: Event, end_event: Event) -> float:
    if not start_event.timed or not end_event.timed:
        raise CUDARuntimeError(INVALID_HANDLE)
    if not start_event.done or not end_event.done:
        raise CUDARuntimeError(NOT_READY)
    return 1e-3 + (end_event.time - start_event.time) * 1e3


class Device:
    """A device's number, and a context in which it is current."""

    def __init__(self, device: int | None = None):
        self.id = current.device if device is None else int(device)
        self._before = threading.local()

    def __enter__(self) -> Self:
        self._before.__dict__.setdefault("stack", []).append(current.device)
        current.device = self.id
        return self

    def __exit__(self, *exc: object) -> None:
        current.device = self._before.stack.pop()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    __hash__ = None  # type: ignore[assignment]

    def use(self) -> None:
        current.device = self.id

    def synchronize(self) -> None:
        for queue in list(Stream.queues.values()):
            queue.run()


def get_current_stream(device_id: int = -1) -> Stream:
    return current.streams[current.device if device_id < 0 else device_id][-1]


def submit(task: Callable[[], Any], engine: str = "kernels") -> None:
    """Queue work on the current stream, which must belong to the current device."""
    stream = get_current_stream()
    if stream.device_id not in (-1, current.device):
        raise CUDARuntimeError(INVALID_HANDLE)
    stream.queue.submit(task, engine=engine)


def queue_at(stream: int) -> Queue:
    """The queue of a stream by its address."""
    return Stream.null.queue if stream in (0, 1) else Stream.queues[stream]


def keep(*_: Any) -> None:
    """Whoever queues this keeps its arguments until then."""


_default_queues = [Queue() for _ in range(N_DEVICES)]
Stream.queues.update({-1 - number: queue for number, queue in enumerate(_default_queues)})
Stream.null = Stream(null=True)
current = _Current()
