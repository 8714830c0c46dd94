"""What loaders do beside batches of one array: a cache on disk, unequal images, sparse rows, windows of weather.

    python -m benchmarks.loader.more [--small] [--only cache|images|sparse|weather] [--cache FOLDER]

Contestants take turns; medians of epochs count. The first sample of a batch is compared with what was written.

- **cache**: 1,000 images of case A in an S3 server (rclone) behind a line that delays every answer by 20 ms, in two
  epochs of one process and one of another: with gzarr's `cache=`, with fsspec's ``simplecache`` under the same loader,
  and by insitubatch's cache.
- **images**: 1,000 pictures of unequal shape in arrays of their own, random crops, shuffled.
- **sparse**: rows of a CSR matrix as AnnData stores it, shuffled in blocks (annbatch's own case).
- **weather**: windows of 4 steps of all variables of a group as ERA5's in WeatherBench2, shuffled (beluga's own case).
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

import gzarr
from benchmarks.cpu.race import ROOT
from benchmarks.loader.data import SMALL, Cache, Scale, datasets, picture

DELAY_S, ROUNDS = 0.02, 5
KEY, SECRET = "key", "secret0123456789"
#: Samples of a batch of each part; extents of a crop; columns of the matrix, and the share of them that is not zero.
BATCH, CROP, COLUMNS, DENSITY = 64, (128, 128), 2000, 0.05


class Line:
    """Connections to a server, whose answers come late. Counts their bytes."""

    def __init__(self, port: int) -> None:
        self._port, self.nbytes = port, 0
        self._loop, ready = asyncio.new_event_loop(), threading.Event()
        threading.Thread(target=self._run, args=(ready,), daemon=True).start()
        ready.wait()

    def _run(self, ready: threading.Event) -> None:
        server = self._loop.run_until_complete(asyncio.start_server(self._connect, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        self._loop.run_forever()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)

        async def answer() -> None:
            while data := await there.read(1 << 18):
                self.nbytes += len(data)
                self._loop.call_later(DELAY_S, writer.write, data)
            self._loop.call_later(DELAY_S, writer.close)

        task = self._loop.create_task(answer())
        while data := await reader.read(1 << 16):
            back.write(data)
        back.close()
        await task


@contextmanager
def s3(folder: Path) -> Iterator[Line]:
    """An S3 server with a folder as its bucket, behind a line."""
    program = shutil.which("rclone") or Path(sys.executable).with_name("rclone")
    command = [str(program), "serve", "s3", "--addr", "127.0.0.1:0", "--auth-key", f"{KEY},{SECRET}"]
    command += ["--config", "/dev/null", "--vfs-cache-mode", "off", str(folder)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        told = next(line for line in process.stderr if "http://" in line)
        threading.Thread(target=process.stderr.read, daemon=True).start()
        try:
            yield Line(int(told.split("http://127.0.0.1:")[1].split("/")[0]))
        finally:
            process.kill()


def measure_cache(cache: Cache, folder: Path) -> None:
    """Bytes and seconds of epochs from S3, with caches on disk."""
    data = datasets(cache.scale)["images"]
    cache.make(data)
    stored = sum(path.stat().st_size for path in cache.path(data.name).rglob("*") if path.is_file())
    print("\n| cache | epoch | bytes from S3 / stored | samples/s |\n|---|---|---:|---:|")
    with s3(cache.path("").parent) as line:
        for name in ("none", "gzarr", "simplecache", "insitubatch"):
            for epoch in ("1", "2", "1 of another process"):
                if name == "none" and epoch != "1":
                    continue
                new = epoch != "2"
                if new:
                    process = worker(name, line.port, data.name, folder / name)
                before, start = line.nbytes, time.perf_counter()
                n = ask(process)
                seconds = time.perf_counter() - start
                rate = (line.nbytes - before) / stored
                print(f"| {name} | {epoch} | {rate:.2f} | {n / seconds:,.0f} |", flush=True)
                if epoch != "1" or name == "none":
                    process.kill()
                    process.wait()


def worker(name: str, port: int, array: str, folder: Path) -> subprocess.Popen[str]:
    """A process that iterates whenever it is asked to."""
    command = [sys.executable, "-m", "benchmarks.loader.more", "--worker", name, str(port), array, str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    process.stdout.readline()  # it is ready
    return process


def ask(process: subprocess.Popen[str]) -> int:
    """Let a process go through an epoch. Returns: the number of samples."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    return int(process.stdout.readline())


def work(name: str, port: int, array: str, folder: Path) -> None:
    """Epochs of one process."""
    epoch = epochs_from_s3(name, f"http://127.0.0.1:{port}", array, folder)
    print("ready", flush=True)
    for _ in sys.stdin:
        print(epoch(), flush=True)


