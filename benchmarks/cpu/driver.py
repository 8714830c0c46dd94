"""The interface of a driver: the calls that workloads consist of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cpu.data import Layout

BUCKET, KEY, REGION = "bench", "loopback", "us-east-1"  # of the S3 server, which takes any key

MOST_OPENS = 1000  # arrays that slow libraries open in one call


class AbsentError(Exception):
    """The library cannot take part in a workload; the message says why."""


class Driver:
    """The calls of one library. Raises: AbsentError for what the library lacks."""

    suffix = ".v3"  # the format that it reads and writes
    version = ""

    def open(self, path: Path) -> Any:
        """Open an array for reading."""
        raise NotImplementedError

    def check_opens(self, count: int) -> None:
        """Raise AbsentError if opening so many arrays would take too long."""

    def open_writable(self, path: Path) -> Any:
        """Open an array for reading and writing."""
        raise NotImplementedError

    def create(self, path: Path, layout: Layout) -> Any:
        """Create an array with fill value 0, replacing what is there."""
        raise NotImplementedError

    def read(self, array: Any, selection: Any) -> Any:
        """Read a basic selection as a NumPy array."""
        return array[selection]

    def orthogonal(self, array: Any, selection: Any) -> Any:
        """Read with index lists for some of the axes."""
        return array.oindex[selection]

    def points(self, array: Any, coordinates: Any) -> Any:
        """Read elements by their coordinates."""
        return array.vindex[coordinates]

    def mask(self, array: Any, wanted: Any) -> Any:
        """Read elements by a mask of the array's shape."""
        return array.vindex[wanted]

    def field(self, path: Path, name: str) -> Callable[[], Any]:
        """Open an array of records. Returns: what reads a field of all."""
        array = self.open(path)
        return lambda: array.get_basic_selection(Ellipsis, fields=name)

    def cast(self, array: Any, dtype: str) -> Any:
        """Read all elements as another type of numbers."""
        return self.read(array, slice(None)).astype(dtype)

    def write_points(self, array: Any, coordinates: Any, values: Any) -> None:
        """Store elements by their coordinates."""
        array.vindex[coordinates] = values

    def write(self, array: Any, selection: Any, value: Any) -> None:
        """Store values in a basic selection."""
        array[selection] = value

    def append(self, array: Any, value: Any) -> Any:
        """Add rows at the end. Returns: the larger array."""
        array.append(value)
        return array

    def in_memory(self, path: Path) -> Any:
        """Open the array of a directory in the library's memory store."""
        raise AbsentError("no memory store")

    def zipped(self, path: Path) -> Any:
        """Open the array in a zip file for reading."""
        raise AbsentError("no zip store")

    def remote(self, url: str) -> Any:
        """Open an array behind HTTP."""
        raise AbsentError("no HTTP store")

    def bucket(self, endpoint: str, key: str) -> Any:
        """What `open`, `create` and `open_group` take in place of a path: a prefix in the bucket of an S3 server."""
        raise AbsentError("no S3 store here")

    def read_members(self, endpoint: str, key: str, names: list[str]) -> list[Any]:
        """Open a group in a bucket, and one array after the other in it, reading each."""
        group = self.open_group(self.bucket(endpoint, key))
        return [self.read(group[name], slice(None)) for name in names]

    def create_group(self, path: Path) -> Any:
        """Create a group, replacing what is there."""
        raise AbsentError("no groups")

    def open_group(self, path: Path) -> Any:
        """Open a group for reading."""
        raise AbsentError("no groups")

    def consolidate(self, path: Path) -> None:
        """Write the metadata of all members into the group's."""
        raise AbsentError("no consolidated metadata")

    def open_consolidated(self, path: Path) -> Any:
        """Open a group for reading by its consolidated metadata."""
        return self.open_group(path)

    def folder(self, path: Path) -> None:
        """Make a folder of arrays."""
        path.mkdir(parents=True)

    def read_many(self, items: list[tuple[Any, Any]]) -> list[Any]:
        """Read basic selections of arrays, all at once if the library can."""
        return [self.read(array, selection) for array, selection in items]

    def names(self, group: Any) -> list[str]:
        """Names of the members of a group."""
        return list(group)

    def members(self, group: Any) -> list[tuple[str, tuple[int, ...]]]:
        """Names and shapes of the arrays in a group."""
        return [(name, array.shape) for name, array in group.arrays()]


def check_slow_opens(count: int) -> None:
    """`Driver.check_opens` of libraries that open an array in 1 ms."""
    if count > MOST_OPENS:
        raise AbsentError(f"it opens an array in 1 ms or more: {count:,} would take over 10 s")


def files(path: Path) -> dict[str, bytes]:
    """Every file of a directory by its key."""
    return {p.relative_to(path).as_posix(): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def fill_value(layout: Layout) -> Any:
    """The value of elements that were not written."""
    return "" if layout.dtype == "string" else 0


def itemsize(layout: Layout) -> int:
    """Bytes of an element."""
    return int(np.dtype(layout.dtype).itemsize)
