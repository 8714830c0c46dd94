"""How long one small thing takes: one chunk, one element, opening an array; beside the peers that are installed.

    python -m benchmarks.latency [--out benchmarks/results/latency.json] [--table docs/benchmarks.md]

Every answer is compared with the source before it is timed. Times are medians of several rounds in which the libraries
take turns, so that a busy moment of the machine hits all of them. Peers: zarr-python with both of its pipelines, and
TensorStore; one that cannot be imported is named as missing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import gzarr
from gzarr.codecs import BloscCodec

ROUNDS = 7
MIN_ROUND_S = 0.05
SHAPE, CHUNKS = (1000, 1000), (100, 100)

Task = Callable[[], Any]


def main() -> None:
    """Measure, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    parser.add_argument("--table", type=Path, help="replace the generated table of a Markdown file")
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="gzarr-latency-"))
    try:
        result = {"machine": machine(), "unit": "microseconds", "rounds": ROUNDS, "times": measure(root)}
    finally:
        shutil.rmtree(root)
    text = table(result)
    print(text)
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")
    if arguments.table:
        insert(arguments.table, text)


def measure(root: Path) -> dict[str, dict[str, float]]:
    """Workload -> library -> median time in microseconds."""
    data = np.random.default_rng(0).integers(0, 100, SHAPE).astype("f4")
    gzarr.create_array(root / "plain", data=data, chunks=CHUNKS, compressors=BloscCodec("lz4", 5, "shuffle"))
    gzarr.create_array(root / "sharded", data=data, chunks=(10, 10), shards=CHUNKS)
    tasks: dict[str, dict[str, tuple[Task, Any]]] = {}
    for library, make in (("gzarr", gzarr_tasks), ("zarr", zarr_tasks), ("tensorstore", tensorstore_tasks)):
        try:
            made = make(root, data)
        except ImportError as error:
            print(f"{library} is not measured: {error}", file=sys.stderr)
            continue
        for (workload, name), pair in made.items():
            tasks.setdefault(workload, {})[name] = pair
    return {workload: race(workload, rivals) for workload, rivals in tasks.items()}


def race(workload: str, rivals: dict[str, tuple[Task, Any]]) -> dict[str, float]:
    """Check every library's answer, then let them take turns."""
    for name, (task, expected) in rivals.items():
        answer = task()
        if expected is not None and not np.array_equal(np.asarray(answer), expected):
            raise AssertionError(f"{workload}: {name} gives a wrong answer")
    times: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(ROUNDS):
        for name, (task, _) in rivals.items():
            times[name].append(timed(task))
    return {name: round(statistics.median(t), 2) for name, t in times.items()}


def timed(task: Task) -> float:
    """Mean time of one call in microseconds, over at least `MIN_ROUND_S`."""
    calls = 0
    start = time.perf_counter()
    while (passed := time.perf_counter() - start) < MIN_ROUND_S:
        task()
        calls += 1
    return passed / calls * 1e6


def workloads(plain: Any, sharded: Any, memory: Any, data: Any, read: Callable[[Any], Any]) -> dict[str, Any]:
    """The workloads that an opened array stands for, as (task, expected answer)."""
    found = {
        "one chunk, local": (lambda: read(plain[100:200, 100:200]), data[100:200, 100:200]),
        "one element, local": (lambda: read(plain[5, 5]), data[5, 5]),
        "one inner chunk of a shard, local": (lambda: read(sharded[10:20, 10:20]), data[10:20, 10:20]),
        "200 points in 86 chunks, local": (lambda: read(plain.vindex[POINTS]), data[POINTS]),
    }
    if memory is not None:
        found["one chunk, memory"] = (lambda: read(memory[100:200, 100:200]), data[100:200, 100:200])
        found["one element, memory"] = (lambda: read(memory[5, 5]), data[5, 5])
    return found


_rng = np.random.default_rng(1)
POINTS = (_rng.integers(0, SHAPE[0], 200), _rng.integers(0, SHAPE[1], 200))


