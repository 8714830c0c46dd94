"""Virtual time for the double: what a call would cost on hardware, and what goes on at the same time.

Nothing takes real time here. Each piece of work has a duration and needs an engine (one for copies in each direction,
one for kernels and decoders). It begins when the host has submitted it, what it waits for has ended, and its engine is
idle. The host has a time of its own, which calls advance; a wait advances it to the end of what is waited for. Work may
be carried out in any order meanwhile: an engine is given out by virtual time.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Costs:
    """Seconds of calls, and bytes a second. Most are those of an H100 (see ``docs/gpu-pipeline.md``).

    Attributes:
        launch_s: of the host, for each piece of work that it submits.
        wait_s: of the host, for each wait, besides the wait itself.
        host_alloc_s: of the host, for each byte of pinned memory (cudaHostAlloc: about 0.3 s a GiB).
        copy_rate: of PCIe, in each direction.
        decode_rate: decoded bytes of a batched decoder; bytes of a batched encoder.
        kernel_rate: of a kernel, whose threads handle 16 bytes each.
    """

    launch_s: float = 5e-6
    wait_s: float = 10e-6
    host_alloc_s: float = 0.3 / (1 << 30)
    copy_rate: float = 50e9
    decode_rate: float = 60e9
    kernel_rate: float = 400e9


class Engine:
    """What does one thing at a time."""

    def __init__(self) -> None:
        self.busy: list[tuple[float, float]] = []

    def take(self, ready: float, seconds: float) -> float:
        """Take the engine, as soon as it is idle for long enough. Returns: when that is."""
        start = ready
        for begin, end in self.busy:
            if start + seconds <= begin:
                break
            start = max(start, end)
        bisect.insort(self.busy, (start, start + seconds))
        return start

    @property
    def seconds(self) -> float:
        """How long it has worked."""
        return sum(end - start for start, end in self.busy)


class Clock:
    """The time of the host, and the engines of a device.

    Attributes:
        now: of the host's thread that is carried out.
        spent: seconds of the host by what they were spent on.
    """

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self.now = 0.0
        self.spent: dict[str, float] = {}
        self.engines = {"up": Engine(), "down": Engine(), "kernels": Engine()}

    def spend(self, what: str, seconds: float) -> None:
        """Let the host be busy."""
        self.now += seconds
        self.spent[what] = self.spent.get(what, 0.0) + seconds

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


def clock() -> Clock | None:
    """The clock that runs."""
    return _running[-1] if _running else None


@contextmanager
def virtual_time(costs: Costs | None = None) -> Iterator[Clock]:
    """A context in which a clock runs."""
    _running.append(Clock(costs or Costs()))
    try:
        yield _running[-1]
    finally:
        _running.pop()


def spend(what: str, seconds: Callable[[Costs], float]) -> None:
    """Let the host be busy, if a clock runs."""
    if _running:
        _running[-1].spend(what, seconds(_running[-1].costs))
