"""What whole reads and writes cost at least: files, codecs, copies and fresh pages, each alone, beside gzarr.

    python -m benchmarks.cpu.ceilings [--cache DIR] [--written DIR] [--rounds N] [--table docs/benchmarks.md]

Everything runs in one thread: system calls by `os`, the codecs by numcodecs into memory that is warm, copies by NumPy.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.cpu.catalogue import BY_NAME
from benchmarks.cpu.data import DATASETS, Cache, Scale
from benchmarks.cpu.libraries import LIBRARIES
from benchmarks.cpu.measure import machine
from benchmarks.cpu.race import ROOT
from benchmarks.cpu.report import digits, grid, insert
from benchmarks.cpu.workloads import Bench, remove

READS = ("read all, lz4 i4", "read all, zstd f4", "read all, lz4 i4, 6,400 chunks", "read all, uncompressed f4")
WRITES = ("write all, lz4 i4", "write all, zstd f4", "write all, lz4 i4, 6,400 chunks", "write all, uncompressed f4")
ROWS = (*READS, "read all, sharded zstd i4", *WRITES, "write all, sharded zstd i4")
START = "<!-- ceilings: generated -->"
PAGE = 4096
INDEX_ENTRY = 16


def seconds(call: Callable[[], Any], rounds: int, before: Callable[[], Any] = lambda: None) -> float:
    """Median time of a call."""
    times = []
    for _ in range(rounds):
        before()
        started = perf_counter()
        call()
        times.append(perf_counter() - started)
    return statistics.median(times)


def read_files(paths: Sequence[Path], buffer: memoryview) -> None:
    """Open, read and close files."""
    for path in paths:
        file = os.open(path, os.O_RDONLY)
        os.readv(file, [buffer])
        os.close(file)


def write_files(contents: Sequence[bytes], folder: Path) -> None:
    """Write files under temporary names and rename them over those that are there."""
    temporary = str(folder / "temporary")
    for number, content in enumerate(contents):
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT, 0o666)
        os.write(file, content)
        os.close(file)
        os.replace(temporary, str(folder / str(number)))  # noqa: PTH105 - as little beside the call as can be


def clear_pages(nbytes: int) -> None:
    """Touch fresh memory."""
    np.empty(nbytes, np.uint8)[::PAGE] = 1


def copy_chunks(chunk: Any, result: Any) -> None:
    """Copy a warm chunk to every place of a result."""
    n = len(chunk)
    for start in range(0, len(result) - n + 1, n):
        result[start : start + n] = chunk


def inner_chunks(shard: bytes, n: int) -> list[bytes]:
    """The encoded chunks of a shard, of which it has ``n``; the index at the end has a checksum."""
    index = np.frombuffer(shard[-n * INDEX_ENTRY - 4 : -4], "<u8").reshape(-1, 2).tolist()
    return [shard[offset : offset + size] for offset, size in index]


def bare(name: str, bench: Bench, rounds: int) -> dict[str, float]:
    """Seconds of the parts of a row, each alone."""
    from numcodecs import blosc

    dataset = BY_NAME[name].datasets[0]
    layout, path = DATASETS[dataset].layout(bench.scale), bench.path(dataset)
    files = sorted(each for each in (path / "c").rglob("*") if each.is_file())
    stored = [each.read_bytes() for each in files]
    values = np.ascontiguousarray(bench.values(dataset))
    per_shard = 1 if layout.shards is None else int(np.prod(np.floor_divide(layout.shards, layout.chunks)))
    encoded = stored if per_shard == 1 else [each for shard in stored for each in inner_chunks(shard, per_shard)]
    chunk = np.empty(int(np.prod(layout.chunks)) * values.itemsize, np.uint8)
    blosc.set_nthreads(1)
    costs: dict[str, float] = {}
    if name.startswith("read"):
        largest = memoryview(bytearray(max(map(len, stored)) + 1))
        costs["files"] = seconds(lambda: read_files(files, largest), rounds)
        if layout.codec:
            costs["codec"] = seconds(lambda: [blosc.decompress(each, chunk) for each in encoded], rounds)
        costs["pages"] = seconds(lambda: clear_pages(values.nbytes), rounds)
    else:
        folder = bench.scratch / "files"
        folder.mkdir(parents=True, exist_ok=True)
        costs["files"] = seconds(lambda: write_files(stored, folder), rounds)
        if layout.codec:
            pieces = _pieces(values, layout.chunks)
            compress = lambda: [blosc.compress(each, layout.codec.encode(), 5, 1) for each in pieces]  # noqa: E731
            costs["codec"] = seconds(compress, 1 if "zstd" in name else rounds)
    warm = np.ones(values.nbytes, np.uint8)
    costs["copies"] = seconds(lambda: copy_chunks(chunk, warm), rounds)
    return costs


def _pieces(values: Any, chunks: Sequence[int]) -> list[Any]:
    rows, columns = chunks
    return [
        np.ascontiguousarray(values[i : i + rows, j : j + columns])
        for i in range(0, values.shape[0], rows)
        for j in range(0, values.shape[1], columns)
    ]


def row(name: str, own_s: float, costs: Mapping[str, float]) -> list[str]:
    """A line of the table."""
    total = sum(costs.values())
    parts = [digits(costs[part] * 1e3) if part in costs else "" for part in ("files", "codec", "copies", "pages")]
    return [name, *parts, digits(total * 1e3), digits(own_s * 1e3), f"{own_s / total:.2f}"]


def table(rows: list[list[str]], about: Mapping[str, Any]) -> str:
    """The table of all rows."""
    heads = ["workload", "files", "codec", "copies", "fresh pages", "sum", "gzarr, 1 thread", "gzarr / sum"]
    where = f"Milliseconds; Python {sys.version.split()[0]}, {about['cpu']}, {about['date']}."
    return f"{where}\n\n{grid(heads, rows)}"


def main() -> None:
    """Measure, print, and write the table that the options name."""
    import gzarr

    parser = argparse.ArgumentParser(prog="python -m benchmarks.cpu.ceilings", description=__doc__)
    parser.add_argument("--cache", type=Path, default=ROOT / ".bench-cache", help="folder of the data of make bench")
    parser.add_argument("--written", type=Path, help="folder to write to (default: that of the data)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--table", type=Path, help="replace the table of a Markdown file")
    options = parser.parse_args()
    cache = Cache(options.cache.resolve(), Scale(), options.written and options.written.resolve())
    bench = Bench(LIBRARIES["gzarr"][1](), cache, cache.scratch / "ceilings")
    rows = []
    try:
        for name in ROWS:
            task = BY_NAME[name].prepare(bench)
            with gzarr.config.set({"threading.max_workers": 1}):
                own_s = seconds(task.run, options.rounds)
            del task
            rows.append(row(name, own_s, bare(name, bench, options.rounds)))
            print(" | ".join(rows[-1]), flush=True)
    finally:
        remove(bench.scratch)
    if options.table:
        insert(options.table, table(rows, machine()), START)


if __name__ == "__main__":
    main()
