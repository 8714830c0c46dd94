"""The workloads: functions that prepare one library's call and the check of its answer."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cpu.data import DATASETS, GROUP, VIRTUAL_BYTES, Cache, Scale
from benchmarks.cpu.driver import AbsentError, Driver

ALL = np.s_[:]


@dataclass(frozen=True, slots=True)
class Task:
    """One library's call.

    run: timed; check: takes the answer, raises AssertionError; before: not timed; counts: what a server was asked for
    since it was called last.
    """

    run: Callable[[], Any]
    check: Callable[[Any], None]
    before: Callable[[], Any] | None = None
    counts: Callable[[], dict[str, int]] | None = None


@dataclass(frozen=True, slots=True)
class Bench:
    """The input of a workload. scratch: a folder to write to; url: of the cache behind HTTP; s3: and S3."""

    driver: Driver
    cache: Cache
    scratch: Path
    url: str | None = None
    s3: str | None = None

    @property
    def scale(self) -> Scale:
        """How large everything is."""
        return self.cache.scale

    def path(self, name: str) -> Path:
        """The path of a dataset in the library's format."""
        return self.cache.dataset(name, self.driver.suffix)

    def open(self, name: str) -> Any:
        """Open a dataset."""
        return self.driver.open(self.path(name))

    def values(self, name: str) -> Any:
        """The values of a dataset."""
        return self.cache.source(str(DATASETS[name].values))

    def target(self, name: str) -> Any:
        """Create an array to write to, with the layout of a dataset."""
        path = self.scratch / (name + self.driver.suffix)
        remove(path)
        self.scratch.mkdir(parents=True, exist_ok=True)
        return self.driver.create(path, DATASETS[name].layout(self.scale))

    def copy(self, name: str) -> Any:
        """Open a copy of a dataset for writing."""
        source, path = self.path(name), self.scratch / (name + self.driver.suffix)
        remove(path)
        self.scratch.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, path)
        return self.driver.open_writable(path)


@dataclass(frozen=True, slots=True)
class Workload:
    """A name, the datasets that it reads, and the function that prepares it. chunks: touched in one call."""

    name: str
    section: str
    datasets: tuple[str, ...]
    prepare: Callable[[Bench], Task]
    chunks: int = field(default=1)


def remove(path: Path) -> None:
    """Delete a file or a folder if it exists."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def equals(expected: Any) -> Callable[[Any], None]:
    """Make a check that an answer, or a list of answers, equals an array."""

    def check(answer: Any) -> None:
        if isinstance(expected, list):
            assert len(answer) == len(expected), f"{len(answer)} answers, not {len(expected)}"
            for one, wanted in zip(answer, expected, strict=True):
                equals(wanted)(one)
        else:
            assert np.array_equal(np.asarray(answer), expected), "the answer differs from the source"

    return check


# -- reads -------------------------------------------------------------------------------------------------------

Select = Callable[[Scale], Any]


def basic(name: str, select: Select) -> Callable[[Bench], Task]:
    """Read one basic selection of an opened array."""

    def prepare(bench: Bench) -> Task:
        array, selection = bench.open(name), select(bench.scale)
        return Task(lambda: bench.driver.read(array, selection), equals(bench.values(name)[selection]))

    return prepare


def several(name: str, select: Callable[[Scale], list[Any]]) -> Callable[[Bench], Task]:
    """Read several basic selections of an opened array, one call each."""

    def prepare(bench: Bench) -> Task:
        array, selections = bench.open(name), select(bench.scale)
        expected = [np.asarray(bench.values(name)[s]) for s in selections]
        return Task(lambda: [bench.driver.read(array, s) for s in selections], equals(expected))

    return prepare


def oindex(name: str, rows: Callable[[Scale], Any]) -> Callable[[Bench], Task]:
    """Read whole rows by an index list."""

    def prepare(bench: Bench) -> Task:
        array, values = bench.open(name), bench.values(name)
        selection = (rows(bench.scale), *[ALL] * (values.ndim - 1))
        return Task(lambda: bench.driver.orthogonal(array, selection), equals(values[selection]))

    return prepare


def vindex(name: str, count: Callable[[Scale], int]) -> Callable[[Bench], Task]:
    """Read scattered points."""

    def prepare(bench: Bench) -> Task:
        array, values = bench.open(name), bench.values(name)
        coordinates = tuple(random_indices(extent, count(bench.scale)) for extent in values.shape)
        return Task(lambda: bench.driver.points(array, coordinates), equals(values[coordinates]))

    return prepare


def in_memory(name: str, select: Select) -> Callable[[Bench], Task]:
    """Read one basic selection of an array in the library's memory store."""

    def prepare(bench: Bench) -> Task:
        array, selection = bench.driver.in_memory(bench.path(name)), select(bench.scale)
        return Task(lambda: bench.driver.read(array, selection), equals(bench.values(name)[selection]))

    return prepare


