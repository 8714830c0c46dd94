"""Pipeline slots of batches in flight, each with its own stream and memory, and the threads that use them.

Theory of operation. One thread reads, parses and decodes a batch; there are as many threads as pipeline slots, so that
one batch is read while another one is parsed and a third one is decoded and placed. Each batch holds a pipeline slot
from its first byte to its last. All callers share the pipeline slots of a backend, so its device memory stays under the
cap. A batch checks its own results at its end, while others are under way. The pipeline slot that was used last is
reused first, so that single batches always get the same memory.

Rules: a pipeline slot's stream waits for what the caller had submitted before the read began, and the caller's stream
waits for the pipeline slot; pipeline slots do not wait for each other. Only the caller's thread touches the caller's
stream, because a per-thread stream would be another stream in another thread. A failure stops the batches after it, and
nothing is under way when `PipelineSlots.run` ends. After a fork, all pipeline slots of the child are idle.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, islice
from queue import Empty, SimpleQueue
from traceback import clear_frames
from typing import Any
from weakref import WeakSet

from numpy.typing import NDArray

from gzarr.backend import T
from gzarr.concurrency import Pool, after_fork, run_in_threads
from gzarr.errors import DeviceError
from gzarr.gpu.device.memory import Arena, Block, Results, Staging
from gzarr.gpu.device.protocol import Device

#: A batch uses three resources in turn: its store, the interpreter (headers, tables), and the device. With three
#: pipeline slots, the slowest resource never waits for a pipeline slot; with two pipeline slots, if all three take
#: equally long, the rate drops to 2/3. More pipeline slots would only divide the memory.
N_PIPELINE_SLOTS = 3
#: Share of a limit below which another one is not the same: what is free always changes a little.
_SAME = 0.75


class PipelineSlot:
    """A pipeline slot: what one batch in flight has to itself.

    Attributes
    ----------
    device : Device
        Where the batch runs.
    stream
        Where its work is submitted.
    memory
        Device memory, a share of the cap.
    staging
        Pinned host memory.
    results
        Pinned memory for encoded chunks, which a store writes when the pipeline slot is another batch's.
    """

    def __init__(self, device: Device, limit: int, results: Results | None = None) -> None:
        self.device = device
        self.stream = device.new_stream()
        self.memory = Arena(device.allocate, limit)
        self.staging = Staging(device.allocate_pinned)
        self.results = Results(device.allocate_pinned) if results is None else results

    def active(self) -> AbstractContextManager[Any]:
        """A context in which this thread's work goes to the pipeline slot's stream, and its memory from there."""
        return self.device.activate(self.stream, self.memory, self.staging)

    def rewind(self) -> None:
        """Free the pipeline slot for another batch. Its stream must be idle."""
        self.memory.rewind()
        self.staging.rewind()

    def release(self) -> None:
        """Return all memory to the device."""
        self.memory.release()
        self.staging.release()


class _Call:
    """A read or write of one caller: its stream and thread, an event of its earlier work, the ends of its batches."""

    def __init__(self, device: Device, stream: Any) -> None:
        current = device.current_stream()
        self.stream = current if stream is None else stream
        self.start = device.record(self.stream)
        self.current = None if stream is None else device.record(current)
        self.thread = threading.get_ident()
        self.ends: dict[PipelineSlot, Any] = {}


@dataclass(slots=True)
class _Turn:
    """One batch on one thread. private: within a batch that holds a pipeline slot, and so must not wait for one."""

    call: _Call
    private: bool = False
    pipeline_slot: PipelineSlot | None = None


class PipelineSlots:
    """The pipeline slots of a backend.

    Parameters
    ----------
    device : Device
        Where they run.
    cap : int or callable
        Device memory of all pipeline slots together, in bytes; or what gives it, which takes how much they have.
    stream : object
        The caller's stream; None for the one that is current when a read begins.
    """

    def __init__(self, device: Device, cap: int | Callable[[int], int], stream: Any = None) -> None:
        self._device = device
        self._cap = cap
        self._limit = 0
        self._all: list[PipelineSlot] = []
        self._limit = self.limit
        self._stream = stream
        self._local = threading.local()
        self._streams: list[Any] = []
        self._results = Results(device.allocate_pinned)
        self._all = [self._new_pipeline_slot() for _ in range(N_PIPELINE_SLOTS)]
        self.take_back()
        _EVERY.add(self)
        device.keepers.add(self)

    def _new_pipeline_slot(self) -> PipelineSlot:
        return PipelineSlot(self._device, self._limit, self._results)

    def take_back(self) -> None:
        """Make all pipeline slots idle after a fork, in which the threads that held them do not exist."""
        # The pipeline slot that was used last is at the end. Tickets count the idle ones: who has one finds a pipeline
        # slot.
        self._idle: list[PipelineSlot] = []
        self._tickets: SimpleQueue[None] = SimpleQueue()
        for pipeline_slot in self._all:
            pipeline_slot.rewind()
            self._put(pipeline_slot)

    def _put(self, pipeline_slot: PipelineSlot) -> None:
        self._idle.append(pipeline_slot)
        self._tickets.put(None)

    def _take_idle(self, most: int) -> list[PipelineSlot]:
        """Up to so many of the idle pipeline slots, the last used ones first."""
        pipeline_slots: list[PipelineSlot] = []
        with suppress(Empty):
            while len(pipeline_slots) < most:
                self._tickets.get_nowait()
                pipeline_slots.append(self._idle.pop())
        return pipeline_slots

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
        """Device memory of one pipeline slot in the next batches, in bytes."""
        if not callable(self._cap):
            self._limit = self._cap // N_PIPELINE_SLOTS
        else:
            limit = self._cap(sum(pipeline_slot.memory.nbytes for pipeline_slot in self._all)) // N_PIPELINE_SLOTS
            if not self._limit * _SAME <= limit <= self._limit / _SAME:  # else batches would change with every read
                self._limit = limit
        return self._limit

    def run(self, task: Callable[[T], None], batches: Iterable[T]) -> None:
        """Carry out a task for every batch, several at once; on the caller's thread if there is only one batch.

        A run within a task stays on the task's thread. If the task holds a pipeline slot (a store that reads with this
        backend), the run gets memory beyond the cap, which is freed afterwards; if not (a lazy value that is written),
        it takes pipeline slots like any other run.
        Raises: the error of the first task that failed, with notes on the others.
        """
        source = iter(batches)
        head = list(islice(source, N_PIPELINE_SLOTS))
        every = chain(head, source)
        call = _Call(self._device, self.stream)
        outer = self._turn
        private = outer is not None and (outer.private or outer.pipeline_slot is not None)

        def carry_out(context: T) -> None:
            self._carry_out(_Turn(call, private=private), task, context)

        if outer is not None or len(head) < 2:
            for context in every:
                carry_out(context)
            return
        try:
            run_in_threads(carry_out, every, len(head), _pool, most=_MAX_THREADS)
        finally:
            for end in call.ends.values():
                self._device.wait(call.stream, end)

    @contextmanager
    def borrow(self, *, to_write: bool = False) -> Iterator[PipelineSlot]:
        """A context with the pipeline slot of this thread's batch; outside of a run, with one of its own.

        In the context, work goes to the pipeline slot's stream, behind what the caller had submitted when the run
        began. What the caller submits after the context is ordered behind it.

        to_write: return the slot when the context ends, when nothing may use its memory any more. Writes hold locks of
            stored objects when they ask for a pipeline slot. As they return it before they store anything, no holder
            of a pipeline slot waits for a lock. The value may have been made on the stream that was current when the
            run began, even if the caller has named another stream.
        """
        outer = self._turn
        turn = _Turn(_Call(self._device, self.stream)) if outer is None else outer
        try:
            with self._ordered(turn) as pipeline_slot:
                if to_write and turn.call.current is not None:
                    self._device.wait(pipeline_slot.stream, turn.call.current)
                yield pipeline_slot
        finally:
            if to_write or outer is None:
                self._give_back(turn)

    def upload(self, table: NDArray[Any]) -> Any:
        """Copy a table to the device in the order of the current stream, without a pipeline slot and without a wait."""
        with suppress(IndexError):  # by another thread
            while _UPLOADS and _UPLOADS[0][0].is_done(_UPLOADS[0][1]):
                _UPLOADS.popleft()
        block = self._results.take(table.nbytes).view(table.dtype).reshape(table.shape)
        block[...] = table
        there = self._device.upload(block)
        _UPLOADS.append((self._device, self._device.record(self._device.current_stream()), block))
        return there

    def release(self) -> None:
        """Free the memory of the idle pipeline slots."""
        for pipeline_slot in reversed(self._take_idle(N_PIPELINE_SLOTS)):
            pipeline_slot.release()
            self._put(pipeline_slot)
        self._results.release()

    @property
    def _turn(self) -> _Turn | None:
        return getattr(self._local, "turn", None)

    def _carry_out(self, turn: _Turn, task: Callable[[T], None], context: T) -> None:
        outer = self._turn
        self._local.turn = turn
        try:
            task(context)
        finally:
            self._local.turn = outer
            self._give_back(turn)

    @contextmanager
    def _ordered(self, turn: _Turn) -> Iterator[PipelineSlot]:
        if turn.pipeline_slot is None:
            turn.pipeline_slot = self._new_pipeline_slot() if turn.private else self._take()
        pipeline_slot = turn.pipeline_slot
        with pipeline_slot.active():
            self._device.wait(pipeline_slot.stream, turn.call.start)
            try:
                yield pipeline_slot
            except BaseException as error:
                # Submitted work may still use the pipeline slot's memory.
                self._device.synchronize()
                clear_every_frame(error)
                raise
            finally:
                end = self._device.record(pipeline_slot.stream)
                if turn.call.thread == threading.get_ident():
                    self._device.wait(turn.call.stream, end)
                else:
                    turn.call.ends[pipeline_slot] = end

    def _take(self) -> PipelineSlot:
        """Wait for an idle pipeline slot."""
        self._tickets.get()
        pipeline_slot = self._idle.pop()
        if pipeline_slot.memory.limit != self._limit:
            pipeline_slot.memory.set_limit(self._limit)
        return pipeline_slot

    def _give_back(self, turn: _Turn) -> None:
        pipeline_slot, turn.pipeline_slot = turn.pipeline_slot, None
        if pipeline_slot is not None and not turn.private:
            pipeline_slot.rewind()
            try:
                if pipeline_slot.memory.is_split:  # the next batch may not fit into the pieces
                    with suppress(DeviceError), pipeline_slot.active():
                        pipeline_slot.memory.merge()
            finally:
                self._put(pipeline_slot)


def clear_every_frame(error: BaseException) -> None:
    """Clear the frames of an error's traceback: they would keep the pipeline slot's memory."""
    for cause in causes(error):
        clear_frames(cause.__traceback__)


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and those that it came from."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


_EVERY: WeakSet[PipelineSlots] = WeakSet()
#: Pinned memory that may still be read by a copy to a device, with the event after it. It must outlive its backend.
_UPLOADS: deque[tuple[Device, Any, Block]] = deque()
_pool = Pool()
#: For the batches of all backends and callers; a caller goes on alone when they are busy.
_MAX_THREADS = 64


@after_fork
def _take_all_back() -> None:
    for pipeline_slots in list(_EVERY):
        pipeline_slots.take_back()
