"""One contestant on one case in its own process: answers requests, one JSON line each, through a pipe.

    python -m benchmarks.loader.worker MODULE:NAME CASE CACHE SCALE [URL]

The output of the library goes to stderr.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cpu.worker import answer, peak_bytes, reset_peak
from benchmarks.loader import bare
from benchmarks.loader.cases import CASES, Task
from benchmarks.loader.contestant import AbsentError, Batch, Contestant, ask
from benchmarks.loader.contestants import maker
from benchmarks.loader.data import Cache, Scale, datasets

PAUSE_S = 0.2  # after a first batch, for what is still being read of the next ones


def main() -> None:
    """Answer until the pipe closes."""
    where, case, cache, scale, *url = sys.argv[1:]
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    worker = Worker(where, case, Cache(Path(cache), Scale(**json.loads(scale))), *url)
    answer(worker, replies)


class Worker:
    """A contestant and its task."""

    def __init__(self, where: str, case: str, cache: Cache, url: str | None = None) -> None:
        data = datasets(cache.scale)[CASES[case].dataset]
        self.where, self.cache = where, cache
        self.place = url or str(cache.path(data.name))
        self.task = Task(CASES[case], data, cache.scale)
        self.contestant: Contestant | None = None
        self.before = 0

    def do_hello(self) -> dict[str, Any]:
        """Import the library and open the array."""
        self.contestant = maker(self.where)(self.task, self.place)
        self.before = reset_peak()
        return {"version": self.contestant.version, "python": sys.version.split()[0], "numpy": np.__version__}

    def do_epoch(self, number: int, limit_s: float) -> dict[str, Any]:
        """Run through an epoch; through as much as the time allows if nothing is kept between batches."""
        contestant, samples, steps = self._contestant, 0, 0
        nbytes, cpu = read_bytes(), cpu_s()
        start = time.perf_counter()
        with contextlib.closing(contestant.epoch(number)) as batches:  # type: ignore[type-var]
            for batch in batches:
                samples, steps = samples + len(batch.values), steps + 1
                if not contestant.caches and time.perf_counter() - start > limit_s:
                    break
                del batch
            seconds = time.perf_counter() - start
        reply = {"samples": samples, "steps": steps, "seconds": seconds, "cpu_s": cpu_s() - cpu}
        reply |= {"read_bytes": read_bytes() - nbytes, "peak_bytes": peak_bytes() - self.before}
        decodes = contestant.decodes()
        return reply if decodes is None else {**reply, "decodes": decodes}

    def do_first(self, number: int) -> dict[str, Any]:
        """Time the first batch of a contestant that has read nothing yet."""
        start = time.perf_counter()
        fresh = self._contestant.fresh()
        with contextlib.closing(fresh.epoch(number)) as batches:  # type: ignore[type-var]
            next(batches)
            seconds = time.perf_counter() - start
        if fresh is not self._contestant:
            fresh.close()
        time.sleep(PAUSE_S)
        return {"first_s": seconds}

    def do_check(self, number: int, limit_s: float) -> dict[str, Any]:
        """Compare contents with the source. Raises: AssertionError if a value or the set of samples is wrong."""
        source, seen = self.cache.source(self.task.data.name), []
        start, complete = time.perf_counter(), True
        with contextlib.closing(self._contestant.epoch(number)) as batches:  # type: ignore[type-var]
            for batch in batches:
                seen.append(self._checked(batch, source))
                if complete := time.perf_counter() - start < limit_s:
                    continue
                break
        ids = np.concatenate(seen)
        assert len(np.unique(ids)) == len(ids), "a sample came twice"
        assert not complete or len(ids) == self.task.n, f"{len(ids)} samples came, not {self.task.n}"
        return {"checked": len(ids), "in_order": bool((np.diff(ids) > 0).all())}

    def _checked(self, batch: Batch, source: Any) -> Any:
        ids, values = np.asarray(ask(batch.ids)), np.asarray(batch.values)
        wanted = self.task.wanted(source, ids, ask(batch.starts))
        assert values.dtype == wanted.dtype, f"{values.dtype}, not {wanted.dtype}"
        assert np.array_equal(values, wanted), f"wrong values in the samples {ids[:4].tolist()}, ..."
        return ids

    def do_bare(self) -> dict[str, Any]:
        """Read and decode everything once with numcodecs."""
        return bare.decode_all(self.task.data, self.cache.path(self.task.data.name))

    def do_first_bare(self, number: int) -> dict[str, Any]:
        """Time a bare read of the first batch by gzarr."""
        import gzarr

        array = gzarr.open_array(self.place, mode="r", device="cpu")
        start = time.perf_counter()
        bare.first_read(array, self.task, number)
        return {"first_s": time.perf_counter() - start}

    def do_finish(self) -> dict[str, Any]:
        """Let go of threads and processes."""
        if self.contestant is not None:
            self.contestant.close()
        self.contestant = None
        gc.collect()
        return {}

    @property
    def _contestant(self) -> Contestant:
        if self.contestant is None:
            raise AbsentError("not started")
        return self.contestant


def cpu_s() -> float:
    """CPU seconds of this process, of its children that ended, and of those that live."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime + sum(map(_cpu_of, children()))


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_bytes() -> int:
    """Bytes that this process and its children have read so far, also from the page cache."""
    return sum(_read_of(pid) for pid in ("self", *children()))


def _read_of(pid: int | str) -> int:
    return int(Path(f"/proc/{pid}/io").read_text().split()[1])


def children() -> Iterator[int]:
    """The processes that this one started (none where the system has no /proc)."""
    for thread in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError):
            yield from map(int, thread.read_text().split())


if __name__ == "__main__":
    main()