def opening(name: str) -> Callable[[Bench], Task]:
    """Open an array."""

    def prepare(bench: Bench) -> Task:
        wanted = DATASETS[name].layout(bench.scale).shape
        return Task(lambda: bench.open(name), lambda array: equals(wanted)(tuple(array.shape)))

    return prepare


def remote(name: str, select: Select) -> Callable[[Bench], Task]:
    """Open an array behind HTTP and read from it."""

    def prepare(bench: Bench) -> Task:
        if bench.url is None or not bench.path(name).is_dir():
            raise AbsentError("no folder of chunks that could be served")
        url, selection = f"{bench.url}/{bench.path(name).name}", select(bench.scale)
        run = lambda: bench.driver.read(bench.driver.remote(url), selection)  # noqa: E731
        return Task(run, equals(bench.values(name)[selection]))

    return prepare


# -- groups ------------------------------------------------------------------------------------------------------


def group_of(call: Callable[[Bench, Any], Any], wanted: Callable[[Scale], Any]) -> Callable[[Bench], Task]:
    """Open the group and do something with it; answers are compared sorted."""

    def prepare(bench: Bench) -> Task:
        def check(answer: Any) -> None:
            assert sorted(answer) == wanted(bench.scale), "other members than were made"

        return Task(lambda: call(bench, bench.driver.open_group(bench.path(GROUP))), check)

    return prepare


def open_members(folder: str, times: int = 1) -> Callable[[Bench], Task]:
    """Open every array of a folder by its path. times: as many as in the group."""

    def prepare(bench: Bench) -> Task:
        paths = [bench.path(folder) / name for name in member_names(bench.scale, times)]
        if not bench.path(folder).is_dir():
            raise AbsentError("members are no files of their own")
        bench.driver.check_opens(len(paths))
        return Task(lambda: [bench.driver.open(p) for p in paths], lambda arrays: equals(len(paths))(len(arrays)))

    return prepare


def member_names(scale: Scale, times: int = 1) -> list[str]:
    """Names of the arrays in the group, or of more."""
    return [f"a{i:04d}" for i in range(times * scale.members)]


# -- writes ------------------------------------------------------------------------------------------------------


def writing(name: str, select: Select) -> Callable[[Bench], Task]:
    """Write a basic selection of an array that holds the same values already, so that every call does the same."""

    def prepare(bench: Bench) -> Task:
        selection = select(bench.scale)
        if selection is not ALL:
            return _write_part(bench, name, selection)
        array, values = bench.target(name), np.array(bench.values(name))
        run = lambda: bench.driver.write(array, ALL, values)  # noqa: E731
        return Task(run, lambda _: equals(values)(bench.driver.read(array, ALL)))

    return prepare