def epochs_from_s3(name: str, endpoint: str, array: str, folder: Path) -> Callable[[], int]:
    """A function that goes through an epoch of an array and returns how many samples it had."""
    if name == "insitubatch":
        from insitubatch import InSituDataset, obstore_store, open_geometries, split_by_chunk

        keys = {"access_key_id": KEY, "secret_access_key": SECRET, "region": "us-east-1", "endpoint": endpoint}
        options = {"client_options": {"allow_http": True}, "virtual_hosted_style_request": False}
        store = obstore_store("s3://group", **keys, **options)
        geometries = open_geometries(store, variables=[array])
        manifest = split_by_chunk(geometries[array], fractions=(1.0, 0.0, 0.0))
        more = {"cache_dir": str(folder), "cache_budget_bytes": 1 << 34, "persist": True}
        dataset = InSituDataset(store, manifest, geometries, batch_size=BATCH, block_chunks=BATCH, **more)
        return lambda: sum(len(batch.sample_indices) for batch in dataset.train)
    options = {"key": KEY, "secret": SECRET, "client_kwargs": {"endpoint_url": endpoint, "region_name": "us-east-1"}}
    if name == "simplecache":
        url, given = f"simplecache::s3://group/{array}", {"s3": options, "simplecache": {"cache_storage": str(folder)}}
        opened = gzarr.open_array(url, "r", storage_options=given)
    else:
        cached = {"cache": folder} if name == "gzarr" else {}
        opened = gzarr.open_array(f"s3://group/{array}", "r", storage_options=options, **cached)
    loader = gzarr.Loader(opened, BATCH, shuffle=True)
    return lambda: sum(len(batch) for batch in loader)


def race(ways: dict[str, Callable[[bool], int]]) -> None:
    """Samples a second of each, and of each second of the processor, in turns, after an epoch that is checked."""
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for epoch in ways.values():
        epoch(True)
    for _ in range(ROUNDS):
        for name, epoch in ways.items():
            start, cpu = time.perf_counter(), time.process_time()
            n = epoch(False)
            rates[name].append((n / (time.perf_counter() - start), n / (time.process_time() - cpu)))
    print("\n| loader | samples/s | samples / CPU s |\n|---|---:|---:|")
    for name, found in rates.items():
        wall, cpu = (statistics.median(column) for column in zip(*found, strict=True))
        print(f"| {name} | {wall:,.0f} | {cpu:,.0f} |", flush=True)


