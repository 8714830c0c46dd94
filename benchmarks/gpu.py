"""How fast arrays come into GPU memory: beside bare nvCOMP, raw reads and copies, and the peers that are installed.

    python -m benchmarks.gpu --out benchmarks/results [--small] [--device cuda|emulated] [--budget-s 240]

Two tables of one array in many layouts. *resident*: the encoded streams lie on the device; what gzarr's stages take,
beside nvCOMP's batched call alone on the same streams. *file*: a local store in the page cache becomes an array on the
device. Every answer is compared with the source before it is timed; times are medians. The result is written anew after
every row, most telling rows first, so that a run which is cut short still gives results. The emulated device is a test
of this program and says nothing about speed.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import gzarr
from benchmarks.gpu_peers import PEERS, Reader
from benchmarks.gpu_stages import staged
from benchmarks.on_gpu import describe_machine, device_seconds, open_gpu, wall_seconds, write_json
from gzarr.codecs import BloscCodec, GzipCodec, NumcodecsCodec, ZstdCodec
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.crossover import NEVER

CODECS: dict[str, dict[str, Any]] = {
    "blosc-lz4": {"compressor": BloscCodec("lz4", 5, "shuffle")},
    "zstd": {"compressor": ZstdCodec(1)},
    "blosc-zstd": {"compressor": BloscCodec("zstd", 1, "shuffle")},
    "none": {"compressor": None},
    "gzip": {"compressor": GzipCodec(1)},
    "lz4": {"compressor": NumcodecsCodec("lz4")},
}
KIB = 1 << 10
#: Seconds for the rounds of one row, after the first.
ROW_S = 1.5
ROUNDS = 5
#: Selections of which users may get another way than the device's.
SMALL = ("one chunk", "points")
#: Files that KvikIO has open at once: each takes two descriptors, of which a process often has 1024.
KVIKIO_FILES = 200


@dataclass(frozen=True, slots=True)
class Case:
    """One stored array."""

    codec: str
    chunk_nbytes: int
    layout: str


class Device:
    """The device measured, as the program needs it."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.gpu = open_gpu() if kind == "cuda" else None
        self.xp: Any = np
        if self.gpu is not None:
            self.device, self.xp = self.gpu.device, self.gpu.cupy
        else:
            from gzarr.gpu.emulated import EmulatedDevice

            self.device = EmulatedDevice()

    def wait(self) -> None:
        if self.gpu is not None:
            self.xp.cuda.Device().synchronize()

    def upload(self, array: Any) -> Any:
        return self.xp.asarray(array) if self.gpu is not None else np.array(array)

    def equal(self, one: Any, other: Any) -> bool:
        return one.shape == other.shape and one.dtype == other.dtype and bool((one == other).all())