def _write_part(bench: Bench, name: str, selection: Any) -> Task:
    array, source, (rows, columns) = bench.copy(name), bench.values(name), selection
    values = source[selection] + 1
    # With what lies around it.
    near = np.s_[max(rows.start - bench.scale.large, 0) : rows.stop + bench.scale.large]
    expected = np.array(source[near])
    expected[rows.start - near.start : rows.stop - near.start, columns] = values
    run = lambda: bench.driver.write(array, selection, values)  # noqa: E731
    return Task(run, lambda _: equals(expected)(bench.driver.read(array, near)))


def filling(name: str) -> Callable[[Bench], Task]:
    """Write all of an array that has no chunks yet."""

    def prepare(bench: Bench) -> Task:
        values, held = np.array(bench.values(name)), []

        def before() -> None:
            held.clear()
            held.append(bench.target(name))

        def run() -> Any:
            bench.driver.write(held[0], ALL, values)
            return held[0]

        return Task(run, lambda array: equals(values)(bench.driver.read(array, ALL)), before)

    return prepare


def appending(name: str) -> Callable[[Bench], Task]:
    """Append half a row of chunks four times, to an array that has no row yet."""

    def prepare(bench: Bench) -> Task:
        rows = bench.scale.large // 2
        parts = [np.array(bench.values(name)[i * rows : (i + 1) * rows]) for i in range(4)]
        layout = DATASETS[name].layout(bench.scale)
        empty = type(layout)((0, *layout.shape[1:]), layout.dtype, layout.chunks, layout.codec, layout.shards)
        path, held = bench.scratch / ("append" + bench.driver.suffix), []

        def before() -> None:
            held.clear()
            remove(path)
            bench.scratch.mkdir(parents=True, exist_ok=True)
            held.append(bench.driver.create(path, empty))

        def run() -> Any:
            array = held[0]
            for part in parts:
                array = bench.driver.append(array, part)
            return array

        return Task(run, lambda array: equals(np.concatenate(parts))(bench.driver.read(array, ALL)), before)

    return prepare


# -- selections --------------------------------------------------------------------------------------------------


def random_indices(extent: int, count: int) -> Any:
    """Numbers below an extent."""
    return np.random.default_rng(extent).integers(0, extent, count)


def scattered(extent: int, count: int) -> Any:
    return np.sort(np.random.default_rng(extent).choice(extent, count, replace=False))


def chunk_calls(scale: Scale) -> list[Any]:
    """Selections of 100 small chunks that lie far apart."""
    n = scale.small
    corners = zip(
        random_indices(scale.side // n, 100) * n,
        random_indices(scale.side // n + 1, 100) % (scale.side // n) * n,
        strict=True,
    )
    return [np.s_[int(i) : int(i) + n, int(j) : int(j) + n] for i, j in corners]


def windows(scale: Scale) -> list[Any]:
    """Selections of 100 windows, each over two or three small chunks a side, wherever they lie."""
    n = scale.small * 3 // 2
    corners = zip(
        random_indices(scale.side - n, 100), random_indices(scale.side - n + 1, 100) % (scale.side - n), strict=True
    )
    return [np.s_[int(i) : int(i) + n, int(j) : int(j) + n] for i, j in corners]


def whole(_: Scale) -> Any:
    """Everything."""
    return ALL


def missing(count: int) -> Callable[[Bench], Task]:
    """Read a run of chunks that were never written."""

    def prepare(bench: Bench) -> Task:
        array = bench.open("missing")
        return Task(lambda: bench.driver.read(array, np.s_[: 4 * count]), equals(np.zeros((4 * count, 8), "i4")))

    return prepare


def last_chunk(name: str) -> Callable[[Bench], Task]:
    """Read the last chunk of a huge array, the only one that is stored."""

    def prepare(bench: Bench) -> Task:
        array, (rows, width) = bench.open(name), DATASETS[name].layout(bench.scale).shape
        selection = np.s_[rows - 1 : rows, width - 4096 :]
        return Task(lambda: bench.driver.read(array, selection), equals(np.ones((1, 4096), "i4")))

    return prepare


SIZES = {f"virtual-{n:.0e}": n for n in VIRTUAL_BYTES}
