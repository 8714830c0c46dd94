"""Runs the contestants of a case, each in its process; they take turns, so that a busy moment affects all of them."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.cpu.race import ROOT, Runner
from benchmarks.loader.cases import CASES, Case, Task
from benchmarks.loader.data import Cache, datasets

SLOW = 0.5  # of the best rate: whoever is slower takes part in two rounds only


@dataclass(frozen=True)
class Limits:
    """How long everything may take. part_s: what is timed of an epoch, where nothing is kept between batches."""

    rounds: int = 5
    firsts: int = 7
    part_s: float = 1.0


def start(name: str, where: str, case: str, cache: Cache, *url: str) -> Runner:
    """Start the process of a contestant."""
    command = [sys.executable, "-m", "benchmarks.loader.worker", where, case]
    command += [str(cache.root), json.dumps(asdict(cache.scale)), *url]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    process = subprocess.Popen(command, **pipes, text=True, env={**os.environ, "PYTHONPATH": path}, cwd=ROOT)
    return Runner(name, process)


@contextmanager
def running(contestants: Mapping[str, str], case: str, cache: Cache, *url: str) -> Iterator[list[Runner]]:
    """Run a process for each contestant, and stop them at the end. url: of the array, if it is not in the cache."""
    runners = [start(name, where, case, cache, *url) for name, where in contestants.items()]
    try:
        yield runners
    finally:
        for runner in runners:
            runner.ask("finish")
            runner.stop()


def race(case: Case, contestants: Mapping[str, str], cache: Cache, limits: Limits) -> dict[str, Any]:
    """Check, then time one case. Returns: the bare work, and for each contestant what it took or why it is absent."""
    task = Task(case, datasets(cache.scale)[case.dataset], cache.scale)
    cache.make(task.data)
    results: dict[str, dict[str, Any]] = {}
    with running({"bare": "", **contestants}, case.name, cache) as (bare, *runners):
        for runner in runners:
            results[runner.library] = _prepared(runner, limits)
        racing = [r for r in runners if "checked" in results[r.library]]
        bare_rounds = _time(racing, bare, results, limits)
        firsts = _first(racing, bare, results, limits)
    about = {"n": task.n, "chunks": task.data.nchunks, "nbytes": task.data.nbytes, "batch_bytes": task.batch_nbytes}
    about |= {"memory": task.memory, "decode_cpu_s": statistics.median(r["decode_cpu_s"] for r in bare_rounds)}
    about |= {"bare_cpu_s": statistics.median(r["read_cpu_s"] + r["decode_cpu_s"] for r in bare_rounds)}
    about |= {"stored_bytes": bare_rounds[0]["stored_bytes"], "first_bare_s": statistics.median(firsts)}
    return {**about, "results": {name: summary(reply, about) for name, reply in results.items()}}


def _prepared(runner: Runner, limits: Limits) -> dict[str, Any]:
    """Open, run once for the peak of memory, and check the contents."""
    hello = runner.ask("hello")
    if "version" not in hello:
        return hello
    once = runner.ask("epoch", number=0, limit_s=limits.part_s)
    if "samples" not in once:
        return once
    check = runner.ask("check", number=1, limit_s=limits.part_s)
    kept = {"rate": once["samples"] / once["seconds"], "peak_bytes": once["peak_bytes"], "rounds": [], "firsts": []}
    return {**hello, **kept, **check}


def _time(
    racing: Sequence[Runner], bare: Runner, results: dict[str, dict[str, Any]], limits: Limits
) -> list[dict[str, Any]]:
    """Time the epochs. Returns: the rounds of the bare work."""
    best = max((results[r.library]["rate"] for r in racing), default=0.0)
    bare_rounds = []
    for number in range(limits.rounds):
        bare_rounds.append(bare.ask("bare"))
        turn = number % len(racing) if racing else 0
        for runner in (*racing[turn:], *racing[:turn]):
            mine = results[runner.library]
            if number < 2 or mine["rate"] > SLOW * best or runner.library == "gzarr":
                reply = runner.ask("epoch", number=2 + number, limit_s=limits.part_s)
                mine["rounds"].append(reply) if "samples" in reply else mine.update(reply)
    return bare_rounds


def _first(racing: Sequence[Runner], bare: Runner, results: dict[str, dict[str, Any]], limits: Limits) -> list[float]:
    """Time first batches. Returns: the times of bare reads of them."""
    best = max((results[r.library]["rate"] for r in racing), default=0.0)
    times = []
    for number in range(limits.firsts):
        times.append(bare.ask("first_bare", number=number)["first_s"])
        for runner in racing:
            mine = results[runner.library]
            if number < 2 or mine["rate"] > SLOW * best or runner.library == "gzarr":
                reply = runner.ask("first", number=number)
                mine["firsts"].append(reply["first_s"]) if "first_s" in reply else mine.update(reply)
    return times


def summary(reply: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
    """What a contestant took: rates, and CPU, bytes and decodes over what is there. An absence stays as it is."""
    if not reply.get("rounds"):
        return dict(reply)

    def median(of: Any) -> float:
        return statistics.median(of(each) * about["n"] / each["samples"] for each in reply["rounds"])

    rates = [each["samples"] / each["seconds"] for each in reply["rounds"]]
    result = {"version": reply["version"], "samples_per_s": statistics.median(rates), "rounds": rates}
    cpu_s = median(lambda each: each["cpu_s"])
    result |= {"cpu_over_bare": cpu_s / about["bare_cpu_s"], "cpu_over_decode": cpu_s / about["decode_cpu_s"]}
    result |= {"read_over_stored": median(lambda each: each["read_bytes"]) / about["stored_bytes"]}
    if "decodes" in reply["rounds"][0]:
        result["decodes"] = median(lambda each: each["decodes"]) / about["chunks"]
    result |= {"peak_bytes": reply["peak_bytes"], "checked": reply["checked"], "steps": reply["rounds"][0]["steps"]}
    if reply["firsts"]:
        result["first_s"] = statistics.median(reply["firsts"])
    faults = {key: reply[key] for key in ("wrong", "failed") if key in reply}
    return {**result, **faults}


def cases(names: Sequence[str]) -> list[Case]:
    """The cases by name; all if there are none."""
    return [CASES[name] for name in names or CASES]
