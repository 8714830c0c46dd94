"""Files of other formats read in place, beside the same chunks in Zarr and the formats' own libraries.

    python -m benchmarks.cpu.in_place [--rows 64] [--table docs/benchmarks.md]

All take turns in one process. Each answer is compared with the source before it is timed. What is not installed is left
out. An epoch of `gzarr.Loader` is random batches of 64; others read their sorted rows, batch by batch.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

import gzarr
from benchmarks.cpu.report import insert

START = "<!-- in place: generated -->"
SHAPE, BATCH = (2048, 128, 128), 64
ROUNDS, BUDGET_S = 5, 0.3
#: What reads: from an array to all of it, to a row, and to rows by a sorted list.
Reader = dict[str, Callable[[Any], Any]]
LIKE_NUMPY: Reader = {
    "read all": lambda array: array[...],
    "one row": lambda array: array[len(array) // 3],
    "64 random samples": lambda array: array[_rows(len(array))],
}
ORTHOGONAL: Reader = {**LIKE_NUMPY, "64 random samples": lambda array: array.oindex[_rows(array.shape[0])]}
ORTHOGONAL["one row"] = lambda array: array[array.shape[0] // 3]


def _rows(n: int) -> Any:
    return np.sort(np.random.default_rng(n).choice(n, min(BATCH, n), replace=False))


def batches(read: Callable[[Any], Any], n: int) -> None:
    """An epoch without a loader."""
    order = np.random.default_rng(1).permutation(n)
    for first in range(0, n, BATCH):
        read(np.sort(order[first : first + BATCH]))


class Case:
    """A library and an array that it has opened."""

    def __init__(
        self, library: str, array: Any, reads: Reader, by_list: Callable[[Any], Any], close: Callable[[], Any] = bool
    ) -> None:
        self.library, self.array, self.reads, self._by_list, self.close = library, array, reads, by_list, close

    def call(self, name: str, n: int) -> Callable[[], Any]:
        """What is timed."""
        if name != "epoch":
            return lambda: self.reads[name](self.array)
        if isinstance(self.array, gzarr.Array):
            options: Any = {"batch_size": BATCH, "shuffle": True, "seed": 1}  # a new loader has no samples in memory
            return lambda: sum(len(batch) for batch in gzarr.Loader(self.array, **options))
        return lambda: batches(self._by_list, n)


def ours(library: str, where: Path | str) -> Case:
    """A case of gzarr."""
    array = gzarr.open_array(where, mode="r", device="cpu")
    return Case(library, array, ORTHOGONAL, lambda rows: array.oindex[rows])


def hdf5(folder: Path, data: Any) -> Iterator[Case]:
    """HDF5, by h5py."""
    import h5py

    with h5py.File(folder / "a.h5", "w", libver="latest") as file:
        file.create_dataset(
            "x", data=data, chunks=(1, *data.shape[1:]), compression="gzip", compression_opts=1, shuffle=True
        )
    yield from both(folder / "a.h5", "x")
    dataset = h5py.File(folder / "a.h5", "r", rdcc_nbytes=0)["x"]
    yield Case("h5py", dataset, LIKE_NUMPY, dataset.__getitem__, dataset.file.close)


def netcdf4(folder: Path, data: Any) -> Iterator[Case]:
    """NetCDF-4, by netCDF4 and Xarray."""
    import netCDF4

    with netCDF4.Dataset(folder / "a.nc", "w") as file:
        for name, length in zip("tyx", data.shape, strict=True):
            file.createDimension(name, length)
        shape = {"chunksizes": (1, *data.shape[1:]), "zlib": True, "complevel": 1, "shuffle": True}
        file.createVariable("x", data.dtype, ("t", "y", "x"), **shape)[:] = data
    yield from both(folder / "a.nc", "x")
    netCDF4.set_chunk_cache(0)  # no cache of chunks, as in the others
    file = netCDF4.Dataset(folder / "a.nc")
    variable = file["x"]
    variable.set_auto_mask(False)
    yield Case("netCDF4", variable, LIKE_NUMPY, variable.__getitem__, file.close)
    with suppress(ImportError):
        import xarray

        lazy = xarray.open_dataset(folder / "a.nc", engine="netcdf4", cache=False)["x"]
        reads = {name: lambda array, read=read: read(array).values for name, read in LIKE_NUMPY.items()}
        yield Case("xarray", lazy, reads, lambda rows: lazy[rows].values, lazy.close)


def tiff(folder: Path, data: Any) -> Iterator[Case]:
    """Tiled TIFF, by tifffile."""
    import tifffile

    options: Any = {"photometric": "minisblack", "compression": "zlib", "tile": data.shape[1:]}
    tifffile.imwrite(folder / "a.tif", data, bigtiff=True, **options)
    yield from both(folder / "a.tif", "")
    file = tifffile.TiffFile(folder / "a.tif")
    some = lambda rows: np.stack([file.pages[int(row)].asarray() for row in rows])  # noqa: E731
    reads = {"read all": lambda f: f.asarray(), "one row": lambda f: f.pages[len(data) // 3].asarray()}
    yield Case("tifffile", file, {**reads, "64 random samples": lambda _: some(_rows(len(data)))}, some, file.close)


def kerchunk(folder: Path, data: Any) -> Iterator[Case]:
    """References to chunks of HDF5, by zarr-python."""
    for _ in hdf5(folder, data):
        break
    gzarr.save_references(folder / "a.h5", folder / "refs.json")
    yield from both(folder / "refs.json", "x")
    import zarr

    options = {"fo": str(folder / "refs.json"), "remote_protocol": "file", "skip_instance_cache": True}
    store = zarr.storage.FsspecStore.from_url("reference://", storage_options=options, read_only=True)
    array = zarr.open_group(store, mode="r")["x"]
    yield Case("zarr over fsspec", array, ORTHOGONAL, lambda rows: array.oindex[rows])


def icechunk(folder: Path, data: Any) -> Iterator[Case]:
    """A repository of Icechunk, by zarr-python over its store."""
    import icechunk
    import zarr

    if int(icechunk.__version__.split(".")[0]) < 2:
        raise ImportError(f"Icechunk 2.3 is needed, {icechunk.__version__} is installed")
    where = f"icechunk://{folder / 'repository'}"
    with gzarr.transaction(where, "data") as root:
        root.create_array("x", data=data, chunks=(1, *data.shape[1:]))
    yield from both(where, "x", folder)
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(folder / "repository")))
    array = zarr.open_group(repository.readonly_session("main").store, mode="r")["x"]
    yield Case("zarr over icechunk", array, ORTHOGONAL, lambda rows: array.oindex[rows])


def both(where: Path | str, inner: str, folder: Path | None = None) -> Iterator[Case]:
    """Gzarr in place, and of the same encoded chunks in Zarr."""
    path = f"{where}/{inner}".rstrip("/")
    copy = (folder or Path(where).parent) / f"{Path(str(where)).name}.zarr"
    gzarr.transfer(gzarr.open_array(path, mode="r", device="cpu"), copy)
    yield ours("gzarr", path)
    yield ours("gzarr, Zarr", copy)


FORMATS = {"HDF5": hdf5, "NetCDF-4": netcdf4, "TIFF": tiff, "kerchunk": kerchunk, "Icechunk": icechunk}


def race(cases: list[Case], name: str, data: Any) -> dict[str, float]:
    """Median seconds of a call, by library."""
    calls = {case.library: case.call(name, len(data)) for case in cases}
    expected = {"read all": data, "one row": data[len(data) // 3], "64 random samples": data[_rows(len(data))]}
    for library, call in calls.items():
        answer = call()
        if name in expected and not np.array_equal(np.asarray(answer), expected[name]):
            raise AssertionError(f"{library}, {name}: the answer differs from the source")
    rounds: dict[str, list[float]] = {library: [] for library in calls}
    for _ in range(ROUNDS):
        for library, call in calls.items():
            times, started = list[float](), time.perf_counter()
            while not times or time.perf_counter() - started < BUDGET_S:
                begin = time.perf_counter()
                call()
                times.append(time.perf_counter() - begin)
            rounds[library].append(statistics.median(times))
    return {library: statistics.median(times) for library, times in rounds.items()}


@contextmanager
def opened(name: str, data: Any) -> Iterator[list[Case]]:
    """The cases of a format; none if its library is missing."""
    with tempfile.TemporaryDirectory() as folder:
        cases: list[Case] = []
        try:
            cases.extend(FORMATS[name](Path(folder), data))
        except ImportError as error:
            print(f"{name}: {error}", file=sys.stderr)
        yield cases
        for case in cases:
            case.close()


def main() -> int:
    """Measure, print, and put the table into a file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cpu.in_place", description=__doc__)
    parser.add_argument("--rows", type=int, default=SHAPE[0], help="images of the data")
    parser.add_argument("--only", choices=FORMATS, help="one format")
    parser.add_argument("--table", type=Path, help="replace the table of a Markdown file")
    options = parser.parse_args()
    steps = np.random.default_rng(0).integers(-3, 4, (options.rows, *SHAPE[1:]))
    data = (np.cumsum(steps, axis=2) + 1000).astype("u2")
    lines = [
        "| in place (ms) | gzarr | gzarr, Zarr | others | in place / Zarr | best other / gzarr |",
        "|---|---|---|---|---|---|",
    ]
    print("\n".join(lines))
    for name in [options.only] if options.only else FORMATS:
        with opened(name, data) as cases:
            for what in ("read all", "one row", "64 random samples", "epoch") if cases else ():
                lines.append(row(f"{name}: {what}", race(cases, what, data)))
                print(lines[-1], flush=True)
    if options.table:
        about = f"{options.rows:,} images of 128 x 128, u2, deflate. Python {platform.python_version()}, "
        about += f"{os.cpu_count()} cores, {time.strftime('%Y-%m-%d')}."
        insert(options.table, "\n".join([about, "", *lines]), START)
    return 0


def row(what: str, found: dict[str, float]) -> str:
    """A line of the table."""
    mine, zarr, others = found["gzarr"], found["gzarr, Zarr"], {k: v for k, v in found.items() if "gzarr" not in k}
    text = ", ".join(f"{name} {seconds * 1e3:.3g}" for name, seconds in others.items()) or "-"
    best = f"{min(others.values()) / mine:.1f}" if others else "-"
    return f"| {what} | {mine * 1e3:.3g} | {zarr * 1e3:.3g} | {text} | {mine / zarr:.2f} | {best} |"


if __name__ == "__main__":
    sys.exit(main())