def main() -> None:
    """Measure, and write what was found after every row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the JSON files")
    parser.add_argument("--device", choices=["cuda", "emulated"], help="default: cuda if there is one")
    parser.add_argument("--small", action="store_true", help="small arrays, few cases: a test of the program")
    parser.add_argument("--budget-s", type=float, default=240, help="no row begins after this; writing data counts")
    arguments = parser.parse_args()
    try:
        print(run(arguments.out, arguments.device or _best_device(), arguments.budget_s, small=arguments.small))
    except RuntimeError as error:
        sys.exit(str(error))


def _best_device() -> str:
    from gzarr.gpu.probe import find_missing

    missing = find_missing()
    if missing is None:
        return "cuda"
    print(f"on the emulated device, because there is no usable GPU: {missing}", file=sys.stderr)
    return "emulated"


def run(out: Path, kind: str, budget_s: float, *, small: bool) -> Path:
    """Measure everything that the time allows. Returns: the JSON file."""
    end = time.monotonic() + budget_s
    device = Device(kind)
    result: dict[str, Any] = {
        "kind": "gpu",
        "device": kind,
        "small": small,
        "complete": False,
        "machine": describe_machine(device.gpu),
        "peers": {name: why for name, (_, why) in _peers(device).items()},
        "ceilings": {},
        "rows": [],
        "failed": [],
        "left_out": [],
    }
    name = re.sub(r"[^a-z0-9]+", "-", (result["machine"]["gpu"] or kind).lower()).strip("-")
    path = out / f"gpu-{name}{'-small' if small else ''}.json"
    result["ceilings"] = ceilings(device, 1 << (20 if small else 30))
    write_json(path, result)
    root = Path(tempfile.mkdtemp(prefix="gzarr-gpu-"))
    try:
        source = make_source(256 if small else 16384)
        there = device.upload(source)
        for case in cases(small=small):
            if time.monotonic() > end:
                result["left_out"].append(asdict(case))
                continue
            measure_case(device, root / "array", case, source, there, result, end, lambda: write_json(path, result))
            shutil.rmtree(root / "array", ignore_errors=True)
        result["complete"] = not result["left_out"]
    finally:
        shutil.rmtree(root, ignore_errors=True)
        write_json(path, result)
    return path


def cases(*, small: bool) -> Iterator[Case]:
    """What to measure, the most telling first."""
    sizes = [4 * KIB, 16 * KIB] if small else [1024 * KIB, 256 * KIB, 64 * KIB, 16384 * KIB, 4096 * KIB]
    for nbytes in sizes:
        for codec in ("blosc-lz4", "zstd"):
            yield Case(codec, nbytes, "plain")
            if nbytes < sizes[-1] or not small:
                yield Case(codec, nbytes, "sharded")
    for nbytes in sizes[: 1 if small else 3]:
        for codec in ("none", "blosc-zstd", "gzip", "lz4"):
            yield Case(codec, nbytes, "plain")


def make_source(n: int) -> np.ndarray:
    """n x n float32: a walk with noise, rounded as measurements are, no two tiles alike."""
    tile = min(n, 2048)
    walk = np.cumsum(np.random.default_rng(0).normal(size=(tile, tile)), axis=1).astype("f4")
    walk = np.round(walk * 64) / 64
    times = n // tile
    out = np.empty((n, n), "f4")
    for i in range(times):
        for j in range(times):
            out[i * tile : (i + 1) * tile, j * tile : (j + 1) * tile] = walk + (i * times + j)
    return out


def measure_case(
    device: Device,
    path: Path,
    case: Case,
    source: np.ndarray,
    there: Any,
    result: dict[str, Any],
    end: float,
    save: Callable[[], None],
) -> None:
    """All rows of one stored array. What fails is noted, and the rest goes on."""
    side = int((case.chunk_nbytes // 4) ** 0.5)
    shards = {"shards": (min(max(2048, side), len(source)),) * 2} if case.layout == "sharded" else {}
    gzarr.create_array(path, data=source, chunks=(side, side), device="cpu", **CODECS[case.codec], **shards)
    files = [p for p in path.rglob("*") if p.is_file() and p.name != "zarr.json"]
    encoded = sum(p.stat().st_size for p in files)
    common = {**asdict(case), "encoded_nbytes": encoded}

    def add(table: str, selection: str, contender: str, measure: Callable[[], dict[str, Any]]) -> None:
        about = {"table": table, **common, "selection": selection, "contender": contender}
        if time.monotonic() > end:
            result["left_out"].append(about)
            return
        try:
            result["rows"].append({**about, **measure()})
        except Exception as error:  # noqa: BLE001 - a peer's failure is a result, too
            result["failed"].append({**about, "error": f"{type(error).__name__}: {error}"[:500]})
            print(f"{about}: {error}", file=sys.stderr)
        save()

    opened = gzarr.open_array(path, mode="r", device=GpuBackend(device.device, small_reads=NEVER))
    # As users get it: small reads are decoded on the host.
    default = gzarr.open_array(path, mode="r", device=GpuBackend(device.device))
    common["reader"] = ": ".join(opened.backend.reader)
    add("resident", "whole", "gzarr", lambda: staged(device, path, there))
    for contender, raw in raw_reads(device, files, encoded).items():
        add("file", "whole", contender, raw)
    for selection, key in selections(len(source), side).items():
        wanted = there[key] if selection != "points" else there[tuple(device.upload(k) for k in key)]
        readers: dict[str, Reader] = {"gzarr": _reads(opened)}
        if device.gpu is not None and selection in SMALL:
            readers["gzarr, small reads on the host"] = _reads(default)
        readers |= {name: make for name, (make, _) in _peers(device).items() if make is not None}
        for contender, reader in readers.items():
            add("file", selection, contender, lambda r=reader, k=key, w=wanted: timed_read(device, r, path, k, w))


def _reads(array: Any) -> Reader:
    return lambda _: lambda key: array.vindex[key] if isinstance(key[0], np.ndarray) else array[key]


def selections(n: int, side: int) -> dict[str, Any]:
    """What is read: everything, some rows, one chunk, a thousand points (fewer of small arrays)."""
    rng = np.random.default_rng(1)
    count = min(1000, n)
    points = tuple(rng.integers(0, n, count) for _ in range(2))
    return {
        "whole": np.s_[:, :],
        "rows": np.s_[n // 4 : n // 4 + n // 32, :],
        "one chunk": np.s_[side : 2 * side, :side],
        "points": points,
    }


def timed_read(device: Device, make: Reader, path: Path, key: Any, wanted: Any) -> dict[str, Any]:
    """Check, then time, one contender's read into device memory."""
    read = make(path)

    def whole() -> Any:
        found = read(key)
        return found if isinstance(found, device.xp.ndarray) and device.gpu is not None else device.upload(found)

    start = time.perf_counter()
    found = whole()
    device.wait()
    first = time.perf_counter() - start
    if not device.equal(found, wanted):
        raise AssertionError("the answer is wrong")
    del found
    # Of the slowest contenders the first read must do.
    seconds, rounds = (first, 1) if first > ROW_S else wall_seconds(whole, device.wait, ROUNDS, ROW_S)
    return {"seconds": seconds, "rounds": rounds, "GB_per_s": wanted.nbytes / seconds / 1e9}


