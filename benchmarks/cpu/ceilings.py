"""What every row of the benchmark costs at least: the network, files, codecs, copies and fresh pages, each alone.

    python -m benchmarks.cpu.ceilings [--only TEXT] [--cache DIR] [--written DIR] [--table docs/benchmarks.md]

gzarr's reference path runs once over stores that count (`benchmarks.cpu.counted`). What it asked for is then done again
by bare means, all in one thread: system calls by `os`, codecs by numcodecs (gzip and zlib by libdeflate) and documents
by `json`, copies by NumPy. A server's share is computed: as many requests as the store has under way at once take one
delay, and the bytes of one of them at the rate of a connection.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby, product
from math import ceil, prod
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from benchmarks.cpu.catalogue import WORKLOADS
from benchmarks.cpu.counted import Call, Counted, Counts, Watched, count
from benchmarks.cpu.data import CONSOLIDATED, DATASETS, GROUP, Cache, Layout, Scale
from benchmarks.cpu.libraries import LIBRARIES
from benchmarks.cpu.measure import DELAY_S, RATE, machine, servers
from benchmarks.cpu.race import ROOT, make_data, running
from benchmarks.cpu.report import digits, grid, insert
from benchmarks.cpu.rows_many import LISTED, PATHS, TILES
from benchmarks.cpu.workloads import Bench, Task, Workload, remove
from gzarr.storage import Request
from gzarr.storage.rules import DOCUMENTS

START = "<!-- ceilings: generated -->"
PARTS = ("network", "files", "codec", "copies", "pages")
PAGE = 4096
BUDGET_S = 0.1  # of one measurement
SAMPLE = 64  # chunks that a codec is timed with, at most
SAMPLE_NBYTES = 64 << 20  # of these chunks, at most
#: Datasets whose chunks are those of another one, and those whose chunks are none.
ALIKE = {TILES: "lz4-i4-small", CONSOLIDATED: "lz4-i4-small"}
NO_CHUNKS = (GROUP, LISTED, PATHS)


def seconds(call: Callable[[], Any], rounds: int, before: Callable[[], Any] | None = None) -> float:
    """Least time of a call: so many times, and more while that is quick."""
    times: list[float] = []
    while len(times) < rounds or (sum(times) < BUDGET_S and len(times) < 1000):
        if before:
            before()
        started = perf_counter()
        call()
        times.append(perf_counter() - started)
    return min(times)


# -- files -------------------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """Something to be done with a file. ranges: what to read of it; content: what to write."""

    do: str
    path: str
    ranges: tuple[tuple[int, int], ...] = ()
    content: bytes = b""


def do_steps(steps: Iterable[Step], buffer: memoryview) -> None:
    """Read, look at, list and replace files; a file is written under a temporary name beside its place."""
    for do, path, ranges, content in steps:
        if do == "read":
            file = os.open(path, os.O_RDONLY)
            for start, nbytes in ranges:
                os.preadv(file, [buffer[:nbytes]], start)
            os.close(file)
        elif do == "write":
            file = os.open(path + "~", os.O_WRONLY | os.O_CREAT, 0o666)
            os.write(file, content)
            os.close(file)
            os.replace(path + "~", path)  # noqa: PTH105 - as little beside the call as can be
        elif do == "list":
            os.listdir(path)  # noqa: PTH208
        else:
            os.access(path, os.F_OK)


def steps_of(calls: Iterable[Call], folder: Path) -> Iterator[Step]:
    """What calls of stores do with files. folder: where files are written instead."""
    for (store, verb), group in groupby(calls, lambda call: (call.store, call.verb)):
        what = [each for call in group for each in call.what]
        if store.root is None:
            continue
        if verb.startswith("get"):
            yield from _reads(store, store.root, what)
        elif verb == "set":
            contents = {key: bytes(store.below[key]) for key in what}
            yield from (Step("write", str(folder / key), content=contents[key]) for key in what)
        elif verb.startswith("list"):
            yield from (Step("list", str(store.root / path)) for path in what)
        else:
            yield from (Step("look", str(store.root / key)) for key in what)


def _reads(store: Watched, root: Path, requests: Sequence[Request]) -> Iterator[Step]:
    if root.is_file():  # an archive, which stays open
        yield Step("read", str(root), tuple((0, store.below.getsize(each.key) or 0) for each in requests))
        return
    for key, group in groupby(requests, lambda request: request.key):
        path = root / key
        if path.is_file():
            yield Step("read", str(path), tuple(_range(each, path.stat().st_size) for each in group))
        else:
            yield Step("look", str(path))


def _range(request: Request, size: int) -> tuple[int, int]:
    start = request.start or 0
    start += size if start < 0 else 0
    return start, size - start if request.length is None else request.length


def files_s(counts: Counts, folder: Path, rounds: int, *, fresh: bool) -> float:
    """Seconds of the system calls. fresh: whether what is written is new each time."""
    steps = list(steps_of((call for step in counts.steps for call in step), folder))
    if not steps:
        return 0.0
    folders = {Path(step.path).parent for step in steps if step.do == "write"}
    largest = max((nbytes for step in steps for _, nbytes in step.ranges), default=0)
    buffer = memoryview(bytearray(largest))

    def before() -> None:
        if fresh:
            remove(folder)
        for each in folders:
            each.mkdir(parents=True, exist_ok=True)

    remove(folder)
    before()
    do_steps(steps, buffer)
    return seconds(lambda: do_steps(steps, buffer), rounds, before if fresh else None)


# -- codecs ------------------------------------------------------------------------------------------------------


def codecs(layout: Layout) -> list[Any]:
    """The codecs of a layout from numcodecs, in encoding order."""
    import numcodecs

    if layout.v2:
        return [numcodecs.get_codec(config) for config in layout.v2]
    if layout.dtype == "string":
        return [numcodecs.VLenUTF8(), numcodecs.Zstd(3)]
    return [numcodecs.Blosc(layout.codec, 5, numcodecs.Blosc.SHUFFLE)] if layout.codec else []


def encoded(chunk: Any, chain: Sequence[Any]) -> Any:
    """A chunk after all codecs."""
    import deflate

    for codec in chain:
        if codec.codec_id in ("zlib", "gzip"):
            compress = deflate.zlib_compress if codec.codec_id == "zlib" else deflate.gzip_compress
            chunk = compress(np.ascontiguousarray(chunk).view("u1"), codec.level)
        else:
            chunk = codec.encode(chunk)
    return chunk


def decode(data: Any, chain: Sequence[Any], warm: Any) -> None:
    """Take all codecs back. warm: memory of the size of a chunk."""
    import deflate

    for codec in reversed(chain):
        if codec.codec_id == "zlib":
            data = deflate.zlib_decompress(data, warm.nbytes)
        elif codec.codec_id == "gzip":
            data = deflate.gzip_decompress(data)
        elif codec.codec_id == "blosc":
            data = codec.decode(data, warm if codec is chain[0] else None)
        else:
            data = codec.decode(data)


class ChunkTime(NamedTuple):
    """Seconds that a codec takes for a chunk, and the size of an encoded chunk."""

    encode_s: float = 0.0
    decode_s: float = 0.0
    encoded_nbytes: float = 1.0


def some_chunks(values: Any, shape: Sequence[int]) -> Iterator[Any]:
    """Some chunks of an array, evenly spread: how well values are compressed differs from place to place."""
    corners = list(product(*(range(0, n, length) for n, length in zip(values.shape, shape, strict=True))))
    n = min(len(corners), SAMPLE, max(SAMPLE_NBYTES // (prod(shape) * values.dtype.itemsize), 4))
    for corner in (corners[i * len(corners) // n] for i in range(n)):
        place = tuple(slice(start, start + length) for start, length in zip(corner, shape, strict=True))
        yield np.ascontiguousarray(values[place])


@cache
def chunk_time(dataset: str, bench: Bench, rounds: int) -> ChunkTime:
    """Time the codecs of a dataset with a sample of its chunks."""
    from numcodecs import blosc

    blosc.use_threads = False
    blosc.set_nthreads(1)
    layout = DATASETS[dataset].layout(bench.scale)
    chain = codecs(layout)
    if not chain:
        return ChunkTime()
    sample = list(some_chunks(bench.values(dataset), layout.chunks))
    sample = [each.astype(object) for each in sample] if layout.dtype == "string" else sample
    warm = np.empty(sample[0].nbytes, "u1")
    frames = [encoded(each, chain) for each in sample]
    n = len(sample)
    return ChunkTime(
        encode_s=seconds(lambda: [encoded(each, chain) for each in sample], rounds) / n,
        decode_s=seconds(lambda: [decode(each, chain, warm) for each in frames], rounds) / n,
        encoded_nbytes=sum(len(each) for each in frames) / n,
    )


def merged_nchunks(counts: Counts, per_object: int, *, fresh: bool) -> int:
    """How many old chunks a write has to decode. per_object: chunks of an object. fresh: whether there were none."""
    written: set[str] = set()
    n = 0
    for step in counts.steps:
        keys = {key for call in step if call.verb == "set" for key in call.what}
        read = {each.key for call in step if call.verb.startswith("get") for each in call.what}
        n += len(read & (written if fresh else keys) - _documents(keys))
        written |= keys
    return min(n * per_object, counts.encoded_nchunks)


def _documents(keys: Iterable[str]) -> set[str]:
    return {key for key in keys if _is_document(key)}


def _is_document(key: str) -> bool:
    return key.rpartition("/")[2] in DOCUMENTS


def codec_s(counts: Counts, its_chunk_time: ChunkTime, merged: int, rounds: int) -> float:
    """Seconds of decoding, encoding and parsing documents."""
    chunks_s = counts.decoded_nbytes / its_chunk_time.encoded_nbytes * its_chunk_time.decode_s
    chunks_s += counts.encoded_nchunks * its_chunk_time.encode_s + merged * its_chunk_time.decode_s
    asked = [
        (call.store, each.key)
        for step in counts.steps
        for call in step
        if call.verb.startswith("get") and call.store.root
        for each in call.what
        if _is_document(each.key)
    ]
    documents = [bytes(store.below[key]) for store, key in asked if key in store.below]
    return chunks_s + (seconds(lambda: [json.loads(each) for each in documents], rounds) if documents else 0.0)


# -- memory and network ------------------------------------------------------------------------------------------


def pages_s(sizes: Sequence[int], rounds: int) -> float:
    """Seconds of touching new memory for every result."""

    def touch() -> None:
        for nbytes in sizes:
            np.empty(nbytes, np.uint8)[::PAGE] = 1

    return seconds(touch, rounds) if sizes else 0.0


def copies_s(nbytes: int, chunk_nbytes: int, rounds: int) -> float:
    """Seconds of copying a warm chunk, or a part of it, to every place of a result."""
    size = max(min(nbytes, chunk_nbytes), 1)
    chunk, result = np.ones(size, np.uint8), np.ones(max(nbytes, 1), np.uint8)

    def copy() -> None:
        for start in range(0, nbytes, size):
            result[start : start + size] = chunk[: nbytes - start]

    return seconds(copy, rounds) if nbytes else 0.0


def network_s(counts: Counts, rate: float | None) -> float:
    """Seconds of waiting for a server.

    Documents, the indexes of shards and other objects are asked for one kind after the other.
    """
    kinds: list[tuple[bool, int]] = []  # whether documents, and rounds of requests, which follow each other
    n_others = 0
    for step in counts.steps:
        by_kind: dict[int, int] = {}
        for call in (call for call in step if call.store.concurrency > 1):
            for each in call.what:
                kind = 0 if _is_document(_key(each)) else 1 if _is_suffix(each) else 2
                by_kind[kind] = by_kind.get(kind, 0) + 1
                n_others += kind == 2
        at_once = max((call.store.concurrency for call in step), default=1)
        kinds += [(kind < 2, ceil(n / at_once)) for kind, n in by_kind.items()]
    per_object_s = counts.transferred_nbytes / max(n_others, 1) / rate if rate else 0.0
    return sum(n * (DELAY_S + (0.0 if is_small else per_object_s)) for is_small, n in kinds)


def _key(what: Any) -> str:
    return what.key if isinstance(what, Request) else str(what)


def _is_suffix(what: Any) -> bool:
    return isinstance(what, Request) and what.start is not None and what.start < 0


# -- rows --------------------------------------------------------------------------------------------------------


def bare(workload: Workload, bench: Bench, rounds: int) -> dict[str, float]:
    """Seconds of the parts of a row, each alone. bench: with a driver that counts."""
    driver: Any = bench.driver
    task = workload.prepare(bench)
    counts, fresh = count(driver, task), task.before is not None
    del task
    dataset = next((ALIKE.get(each, each) for each in workload.datasets if each not in NO_CHUNKS), None)
    layout = DATASETS[dataset].layout(bench.scale) if dataset else None
    its_chunk_time = ChunkTime() if dataset is None else chunk_time(dataset, bench, rounds)
    per_object, chunk_nbytes = 1, 1 << 20
    if layout is not None:
        per_object = prod(layout.shards) // prod(layout.chunks) if layout.shards else 1
        itemsize = 8 if layout.dtype == "string" else np.dtype(layout.dtype).itemsize
        chunk_nbytes = prod(layout.chunks) * itemsize
    merged = merged_nchunks(counts, per_object, fresh=fresh)
    folder = bench.scratch / "files"
    return {
        "network": network_s(counts, RATE if workload.section == "s3" else None),
        "files": files_s(counts, folder, rounds, fresh=fresh),
        "codec": codec_s(counts, its_chunk_time, merged, rounds),
        "copies": copies_s(counts.copied_nbytes, chunk_nbytes, rounds),
        "pages": pages_s(counts.results_nbytes, rounds),
    }


def own_s(task: Task, rounds: int, *, remote: bool) -> float:
    """Seconds of gzarr: in one thread, but for requests to servers."""
    import gzarr

    threads = {} if remote else {"threading.max_workers": 1}
    with gzarr.config.set(threads):
        if task.before:
            task.before()
        task.run()
        return seconds(task.run, rounds, task.before)


def row(name: str, own: float, costs: Mapping[str, float]) -> list[str]:
    """A line of the table."""
    total = sum(costs.values())
    parts = [digits(costs[part] * 1e3) if costs.get(part) else "" for part in PARTS]
    return [name, *parts, digits(total * 1e3), digits(own * 1e3), f"{own / total:.2f}"]


def table(rows: list[list[str]], about: Mapping[str, Any]) -> str:
    """The table of all rows."""
    heads = ["workload", *PARTS[:-1], "fresh pages", "sum", "gzarr, 1 thread", "gzarr / sum"]
    where = (
        f"Milliseconds, the least of several calls; Python {sys.version.split()[0]}, {about['cpu']}, {about['date']}."
    )
    return f"{where}\n\n{grid(heads, rows)}"


def main() -> None:
    """Measure, print, and write the table that the options name."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cpu.ceilings",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="rows whose name contains this")
    parser.add_argument("--cache", type=Path, default=ROOT / ".bench-cache", help="folder of the data of make bench")
    parser.add_argument("--written", type=Path, help="folder to write to (default: that of the data)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--table", type=Path, help="replace the table of a Markdown file")
    options = parser.parse_args()
    if not (chosen := [each for each in WORKLOADS if not options.only or any(o in each.name for o in options.only)]):
        parser.error(f"no row contains {' or '.join(options.only)}; python -m benchmarks.cpu --list shows all")
    data = Cache(options.cache.resolve(), Scale(), options.written and options.written.resolve())
    rows = []
    with running(["gzarr"], {"v3": sys.executable}, data) as runners:
        make_data(runners, chosen, data)
    with servers(data) as urls:
        own = Bench(LIBRARIES["gzarr"][1](), data, data.scratch / "ceilings", *urls)
        counted = Bench(Counted(), data, data.scratch / "counted", *urls)
        try:
            for each in chosen:
                gzarr_s = own_s(each.prepare(own), options.rounds, remote=each.section in ("remote", "s3"))
                rows.append(row(each.name, gzarr_s, bare(each, counted, options.rounds)))
                print(" | ".join(rows[-1]), flush=True)
        finally:
            remove(own.scratch)
            remove(counted.scratch)
    if options.table:
        insert(options.table, table(rows, machine()), START)


if __name__ == "__main__":
    main()
