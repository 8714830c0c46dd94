"""Builds levels on a cluster: each task reads a block of one level and writes what several levels above hold of it.

Theory of operation. Blocks of a *round* are as large as a task may hold, and consist of whole cells of all levels of
the round, so that no task waits for another's. The last level of a round is what the next round reads. Tasks open the
arrays by their place. Only as many tasks are handed over at once as keep the workers busy, so the cluster's scheduler
sees no graph.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any, NamedTuple

from gzarr.display.progress import counted
from gzarr.errors import StoreError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.missing import Missing
from gzarr.images.blocks import BlockGrid, start_of
from gzarr.images.pyramid.building import Build
from gzarr.images.pyramid.cascade import Cascade
from gzarr.images.pyramid.downsample import Method
from gzarr.images.pyramid.on_devices import OnDevices
from gzarr.images.pyramid.recipes import ClusterClient
from gzarr.images.pyramid.resuming import UnitsDone
from gzarr.images.tasks import limit_of
from gzarr.indexing.keys import Coords
from gzarr.indexing.regions import Region
from gzarr.storage.wrappers import type_name

#: Tasks for each thread of the cluster that are handed over at once: one runs, the others are on their way.
_TASKS_A_THREAD = 2
#: A task holds its block, and what is downsampled and encoded of it.
_BLOCKS_A_TASK = 2


class Round(NamedTuple):
    """Levels that are made of one below them.

    Attributes
    ----------
    base : int
        Number of the level that is read.
    last : int
        Number of the last level that is written.
    block : tuple[int, ...]
        Extents of what a task reads.
    """

    base: int
    last: int
    block: Coords


def plan_rounds(levels: Sequence[Array], factors: Sequence[Coords], max_nbytes: int | None) -> list[Round]:
    """Choose the levels of each round, as many as a task can hold whole cells of. Raises: ValueError."""
    rounds: list[Round] = []
    base = 0
    while base + 1 < len(levels):
        cells = Cascade(levels[base:], factors[base:], backend=levels[0].backend, write_base=False).geometry
        block, last = tuple(map(math.lcm, cells.footprints[0], cells.chunk)), base
        for number, footprint in enumerate(cells.footprints[1:], base + 1):
            wider = tuple(map(math.lcm, block, footprint))
            needed = _BLOCKS_A_TASK * math.prod(map(min, wider, cells.shape)) * cells.itemsize
            if needed > limit_of(max_nbytes, needed if last == base else 0):
                if last == base:
                    raise ValueError(
                        f"max_nbytes={max_nbytes}: a task needs {needed} bytes to write whole chunks or shards of "
                        f"level {number}; give at least that, or make them smaller"
                    )
                break
            block, last = wider, number
        rounds.append(Round(base, last, block))
        base = last
    return rounds


def build_on(client: ClusterClient, build: Build) -> None:
    """Build all levels above level 0, which is stored, on a cluster.

    Parameters
    ----------
    client : ClusterClient
        Hands tasks to the cluster. A method that is a function must be one that can be pickled.
    build : Build
        Of `gzarr.images.pyramid.building.make_build`; its ``max_nbytes`` is the memory of one task.

    Raises
    ------
    StoreError
        If the image is in the memory of this process, which no other sees.
    Exception
        What the first failing task raised. Tasks that had not begun are cancelled.
    """
    levels, factors = build.levels, build.cascade.factors
    if type_name(levels[0].store) == "MemoryStore" and not isinstance(client, OnDevices):
        raise StoreError(
            f"{build.node.store_path} is in the memory of this process, which workers cannot see: store the image in "
            "a directory or on a server, or leave client= out"
        )
    rounds = plan_rounds(levels, factors, build.recipe.max_nbytes)
    marks = build.begin({"rounds": [list(each) for each in rounds]})
    rounds = [Round(base, last, tuple(block)) for base, last, block in marks.plan["rounds"]]
    total = sum(levels[each.base].nbytes for each in rounds)
    number = 0
    with counted(build.recipe.progress, total) as add:
        for each in rounds:
            blocks = BlockGrid(levels[each.base].shape, each.block)
            tasks = list(enumerate(map(blocks.region, blocks), number))
            number += len(tasks)
            missing = build.cascade.missing[each.base]
            given = (levels[each.base : each.last + 1], factors[each.base : each.last], build.cascade.method, missing)
            _run(client, given, [task for task in tasks if not marks.is_done(task[0])], marks)
            add(levels[each.base].nbytes, levels[each.base].path)


def put_block(
    levels: Sequence[Array],
    factors: Sequence[Coords],
    method: Method,
    missing: Missing | None,
    region: Region,
    run: str,
) -> None:
    """Do one task. run: makes it unlike the same task of another run, whose result a cluster may have kept."""
    del run
    base = levels[0]
    cascade = Cascade(levels, factors, method, backend=base.backend, write_base=False, missing=missing)
    cascade.put(start_of(region), base[region])
    cascade.finish()


def _run(
    client: ClusterClient,
    given: tuple[Sequence[Array], Sequence[Coords], Method, Missing | None],
    tasks: Sequence[tuple[int, Region]],
    marks: UnitsDone,
) -> None:
    """Run tasks, and note those that are done. Raises: what the first failing task raised."""
    ended: SimpleQueue[tuple[int, Any]] = SimpleQueue()
    run, waiting, under_way = uuid.uuid4().hex, iter(tasks), dict[int, Any]()
    most = _TASKS_A_THREAD * _n_threads(client)

    def begin() -> None:
        for number, region in waiting:
            future = client.submit(put_block, *given, region, run)
            under_way[number] = future
            future.add_done_callback(lambda future, number=number: ended.put((number, future)))
            return

    try:
        for _ in range(most):
            begin()
        while under_way:
            number, future = ended.get()
            future.result()
            del under_way[number]
            marks.note(number)
            begin()
    finally:
        for future in under_way.values():
            future.cancel()


def _n_threads(client: Any) -> int:
    """How many tasks a cluster runs at once."""
    if hasattr(client, "nthreads"):
        return max(1, sum(map(int, client.nthreads().values())))
    return int(getattr(client, "_max_workers", 8))
