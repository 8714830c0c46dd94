"""Rows about arrays that are in memory, or in a single file: every library with its own store of that kind."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
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


def _row(scale: Scale) -> Any:
    return scale.side // 2 + 1


def _window(scale: Scale) -> Any:
    return np.s_[scale.large : 2 * scale.large, scale.large : 2 * scale.large]


ROWS: tuple[Workload, ...] = tuple(
    Workload(name, section, (dataset,), prepare(dataset, select))
    for name, section, dataset, prepare, select in (
        ("one row, 80 small chunks in memory", "reads", "lz4-i4-small", in_memory, _row),
        ("one row of shards in memory", "reads", "sharded-zstd-i4", in_memory, _row),
        ("100 small chunks of a zip file", "reads", "lz4-i4-small", zipped, _window),
        ("write 100 small chunks in memory", "writes", "lz4-i4-small", writing_in_memory, _window),
    )
)
