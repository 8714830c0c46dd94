"""How gzarr's whole reads and writes scale with threads: measured on this machine, and by a model for others.

    python -m benchmarks.cpu.scaling [--only TEXT] [--cache DIR] [--written DIR] [--table docs/benchmarks.md]

The model. A call takes S seconds before its first piece and after its last one, in one thread. The pieces, and the
sorting of points before them, take L seconds in compiled code, which holds no lock of the interpreter and is shared by
threads, and G seconds beside it, which hold that lock. With two threads the compiled code takes c times as long in all,
as threads wait for memory and for the file system. So with n threads a call takes at least

    T(n) = S + max(G, (c - 1) L, (G + L) / n)

S, G and L are measured with one thread and c with two; the prediction for two threads is compared with the time.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.cpu.catalogue import BY_NAME
from benchmarks.cpu.data import Cache, Scale
from benchmarks.cpu.libraries import LIBRARIES
from benchmarks.cpu.measure import machine
from benchmarks.cpu.race import ROOT
from benchmarks.cpu.report import digits, grid, insert
from benchmarks.cpu.workloads import Bench, Task, remove

ROWS = (
    "read all, lz4 i4",
    "read all, zstd f4",
    "read all, lz4 i4, 6,400 chunks",
    "read all, uncompressed f4",
    "read all, sharded zstd i4",
    "strided, every chunk",
    "vindex, 100,000 points, large chunks",
    "write all, lz4 i4",
    "write all, lz4 i4, 6,400 chunks",
    "write all, uncompressed f4",
    "write all, sharded zstd i4",
)
PREDICTED = (2, 4, 8, 16)
MORE = 16  # threads on this machine, to see whether they get in each other's way
ATTACHING_S = 1.0  # until `perf` sees all threads
START = "<!-- scaling: generated -->"


@dataclass(slots=True)
class Clock:
    """When compiled code ran in one call. unlocked_s: in all threads together. sorted_s: before the first piece."""

    first: float = 0.0
    last: float = 0.0
    unlocked_s: float = 0.0
    sorting: list[tuple[float, float]] = field(default_factory=list)
    guard: threading.Lock = field(default_factory=threading.Lock)

    def note(self, started: float, ended: float) -> None:
        """Note a piece."""
        with self.guard:
            self.first = min(self.first or started, started)
            self.last = max(self.last, ended)
            self.unlocked_s += ended - started

    def note_sorting(self, started: float, ended: float) -> None:
        """Note what one thread has done of the sorting of points, which threads do together."""
        with self.guard:
            self.sorting.append((started, ended))
            self.unlocked_s += ended - started

    @property
    def sorted_s(self) -> float:
        """How long points were sorted, by however many threads."""
        if not self.sorting:
            return 0.0
        starts, ends = zip(*self.sorting, strict=True)
        return float(max(ends) - min(starts))


class Timed:
    """The extension, with a clock around the functions that do pieces."""

    def __init__(self, extension: Any, clock: Clock) -> None:
        self._extension, self._clock = extension, clock

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._extension, name)
        if not name.startswith(("read", "write", "sort")):
            return function
        note = self._clock.note_sorting if name.startswith("sort") else self._clock.note

        def timed(*given: Any) -> Any:
            started = perf_counter()
            try:
                return function(*given)
            finally:
                note(started, perf_counter())

        return timed


@dataclass(frozen=True, slots=True)
class Times:
    """One call, in seconds: all of it, before and after its pieces, in compiled code by all threads; and waits."""

    wall_s: float
    serial_s: float
    unlocked_s: float
    waits: int


def measure(task: Task, n_threads: int, rounds: int) -> Times:
    """Measure a task with so many threads: the call of the median time."""
    import gzarr

    calls = []
    with gzarr.config.set({"threading.max_workers": n_threads}):
        for _ in range(rounds + 1):  # the first one warms up
            if task.before:
                task.before()
            with timed() as clock:
                waited, started = _waits(), perf_counter()
                task.run()
                ended = perf_counter()
            serial = clock.first - started + ended - clock.last - clock.sorted_s if clock.last else ended - started
            calls.append(Times(ended - started, serial, clock.unlocked_s, _waits() - waited))
    return sorted(calls[1:], key=lambda call: call.wall_s)[rounds // 2]


@contextmanager
def timed() -> Iterator[Clock]:
    """Time the compiled code within a block."""
    from gzarr.cpu.compiled import library

    clock, loaded = Clock(), library._loaded  # noqa: SLF001 - where all callers find the extension
    extension, addresses = loaded()
    replaced: Any = lambda: (Timed(extension, clock), addresses)  # noqa: E731
    library._loaded = replaced  # noqa: SLF001
    try:
        yield clock
    finally:
        library._loaded = loaded  # noqa: SLF001


def _waits() -> int:
    """How often threads of this process have waited: for locks, for the disk, for each other."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw


def lock_waits(task: Task, n_threads: int, calls: int) -> float | None:
    """How often a call of a task asks the system to wait at a lock or to wake who waits, by `perf`; None without it.

    The interpreter's lock counts as others do, and so does waiting for more work.
    """
    import gzarr

    perf = shutil.which("perf")
    if perf is None:
        return None
    command = [perf, "trace", "-s", "-e", "futex", "-p", str(os.getpid())]
    with gzarr.config.set({"threading.max_workers": n_threads}):
        _run(task, 1)  # so that all threads exist
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracing:
            try:
                time.sleep(ATTACHING_S)
                _run(task, calls)
            finally:
                tracing.send_signal(signal.SIGINT)
            _, told = tracing.communicate()
    return None if tracing.returncode > 0 else futex_calls(told) / calls


def _run(task: Task, calls: int) -> None:
    for _ in range(calls):
        if task.before:
            task.before()
        task.run()


def futex_calls(summary: str) -> int:
    """The calls in a summary of `perf trace`, which has a table for every thread."""
    return sum(map(int, re.findall(r"^ *futex +(\d+)", summary, re.MULTILINE)))


def predict(one: Times, two: Times, n: int) -> tuple[float, str]:
    """The seconds of a call with ``n`` threads by the model, and what limits it."""
    locked = max(one.wall_s - one.serial_s - one.unlocked_s, 0.0)
    shared = max(two.unlocked_s - one.unlocked_s, 0.0)
    bounds = {"the interpreter's lock": locked, "memory or files": shared, "threads": (locked + one.unlocked_s) / n}
    limit = max(bounds, key=lambda name: bounds[name])
    return one.serial_s + bounds[limit], limit


def row(name: str, one: Times, two: Times, more: Times, locks: Sequence[float | None] = (None, None)) -> list[str]:
    """A line of the table. locks: `lock_waits` with two threads and with more."""
    serial = one.serial_s / one.wall_s
    locked = max(1 - serial - one.unlocked_s / one.wall_s, 0.0)
    predicted = [one.wall_s / predict(one, two, n)[0] for n in PREDICTED]
    return [
        name,
        digits(one.wall_s * 1e3),
        f"{serial:.1%}",
        f"{locked:.1%}",
        f"{one.wall_s / two.wall_s:.2f}",
        *(f"{speed:.1f}" for speed in predicted),
        predict(one, two, PREDICTED[-1])[1],
        f"{one.wall_s / more.wall_s:.2f}",
        f"{two.waits} / {more.waits}",
        "" if None in locks else " / ".join(f"{each:.0f}" for each in locks),
    ]


def table(rows: list[list[str]], about: Mapping[str, Any]) -> str:
    """The table of all rows."""
    heads = ["workload", "1 thread (ms)", "one thread only", "interpreter's lock", "2 threads, measured"]
    heads += [f"{n}, model" for n in PREDICTED]
    heads += [f"limit at {PREDICTED[-1]}", f"{MORE} threads on {about['cores']} cores", f"waits of 2 / {MORE}"]
    heads.append(f"calls of locks, 2 / {MORE}")
    where = f"Python {sys.version.split()[0]}, {about['cpu']}, {about['cores']} cores, {about['date']}."
    return f"{where}\n\n{grid(heads, rows)}"


def main() -> None:
    """Measure, print, and write the table that the options name."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cpu.scaling",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="rows whose name contains this")
    parser.add_argument("--cache", type=Path, default=ROOT / ".bench-cache", help="folder of the data of make bench")
    parser.add_argument("--written", type=Path, help="folder to write to (default: that of the data)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--table", type=Path, help="replace the table of a Markdown file")
    options = parser.parse_args()
    if not (chosen := [name for name in ROWS if not options.only or any(part in name for part in options.only)]):
        parser.error(f"no row contains {' or '.join(options.only)}; there are {', '.join(ROWS)}")
    cache = Cache(options.cache.resolve(), Scale(), options.written and options.written.resolve())
    scratch = cache.scratch / "scaling"
    bench = Bench(LIBRARIES["gzarr"][1](), cache, scratch)
    rows = []
    try:
        for name in chosen:
            task = BY_NAME[name].prepare(bench)
            calls: list[Times] = [measure(task, n, options.rounds) for n in (1, 2, MORE)]
            rows.append(row(name, *calls, [lock_waits(task, n, options.rounds) for n in (2, MORE)]))
            print(" | ".join(rows[-1]), flush=True)
            task = None  # its arrays are large
    finally:
        remove(scratch)
    if options.table:
        insert(options.table, table(rows, machine()), START)


if __name__ == "__main__":
    main()