def gzarr_tasks(root: Path, data: Any) -> dict[tuple[str, str], tuple[Task, Any]]:
    """gzarr on the CPU."""
    plain, sharded = (gzarr.open_array(root / name, mode="r", device="cpu") for name in ("plain", "sharded"))
    memory = gzarr.array(data, chunks=CHUNKS, compressors=BloscCodec("lz4", 5, "shuffle"), device="cpu")
    made = workloads(plain, sharded, memory, data, lambda a: a)
    made["open an array, local"] = (lambda: gzarr.open_array(root / "plain", mode="r", device="cpu"), None)
    return {(workload, f"gzarr {gzarr.__version__}"): pair for workload, pair in made.items()}


def zarr_tasks(root: Path, data: Any) -> dict[tuple[str, str], tuple[Task, Any]]:
    """zarr-python with its default pipeline, and with the fused one where it has that."""
    import zarr

    made: dict[tuple[str, str], tuple[Task, Any]] = {}
    fused = "zarr.core.codec_pipeline.FusedCodecPipeline"
    default = zarr.config.get("codec_pipeline.path")
    has_fused = hasattr(sys.modules.get("zarr.core.codec_pipeline"), "FusedCodecPipeline")
    for label, path in (("", default), *([(" fused", fused)] if has_fused else [])):
        with zarr.config.set({"codec_pipeline.path": path}):
            plain, sharded = (zarr.open_array(str(root / name), mode="r") for name in ("plain", "sharded"))
            memory = zarr.create_array(
                zarr.storage.MemoryStore(),
                data=data,
                chunks=CHUNKS,
                compressors=zarr.codecs.BloscCodec(cname="lz4", clevel=5, shuffle="shuffle"),
            )
        found = workloads(plain, sharded, memory, data, lambda a: a)
        if not label:
            found["open an array, local"] = (lambda: zarr.open_array(str(root / "plain"), mode="r"), None)
        made |= {(workload, f"zarr {zarr.__version__}{label}"): pair for workload, pair in found.items()}
    return made


def tensorstore_tasks(root: Path, data: Any) -> dict[tuple[str, str], tuple[Task, Any]]:
    """TensorStore."""
    from importlib.metadata import version

    import tensorstore as ts

    def opened(name: str) -> Any:
        kvstore = {"driver": "file", "path": str(root / name)}
        return ts.open({"driver": "zarr3", "kvstore": kvstore}, read=True).result()

    made = workloads(opened("plain"), opened("sharded"), None, data, lambda a: a.read().result())
    made["open an array, local"] = (lambda: opened("plain"), None)
    return {(workload, f"tensorstore {version('tensorstore')}"): pair for workload, pair in made.items()}


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "cpu": names[0].partition(":")[2].strip() if names else platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "system": platform.system(),
    }


def table(result: dict[str, Any]) -> str:
    """The results as Markdown: microseconds, and how many times faster gzarr is than the best peer."""
    times = result["times"]
    names = list(dict.fromkeys(name for rivals in times.values() for name in rivals))
    rows = [["workload", *names, "best peer / gzarr"], ["---"] * (len(names) + 2)]
    for workload, rivals in times.items():
        own = rivals[names[0]]
        peers = [t for name, t in rivals.items() if name != names[0]]
        ratio = f"{min(peers) / own:.1f}" if peers else ""
        rows.append([workload, *(f"{rivals[n]:.0f}" if n in rivals else "" for n in names), ratio])
    about = result["machine"]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    where = f"{about['cpu']}, {about['cores']} cores, Python {about['python']}, NumPy {about['numpy']}"
    return "\n".join([*lines, "", f"Microseconds, medians of {result['rounds']} rounds, on {where}."])


def insert(path: Path, text: str) -> None:
    """Put the table between the markers of a Markdown file."""
    start, end = "<!-- latency: generated -->", "<!-- end -->"
    before, _, rest = path.read_text().partition(start)
    _, _, after = rest.partition(end)
    path.write_text(f"{before}{start}\n{text}\n{end}{after}")


if __name__ == "__main__":
    main()
