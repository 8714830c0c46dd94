"""Ranks of one host: how often they decode a chunk, their memory, and samples a second, each alone and with one pool.

    python -m benchmarks.loader.ranks [--small] [--cache FOLDER]

Case Cx (16 fields a chunk, shuffled exactly), with memory for half of the data: of each rank, or of all together. Ranks
are processes that begin an epoch at the same time. Memory is the proportional set size, which counts shared pages once,
beyond that of a process that has imported gzarr, at the end of the epoch.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import time
from pathlib import Path
from typing import Any

import gzarr
from benchmarks.cpu.race import ROOT
from benchmarks.loader.cases import CASES
from benchmarks.loader.data import SMALL, Cache, Scale, datasets

CASE, RANKS = CASES["Cx"], (1, 2, 4, 8)


def pss() -> int:
    """Proportional set size of this process, in bytes."""
    found = re.search(r"^Pss: +(\d+) kB", Path("/proc/self/smaps_rollup").read_text(), re.MULTILINE)
    return int(found[1]) << 10 if found else 0


def run(begin: Any, results: Any, path: str, keywords: dict[str, Any]) -> None:
    """An epoch of one rank."""
    loader = gzarr.Loader(gzarr.open_array(path), CASE.batch, shuffle="exact", memory="50 %", **keywords)
    before = pss()
    begin.wait()
    start, cpu = time.perf_counter(), time.process_time()
    for _ in loader:
        pass
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    stats = loader.stats()
    begin.wait()  # all have their memory
    results.put((stats.samples, stats.chunks, seconds, cpu, pss() - before))
    begin.wait()


def measure(path: str, n: int, share: str) -> dict[str, float]:
    """An epoch of ``n`` ranks."""
    context = multiprocessing.get_context("spawn")
    begin, results = context.Barrier(n), context.Queue()
    keywords = [{"rank": rank, "world_size": n, "share": share} for rank in range(n)]
    processes = [context.Process(target=run, args=(begin, results, path, each)) for each in keywords]
    for process in processes:
        process.start()
    rows = [results.get() for _ in processes]
    for process in processes:
        process.join()
    samples, chunks, seconds, cpu, memory = zip(*rows, strict=True)
    return {
        "decodes": sum(chunks) / gzarr.open_array(path).nchunks,
        "memory": sum(memory) / gzarr.open_array(path).nbytes,
        "samples_per_s": sum(samples) / max(seconds),
        "cpu_s": sum(cpu),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loader.ranks", description=__doc__)
    parser.add_argument("--small", action="store_true", help="tiny arrays: tests the harness, measures nothing")
    parser.add_argument("--cache", type=Path, default=ROOT / ".bench-cache", help="folder of the data")
    options = parser.parse_args()
    cache = Cache(options.cache.resolve(), SMALL if options.small else Scale())
    data = datasets(cache.scale)[CASE.dataset]
    cache.make(data)
    print(f"{os.cpu_count()} cores\n| ranks | pool | decodes a chunk | memory / data | samples/s | CPU s |")
    print("|---:|---|---:|---:|---:|---:|")
    for n in RANKS:
        for share in ("none", "node"):
            found = measure(str(cache.path(data.name)), n, share)
            cells = [f"{found['decodes']:.2f}", f"{found['memory']:.2f}", f"{found['samples_per_s']:,.0f}"]
            pool = "of the host" if share == "node" else "of each"
            print(f"| {n} | {pool} | {' | '.join(cells)} | {found['cpu_s']:.1f} |")


if __name__ == "__main__":
    main()
