"""Rows about many at once: boxes of many arrays, rows of a table by their numbers, arrays of a consolidated group."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cpu.data import Layout, Scale
from benchmarks.cpu.driver import AbsentError
from benchmarks.cpu.workloads import ALL, Bench, Task, Workload, equals, member_names, oindex, open_members

#: Made by `MAKERS`: arrays that boxes are read of, a group with consolidated metadata, and arrays that are opened.
TILES, LISTED, PATHS = "tiles", "listed", "paths"
_N_TILES = 100
#: Arrays that are opened, for every one in the group.
_TIMES = 10


def _side(scale: Scale) -> int:
    return 4 * scale.small


def _tiles(scale: Scale) -> list[tuple[str, Any]]:
    """Names of the arrays, and where in the source each one's values are."""
    side, per_row = _side(scale), scale.side // _side(scale)
    corners = (divmod(number, per_row) for number in range(min(_N_TILES, per_row**2)))
    places = [np.s_[row * side : (row + 1) * side, column * side : (column + 1) * side] for row, column in corners]
    return [(f"t{number:03d}", place) for number, place in enumerate(places)]


def _make_tiles(bench: Bench, path: Path) -> None:
    bench.driver.folder(path)
    scale, source = bench.scale, bench.cache.source("i4")
    layout = Layout((_side(scale),) * 2, "i4", (scale.small,) * 2)
    for name, place in _tiles(scale):
        bench.driver.write(bench.driver.create(path / name, layout), ALL, np.asarray(source[place]))


def _make_listed(bench: Bench, path: Path) -> None:
    bench.driver.create_group(path)
    for name in member_names(bench.scale):
        bench.driver.create(path / name, Layout((10,), "i4", (10,)))
    bench.driver.consolidate(path)


def _make_paths(bench: Bench, path: Path) -> None:
    names = member_names(bench.scale, _TIMES)
    bench.driver.check_opens(len(names))
    bench.driver.folder(path)
    for name in names:
        bench.driver.create(path / name, Layout((10,), "i4", (10,)))


MAKERS: dict[str, Callable[[Bench, Path], None]] = {TILES: _make_tiles, LISTED: _make_listed, PATHS: _make_paths}


def _boxes(bench: Bench) -> Task:
    """Read boxes of opened arrays, all at once where the library can."""
    scale, tiles, source = bench.scale, _tiles(bench.scale), bench.cache.source("i4")
    if not bench.path(TILES).is_dir():
        raise AbsentError("arrays are no files of their own")
    rng, size = np.random.default_rng(13), max(scale.small * 2 // 3, 1)
    wanted = [(int(rng.integers(len(tiles))), *rng.integers(0, _side(scale) - size, 2)) for _ in range(_count(scale))]
    arrays = [bench.driver.open(bench.path(TILES) / name) for name, _ in tiles]
    boxes = [(tile, np.s_[int(y) : int(y) + size, int(x) : int(x) + size]) for tile, y, x in wanted]
    expected = [np.asarray(source[tiles[tile][1]])[box] for tile, box in boxes]
    items = [(arrays[tile], box) for tile, box in boxes]
    return Task(lambda: bench.driver.read_many(items), equals(expected))


def _count(scale: Scale) -> int:
    return scale.points // 100


def _members(bench: Bench) -> Task:
    """Open a group by its consolidated metadata, and every array of it."""
    path, wanted = bench.path(LISTED), [(name, (10,)) for name in member_names(bench.scale)]

    def check(answer: Any) -> None:
        assert sorted(answer) == wanted, "other members than were made"

    return Task(lambda: bench.driver.members(bench.driver.open_consolidated(path)), check)


def _rows(scale: Scale) -> Any:
    return np.random.default_rng(14).integers(0, 10 * scale.points, scale.points)


ROWS: tuple[Workload, ...] = (
    Workload("read 1,000 boxes of 100 arrays at once", "reads", (TILES,), _boxes),
    Workload("oindex, 100,000 rows of a table", "reads", ("table",), oindex("table", _rows)),
    Workload("open 10,000 arrays by path", "hierarchies", (PATHS,), open_members(PATHS, _TIMES)),
    Workload("open a consolidated group, its 1,000 arrays", "hierarchies", (LISTED,), _members),
)
