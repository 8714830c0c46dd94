"""One run: the workloads, the peak memory and the two curves, with all libraries taking turns."""

from __future__ import annotations

import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.cpu.catalogue import ARRAY_SIZES, CHUNKS_TOUCHED, MEMORY, THROUGH, WORKLOADS
from benchmarks.cpu.data import Cache
from benchmarks.cpu.libraries import NO_PEERS, PLUGIN
from benchmarks.cpu.race import BUDGET_S, ROOT, Runner, make_data, race, running
from benchmarks.cpu.workloads import Workload

DELAY_S = 0.02  # to the first byte from a remote store
RATE = 50e6  # bytes per second of a connection to the object store
LONGEST_S = 10.0  # longest step on a curve that a peer takes
SPREAD = 3.0  # factor by which costs on a curve may differ on a noisy machine

Show = Callable[[str, Mapping[str, Any]], None]


def run(
    names: Sequence[str], pythons: Mapping[str, str], cache: Cache, rounds: int, only: Sequence[str], show: Show
) -> dict[str, Any]:
    """Measure everything, or the workloads and curves whose names contain one of ``only``.

    names: libraries. pythons: environment -> its Python. show: called with every row once it is measured.
    Returns: the input of `report`, as JSON values.
    """

    def chosen(workloads: Sequence[Workload]) -> list[Workload]:
        return [each for each in workloads if not only or any(part in each.name for part in only)]

    rows, touched, sizes = chosen(WORKLOADS), chosen(CHUNKS_TOUCHED), chosen(ARRAY_SIZES)
    touched = [each for each in touched if each.chunks <= cache.scale.missing]
    measure_memory = MEMORY if not only else [each for each in MEMORY if "memory" in only]
    result: dict[str, Any] = {"machine": machine(), "scale": asdict(cache.scale), "rounds": rounds}
    result["written"] = written_to(cache)
    cache.folder.mkdir(parents=True, exist_ok=True)
    with servers(cache) as urls, running(names, pythons, cache, urls) as runners:
        result["libraries"] = {r.library: r.about for r in runners}
        direct = [r for r in runners if r.library != PLUGIN]
        make_data(direct, [*rows, *touched, *sizes, *measure_memory], cache)
        result["workloads"] = {}
        budget_s = BUDGET_S if cache.scale.side >= 1000 else BUDGET_S / 10
        for each in rows:
            replies = race(runners if each.name in THROUGH else direct, each, rounds, budget_s)
            result["workloads"][each.name] = {"section": each.section, "results": replies}
            show(each.name, replies)
        result["chunks"] = curve(direct, touched, min(rounds, 3), budget_s, show)
        result["sizes"] = {each.name: race(direct, each, rounds, budget_s) for each in sizes}
        for name, replies in result["sizes"].items():
            show(name, replies)
    result["machine"]["load_at_end"] = load()
    result["runs"] = 1
    with servers(cache) as urls:
        result["memory"] = {
            each.name: memory([name for name in names if name != PLUGIN], pythons, cache, urls, each, show)
            for each in measure_memory
        }
    return result


def written_to(cache: Cache) -> str:
    """Where rows write to, in words."""
    return str(cache.written or "where the data are")


def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """A result with the rounds of a second run. Curves and peak memory stay those of the first."""
    rows = {}
    for name, each in second["workloads"].items():
        before = first["workloads"][name]["results"]
        rows[name] = {**each, "results": {n: _together(before[n], reply) for n, reply in each["results"].items()}}
    runs = first["runs"] + second["runs"]
    return {**first, "workloads": rows, "rounds": first["rounds"] + second["rounds"], "runs": runs}


def _together(before: Mapping[str, Any], reply: Mapping[str, Any]) -> dict[str, Any]:
    if "rounds_s" not in before or "rounds_s" not in reply:  # a fault of one run stays
        return dict(reply if "rounds_s" in before else before)
    rounds_s = [*before["rounds_s"], *reply["rounds_s"]]
    return {**reply, "rounds_s": rounds_s, "median_s": statistics.median(rounds_s)}


def curve(
    runners: Sequence[Runner], steps: Sequence[Workload], rounds: int, budget_s: float, show: Show
) -> dict[str, Any]:
    """Times for increasing numbers of chunks. A peer drops out if its next step would take too long, gzarr never."""
    curve: dict[str, Any] = {}
    for step in steps:
        slow = {name for each in curve.values() for name, reply in each.items() if _is_long(reply)} - {"gzarr"}
        racing = [r for r in runners if r.library not in slow]
        curve[step.name] = race(racing, step, rounds, budget_s)
        for runner in runners:
            curve[step.name].setdefault(runner.library, {"absent": f"would take more than {LONGEST_S:.0f} s"})
        show(step.name, curve[step.name])
    return curve


