"""Rows about arrays in memory, in a single file, or in shards that hold shards."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cpu.data import Scale
from benchmarks.cpu.driver import AbsentError
from benchmarks.cpu.workloads import Bench, Task, Workload, equals, in_memory

Select = Callable[[Scale], Any]


def writing_in_memory(name: str, select: Select) -> Callable[[Bench], Task]:
    """Write a basic selection of an array in the library's memory store."""

    def prepare(bench: Bench) -> Task:
        array, selection = bench.driver.in_memory(bench.path(name)), select(bench.scale)
        values = np.asarray(bench.values(name)[selection]) + 1
        run = lambda: bench.driver.write(array, selection, values)  # noqa: E731
        return Task(run, lambda _: equals(values)(bench.driver.read(array, selection)))

    return prepare


def zipped(name: str, select: Select) -> Callable[[Bench], Task]:
    """Read a basic selection of an array in a zip file, which stays open."""

    def prepare(bench: Bench) -> Task:
        folder, target = bench.path(name), bench.scratch / f"{bench.path(name).name}.zip"
        if not folder.is_dir():
            raise AbsentError("no folder of chunks that could be zipped")
        bench.scratch.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(target, "w") as file:
            for path in sorted(p for p in folder.rglob("*") if p.is_file()):
                file.write(path, path.relative_to(folder).as_posix())
        array, selection = bench.driver.zipped(target), select(bench.scale)
        return Task(lambda: bench.driver.read(array, selection), equals(bench.values(name)[selection]))

    return prepare


def nested(name: str, select: Select) -> Callable[[Bench], Task]:
    """Read a basic selection of the first quarter of a sharded array, whose shards are put into larger ones."""

    def prepare(bench: Bench) -> Task:
        source, target = bench.path(name), bench.scratch / f"nested-{bench.path(name).name}"
        if not (source / "zarr.json").is_file():
            raise AbsentError("no folder of shards that could be put into others")
        _nest(source, target)
        side, selection = bench.scale.side // 2, select(bench.scale)
        array = bench.driver.open(target)
        return Task(lambda: bench.driver.read(array, selection), equals(bench.values(name)[:side, :side][selection]))

    return prepare


def _nest(source: Path, target: Path) -> None:
    """Put four shards at a time of a quarter of an array into one."""
    document = json.loads((source / "zarr.json").read_text())
    grid = document["chunk_grid"]["configuration"]
    counts = [n // length // 4 for n, length in zip(document["shape"], grid["chunk_shape"], strict=True)]
    bytes_codec = {"name": "bytes", "configuration": {"endian": "little"}}
    config = {"chunk_shape": grid["chunk_shape"], "codecs": document["codecs"], "index_codecs": [bytes_codec]}
    document["codecs"] = [{"name": "sharding_indexed", "configuration": {**config, "index_location": "end"}}]
    grid["chunk_shape"] = [2 * length for length in grid["chunk_shape"]]
    document["shape"] = [n // 2 for n in document["shape"]]
    for row, column in product(*map(range, counts)):
        places = product((2 * row, 2 * row + 1), (2 * column, 2 * column + 1))
        shards = [(source / f"c/{i}/{j}").read_bytes() for i, j in places]
        sizes = np.array(list(map(len, shards)), "<u8")
        index = np.stack([np.cumsum(sizes) - sizes, sizes], axis=1)
        path = target / f"c/{row}/{column}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join([*shards, index.tobytes()]))
    (target / "zarr.json").write_text(json.dumps(document))


def _row(scale: Scale) -> Any:
    return scale.side // 2 + 1


def _all(_: Scale) -> Any:
    return np.s_[...]


def _window(scale: Scale) -> Any:
    return np.s_[scale.large : 2 * scale.large, scale.large : 2 * scale.large]


ROWS: tuple[Workload, ...] = tuple(
    Workload(name, section, (dataset,), prepare(dataset, select))
    for name, section, dataset, prepare, select in (
        ("one row, 80 small chunks in memory", "reads", "lz4-i4-small", in_memory, _row),
        ("one row of shards in memory", "reads", "sharded-zstd-i4", in_memory, _row),
        ("read all, nested shards", "reads", "sharded-zstd-i4", nested, _all),
        ("100 small chunks of a zip file", "reads", "lz4-i4-small", zipped, _window),
        ("write 100 small chunks in memory", "writes", "lz4-i4-small", writing_in_memory, _window),
    )
)
