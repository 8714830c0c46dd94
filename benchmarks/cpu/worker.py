"""One library in its own process: answers the requests of `race`, one JSON line each, through a pipe.

    python -m benchmarks.cpu.worker LIBRARY CACHE SCALE [URL S3_ENDPOINT]

Needs only NumPy and the library, so that every environment can run it. The output of a library goes to stderr.
"""

from __future__ import annotations

import cProfile
import gc
import io
import json
import os
import pstats
import resource
import sys
import time
import traceback
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from benchmarks.cpu.catalogue import BY_NAME
from benchmarks.cpu.data import CONSOLIDATED, CONSOLIDATED_MEMBERS, DATASETS, GROUP, Cache, Scale
from benchmarks.cpu.driver import AbsentError
from benchmarks.cpu.libraries import LIBRARIES
from benchmarks.cpu.rows_many import MAKERS
from benchmarks.cpu.workloads import ALL, Bench, Task, member_names, remove

MOST_CALLS = 2000
_ALIGNMENT = 16  # of the objects of Python


def main() -> None:
    """Answer until the pipe closes."""
    library, cache, written, scale, *servers = sys.argv[1:]
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    worker = Worker(library, Cache(Path(cache), Scale(**json.loads(scale)), Path(written)), *servers)
    answer(worker, replies)


def answer(worker: Any, replies: TextIO) -> None:
    """Answer the requests of standard input: each calls a method of the worker, ``do_`` and what is asked for."""
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply = getattr(worker, "do_" + request.pop("do"))(**request)
        except (AbsentError, ImportError) as error:
            reply = {"absent": str(error) or type(error).__name__}
        except AssertionError as error:
            reply = {"wrong": str(error)}
        except Exception as error:  # noqa: BLE001 - whatever a library raises is what is reported of it
            traceback.print_exc()
            reply = {"failed": f"{type(error).__name__}: {error}"[:300]}
        replies.write(json.dumps(reply) + "\n")


