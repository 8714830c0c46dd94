"""Random boxes of a stored image, by libraries that take turns in processes of their own.

python -m benchmarks.images.regions MODULE:NAME CASE CACHE SMALL
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.cpu.race import ROOT, Runner
from benchmarks.cpu.worker import answer
from benchmarks.images.cases import Case
from benchmarks.images.contestants import Job, function
from benchmarks.images.data import level
from benchmarks.images.worker import job_of
from benchmarks.loader.worker import cpu_s

if TYPE_CHECKING:
    from benchmarks.images.race import Setting

DECODED = 48 << 20  # bytes of all chunks that the boxes of a round touch, about
Read = Callable[[tuple[slice, ...]], Any]


def gzarr_reader(job: Job) -> tuple[str, Read]:
    """The version of gzarr, and what reads a box."""
    import gzarr

    return gzarr.__version__, gzarr.open_array(job.image, mode="r", device="cpu").__getitem__


def tensorstore_reader(job: Job) -> tuple[str, Read]:
    """The same of TensorStore. Metadata are checked once, when the array is opened."""
    import tensorstore as ts

    from benchmarks.images.drivers_tensorstore import VERSION

    spec = {"driver": "zarr3", "kvstore": f"file://{job.image}/", "recheck_cached_data": False}
    array = ts.open(spec, read=True).result()
    return VERSION, lambda box: array[box].read().result()


def boxes(case: Case, number: int) -> list[tuple[slice, ...]]:
    """The boxes of a round."""
    shape, chunks = case.source.shape, case.source.chunks
    touched = np.prod([min(-(-b // c) + 1, -(-n // c)) for b, c, n in zip(case.box, chunks, shape, strict=True)])
    touched *= np.prod(chunks) * np.dtype(case.source.dtype).itemsize
    ends = np.array(shape) - case.box + 1
    starts = np.random.default_rng((5, number)).integers(0, ends, (min(max(4, int(DECODED / touched)), 40), len(shape)))
    return [tuple(slice(int(s), int(s) + n) for s, n in zip(start, case.box, strict=True)) for start in starts]


class Worker:
    """A library and the array that it has open."""

    def __init__(self, where: str, *place: str) -> None:
        self.job = job_of(*place)
        self.version, self.read = function(where)(self.job)

    def do_check(self) -> dict[str, Any]:
        """Compare the first round. Raises: AssertionError if a value is wrong."""
        right = level(self.job.cache, self.job.case.source, 0, 0)
        for box in boxes(self.job.case, 0):
            assert np.array_equal(self.read(box), right[box]), f"wrong values in {box}"
        return {"version": self.version, "values": "equal"}

    def do_time(self, number: int) -> dict[str, Any]:
        """Time the boxes of a round."""
        each = boxes(self.job.case, number)
        cpu, start = cpu_s(), time.perf_counter()
        for box in each:
            self.read(box)
        return {"wall_s": (time.perf_counter() - start) / len(each), "cpu_s": (cpu_s() - cpu) / len(each)}


def race(name: str, case: Case, contestants: Mapping[str, str], setting: Setting) -> dict[str, Any]:
    """Rounds of boxes, the same ones for every library."""
    place = [name, str(setting.cache.root), str(setting.written), "1" if setting.small else "0"]
    runners = [started(each, where, *place) for each, where in contestants.items()]
    try:
        results = {runner.library: {"runs": [], **runner.ask("check")} for runner in runners}
        racing = [runner for runner in runners if "version" in results[runner.library]]
        for number in range(1, 1 + min(case.rounds, setting.rounds)):
            turn = number % max(1, len(racing))
            for runner in (*racing[turn:], *racing[:turn]):
                results[runner.library]["runs"].append(runner.ask("time", number=number))
    finally:
        for runner in runners:
            runner.stop()
    return {each: summary(reply) for each, reply in results.items()}


def summary(reply: Mapping[str, Any]) -> dict[str, Any]:
    """Medians of the rounds."""
    if not reply["runs"]:
        return {key: value for key, value in reply.items() if key != "runs"}
    return {**reply, **{key: statistics.median(run[key] for run in reply["runs"]) for key in ("wall_s", "cpu_s")}}


def started(library: str, where: str, *place: str) -> Runner:
    """The process of a library."""
    command = [sys.executable, "-m", "benchmarks.images.regions", where, *place]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return Runner(
        library, subprocess.Popen(command, **pipes, text=True, env={**os.environ, "PYTHONPATH": path}, cwd=ROOT)
    )


def main() -> None:
    """Answer until the pipe closes."""
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    answer(Worker(*sys.argv[1:]), replies)


if __name__ == "__main__":
    main()
