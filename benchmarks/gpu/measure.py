"""Clocks, the description of the machine, and the file of a result."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.gpu.streams import Gpu
from gzarr.gpu.detection.detect import KVIKIOS, versions
from gzarr.gpu.detection.driver import installed

ROOT = Path(__file__).parents[2]


def device_seconds(cupy: Any, task: Callable[[], Any], rounds: int = 5, times_each: int = 1) -> float:
    """Median time of a task on the current stream, by events, after one round that does not count.

    times_each: how often a round does the task. The host takes some 10 us for a launch, for which the device waits once
        in a round; of a kernel of less than a millisecond, this would be much.
    """
    task()
    times = []
    for _ in range(rounds):
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        for _ in range(times_each):
            task()
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(start, end) / 1e3 / times_each)
    return statistics.median(times)


def wall_seconds(task: Callable[[], Any], wait: Callable[[], Any], rounds: int, limit_s: float) -> tuple[float, int]:
    """(median time of a task and all that it started, rounds); fewer rounds if the limit is near."""
    times = wall_times(task, wait, rounds, limit_s)
    return statistics.median(times), len(times)


def wall_times(task: Callable[[], Any], wait: Callable[[], Any], rounds: int, limit_s: float) -> list[float]:
    """Times of a task and all that it started; fewer rounds if the limit is near."""
    times: list[float] = []
    begun = time.perf_counter()
    while len(times) < rounds and (not times or time.perf_counter() - begun < limit_s):
        start = time.perf_counter()
        task()
        wait()
        times.append(time.perf_counter() - start)
    return times


def summary(times: Sequence[float]) -> dict[str, Any]:
    """Median and spread of times, as the fields of a row."""
    return {
        "seconds": statistics.median(times),
        "seconds_min": min(times),
        "seconds_max": max(times),
        "rounds": len(times),
    }


def describe_machine(gpu: Gpu | None) -> dict[str, Any]:
    """Describe the machine and its software."""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    about: dict[str, Any] = {
        "cpu": names[0].partition(":")[2].strip() if names else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "commit": _commit(),
        "gpu": None,
    }
    peers = {name: version_of(name) for name in ("zarr", "zarrs", "tensorstore")}
    about["packages"] = {**versions(), **peers, **installed(*KVIKIOS, "nvidia-cufile", "nvidia-cufile-cu12")}
    if gpu is not None and hasattr(gpu.cupy, "__version__"):
        runtime = gpu.cupy.cuda.runtime
        properties = runtime.getDeviceProperties(0)
        about["gpu"] = properties["name"].decode()
        about["gpu_memory_nbytes"] = int(properties["totalGlobalMem"])
        about["multiprocessors"] = int(properties["multiProcessorCount"])
        about["compute_capability"] = f"{properties['major']}.{properties['minor']}"
        about["cuda_driver"], about["cuda_runtime"] = runtime.driverGetVersion(), runtime.runtimeGetVersion()
        about["cupy"] = gpu.cupy.__version__
        about["nvcomp"] = ".".join(map(str, gpu.nvcomp.version()))
        about["driver"] = _output(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    return about


def write_json(path: Path, value: Any) -> None:
    """Replace a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, suffix=".part") as file:
        json.dump(value, file, indent=1)
        file.write("\n")
    Path(file.name).replace(path)


def version_of(package: str) -> str | None:
    """Version of an installed package; None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    return _output(["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"])


def _output(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"{command[0]}: {error}", file=sys.stderr)
        return None
    return done.stdout.strip() or None
