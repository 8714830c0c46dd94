"""Virtual time for the double: what a call would cost on hardware, and what goes on at the same time.

Nothing takes real time here. Each piece of work has a duration and needs an engine (one for copies in each direction,
one for kernels and decoders). It begins when the host has submitted it, what it waits for has ended, and its engine is
idle. The host has a time of its own, which calls advance; a wait advances it to the end of what is waited for. Work may
be carried out in any order meanwhile: an engine is given out by virtual time, in pieces if need be.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Costs:
    """Seconds of calls, and bytes a second: guesses for an H100, of which only the proportions matter.

    Attributes:
        launch_s: of the host, for each piece of work that it submits.
        wait_s: of the host, for each wait, besides the wait itself.
        host_alloc_s: of the host, for each byte of pinned memory (cudaHostAlloc: about 0.3 s a GiB).
        read_rate: of reads of files into memory, for each thread; 0 for no time.
        open_s: of opening a file; a registered handle of cuFile takes 1 ms.
        copy_rate: of PCIe, in each direction.
        decode_rate: decoded bytes of a batched decoder; bytes of a batched encoder.
        kernel_rate: of a kernel, whose threads handle 16 bytes each.
    """

    launch_s: float = 5e-6
    wait_s: float = 10e-6
    host_alloc_s: float = 0.3 / (1 << 30)
    read_rate: float = 25e9
    open_s: float = 13e-6
    copy_rate: float = 50e9
    decode_rate: float = 60e9
    kernel_rate: float = 400e9


class Engine:
    """What does one thing at a time."""

    def __init__(self) -> None:
        self.busy: list[tuple[float, float]] = []

    def take(self, ready: float, seconds: float) -> float:
        """Take the engine whenever it is idle, for so long in all. Returns: when that is over."""
        pieces: list[tuple[float, float]] = []
        start, left = ready, seconds
        for begin, end in self.busy:
            if begin > start and left > 0:
                piece = min(begin - start, left)
                pieces.append((start, start + piece))
                left -= piece
            start = max(start, end)
        if left > 0:
            pieces.append((start, start + left))
        for piece in pieces:
            bisect.insort(self.busy, piece)
        return pieces[-1][1] if pieces else ready

    @property
    def seconds(self) -> float:
        """How long it has worked."""
        return sum(end - start for start, end in self.busy)


class Clock:
    """The time of the host, and the engines of a device.

    Attributes:
        start, now: of the host's thread that is carried out. A clock starts where the last one ended.
        spent: seconds of the host by what they were spent on.
    """

    def __init__(self, costs: Costs, start: float = 0.0) -> None:
        self.costs = costs
        self.start = self.now = start
        self.spent: dict[str, float] = {}
        self.engines = {"up": Engine(), "down": Engine(), "kernels": Engine()}

    def spend(self, what: str, seconds: float) -> None:
        """Let the host be busy."""
        self.now += seconds
        self.spent[what] = self.spent.get(what, 0.0) + seconds

    @property
    def elapsed(self) -> float:
        """Seconds of the host since the start."""
        return self.now - self.start

    @property
    def end(self) -> float:
        """When everything that was submitted and carried out has ended."""
        return max([self.now, *(end for engine in self.engines.values() for _, end in engine.busy)])

    @property
    def busy(self) -> float:
        """Seconds of all engines."""
        return sum(engine.seconds for engine in self.engines.values())

    def in_threads(self, task: Callable[[Any], None], items: Iterable[Any], n: int, *_: Any, **__: Any) -> None:
        """Like `gzarr.concurrency.run_in_threads`: one after the other, but at the same virtual time."""
        times = [self.now] * n
        for item in items:
            idle = times.index(min(times))
            self.now = times[idle]
            task(item)
            times[idle] = self.now
        self.now = max(times)


_running: list[Clock] = []
_latest = 0.0


def clock() -> Clock | None:
    """The clock that runs."""
    return _running[-1] if _running else None


@contextmanager
def virtual_time(costs: Costs | None = None) -> Iterator[Clock]:
    """A context in which a clock runs."""
    global _latest  # noqa: PLW0603 - streams know when their work has ended
    _running.append(Clock(costs or Costs(), _latest))
    try:
        yield _running[-1]
    finally:
        _latest = _running.pop().end


def spend(what: str, seconds: Callable[[Costs], float]) -> None:
    """Let the host be busy, if a clock runs."""
    if _running:
        _running[-1].spend(what, seconds(_running[-1].costs))
