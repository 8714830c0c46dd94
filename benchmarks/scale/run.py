"""Runs every long operation on every engine, compares results with those of one process, kills workers, and times two.

``python -m benchmarks.scale.run`` in an environment with `gzarr[scale,ome,hdf5]`, and Ray where that is to take part.
Prints one line for each operation and engine: whether the result is that of one process, byte for byte, without and
with workers that are killed at random. With ``--speed`` it times one worker and two, in turn, each on one processor,
beside the time of processors that each took: others who use the machine slow both down, but not the latter.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import statistics
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from multiprocessing import active_children, get_context
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import gzarr
import gzarr.images
from benchmarks.cpu.measure import machine
from gzarr.scale import engines
from gzarr.scale.engines import run_unit


def stored(path: Path) -> str:
    """A digest of everything below a path, names and bytes."""
    digest = hashlib.sha256()
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        with suppress(FileNotFoundError):  # a note that another part has removed since it was listed
            digest.update(str(file.relative_to(path)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def blur(block: Any) -> Any:
    """A filter that reaches one element."""
    made = block.astype("f4")
    for axis in range(made.ndim):
        made = (np.roll(made, 1, axis) + made + np.roll(made, -1, axis)) / 3
    return made


def prepare(folder: Path, nbytes: int) -> None:
    """Store what is operated on."""
    side = int((nbytes / 2) ** (1 / 3)) // 64 * 64
    data = np.random.default_rng(0).integers(0, 4000, (side,) * 3, "u2")
    gzarr.save(folder / "v2", data, zarr_format=2, chunks=(32, 64, 64))
    image = gzarr.images.create_image(folder / "image", data, axes="zyx", levels=0, chunks=(32, 32, 32))
    gzarr.save(folder / "mask", (blur(data) > 2600).astype("u1"), chunks=(64, 64, 64))
    gzarr.convert.to_hdf5(image.group, folder / "data.h5")


class Operations:
    """The operations, on the data of a folder. Each takes a folder and keywords, and returns what is compared."""

    def __init__(self, folder: Path, digest: Callable[[Path], str] = stored) -> None:
        self.digest, self.folder, self.small = digest, folder, {"max_nbytes": 16 << 20}
        self.source = gzarr.open_array(folder / "v2", "r")
        self.image = gzarr.images.open_image(folder / "image", "r")

    def rechunk(self, out: Path, **how: Any) -> str:
        gzarr.transfer(self.source, out, chunks=(16, 128, 128), budget_nbytes=32 << 20, **how)
        return self.digest(out)

    def v2_to_v3(self, out: Path, **how: Any) -> str:
        gzarr.transfer(self.source, out, zarr_format=3, shards=(64, 128, 128), budget_nbytes=32 << 20, **how)
        return self.digest(out)

    def convert(self, out: Path, **how: Any) -> str:
        gzarr.convert.from_hdf5(self.folder / "data.h5", out, group="/0", budget_nbytes=32 << 20, **how)
        return self.digest(out)

    def pyramid(self, out: Path, **how: Any) -> str:
        if not out.exists():
            shutil.copytree(self.folder / "image", out)
        gzarr.images.build_pyramid(str(out), 3, **self.small, **how)
        return self.digest(out)

    def pyramid_out(self, out: Path, **how: Any) -> str:
        gzarr.images.build_pyramid(self.image, 2, out=out, method="median", **self.small, **how)
        return self.digest(out)

    def map_blocks(self, out: Path, **how: Any) -> str:
        gzarr.images.map_blocks(lambda x: np.sqrt(x.astype("f4")), self.source, out, **self.small, **how)
        return self.digest(out)

    def map_overlap(self, out: Path, **how: Any) -> str:
        gzarr.images.map_overlap(blur, self.source, out, 1, **self.small, **how)
        return self.digest(out)

    def label(self, out: Path, **how: Any) -> str:
        gzarr.images.label(str(self.folder / "mask"), str(out), **self.small, **how)
        return self.digest(out)

    def merge_labels(self, out: Path, **how: Any) -> str:
        gzarr.images.merge_labels(str(self.folder / "mask"), str(out), threshold=0, **self.small, **how)
        return self.digest(out)

    def reduce_blocks(self, out: Path, **how: Any) -> str:
        kept = {"notes": out} if "part" in how else {}
        found: Any = gzarr.images.reduce_blocks(lambda x: x.max(0), self.source, np.maximum, axis=0, **kept, **how)
        return str(found.tobytes()[:999]) + str(found.sum())

    def stats(self, out: Path, **how: Any) -> str:
        kept = {"notes": out} if "part" in how else {}
        return repr(self.source.stats(bins=20, **kept, **how))

    def verify(self, out: Path, **how: Any) -> str:
        return str(gzarr.verify(str(self.folder / "image"), **how))

    def compare(self, out: Path, **how: Any) -> str:
        return str(gzarr.compare(str(self.folder / "v2"), str(self.folder / "image/0"), **how))


NAMES = [name for name in vars(Operations) if not name.startswith("_")]
#: Those whose speed is measured.
TIMED = ("rechunk", "v2_to_v3", "convert", "pyramid", "map_overlap")
#: Those that return what is compared, and store nothing.
RETURNED = ("reduce_blocks", "stats", "verify", "compare")
#: Parts that each job has.
PARTS = 3


@contextmanager
def engine(name: str, workers: int) -> Iterator[Any]:
    """An engine with so many workers of one thread."""
    if name == "processes":
        with ProcessPoolExecutor(workers, get_context("spawn"), _alone) as executor:
            yield executor
    elif name == "dask":
        import dask
        from distributed import Client, LocalCluster

        # by default, a worker that needs more than 15 s to come back is given up: see docs/scale.md
        dask.config.set({"distributed.deploy.lost-worker-timeout": "10 minutes"})
        how: dict[str, Any] = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": ":0"}
        with LocalCluster(processes=True, **how) as cluster, Client(cluster) as client:
            yield client
    else:
        import ray

        if not ray.is_initialized():  # takes half a minute, so all operations share it
            ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
        yield "ray"


def _alone() -> None:
    gzarr.config.set({"threading.max_workers": 1})


def pids_of(on: Any) -> list[int]:
    """The processes of the workers of an engine."""
    if on != "ray":
        return [one.pid for one in active_children() if one.pid is not None]  # asks nobody who may be dead
    import psutil

    with suppress(psutil.Error):
        below = psutil.Process().children(recursive=True)
        return [one.pid for one in below if one.name().startswith(f"ray::{begun.__name__}")]
    return []


@contextmanager
def killing(pids: Callable[[], list[int]], times: int = 2, longest_s: float = 0.4) -> Iterator[list[int]]:
    """Kill processes at random moments, so many at most."""
    killed: list[int] = []
    over = threading.Event()

    def kill() -> None:
        while len(killed) < times and not over.wait(random.uniform(longest_s / 20, longest_s)):
            if now := pids():
                with suppress(ProcessLookupError):
                    os.kill(pid := random.choice(now), signal.SIGKILL)
                    killed.append(pid)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def begun(token: Any, start: int, stop: int, *rest: Any) -> Any:
    """`run_unit` in a worker, which notes first that it began."""
    name = f"{zlib.crc32(token)} {start} {stop}\n".encode()
    file = os.open(os.environ["GZARR_UNITS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, name)
    os.close(file)
    return run_unit(token, start, stop, *rest)


@contextmanager
def counted() -> Iterator[Callable[[], int]]:
    """Count the units that began again, in whatever process. Yields: a function that tells how many there were."""
    # one file for all operations: processes of Ray outlive one, and keep the environment of their start
    file = Path(os.environ.setdefault("GZARR_UNITS", f"{tempfile.gettempdir()}/gzarr-units-{os.getpid()}"))
    engines.run_unit = begun

    def again() -> int:
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return len(lines) - len(set(lines))

    try:
        yield again
    finally:
        engines.run_unit = run_unit


def on_engine(work: Operations, name: str, kind: str, expected: str, folder: Path) -> dict[str, Any]:
    """One operation on one engine, without and with workers that are killed."""
    operation = getattr(work, name)
    with counted() as again, engine(kind, 2) as on:
        told: dict[str, Any] = {"equal": operation(folder / "whole", on=on) == expected}
        again()
        repeated = n_killed = runs = 0
        while not n_killed and runs < 20:  # short ones may end before anything is killed
            with killing(lambda: pids_of(on)) as killed:
                same = operation(folder / f"killed{runs}", on=on) == expected
            told["equal_with_killed"] = told.get("equal_with_killed", True) and same
            n_killed, runs, repeated = len(killed), runs + 1, repeated + again()
    return {**told, "killed": n_killed, "repeated_units": repeated}


def do_part(folder: Path, name: str, out: Path, part: tuple[int, int]) -> None:
    """Do a part of an operation, in a process that knows nothing of the others, and store what it returns."""
    _alone()
    with suppress(gzarr.PartsMissingError):
        made = getattr(Operations(folder), name)(out, part=part)
        out.with_suffix(f".result{part[0]}").write_text(made)


def in_parts(work: Operations, name: str, expected: str, folder: Path) -> dict[str, Any]:
    """One operation in parts at the same time; killed ones are started again."""
    told: dict[str, Any] = {}
    running: dict[int, Any] = {}

    def alive() -> list[int]:
        return [one.pid for one in [*running.values()] if one.is_alive()]

    for label, times in (("whole", 0), ("killed", 2)):
        out = folder / label
        out.parent.mkdir(parents=True, exist_ok=True)
        if name == "pyramid":
            shutil.copytree(work.folder / "image", out)
        with killing(alive, times, 4.0) as killed:
            left = set(range(PARTS))
            while left:
                for k in left:
                    running[k] = get_context("spawn").Process(target=do_part, args=(work.folder, name, out, (k, PARTS)))
                    running[k].start()
                for k in list(left):
                    running[k].join()
                    if running[k].exitcode == 0:
                        left.remove(k)
                    elif running[k].exitcode != -signal.SIGKILL:
                        raise RuntimeError(f"part {k} of {name} ended with {running[k].exitcode}")
        results = {file.read_text() for file in out.parent.glob(f"{label}.result*")}
        made = stored(out) if name not in RETURNED else results.pop() if len(results) == 1 else results
        told["equal" if not times else "equal_with_killed"] = made == expected
    return {**told, "killed": len(killed)}


def seconds_of(pids: list[int]) -> list[float]:
    """Seconds that processes have computed."""
    ticks = os.sysconf("SC_CLK_TCK")
    lines = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return [(int(line[11]) + int(line[12])) / ticks for line in lines]


def pin(pids: list[int]) -> None:
    """Give each process one processor: one worker has threads on every processor of the machine by default."""
    for processor, pid in enumerate(pids):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {processor})


def speed(work: Operations, name: str, folder: Path, rounds: int) -> dict[str, Any]:
    """Times of one process and of two, in turn."""
    operation = getattr(work, name)
    walls: dict[int, list[float]] = {1: [], 2: []}
    computed: dict[int, list[list[float]]] = {1: [], 2: []}
    with engine("processes", 1) as one, engine("processes", 2) as two:
        for number in range(rounds + 1):
            for workers, on in ((1, one), (2, two)):
                out = folder / f"{number}-{workers}"
                if name == "pyramid":
                    shutil.copytree(work.folder / "image", out)
                pids = list(vars(on)["_processes"])
                pin(pids)
                before = dict(zip(pids, seconds_of(pids), strict=True))
                began = perf_counter()
                operation(out, on=on)
                wall = perf_counter() - began
                if number:  # the first starts the processes
                    walls[workers].append(wall)
                    computed[workers].append([now - before[p] for p, now in zip(pids, seconds_of(pids), strict=True)])
                shutil.rmtree(out)
    wall = {workers: statistics.median(times) for workers, times in walls.items()}
    sums = {workers: statistics.median(map(sum, times)) for workers, times in computed.items()}
    longest = statistics.median(map(max, computed[2]))
    return {
        "seconds": [round(one, 2) for one in wall.values()],
        "speed": round(wall[1] / wall[2], 2),
        "cpu_seconds": [round(one, 2) for one in sums.values()],
        "cpu_of_the_busier_worker": round(longest, 2),
        "speed_by_cpu": round(sums[1] / longest, 2),
    }


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=256, help="size of the data")
    parser.add_argument("--operations", default="")
    parser.add_argument("--engines", default="processes,dask,ray,parts")
    parser.add_argument("--speed", type=int, default=0, metavar="ROUNDS", help="time one worker and two, so often each")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    given = parser.parse_args()
    names = given.operations.split(",") if given.operations else TIMED if given.speed else NAMES
    result: dict[str, Any] = {"machine": machine(), "mib": given.mib, "cells": []}
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        prepare(root, given.mib << 20)
        work = Operations(root, str if given.speed else stored)
        _alone()
        for name in names:
            expected = "" if given.speed else getattr(work, name)(root / "here" / name)
            for kind in ["speed"] if given.speed else given.engines.split(","):
                folder = root / "there" / name / kind
                if given.speed:
                    told = speed(work, name, folder, given.speed)
                elif kind == "ray" and find_spec("ray") is None:
                    told = {"skipped": "Ray is not installed"}
                elif kind == "parts":
                    told = in_parts(work, name, expected, folder)
                else:
                    told = on_engine(work, name, kind, expected, folder)
                result["cells"].append({"operation": name, "engine": kind, **told})
                if given.out is not None:
                    given.out.write_text(json.dumps(result, indent=1) + "\n")
                print(json.dumps(result["cells"][-1]), flush=True)
                shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
