"""Measures what reads and writes of the GPU backend cost the host, with a device that does nothing.

    python -m benchmarks.gpu.host [--against TREE] [--out FILE] [--sizes-kib 64 1024] [--codecs none] [--rounds 7]

Kernels, decoders, encoders and copies to and from the device return at once (`benchmarks.gpu.host_worker`), so that
what remains is the host's work: locating, opening and reading files, tables, calls. Stored arrays are in a folder of
/dev/shm. Costs are in microseconds a chunk, lower quartiles of several rounds, as other work on a machine only adds:

- *wall*: time of the whole read or write, with its threads.
- *cpu*: CPU time of all threads. *caller*: of the calling thread.
- *lock*: time during which some thread had the interpreter's lock and a core. A thread of C looks at the lock every
  100 us or so, in rounds of their own, and never takes it, so that the read is not disturbed.
- *floor*: CPU time of the system calls alone, from one thread of C: open, fstat, pread and close of the same files (for
  a shard, its index and then all chunks at once); create, write, close and rename. *besides* is *cpu* less *floor*.

With `--against`, another checkout of gzarr is measured in the same rounds, in turn. Absolute times vary with the load
of the machine, ratios hardly do.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime as dt
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numcodecs import Blosc

import gzarr
from benchmarks.gpu.cases import CODECS, KIB, LAYOUTS, make_source
from benchmarks.gpu.measure import ROOT, write_json

HERE = Path(__file__).parent
#: Rows and columns of the stored float32 arrays (256 MiB), and of a shard.
SIDE, SHARD = 8192, 2048
SIZES_KIB = (64, 256, 1024, 4096)
HOST_CODECS = ("none", "zstd", "blosc-lz4")
DIRECTIONS = ("read", "write")
COSTS = ("wall", "cpu", "caller", "lock", "floor", "besides")


class Case(NamedTuple):
    """A stored array that is read or written."""

    direction: str
    layout: str
    chunk_nbytes: int
    codec: str


def main() -> None:
    """Measure, print a table and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path, help="another checkout of gzarr, with its extension compiled")
    parser.add_argument("--out", type=Path, help="a JSON file")
    parser.add_argument("--sizes-kib", type=int, nargs="+", default=SIZES_KIB, help="bytes of a chunk, decoded")
    parser.add_argument("--codecs", nargs="+", default=HOST_CODECS, choices=sorted(CODECS))
    parser.add_argument("--layouts", nargs="+", default=LAYOUTS, choices=LAYOUTS)
    parser.add_argument("--directions", nargs="+", default=DIRECTIONS, choices=DIRECTIONS)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--side", type=int, default=SIDE, help="rows and columns of the arrays")
    arguments = parser.parse_args()
    trees = {"after": ROOT} | ({} if arguments.against is None else {"before": arguments.against.resolve()})
    sizes = [k * KIB for k in arguments.sizes_kib]
    cases = [
        Case(direction, layout, nbytes, codec)
        for direction in arguments.directions
        for nbytes in sizes
        for layout in arguments.layouts
        for codec in arguments.codecs
    ]
    result = measure(trees, cases, arguments.side, arguments.rounds)
    print(table(result))
    if arguments.out is not None:
        write_json(arguments.out, result)


def measure(trees: dict[str, Path], cases: list[Case], side: int, rounds: int) -> dict[str, Any]:
    """Measure cases with checkouts of gzarr, in turn. trees: name -> root."""
    result: dict[str, Any] = {
        "kind": "gpu-host",
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": {
            "cpu": platform.machine(),
            "cores": len(os.sched_getaffinity(0)),
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
        "array_nbytes": 4 * side * side,
        "rounds": rounds,
        "rows": [],
    }
    with folder() as root, ExitStack() as stack:
        library = compiled(root)
        workers = {name: stack.enter_context(Worker(tree, library)) for name, tree in trees.items()}
        source = make_source(side)
        for case in cases:
            path = root / "array"
            shutil.rmtree(path, ignore_errors=True)
            store(path, source, case)
            rows = measure_case(case, path, workers, Floor(library, path, case), rounds)
            result["rows"] += rows
            print(f"{case}: " + ", ".join(f"{row['tree']} {row['cpu']:.1f}" for row in rows), file=sys.stderr)
    return result