def raw_reads(device: Device, files: list[Path], encoded: int) -> dict[str, Callable[[], dict[str, Any]]]:
    """What moving the same encoded bytes costs: from pinned memory, from files by threads, from files by KvikIO."""
    sizes = [p.stat().st_size for p in files]
    starts = np.cumsum([0, *sizes])[:-1].tolist()
    device_slab = device.device.empty(encoded)

    def result(task: Callable[[], Any]) -> dict[str, Any]:
        task()
        device.wait()
        seconds, rounds = wall_seconds(task, device.wait, ROUNDS, ROW_S)
        return {"seconds": seconds, "rounds": rounds, "GB_per_s_encoded": encoded / seconds / 1e9}

    def pinned() -> dict[str, Any]:
        staging = device.device.staging(encoded)
        staging[:] = 1
        return result(lambda: device.device.upload(staging))

    def threads() -> dict[str, Any]:
        staging = device.device.staging(encoded)

        def read_one(item: tuple[Path, int, int]) -> None:
            path, start, size = item
            with path.open("rb", buffering=0) as file:
                file.readinto(memoryview(staging)[start : start + size])

        def read() -> None:
            list(pool.map(read_one, zip(files, starts, sizes, strict=True)))
            device.device.upload(staging)

        with ThreadPoolExecutor(16) as pool:
            return result(read)

    def kvikio() -> dict[str, Any]:
        import kvikio
        import kvikio.defaults

        kvikio.defaults.set("num_threads", 16)

        def read_some(some: slice) -> None:
            opened = [kvikio.CuFile(str(path), "r") for path in files[some]]
            futures = [
                file.pread(device_slab[start : start + size], size)
                for file, start, size in zip(opened, starts[some], sizes[some], strict=True)
            ]
            for future in futures:
                future.get()
            for file in opened:
                file.close()

        def read() -> None:
            for first in range(0, len(files), KVIKIO_FILES):
                read_some(slice(first, first + KVIKIO_FILES))

        return result(read)

    found = {"raw pinned upload": pinned, "raw read by threads": threads}
    return {**found, "raw KvikIO": kvikio} if device.gpu is not None else found


def ceilings(device: Device, nbytes: int) -> dict[str, float]:
    """GB/s of a copy within the device, counted once, and of an upload from pinned memory."""
    staging = device.device.staging(nbytes)
    staging[:] = 1
    one, two = device.device.upload(staging), device.device.empty(nbytes)
    if device.gpu is None:
        seconds = wall_seconds(lambda: two.__setitem__(slice(None), one), device.wait, 3, 1)[0]
        upload = wall_seconds(lambda: device.device.upload(staging), device.wait, 3, 1)[0]
    else:
        seconds = device_seconds(device.xp, lambda: two.data.copy_from_device_async(one.data, nbytes))
        upload = device_seconds(device.xp, lambda: one.set(staging))
    return {"device copy GB_per_s": nbytes / seconds / 1e9, "pinned upload GB_per_s": nbytes / upload / 1e9}


def _peers(device: Device) -> dict[str, tuple[Reader | None, str]]:
    """Peer -> (how it reads, or None, and its version or why it is absent)."""
    found: dict[str, tuple[Reader | None, str]] = {}
    for name, make in PEERS.items():
        try:
            found[name] = make(device)
        except Exception as error:  # noqa: BLE001 - an absent or broken peer is named, whatever it raises
            found[name] = (None, f"absent: {type(error).__name__}: {error}"[:300])
    return found


if __name__ == "__main__":
    main()
