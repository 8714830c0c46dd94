"""Streams of the emulated device, whose work is done as soon as it is submitted."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from gzarr.profiling import crossings

_local = threading.local()


class EmulatedStream:
    """A stream whose work is done as soon as it is submitted, as `cupy.cuda.Stream`.

    Attributes
    ----------
    waited_for
        The streams that it was last made to wait for, in order.
    """

    ptr = 0
    null: EmulatedStream

    def __init__(self, null: bool = False, non_blocking: bool = False) -> None:
        self.waited_for: deque[EmulatedStream] = deque(maxlen=64)

    def __enter__(self) -> Self:
        _local.__dict__.setdefault("outer", []).append(getattr(_local, "stream", None))
        _local.stream = self
        return self

    def __exit__(self, *error: object) -> None:
        _local.stream = _local.outer.pop()

    def synchronize(self) -> None:
        """Wait for the work, which is done."""
        crossings.notify("synchronize")

    def wait_event(self, event: EmulatedStream) -> None:
        """Note the event."""
        self.waited_for.append(event)

    def record(self) -> EmulatedStream:
        """An event, represented by the stream itself."""
        return self


#: The default stream.
NULL = EmulatedStream.null = EmulatedStream()


def current_stream() -> EmulatedStream:
    """The stream that this thread's work goes to."""
    return getattr(_local, "stream", None) or NULL


@contextmanager
def use(stream: EmulatedStream) -> Iterator[None]:
    """Make a stream current for this thread."""
    outer = getattr(_local, "stream", None)
    _local.stream = stream
    try:
        yield
    finally:
        _local.stream = outer
