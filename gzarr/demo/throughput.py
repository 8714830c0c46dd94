"""How fast a way of storing the relief is written and read, on a grid large enough for the answer to mean something."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

import gzarr

WRITES, READS = 3, 5


class Stored(Protocol):
    """The part of a form that matters here: its format and the options for `create_array`."""

    @property
    def zarr_format(self) -> int:
        """2 or 3."""

    @property
    def options(self) -> dict[str, Any]:
        """Chunks, shards, compressors."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Median seconds to write and to read the whole grid, and the bytes that it takes in the store."""

    write_s: float
    read_s: float
    nbytes_stored: int


def measure(out: Path, heights: npt.NDArray[np.int16], form: Stored, device: str, tiles: int) -> Rate:
    """Write and read ``tiles`` x ``tiles`` copies of the heights, several times, in a directory that is then removed.

    Args:
        out: directory on the disk to measure.
        heights: one tile, int16.
        form: how to store it.
        device: where it is read to. Writing starts from host memory.
        tiles: copies along each axis.

    Returns: medians of whole writes and whole reads; the last read is on the device when the clock stops.
    """
    grid = np.tile(heights, (tiles, tiles))
    with tempfile.TemporaryDirectory(dir=out, prefix="throughput-") as scratch:
        path = Path(scratch) / "grid.zarr"
        gzarr.create_array(store=path, shape=grid.shape, dtype=grid.dtype, zarr_format=form.zarr_format, **form.options)
        writable = gzarr.open_array(path, mode="r+", device=device)
        write_s = median_s(lambda: writable.__setitem__(..., grid), WRITES)
        array = gzarr.open_array(path, mode="r", device=device)
        read_s = median_s(lambda: wait_for(array[...]), READS)
        return Rate(write_s, read_s, array.nbytes_stored)


def median_s(task: Callable[[], object], repeats: int) -> float:
    """Median duration of a task in seconds, after one run that does not count."""
    task()
    durations = []
    for _ in range(repeats):
        start = time.perf_counter()
        task()
        durations.append(time.perf_counter() - start)
    return statistics.median(durations)


def wait_for(values: Any) -> None:
    """Wait until an array is complete: CuPy arrays may still be on their way when a call returns."""
    synchronize = getattr(getattr(values, "device", None), "synchronize", None)
    if synchronize is not None:
        synchronize()