def _is_long(result: Mapping[str, Any]) -> bool:
    return 10 * float(result.get("median_s", 0)) > LONGEST_S


def memory(
    names: Sequence[str], pythons: Mapping[str, str], cache: Cache, urls: Sequence[str], workload: Workload, show: Show
) -> dict[str, Any]:
    """Peak bytes beyond the output. Each library runs in a fresh process, which reuses nothing."""
    results = {}
    for name in names:
        with running([name], pythons, cache, urls) as (runner,):
            make_data([runner], [workload], cache)
            reply = runner.ask("memory", workload=workload.name)
            if "peak_bytes" in reply:
                reply["over_output_bytes"] = max(0, reply["peak_bytes"] - reply["output_bytes"])
            results[name] = reply
    show("memory, " + workload.name, results)
    return results


@contextmanager
def serving(module: str, *arguments: object) -> Iterator[str]:
    """Run a slow HTTP server, a module that prints its port first. Yields: its URL."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    where = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=where, cwd=ROOT) as process:
        try:
            if process.stdout is None:
                raise RuntimeError("the server has no output")
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


@contextmanager
def servers(cache: Cache) -> Iterator[list[str]]:
    """Serve the cache over HTTP and as an S3 bucket. Yields: the URLs of both."""
    with (
        serving("benchmarks.cpu.server", cache.folder, DELAY_S) as url,
        serving("benchmarks.s3.server", cache.folder, DELAY_S, RATE) as s3,
    ):
        yield [url, s3]


def machine() -> dict[str, Any]:
    """Describe the machine."""
    info = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*:\s*(.*)", info.read_text()) if info.exists() else []
    about = {"cpu": names[0] if names else platform.processor(), "cores": os.cpu_count()}
    return about | {"system": platform.system(), "load_at_start": load(), "date": time.strftime("%Y-%m-%d")}


def load() -> float:
    """The load of the last minute. Above 1 before the start, other programs compete for the cores."""
    return round(os.getloadavg()[0], 1)


# -- what follows from a result ----------------------------------------------------------------------------------


def ratio(replies: Mapping[str, Any], own: str = "gzarr") -> float | None:
    """Time of the best peer over gzarr's; None if either is absent."""
    peers = [r["median_s"] for name, r in replies.items() if "median_s" in r and name not in NO_PEERS]
    mine = replies.get(own, {}).get("median_s")
    return min(peers) / mine if peers and mine else None


def mean_ratio(result: Mapping[str, Any]) -> float | None:
    """Geometric mean of the ratios of all workloads."""
    ratios = [r for each in result["workloads"].values() if (r := ratio(each["results"]))]
    return statistics.geometric_mean(ratios) if ratios else None


def faults(result: Mapping[str, Any]) -> list[str]:
    """Failures of gzarr, and wrong answers of any library, as sentences."""
    tables = [each["results"] for each in result["workloads"].values()]
    tables += [*result["chunks"].values(), *result["sizes"].values(), *result["memory"].values()]
    sentences = [f"gzarr: {r[k]}" for t in tables for k in ("wrong", "failed") for r in [t.get("gzarr", {})] if k in r]
    return sentences + [f"{n}: {r['wrong']}" for t in tables for n, r in t.items() if "wrong" in r and n != "gzarr"]


def not_linear(result: Mapping[str, Any]) -> list[str]:
    """Curves on which gzarr's cost of a chunk grows with the chunks touched or the size of the array, as sentences."""
    costs = {}
    for step in CHUNKS_TOUCHED:
        median = result["chunks"].get(step.name, {}).get("gzarr", {}).get("median_s")
        # Below a thousand chunks the cost of the call itself counts.
        if median and step.chunks >= 1000:
            costs[step.name] = median / step.chunks
    sizes = {name: r["gzarr"]["median_s"] for name, r in result["sizes"].items() if "median_s" in r.get("gzarr", {})}
    sentences = []
    for what, values in (("cost of a chunk", costs), ("cost of a chunk in arrays of other sizes", sizes)):
        first = next(iter(values.values()), 0.0)
        sentences += [f"the {what} grows: {n} {v / first:.1f} times" for n, v in values.items() if v > SPREAD * first]
    return sentences
