"""Reads and writes with a device that does nothing, in a process of its own; `benchmarks.gpu.host` runs it.

It takes commands from standard input and answers on standard output, one JSON value a line. It imports gzarr from the
tree that PYTHONPATH names, which need not be the tree of this file.
"""

from __future__ import annotations

import ctypes
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import gzarr
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.protocol import Outcome
from gzarr.gpu.pipeline.batches import NEVER

#: Free memory of the device, as on an 80 GB card. Nothing touches what is allocated of it.
FREE_NBYTES = 79 << 30
#: Downloads of more bytes are encoded chunks or rows, whose contents do not matter.
LARGE_NBYTES = 1 << 20
#: Time between two looks at the interpreter's lock; the kernel adds some 50 us.
PERIOD_NS = 50_000
#: How often the search for the lock looks at each state.
LOOKS = 20


class StubDevice(EmulatedDevice):
    """A device that allocates, and otherwise succeeds at once without doing anything."""

    def __init__(self) -> None:
        super().__init__(free=FREE_NBYTES)

    def empty(self, nbytes: int) -> Any:
        """Memory that is not initialized."""
        arena = getattr(self._local, "memory", None)
        return self.allocate(nbytes) if arena is None else arena.take(nbytes)

    def upload(self, host: Any) -> Any:
        """The host's memory itself."""
        return host

    def download(self, array: Any, into: Any = None) -> Any:
        """A copy; nothing for large arrays."""
        return into if into is not None and array.nbytes > LARGE_NBYTES else super().download(array, into)

    def launch(self, kernel: str, n_threads: int, args: tuple[Any, ...]) -> None:
        """Only say that all chunks of a write differ from the fill value."""
        if kernel == "find_written":
            ctypes.memset(args[-1], 1, args[0])

    def decompress(self, decoder: str, source: Any, nbytes: Any, target: Any, capacity: Any, **options: Any) -> Outcome:
        """Success: every stream has filled its room."""
        return Outcome(np.zeros(source.size, np.int32), capacity.copy())

    def compress(
        self, encoder: str, source: Any, nbytes: Any, target: Any, capacity: int, typesize: int = 1
    ) -> Outcome:
        """Success: every stream has half the bytes of its chunk."""
        return Outcome(np.zeros(source.size, np.int32), np.maximum(nbytes // 2, 1).astype(np.uint64))


class Probe:
    """Tells how long the interpreter's lock is taken, by looking at it from a thread that never takes it."""

    def __init__(self, path: str) -> None:
        self._free, self._held = ctypes.CDLL(path), ctypes.PyDLL(path)
        self._free.end_samples.restype = ctypes.c_double
        self.works = False
        # On a thread that is not the main one, whose own state is part of the interpreter's.
        thread = threading.Thread(target=self._search)
        thread.start()
        thread.join()

    def _search(self) -> None:
        self._held.begin_search()
        for _ in range(LOOKS):
            self._held.exclude(1)  # a PyDLL keeps the lock during a call
            self._free.exclude(0)  # a CDLL releases it
        self.works = bool(self._held.end_search())

    def seconds(self, task: Callable[[], object]) -> float | None:
        """Seconds for which a task had the lock; None if that cannot be told.

        Whoever has the lock may wait for a core on a busy machine. That time is taken to be the same share as for all
        threads, and does not count.
        """
        if not self.works:
            task()
            return None
        n = ctypes.c_int64()
        threads = [path / "schedstat" for path in Path("/proc/self/task").iterdir()]
        ran, waited = _scheduled(threads)
        start = time.perf_counter()
        self._free.begin_samples(ctypes.c_int64(PERIOD_NS))
        try:
            task()
        finally:
            share = float(self._free.end_samples(ctypes.byref(n)))
        wall = time.perf_counter() - start
        ran, waited = (now - then for now, then in zip(_scheduled(threads), (ran, waited), strict=True))
        return share * wall * (ran / (ran + waited) if ran > 0 else 1.0) if n.value else None


def _scheduled(threads: list[Path]) -> tuple[int, int]:
    """Nanoseconds that threads ran and that they waited for a core. threads: their files schedstat (proc(5))."""
    found = [path.read_text().split() for path in threads if path.exists()]
    return sum(int(one[0]) for one in found), sum(int(one[1]) for one in found)


class Task:
    """Reading or writing a whole stored array."""

    def __init__(self, path: str, *, writes: bool) -> None:
        backend = GpuBackend(StubDevice(), reader="host", small_reads=NEVER, small_writes=NEVER)
        self._array: Any = gzarr.open_array(path, mode="r+" if writes else "r", device=backend)
        self._value = np.empty(self._array.shape, self._array.dtype) if writes else None

    def __call__(self) -> None:
        if self._value is None:
            self._array[...]
        else:
            self._array[...] = self._value


def timed(task: Callable[[], object]) -> dict[str, float]:
    """Seconds of a task: by the clock, of CPU of all threads, of CPU of this thread."""
    wall, cpu, caller = time.perf_counter(), time.process_time(), time.thread_time()
    task()
    caller, cpu, wall = time.thread_time() - caller, time.process_time() - cpu, time.perf_counter() - wall
    return {"wall": wall, "cpu": cpu, "caller": caller}


def main() -> None:
    """Answer commands: ["open", path, writes], then ["measure"] any number of times."""
    probe = Probe(sys.argv[1])
    task: Task | None = None
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        answer: dict[str, Any] = {}
        if command == "open":
            task = None  # frees the memory of the last one
            task = Task(arguments[0], writes=arguments[1])
            task()
            task()
        elif task is not None:
            answer = timed(task)
            answer["lock"] = probe.seconds(task)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
