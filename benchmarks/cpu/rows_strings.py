"""Rows about strings of variable length: a million short ones in 20 chunks, compressed by Zstandard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.cpu import workloads as w
from benchmarks.cpu.data import Scale
from benchmarks.cpu.workloads import Bench, Task, Workload


def writing_objects(name: str) -> Callable[[Bench], Task]:
    """Write all of an array from Python's strings."""

    def prepare(bench: Bench) -> Task:
        array, expected = bench.target(name), bench.values(name)
        values = expected.astype(object)
        return Task(
            lambda: bench.driver.write(array, w.ALL, values),
            lambda _: w.equals(expected)(bench.driver.read(array, w.ALL)),
        )

    return prepare


def _hundred(scale: Scale) -> Any:
    return slice(5 * scale.points + 17, 5 * scale.points + 117)


ROWS: tuple[Workload, ...] = (
    Workload("read all, strings", "codecs", ("strings",), w.basic("strings", w.whole)),
    Workload("100 of a million strings", "codecs", ("strings",), w.basic("strings", _hundred)),
    Workload("write all, strings", "codecs", ("strings",), writing_objects("strings")),
)
