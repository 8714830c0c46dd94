"""Starts a worker for each library. The workers take turns, so that a busy moment affects all of them."""

from __future__ import annotations

import json
import os
import selectors
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.cpu.data import GROUP, Cache
from benchmarks.cpu.libraries import LIBRARIES, NO_PEERS
from benchmarks.cpu.workloads import Workload

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 300.0
BUDGET_S = 0.15  # of one library in one round
PREPARING = 2  # libraries at once: each holds up to three copies of 256 MB
# After so many rounds, libraries that take so many times the time of the fastest peer are done: no ratio needs them.
FAR_BEHIND = {1: 10.0, 3: 3.0}


@dataclass(slots=True)
class Runner:
    """A library in its process. reason: why it is absent, if it is."""

    library: str
    process: subprocess.Popen[str] | None
    about: dict[str, Any] = field(default_factory=dict)
    reason: str = ""

    def ask(self, do: str, **given: Any) -> dict[str, Any]:
        """Send a request and wait for its reply. A worker that dies or hangs is absent from then on."""
        if self.process is None or self.process.stdin is None or self.process.stdout is None:
            return {"absent": self.reason}
        try:
            self.process.stdin.write(json.dumps({"do": do, **given}) + "\n")
            self.process.stdin.flush()
            with selectors.DefaultSelector() as selector:
                selector.register(self.process.stdout, selectors.EVENT_READ)
                ready = selector.select(TIMEOUT_S)
            line = self.process.stdout.readline() if ready else ""
        except BrokenPipeError:
            line = ""
        if not line:
            self.reason = f"its process ended or took more than {TIMEOUT_S:.0f} s in {given.get('workload', do)!r}"
            self.stop()
            return {"failed": self.reason}
        reply: dict[str, Any] = json.loads(line)
        return reply

    def stop(self) -> None:
        """End the process."""
        process, self.process = self.process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # a request that it never took is flushed once more, in vain
                    pipe.close()


def start(library: str, pythons: Mapping[str, str], cache: Cache, servers: Sequence[str]) -> Runner:
    """Start a library's worker."""
    environment = LIBRARIES[library][0]
    if environment not in pythons:
        return Runner(library, None, reason=f"no environment {environment!r} (make bench makes it)")
    where = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [pythons[environment], "-m", "benchmarks.cpu.worker", library]
    command += [str(cache.root), str(cache.written or cache.root), json.dumps(asdict(cache.scale)), *servers]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    runner = Runner(library, subprocess.Popen(command, **pipes, text=True, env=where, cwd=ROOT))
    reply = runner.ask("hello")
    if "version" not in reply:
        runner.stop()
        runner.reason = next(iter(reply.values()))
    runner.about = reply
    return runner


@contextmanager
def running(
    names: Sequence[str], pythons: Mapping[str, str], cache: Cache, servers: Sequence[str] = ()
) -> Iterator[list[Runner]]:
    """Run workers of these libraries, and stop them at the end."""
    runners: list[Runner] = []
    try:
        for name in names:
            runners.append(start(name, pythons, cache, servers))
            if runners[-1].process is None:
                print(f"{name} takes no part: {runners[-1].reason}", file=sys.stderr)
        yield runners
    finally:
        for runner in runners:
            runner.ask("finish")
            runner.stop()


def make_data(runners: Sequence[Runner], workloads: Sequence[Workload], cache: Cache) -> None:
    """Write every dataset in every format, by the first library that can; gzarr writes v3."""
    wanted = dict.fromkeys(name for workload in workloads for name in workload.datasets)
    for name in wanted:
        for runner in runners:
            reply = runner.ask("make", dataset=name)
            if "failed" in reply and name != GROUP:
                print(f"{runner.library} cannot write {name}: {reply['failed']}", file=sys.stderr)


def race(runners: Sequence[Runner], workload: Workload, rounds: int, budget_s: float = BUDGET_S) -> dict[str, Any]:
    """Time one workload: library -> {"median_s", "rounds_s"} or why it is absent."""
    results: dict[str, Any] = {}
    racing: list[Runner] = []
    for runner, reply in zip(runners, _prepare(runners, workload), strict=True):
        if "first_s" in reply:
            racing.append(runner)
            results[runner.library] = {"rounds_s": [], **({"counts": reply["counts"]} if "counts" in reply else {})}
        else:
            results[runner.library] = reply
    for number in range(rounds):
        if number in FAR_BEHIND:
            racing = [r for r in racing if r.library == "gzarr" or _times_best(r, results) <= FAR_BEHIND[number]]
        turn = number % len(racing) if racing else 0
        for runner in (*racing[turn:], *racing[:turn]):
            reply = runner.ask("time", budget_s=budget_s)
            if "seconds" in reply:
                results[runner.library]["rounds_s"].append(statistics.median(reply["seconds"]))
            else:
                results[runner.library] = reply
                racing.remove(runner)
    for result in results.values():
        if result.get("rounds_s"):
            result["median_s"] = statistics.median(result["rounds_s"])
    return results


def _prepare(runners: Sequence[Runner], workload: Workload) -> list[dict[str, Any]]:
    """Prepare a workload in every library, some at once, as nothing is timed yet. A server counts requests of one."""
    with ThreadPoolExecutor(1 if workload.section == "s3" else PREPARING) as pool:
        return list(pool.map(lambda runner: runner.ask("prepare", workload=workload.name), runners))


def _times_best(runner: Runner, results: Mapping[str, Any]) -> float:
    medians = {name: statistics.median(r["rounds_s"]) for name, r in results.items() if r.get("rounds_s")}
    peers = [median for name, median in medians.items() if name not in NO_PEERS]
    return medians[runner.library] / min(peers or medians.values())
