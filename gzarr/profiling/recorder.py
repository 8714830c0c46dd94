"""Records the stages of reads and writes while profiling: for `gzarr.profile`, or a profiler of CUDA that shows ranges.

Theory of operation. Every read or write asks `recorder_for` once; nothing else happens unless it returns a recorder. A
recorder carries itself into every batch (`Recorder.carry`), on whatever thread that runs, as the batch's first stage.
Within a batch, `stage` begins another stage, which interrupts the one around it: a thread is in one stage at a time, so
the seconds of the stages add up. Stages that submit work to a device are marked there too; the marks are read when the
profile ends, so that nothing waits for them.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import count
from time import perf_counter
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from gzarr.concurrency import new_lock
from gzarr.config import config

T = TypeVar("T")

#: Rows that a profile records; later ones are only summed.
MAX_ROWS = 100_000


class Marker(Protocol):
    """Shows stages on a device.

    Attributes
    ----------
    name : str
        Of the device.
    """

    name: str

    def push_range(self, name: str) -> None:
        """Begin a range, which its profilers show, within those that this thread has begun."""

    def pop_range(self) -> None:
        """End the range begun last."""

    def mark(self) -> Any:
        """A point in time behind everything that was submitted to the current stream."""

    def seconds_between(self, start: Any, end: Any) -> float:
        """Seconds between two marks; waits until both are past."""


class Row(NamedTuple):
    """A stretch of time that a thread spent in a stage.

    Attributes
    ----------
    stage : str
        Name of the stage.
    batch : int
        Number of the batch, from 0 in the order in which batches begin.
    thread : str
        Name of the thread; numbers tell threads of one name apart. For work on a device, the name of the device and
        that of the thread that submitted it.
    start : float
        Seconds from the beginning of the profile to the start.
    end : float
        Seconds from the beginning of the profile to the end.
    """

    stage: str
    batch: int
    thread: str
    start: float
    end: float


@dataclass(slots=True)
class Stage:
    """Totals of one stage.

    Attributes
    ----------
    calls : int
        How often the stage began.
    batches : int
        Number of batches that went through it.
    chunks : int
        Number of chunks that went through it, if the stage counts them.
    seconds : float
        Wall time of all threads together, without stages within this one.
    device_seconds : float or None
        Time that its work took on the device; None if there was none.
    bytes_in : int
        Bytes that it took: encoded ones for "decode", decoded ones for "place" and "encode".
    bytes_out : int
        Bytes that it made.
    """

    calls: int = 0
    batches: int = 0
    chunks: int = 0
    seconds: float = 0.0
    device_seconds: float | None = None
    bytes_in: int = 0
    bytes_out: int = 0

    @property
    def bytes_per_s(self) -> float:
        """The larger of bytes in and out by the larger of the times; 0 if there is no time."""
        seconds = max(self.seconds, self.device_seconds or 0.0)
        return max(self.bytes_in, self.bytes_out) / seconds if seconds else 0.0


class _Marks(NamedTuple):
    """Marks around what a stretch of a stage has submitted to a device, each submitted just after that moment."""

    marker: Marker
    start: Any
    end: Any


class Recorder:
    """Records stages.

    Parameters
    ----------
    outer : Recorder, optional
        The recorder of a profile around this one, which records the same; None if there is none.
    records : bool
        Whether to record anything, instead of only showing ranges.

    Attributes
    ----------
    ended
        Seconds from the beginning to the end of the last stretch of a stage, among all `n_rows` of them.
    """

    def __init__(self, outer: "Recorder | None" = None, *, records: bool = True) -> None:
        self.outer = outer
        self.records = records
        self.began = perf_counter()
        self.stages: defaultdict[str, Stage] = defaultdict(Stage)
        self.rows: list[Row] = []
        self.n_rows = 0
        self.ended = 0.0
        self._spans: list[tuple[Row, _Marks]] = []
        self._batches: dict[int, int] = {}
        self._seen: set[tuple[str, int]] = set()
        self._threads: dict[tuple[str, int], str] = {}
        self._names: dict[str, int] = {}
        self._closed = False
        self._lock = new_lock()

    def carry(self, first: str, task: Callable[[T], object], marker: Marker | None) -> Callable[[T], None]:
        """A task that takes this recorder along, wherever it runs. first: the stage of time that no other stage has."""

        def carried(batch: T) -> None:
            token = active.set(self if self.records else None)
            try:
                with _Noted(self, first, next(_numbers), marker):
                    task(batch)
            finally:
                active.reset(token)

        return carried

    def count(self, stage: str, chunks: int, bytes_in: int, bytes_out: int) -> None:
        """Add to what went through a stage."""
        if not self.records:
            return
        with self._lock:
            if not self._closed:
                entry = self.stages[stage]
                entry.chunks += chunks
                entry.bytes_in += bytes_in
                entry.bytes_out += bytes_out
        if self.outer is not None:
            self.outer.count(stage, chunks, bytes_in, bytes_out)

    def call(self, stage: str, batch: int) -> None:
        """Count a stage that begins."""
        with self._lock:
            if not self._closed:
                entry = self.stages[stage]
                entry.calls += 1
                self._batches.setdefault(batch, len(self._batches))
                if (stage, batch) not in self._seen:
                    self._seen.add((stage, batch))
                    entry.batches += 1
        if self.outer is not None:
            self.outer.call(stage, batch)

    def note(self, row: tuple[str, int, float, float], marks: _Marks | None) -> None:
        """Record a stretch of a stage. row: (stage, batch, start, end), in seconds of `perf_counter`."""
        stage, batch, start, end = row
        with self._lock:
            if not self._closed:
                self.stages[stage].seconds += end - start
                self.n_rows += 1
                self.ended = max(self.ended, end - self.began)
                if len(self.rows) < MAX_ROWS:
                    number = self._batches.get(batch, 0)
                    noted = Row(stage, number, self._thread(), start - self.began, end - self.began)
                    self.rows.append(noted)
                    if marks is not None:
                        self._spans.append((noted, marks))
        if self.outer is not None:
            self.outer.note(row, marks)

    def close(self) -> None:
        """Stop recording, and wait for the device to find out how long it took."""
        with self._lock:
            self._closed = True
        for name in dict.fromkeys(marks.marker.name for _, marks in self._spans):
            self._add_rows_of_device(name, [span for span in self._spans if span[1].marker.name == name])
        self._spans.clear()
        self.rows.sort(key=lambda row: row.start)

    def _add_rows_of_device(self, name: str, spans: list[tuple[Row, _Marks]]) -> None:
        """Put what a device did on the clock of the threads.

        No mark is past before it was submitted: of all marks, the one that was past soonest after that shows how the
        two clocks lie to each other.
        """
        first = spans[0][1]
        starts = [first.marker.seconds_between(first.start, marks.start) for _, marks in spans]
        zero = max(row.start - start for (row, _), start in zip(spans, starts, strict=True))
        for (row, marks), start in zip(spans, starts, strict=True):
            entry = self.stages[row.stage]
            seconds = marks.marker.seconds_between(marks.start, marks.end)
            entry.device_seconds = (entry.device_seconds or 0.0) + seconds
            begun = zero + start
            self.rows.append(Row(row.stage, row.batch, f"{name}, {row.thread}", begun, begun + seconds))

    def _thread(self) -> str:
        """A name for the current thread that no other one has."""
        name, number = threading.current_thread().name, threading.get_ident()
        label = self._threads.get((name, number))
        if label is None:
            n = self._names[name] = self._names.get(name, 0) + 1
            label = self._threads[name, number] = name if n == 1 else f"{name} #{n}"
        return label


class _Noted:
    """A stage under way: see `stage`."""

    __slots__ = ("_batch", "_began", "_mark", "_marker", "_name", "_outer", "_recorder", "_timed")

    def __init__(
        self, recorder: Recorder, name: str, batch: int, marker: Marker | None, *, timed: bool = False
    ) -> None:
        self._recorder = recorder
        self._name = name
        self._batch = batch
        self._marker = marker
        self._timed = timed and recorder.records and marker is not None
        self._outer: _Noted | None = None
        self._began = 0.0
        self._mark: Any = None

    def __enter__(self) -> Self:
        self._outer = outer = _here.top
        if outer is not None:
            outer.pause()
        if self._marker is not None:
            self._marker.push_range(f"gzarr:{self._name}")
        if self._recorder.records:
            self._recorder.call(self._name, self._batch)
        _here.top = self
        self.resume()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.pause()
        if self._marker is not None:
            self._marker.pop_range()
        _here.top = outer = self._outer
        if outer is not None:
            outer.resume()

    def count(self, chunks: int, bytes_in: int, bytes_out: int) -> None:
        """Add to what goes through the stage."""
        self._recorder.count(self._name, chunks, bytes_in, bytes_out)

    def within(self, name: str, *, timed: bool = False) -> "_Noted":
        """A stage that interrupts this one."""
        return _Noted(self._recorder, name, self._batch, self._marker, timed=timed or self._timed)

    def resume(self) -> None:
        """Begin a stretch of it."""
        self._began = perf_counter()
        self._mark = self._marker.mark() if self._timed and self._marker is not None else None

    def pause(self) -> None:
        """End the stretch."""
        if not self._recorder.records:
            return
        now = perf_counter()
        marks = None
        if self._mark is not None and self._marker is not None:
            marks = _Marks(self._marker, self._mark, self._marker.mark())
        self._recorder.note((self._name, self._batch, self._began, now), marks)


class _Here(threading.local):
    """Where the current thread is."""

    top: _Noted | None = None


#: The recorder of what the current thread or coroutine does.
active: ContextVar[Recorder | None] = ContextVar("gzarr_recorder", default=None)
_here = _Here()
_numbers = count()
_UNNOTED: AbstractContextManager[None] = nullcontext()
#: What listens to everything in this process, outside of profiles: see `gzarr.interop.opentelemetry`.
listener: Any = None
_RANGES_ONLY = Recorder(records=False)


def stage(name: str, *, timed: bool = False) -> AbstractContextManager[_Noted | None]:
    """A context in which the current batch is in a stage; it does nothing unless profiling.

    timed: whether work is submitted to the current stream, which is to be timed there; so it is for stages within.
    """
    top = _here.top
    return _UNNOTED if top is None else top.within(name, timed=timed)


def staged(
    name: str,
    call: Callable[..., T],
    *arguments: Any,
    count: Callable[[T], tuple[int, int, int]] | None = None,
    timed: bool = False,
) -> T:
    """Call a function with the current batch in a stage, which costs next to nothing unless profiling.

    count: from the result to what `_Noted.count` is told. timed: as of `stage`.
    """
    if _here.top is None:
        return call(*arguments)
    with _here.top.within(name, timed=timed) as noted:
        result = call(*arguments)
        if count is not None:
            noted.count(*count(result))
    return result


def here() -> _Noted | None:
    """The stage that the current thread is in; None unless profiling."""
    return _here.top


def recorder_for(device: str) -> Recorder | None:
    """The recorder of what now begins on a device; None unless profiling."""
    recorder = active.get() or listener
    if recorder is None and device != "cpu" and config["gpu.nvtx"]:
        return _RANGES_ONLY
    return recorder


def span(name: str) -> Any:
    """A context that the listener sees; it does nothing if there is none."""
    return _UNNOTED if listener is None else listener.span(name)


def spanned(name: str, call: Callable[[T], None], argument: T) -> None:
    """Call a function in a context that the listener sees, if there is one."""
    if listener is None:
        call(argument)
    else:
        with listener.span(name):
            call(argument)


def count_buffers(buffers: Sequence[Any]) -> tuple[int, int, int]:
    """What `staged` counts of chunks that came in: those that are there, and their bytes in and out."""
    return sum(buffer is not None for buffer in buffers), *count_bytes(buffers)[1:]


def count_bytes(buffers: Iterable[Any]) -> tuple[int, int, int]:
    """The same of what is moved as it is: no chunks."""
    nbytes = sum_nbytes(buffers)
    return 0, nbytes, nbytes


def sum_nbytes(buffers: Iterable[Any]) -> int:
    """Bytes of some buffers, None among them."""
    return sum(0 if buffer is None else getattr(buffer, "nbytes", None) or len(buffer) for buffer in buffers)