def store(path: Path, source: np.ndarray, case: Case) -> None:
    """Store an array as a case wants it."""
    side = int((case.chunk_nbytes // 4) ** 0.5)
    shards: dict[str, Any] = {"shards": (min(max(SHARD, side), len(source)),) * 2} if case.layout == "sharded" else {}
    gzarr.create_array(path, data=source, chunks=(side, side), device="cpu", **CODECS[case.codec], **shards)


def measure_case(case: Case, path: Path, workers: dict[str, Worker], floor: Floor, rounds: int) -> list[dict[str, Any]]:
    """The rows of one case, one for each tree."""
    seconds: dict[str, list[dict[str, float | None]]] = {name: [] for name in workers}
    floors: list[float] = []
    for worker in workers.values():
        worker.ask("open", str(path), case.direction == "write")
    floor.refresh()
    for _ in range(rounds):
        floors.append(floor.seconds())
        for name, worker in workers.items():
            seconds[name].append(worker.ask("measure"))
    rows, streams = [], streams_of(case)
    for name, times in seconds.items():
        found = {cost: _quartile([one[cost] for one in times]) for cost in ("wall", "cpu", "caller", "lock")}
        found["floor"] = _quartile(floors)
        found["besides"] = _quartile([one["cpu"] - low for one, low in zip(times, floors, strict=True)])
        n = floor.nchunks
        costs = {cost: None if value is None else round(value / n * 1e6, 3) for cost, value in found.items()}
        about = {"nchunks": n, "files": floor.nfiles, "encoded_nbytes": floor.nbytes // n, "streams": streams}
        rows.append({"tree": name, **case._asdict(), **about, **costs})
    return rows


def streams_of(case: Case) -> int:
    """Streams of a chunk that nvCOMP decodes."""
    if case.codec == "none":
        return 0
    if case.codec != "blosc-lz4":
        return 1
    side = int((case.chunk_nbytes // 4) ** 0.5)
    frame = bytes(Blosc("lz4", 5, Blosc.SHUFFLE).encode(make_source(max(side, 256))[:side, :side].copy()))
    # The bytes of a block are in the frame's header. A block of float32 is split into four streams.
    return 4 * -(-case.chunk_nbytes // int.from_bytes(frame[8:12], "little"))


def _quartile(values: list[Any]) -> float | None:
    """The lower quartile of those that are known."""
    known = [value for value in values if value is not None]
    return float(np.quantile(known, 0.25)) if known else None


class Worker:
    """A process that reads and writes with the gzarr of one tree."""

    def __init__(self, tree: Path, library: Path) -> None:
        # -P: the folder of the program is no source of modules.
        command = [sys.executable, "-P", str(HERE / "host_worker.py"), str(library)]
        environment = {**os.environ, "PYTHONPATH": str(tree)}
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def ask(self, *command: Any) -> dict[str, Any]:
        """Send a command. Raises: RuntimeError if the process has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process that measures ended with status {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


class Floor:
    """The system calls that a case cannot do without.

    Attributes
    ----------
    nchunks, nfiles, nbytes : int
        Chunks, the files that hold them, and the bytes of these.
    """

    def __init__(self, library: Path, path: Path, case: Case) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.read_files.restype = self._library.write_files.restype = ctypes.c_int64
        self._case, self._path = case, path
        side = int((case.chunk_nbytes // 4) ** 0.5)
        whole = json.loads((path / "zarr.json").read_text())["shape"][0]
        self.nchunks = (whole // side) ** 2
        self.refresh()

    def refresh(self) -> None:
        """Look at the files, whose sizes change when the array is written."""
        files = sorted(p for p in self._path.rglob("*") if p.is_file() and p.name != "zarr.json")
        self.nfiles, self.nbytes = len(files), sum(p.stat().st_size for p in files)
        in_file = self.nchunks // self.nfiles
        self._index = 16 * in_file + 4 if self._case.layout == "sharded" else 0
        self._paths = (ctypes.c_char_p * len(files))(*(os.fsencode(p) for p in files))
        self._sizes = np.array([p.stat().st_size for p in files], np.int64)
        self._memory = np.ones(int(self._sizes.sum()), np.uint8)

    def seconds(self) -> float:
        """CPU time of the calls. Raises: OSError if one of them fails."""
        n, memory = ctypes.c_int64(self.nfiles), ctypes.c_void_p(self._memory.ctypes.data)
        start = time.process_time()
        if self._case.direction == "read":
            room, index = ctypes.c_int64(self._memory.size), ctypes.c_int64(self._index)
            done = self._library.read_files(self._paths, n, memory, room, index)
        else:
            done = self._library.write_files(self._paths, ctypes.c_void_p(self._sizes.ctypes.data), n, memory)
        if done < 0:
            raise OSError(f"{self._path}: the files could not be opened, read or written")
        return time.process_time() - start


def compiled(root: Path) -> Path:
    """Compile host.c. Returns: the library."""
    library = root / "host.so"
    command = [os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", str(HERE / "host.c"), "-o", str(library)]
    subprocess.run([*command, "-lpthread", "-ldl"], check=True)
    return library


@contextmanager
def folder() -> Iterator[Path]:
    """A temporary folder in memory if there is one, as the disk is not to be measured."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="gzarr-host-", dir=memory if memory.is_dir() else None) as name:
        yield Path(name)


def table(result: dict[str, Any]) -> str:
    """A line for each case: the costs of the first tree, and their ratios to the second's."""
    lines = [("direction", "layout", "chunk", "codec", *(f"{cost} us" for cost in COSTS), "ratios of wall, cpu, lock")]
    rows = result["rows"]
    before = {_key(row): row for row in rows if row["tree"] == "before"}
    for row in rows:
        if row["tree"] == "before":
            continue
        costs = ["-" if row[cost] is None else f"{row[cost]:.2f}" for cost in COSTS]
        other = before.get(_key(row))
        ratios = "" if other is None else " ".join(_ratio(row[cost], other[cost]) for cost in ("wall", "cpu", "lock"))
        lines.append(
            (row["direction"], row["layout"], f"{row['chunk_nbytes'] // KIB} KiB", row["codec"], *costs, ratios)
        )
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in Case._fields)


def _ratio(one: float | None, other: float | None) -> str:
    return f"{one / other:.2f}" if one is not None and other else "-"


if __name__ == "__main__":
    main()
