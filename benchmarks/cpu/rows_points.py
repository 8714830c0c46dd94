"""Rows about points, masks, fields, casts, and windows of a chunk's size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.cpu.data import Scale
from benchmarks.cpu.workloads import ALL, Bench, Task, Workload, equals, random_indices, several

#: Points that are written, and windows that are read.
_N_POINTS, _N_WINDOWS = 10_000, 20


def writing_points(name: str) -> Callable[[Bench], Task]:
    """Write scattered points, each once, to an array that holds values."""

    def prepare(bench: Bench) -> Task:
        array, expected = bench.copy(name), np.array(bench.values(name))
        n = min(_N_POINTS, bench.scale.points)
        coordinates = tuple(np.unique([random_indices(extent, n) for extent in expected.shape], axis=1))
        values = np.arange(coordinates[0].size, dtype=expected.dtype)
        expected[coordinates] = values

        def check(_: Any) -> None:
            equals(expected)(bench.driver.read(array, ALL))

        return Task(lambda: bench.driver.write_points(array, coordinates, values), check)

    return prepare


def mask(name: str) -> Callable[[Bench], Task]:
    """Read the elements within a disc by a mask of the whole array."""

    def prepare(bench: Bench) -> Task:
        array, values = bench.open(name), bench.values(name)
        rows, columns = np.ogrid[: values.shape[0], : values.shape[1]]
        middle = values.shape[0] / 2
        inside = (rows - middle) ** 2 + (columns - middle) ** 2 < (values.shape[0] / 5) ** 2
        return Task(lambda: bench.driver.mask(array, inside), equals(values[inside]))

    return prepare


def field(name: str, wanted: str) -> Callable[[Bench], Task]:
    """Read one field of all elements."""

    def prepare(bench: Bench) -> Task:
        return Task(bench.driver.field(bench.path(name), wanted), equals(bench.values(name)[wanted]))

    return prepare


def cast(name: str, dtype: str) -> Callable[[Bench], Task]:
    """Read all elements as another type of numbers."""

    def prepare(bench: Bench) -> Task:
        array = bench.open(name)
        return Task(lambda: bench.driver.cast(array, dtype), equals(bench.values(name).astype(dtype)))

    return prepare


def windows(scale: Scale) -> list[Any]:
    """Windows as large as a large chunk, wherever they lie."""
    n, side = scale.large, scale.side - scale.large
    corners = zip(random_indices(side, _N_WINDOWS), random_indices(side + 1, _N_WINDOWS) % side, strict=True)
    return [np.s_[int(i) : int(i) + n, int(j) : int(j) + n] for i, j in corners]


ROWS: tuple[Workload, ...] = (
    Workload("20 random windows of a large chunk's size, u1", "reads", ("lz4-u1",), several("lz4-u1", windows)),
    Workload("a mask, 10,000 tiny chunks", "reads", ("tiny",), mask("tiny")),
    Workload("one field of records", "reads", ("records",), field("records", "f1")),
    Workload("read all as float32, lz4 i4", "reads", ("lz4-i4",), cast("lz4-i4", "f4")),
    Workload("write 10,000 points, small chunks", "writes", ("lz4-i4-small",), writing_points("lz4-i4-small")),
)