def measure_images(folder: Path, n: int) -> None:
    """Random crops of pictures of unequal shape."""
    import tensorstore

    rng = np.random.default_rng(0)
    sizes = rng.integers(150, 400, (n, 2)).tolist()
    pictures = [picture(rng, tuple(size)) for size in sizes]
    paths = [folder / str(number) for number in range(n)]
    for path, pixels in zip(paths, pictures, strict=True):
        gzarr.save_array(path, pixels, chunks=CROP)
    loader = gzarr.Loader(paths, BATCH, crops=gzarr.Crops(CROP, n=4 * n), memory="35 %")

    def of_gzarr(is_checked: bool) -> int:
        for step, batch in enumerate(loader):
            if is_checked:
                check(batch, loader.batch_starts(step))
        return 4 * n

    def check(batch: Any, starts: Any) -> None:
        array, row, column = starts[0]
        assert (batch[0] == pictures[array][row : row + CROP[0], column : column + CROP[1]]).all()

    spec = {"driver": "zarr3", "kvstore": {"driver": "file"}, "recheck_cached_data": False}
    context = tensorstore.Context({"cache_pool": {"total_bytes_limit": int(0.35 * sum(p.nbytes for p in pictures))}})
    stores = [
        tensorstore.open(spec | {"kvstore": {"driver": "file", "path": f"{path}/"}}, context=context).result()
        for path in paths
    ]

    def of_tensorstore(is_checked: bool) -> int:
        places = np.random.default_rng(1)
        for _ in range(4 * n // BATCH):
            numbers = places.integers(0, n, BATCH).tolist()
            corners = [
                [int(places.integers(0, s - c + 1)) for s, c in zip(sizes[k], CROP, strict=True)] for k in numbers
            ]
            reads = [
                stores[k][r : r + CROP[0], c : c + CROP[1]].read() for k, (r, c) in zip(numbers, corners, strict=True)
            ]
            batch = np.stack([read.result() for read in reads])
            if is_checked:
                check(batch, [(numbers[0], *corners[0])])
        return 4 * n // BATCH * BATCH

    peers = with_torch(paths, sizes, n) if find_spec("torch") else {}
    race({"gzarr": of_gzarr, "tensorstore": of_tensorstore} | peers)


def with_torch(paths: list[Path], sizes: Any, n: int) -> dict[str, Callable[[bool], int]]:
    """`DataLoader` over zarr-python."""
    import zarr
    from torch.utils.data import DataLoader, Dataset

    class Pictures(Dataset):  # type: ignore[misc]
        def __init__(self) -> None:
            self.arrays = [zarr.open_array(path, mode="r") for path in paths]
            self.places = np.random.default_rng(1)

        def __len__(self) -> int:
            return n // 2  # its rate is the same all through

        def __getitem__(self, _: int) -> Any:
            k = int(self.places.integers(0, n))
            r, c = (int(self.places.integers(0, s - e + 1)) for s, e in zip(sizes[k], CROP, strict=True))
            return self.arrays[k][r : r + CROP[0], c : c + CROP[1]]

    data = DataLoader(Pictures(), batch_size=BATCH)
    return {"torch 0": lambda _: sum(len(batch) for batch in data)}


def measure_sparse(folder: Path, n: int) -> None:
    """Rows of a CSR matrix, shuffled in blocks."""
    import annbatch
    import anndata
    import scipy.sparse
    import zarr

    matrix = scipy.sparse.random(n, COLUMNS, DENSITY, "csr", "f4", np.random.default_rng(0))
    group = zarr.open_group(folder / "cells", mode="w")
    elements = 1 << 16
    anndata.io.write_elem(group, "X", matrix, dataset_kwargs={"chunks": (elements,)})
    x = gzarr.open_group(folder / "cells" / "X", "r")
    loader = gzarr.Loader({"x": x}, BATCH, shuffle="blocks", memory="50 %", block_chunks=12)

    def of_gzarr(is_checked: bool) -> int:
        for step, batch in enumerate(loader):
            assert not is_checked or (batch["x"][0] != matrix[loader.batch_ids(step)[0]]).nnz == 0
        return n

    def of_annbatch(is_checked: bool) -> int:
        seen = 0
        given = {"chunk_size": 512, "preload_nchunks": 16, "batch_size": BATCH, "shuffle": True, "return_index": True}
        one = annbatch.Loader(**given, preload_to_gpu=False)
        one.add_dataset(anndata.io.sparse_dataset(zarr.open_group(folder / "cells", mode="r")["X"]))
        for batch in one:
            assert not is_checked or (batch["X"][0] != matrix[int(batch["index"][0])]).nnz == 0
            seen += batch["X"].shape[0]
        return seen

    race({"gzarr": of_gzarr, "annbatch": of_annbatch})


def measure_weather(folder: Path, grid: tuple[int, int]) -> None:
    """Windows of all variables of a group, shuffled, on a file system."""
    import beluga

    frames, size, n = 4, 4, 200
    beluga.write_wb2_fixture(str(folder), "era5.zarr", "era5", *grid, n_time=n)
    reader = beluga.open_zarr_group(str(folder), "era5.zarr")
    group = gzarr.open_group(folder / "era5.zarr", "r")
    arrays = {name: array for name, array in group.arrays() if array.ndim > 2 and len(array) == n}
    n_levels = sum(prod(array.shape[1:-2]) for array in arrays.values())
    loaders = {
        f"gzarr, memory for {share}": gzarr.Loader(
            arrays, size, window=gzarr.Window(frames), shuffle=True, memory=share
        )
        for share in ("25 %", "75 %")
    }

    def of_gzarr(loader: gzarr.Loader, is_checked: bool) -> int:
        for step, batch in enumerate(loader):
            if is_checked:
                (start, *_), *_ = loader.batch_starts(step)
                window = next(iter(arrays.values()))[start : start + frames]
                np.testing.assert_array_equal(next(iter(batch.values()))[0], window)
        return len(loader) * size

    def of_beluga(is_checked: bool) -> int:
        starts = np.random.default_rng(1).permutation(n - frames + 1).tolist()
        for batch in zip(*[map(np.from_dlpack, reader.stream(starts, frames=frames))] * size, strict=False):
            assert not is_checked or batch[0].shape[:2] == (frames, n_levels)
            np.stack(batch)
        return len(starts) // size * size

    race({name: partial(of_gzarr, loader) for name, loader in loaders.items()} | {"beluga": of_beluga})


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loader.more", description=__doc__)
    parser.add_argument("--small", action="store_true", help="tiny arrays: tests the harness, measures nothing")
    parser.add_argument("--only", choices=["cache", "images", "sparse", "weather"], help="one part")
    parser.add_argument("--cache", type=Path, default=ROOT / ".bench-cache", help="folder of the data")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        name, port, array, folder = options.worker
        return work(name, int(port), array, Path(folder))
    parts = {
        "cache": lambda folder: measure_cache(
            Cache(options.cache.resolve(), SMALL if options.small else Scale(images=1000)), folder
        ),
        "images": lambda folder: measure_images(folder, 100 if options.small else 1000),
        "sparse": lambda folder: measure_sparse(folder, 3000 if options.small else 50_000),
        "weather": lambda folder: measure_weather(folder, (9, 18) if options.small else (90, 180)),
    }
    for name, measure in parts.items():
        if options.only in (None, name):
            with tempfile.TemporaryDirectory() as folder:
                measure(Path(folder))
    return None


if __name__ == "__main__":
    main()
