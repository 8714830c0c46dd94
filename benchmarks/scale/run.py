"""Runs every long operation on every engine, compares results with those of one process, kills workers, and times two.

``python -m benchmarks.scale.run`` in an environment with `gzarr[scale,ome,hdf5]`, and Ray where that is to take part.
Prints one line for each operation and engine: whether the result is that of one process, byte for byte, without and
with killed workers, and the time of one worker over that of two.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import gzarr
import gzarr.images


def stored(path: Path) -> str:
    """A digest of everything below a path, names and bytes."""
    digest = hashlib.sha256()
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        digest.update(str(file.relative_to(path)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def blur(block: Any) -> Any:
    """A filter that reaches one element."""
    made = block.astype("f4")
    for axis in range(made.ndim):
        made = (np.roll(made, 1, axis) + made + np.roll(made, -1, axis)) / 3
    return made


class Operations:
    """The operations, on data of a size. Each takes a folder and keywords, and returns what is compared."""

    def __init__(self, folder: Path, nbytes: int) -> None:
        side = int((nbytes / 2) ** (1 / 3)) // 64 * 64
        data = np.random.default_rng(0).integers(0, 4000, (side,) * 3, "u2")
        gzarr.save(folder / "v2", data, zarr_format=2, chunks=(32, 64, 64))
        image = gzarr.images.create_image(folder / "image", data, axes="zyx", levels=0, chunks=(32, 32, 32))
        gzarr.save(folder / "mask", (blur(data) > 2600).astype("u1"), chunks=(64, 64, 64))
        gzarr.convert.to_hdf5(image.group, folder / "data.h5")
        self.folder, self.small = folder, {"max_nbytes": 16 << 20}
        self.source = gzarr.open_array(folder / "v2", "r")
        self.image = gzarr.images.open_image(folder / "image", "r")

    def rechunk(self, out: Path, **how: Any) -> str:
        gzarr.transfer(self.source, out, chunks=(16, 128, 128), budget_nbytes=32 << 20, **how)
        return stored(out)

    def v2_to_v3(self, out: Path, **how: Any) -> str:
        gzarr.transfer(self.source, out, zarr_format=3, shards=(64, 128, 128), budget_nbytes=32 << 20, **how)
        return stored(out)

    def convert(self, out: Path, **how: Any) -> str:
        gzarr.convert.from_hdf5(self.folder / "data.h5", out, group="/0", budget_nbytes=32 << 20, **how)
        return stored(out)

    def pyramid(self, out: Path, **how: Any) -> str:
        if not out.exists():
            shutil.copytree(self.folder / "image", out)
        gzarr.images.build_pyramid(str(out), 3, **self.small, **how)
        return stored(out)

    def pyramid_out(self, out: Path, **how: Any) -> str:
        gzarr.images.build_pyramid(self.image, 2, out=out, method="median", **self.small, **how)
        return stored(out)

    def map_blocks(self, out: Path, **how: Any) -> str:
        gzarr.images.map_blocks(lambda x: np.sqrt(x.astype("f4")), self.source, out, **self.small, **how)
        return stored(out)

    def map_overlap(self, out: Path, **how: Any) -> str:
        gzarr.images.map_overlap(blur, self.source, out, 1, **self.small, **how)
        return stored(out)

    def label(self, out: Path, **how: Any) -> str:
        gzarr.images.label(str(self.folder / "mask"), str(out), **self.small, **how)
        return stored(out)

    def merge_labels(self, out: Path, **how: Any) -> str:
        gzarr.images.merge_labels(str(self.folder / "mask"), str(out), threshold=0, **self.small, **how)
        return stored(out)

    def reduce_blocks(self, out: Path, **how: Any) -> str:
        found: Any = gzarr.images.reduce_blocks(lambda x: x.max(0), self.source, np.maximum, axis=0, **how)
        return str(found.tobytes()[:999]) + str(found.sum())

    def stats(self, out: Path, **how: Any) -> str:
        return repr(self.source.stats(bins=20, **how))

    def verify(self, out: Path, **how: Any) -> str:
        return str(gzarr.verify(str(self.folder / "image"), **how))

    def compare(self, out: Path, **how: Any) -> str:
        return str(gzarr.compare(str(self.folder / "v2"), str(self.folder / "image/0"), **how))


NAMES = [name for name in vars(Operations) if not name.startswith("_")]
#: Those that several processes do part by part.
IN_PARTS = ("rechunk", "v2_to_v3", "convert", "pyramid", "pyramid_out", "map_blocks", "map_overlap")


@contextmanager
def engine(name: str, workers: int) -> Iterator[Any]:
    """An engine with so many workers of one thread."""
    if name == "processes":
        with ProcessPoolExecutor(workers, get_context("spawn"), _alone) as executor:
            yield executor
    elif name == "dask":
        from distributed import Client, LocalCluster

        how: dict[str, Any] = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": ":0"}
        with LocalCluster(processes=True, **how) as cluster, Client(cluster) as client:
            yield client
    else:
        import ray

        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
        yield "ray"
        ray.shutdown()


def _alone() -> None:
    gzarr.config.set({"threading.max_workers": 1})


@contextmanager
def killing(on: Any, times: int = 2) -> Iterator[list[int]]:
    """Kill workers at random moments, so many at most."""
    killed: list[int] = []
    over = threading.Event()

    def kill() -> None:
        while len(killed) < times and not over.wait(random.uniform(0.2, 1.0)):
            with suppress(Exception):
                pool = getattr(on, "_processes", None)
                pids = list(on.run(os.getpid).values()) if pool is None else list(pool)
                os.kill(pid := random.choice(pids), signal.SIGKILL)
                killed.append(pid)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def timed(operation: Callable[..., str], out: Path, **how: Any) -> tuple[str, float]:
    """A result, and the seconds that it took."""
    began = perf_counter()
    return operation(out, **how), perf_counter() - began


def measure(work: Operations, name: str, kind: str, expected: str, folder: Path) -> dict[str, Any]:
    """One operation on one engine."""
    told: dict[str, Any] = {"operation": name, "engine": kind}
    operation, seconds = getattr(work, name), {}
    for workers in (1, 2):
        with engine(kind, workers) as on:
            operation(folder / f"warm{workers}", on=on)
            made, seconds[workers] = timed(operation, folder / f"{workers}", on=on)
            told["equal"] = told.get("equal", True) and made == expected
            if workers == 2 and kind != "ray":
                with killing(on) as killed:
                    told["equal_with_killed"] = operation(folder / "killed", on=on) == expected
                told["killed"] = len(killed)
    return {**told, "seconds": [round(s, 2) for s in seconds.values()], "speed": round(seconds[1] / seconds[2], 2)}


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=256, help="size of the data")
    parser.add_argument("--operations", default=",".join(NAMES))
    parser.add_argument("--engines", default="processes,dask,ray,parts")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = Operations(Path(temporary), given.mib << 20)
        for name in given.operations.split(","):
            _alone()
            expected = getattr(work, name)(Path(temporary, "here", name))
            for kind in given.engines.split(","):
                folder = Path(temporary, "there", name, kind)
                if kind == "ray" and find_spec("ray") is None:
                    print(json.dumps({"engine": "ray", "skipped": "Ray is not installed"}))
                elif kind != "parts":
                    print(json.dumps(measure(work, name, kind, expected, folder)), flush=True)
                elif name in IN_PARTS:
                    made = [getattr(work, name)(folder, part=(k, 3)) for k in (2, 0, 1)]
                    print(json.dumps({"operation": name, "engine": "parts", "equal": made[-1] == expected}), flush=True)
                shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