class Worker:
    """The library's driver and the task that was prepared last."""

    def __init__(self, library: str, cache: Cache, url: str | None = None, s3: str | None = None) -> None:
        self.library, self.cache, self.servers = library, cache, (url, s3)
        # By process: two runs may share a cache.
        self.scratch = cache.scratch / f"{library.replace(' ', '-')}-{os.getpid()}"
        self.unmade: dict[str, str] = {}  # datasets that this library cannot store, and why
        self.bench: Bench | None = None
        self.task: Task | None = None

    def do_hello(self) -> dict[str, Any]:
        """Import the library."""
        driver = LIBRARIES[self.library][1]()
        self.bench = Bench(driver, self.cache, self.scratch, *self.servers)
        return {"version": driver.version, "python": sys.version.split()[0], "numpy": np.__version__}

    def do_make(self, dataset: str) -> dict[str, Any]:
        """Write a dataset in the library's format unless it exists."""
        bench, suffix = self._bench, self._bench.driver.suffix
        if self.cache.is_ready(dataset, suffix):
            return {}
        path = bench.path(dataset)
        remove(path)
        try:
            self._make(bench, dataset, path)
        except AbsentError as error:
            self.unmade[dataset] = str(error)
            raise
        self.cache.mark_ready(dataset, suffix, self.library)
        return {}

    def _make(self, bench: Bench, dataset: str, path: Path) -> None:
        if dataset == GROUP:
            bench.driver.create_group(path)
            layout = type(DATASETS["tiny"].layout(self.cache.scale))((10,), "i4", (10,))
            for name in member_names(self.cache.scale):
                bench.driver.create(path / name, layout)
        elif dataset in MAKERS:
            MAKERS[dataset](bench, path)
        elif dataset == CONSOLIDATED:
            bench.driver.create_group(path)
            layout = type(DATASETS["tiny"].layout(self.cache.scale))((100, 100), "i4", (100, 100))
            for i, name in enumerate(CONSOLIDATED_MEMBERS):
                bench.driver.write(bench.driver.create(path / name, layout), ALL, np.full((100, 100), i, "i4"))
            bench.driver.consolidate(path)
        else:
            self._write(dataset, bench.driver.create(path, DATASETS[dataset].layout(self.cache.scale)))

    def _write(self, dataset: str, array: Any) -> None:
        values = DATASETS[dataset].values
        if values == "last":
            rows, width = array.shape
            self._bench.driver.write(array, np.s_[rows - 1 : rows, width - 4096 :], np.ones((1, 4096), "i4"))
        elif values is not None:
            self._bench.driver.write(array, ALL, np.asarray(self.cache.source(values)))

    def do_prepare(self, workload: str) -> dict[str, Any]:
        """Prepare a workload, run it once, check the answer, and run it once more to warm up."""
        self.task = None
        gc.collect()
        task = self._prepared(workload)
        if task.before:
            task.before()
        start = time.perf_counter()
        answer = task.run()
        first = time.perf_counter() - start
        task.check(answer)
        del answer
        self.task = task
        if task.counts:
            task.counts()
        if first < 1 or task.counts:
            self.do_time(0)
        return {"first_s": first, **({"counts": task.counts()} if task.counts else {})}

    def do_time(self, budget_s: float) -> dict[str, Any]:
        """Call until the time is used up, at least once. Returns: seconds of every call."""
        task = self._task
        times: list[float] = []
        while not times or (sum(times) < budget_s and len(times) < MOST_CALLS):
            if task.before:
                task.before()
            start = time.perf_counter()
            answer = task.run()
            times.append(time.perf_counter() - start)
            del answer
        return {"seconds": times}

    def do_memory(self, workload: str) -> dict[str, Any]:
        """Bytes by which one call, the first in this process, raises the peak of resident memory."""
        task = self._prepared(workload)
        before = reset_peak()
        answer = task.run()
        peak = peak_bytes()
        task.check(answer)
        return {"peak_bytes": peak - before, "output_bytes": output_bytes(answer)}

    def do_profile(self, calls: int, lines: int) -> dict[str, Any]:
        """Profile the prepared task by cProfile (the calling thread only)."""
        profile, task = cProfile.Profile(), self._task
        for _ in range(calls):
            if task.before:
                task.before()
            profile.enable()
            task.run()
            profile.disable()
        text = io.StringIO()
        pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(lines)
        return {"text": text.getvalue()}

    def do_finish(self) -> dict[str, Any]:
        """Remove what was written."""
        self.task = None
        remove(self.scratch)
        return {}

    def _prepared(self, workload: str) -> Task:
        for dataset in BY_NAME[workload].datasets:
            if dataset in self.unmade:
                raise AbsentError(self.unmade[dataset])
        return BY_NAME[workload].prepare(self._bench)

    @property
    def _bench(self) -> Bench:
        if self.bench is None:
            raise AbsentError("not started")
        return self.bench

    @property
    def _task(self) -> Task:
        if self.task is None:
            raise AbsentError("nothing was prepared")
        return self.task


def output_bytes(answer: Any) -> int:
    """Bytes of an answer, with those of the objects that an array of objects points to: Python's own are rounded up."""
    nbytes = int(getattr(answer, "nbytes", 0))
    if getattr(answer, "dtype", None) == np.dtype(object):
        objects = {id(item): item for item in answer.flat}.values()
        nbytes += sum(-(-sys.getsizeof(item) // _ALIGNMENT) * _ALIGNMENT for item in objects)
    return nbytes


def reset_peak() -> int:
    """Reset the peak. Returns: resident bytes now (on Linux; elsewhere the peak so far)."""
    gc.collect()
    clear = Path("/proc/self/clear_refs")
    if not clear.exists():
        return peak_bytes()
    clear.write_text("5")
    return _status("VmRSS")


def peak_bytes() -> int:
    """Peak of resident bytes."""
    if Path("/proc/self/clear_refs").exists():
        return _status("VmHWM")
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))


if __name__ == "__main__":
    main()
