"""Rows about an object store: S3 with 20 ms to the first byte and 50 MB/s a connection.

Arrays are opened within the time that is measured, so that no library has cached anything of them.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.cpu.data import CONSOLIDATED, CONSOLIDATED_MEMBERS, DATASETS, Scale
from benchmarks.cpu.driver import AbsentError
from benchmarks.cpu.workloads import ALL, Bench, Task, Workload, equals, scattered

Select = Callable[[Scale], Any]


def reading(name: str, select: Select, how: str = "read") -> Callable[[Bench], Task]:
    """Open an array and read a selection. how: the method of the driver."""

    def prepare(bench: Bench) -> Task:
        place, selection = _place(bench, bench.path(name).name), select(bench.scale)
        run = lambda: getattr(bench.driver, how)(bench.driver.open(place), selection)  # noqa: E731
        return Task(run, equals(bench.values(name)[selection]), counts=_counts(bench))

    return prepare


def reading_batches(name: str, select: Callable[[Scale], list[Any]]) -> Callable[[Bench], Task]:
    """Open an array and read batches of whole samples by index lists, one after the other."""

    def prepare(bench: Bench) -> Task:
        place, values = _place(bench, bench.path(name).name), bench.values(name)
        selections = [(rows, *[ALL] * (values.ndim - 1)) for rows in select(bench.scale)]

        def run() -> list[Any]:
            array = bench.driver.open(place)
            return [bench.driver.orthogonal(array, selection) for selection in selections]

        return Task(run, equals([values[selection] for selection in selections]), counts=_counts(bench))

    return prepare


def reading_members(bench: Bench) -> Task:
    """Open a group with consolidated metadata and read one array after the other."""
    _place(bench, "")
    key = bench.path(CONSOLIDATED).name
    run = lambda: bench.driver.read_members(str(bench.s3), key, list(CONSOLIDATED_MEMBERS))  # noqa: E731
    expected = [np.full((100, 100), i, "i4") for i in range(len(CONSOLIDATED_MEMBERS))]
    return Task(run, equals(expected), counts=_counts(bench))


def writing(name: str) -> Callable[[Bench], Task]:
    """Write the upper half of an array that exists.

    Every library writes the same objects, so that the server keeps one set.
    """

    def prepare(bench: Bench) -> Task:
        array = bench.driver.create(_place(bench, f"written-{name}"), DATASETS[name].layout(bench.scale))
        half = np.s_[: bench.scale.side // 2]
        values = np.array(bench.values(name)[half])
        run = lambda: bench.driver.write(array, half, values)  # noqa: E731
        return Task(run, lambda _: equals(values)(bench.driver.read(array, half)), counts=_counts(bench))

    return prepare


def _place(bench: Bench, key: str) -> Any:
    if bench.s3 is None or bench.driver.suffix != ".v3":
        raise AbsentError("no S3 server, or not the format that it serves")
    return bench.driver.bucket(bench.s3, key)


def _counts(bench: Bench) -> Callable[[], dict[str, int]]:
    def counts() -> dict[str, int]:
        with urllib.request.urlopen(f"{bench.s3}/-/counts", timeout=10) as answer:
            told: dict[str, int] = json.load(answer)
        return told

    return counts


def _thousand(scale: Scale) -> Any:
    return np.s_[: min(25 * scale.small, scale.side), : min(40 * scale.small, scale.side)]


def _points(scale: Scale) -> Any:
    rng = np.random.default_rng(11)
    return tuple(rng.integers(0, scale.side, 250) for _ in range(2))


def _corner(scale: Scale) -> Any:
    return np.s_[: scale.small, : scale.small]


def _batches(scale: Scale) -> list[Any]:
    rows = np.random.default_rng(12).permutation(scattered(scale.images, min(256, scale.images)))
    return [np.sort(batch) for batch in np.split(rows, 4)]


ROWS: tuple[Workload, ...] = tuple(
    Workload(name, "s3", datasets, prepare)
    for name, datasets, prepare in (
        ("S3: open and read one chunk", ("lz4-i4-small",), reading("lz4-i4-small", _corner)),
        ("S3: read 1,000 chunks", ("lz4-i4-small",), reading("lz4-i4-small", _thousand)),
        ("S3: read 250 scattered points of shards", ("shards",), reading("shards", _points, "points")),
        ("S3: read all, sharded", ("shards",), reading("shards", lambda _: ALL)),
        ("S3: read four batches of 64 random images", ("images",), reading_batches("images", _batches)),
        ("S3: read 10 arrays of a consolidated group", (CONSOLIDATED,), reading_members),
        ("S3: write 128 chunks of 1 MB", (), writing("mebibytes")),
        ("S3: write 8 shards of 16 MB", (), writing("shards")),
    )
)
