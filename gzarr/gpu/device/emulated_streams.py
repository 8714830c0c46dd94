"""Streams of the emulated device, whose work is done as soon as it is submitted."""

import threading
import time
from collections import deque
from typing import Any, Self

from gzarr.profiling import transfers

_local = threading.local()


class EmulatedStream:
    """A stream whose work is done as soon as it is submitted, as `cupy.cuda.Stream`.

    Attributes
    ----------
    waited_for
        The streams that it was last made to wait for, in order.
    """

    ptr = 0
    null: "EmulatedStream"

    def __init__(self, null: bool = False, non_blocking: bool = False) -> None:
        self.waited_for: deque[Any] = deque(maxlen=64)

    @property
    def done(self) -> bool:
        """Whether the work is done."""
        return True

    def use(self) -> Self:
        """Make this stream current for this thread, until another one is."""
        _local.stream = self
        return self

    def __enter__(self) -> Self:
        _local.__dict__.setdefault("outer", []).append(getattr(_local, "stream", None))
        _local.stream = self
        return self

    def __exit__(self, *error: object) -> None:
        _local.stream = _local.outer.pop()

    def synchronize(self) -> None:
        """Wait for the work, which is done."""
        transfers.notify("synchronize")

    def wait_event(self, event: Any) -> None:
        """Note the event."""
        self.waited_for.append(event)

    def record(self, event: Any = None) -> Any:
        """An event, represented by the stream itself if none is given."""
        if event is None:
            return self
        event.record(self)
        return event


class EmulatedEvent:
    """An event, as `cupy.cuda.Event`."""

    done = True

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        self.time_s = time.perf_counter()

    def record(self, stream: EmulatedStream | None = None) -> None:
        """Note the time."""
        self.time_s = time.perf_counter()

    def synchronize(self) -> None:
        """Wait for the work before it, which is done."""
        transfers.notify("synchronize")


#: The default stream.
NULL = EmulatedStream.null = EmulatedStream()


def current_stream() -> EmulatedStream:
    """The stream that this thread's work goes to."""
    return getattr(_local, "stream", None) or NULL
