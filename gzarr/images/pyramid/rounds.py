"""Builds levels on engines: each block of one level is read once, and written as what several levels above hold of it.

Theory of operation. Blocks of a *round* are as large as a task may hold, and consist of whole cells of all levels of
the round, so that no task waits for another's. The last level of a round is what the next round reads.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Self, TypeAlias

from gzarr.backend import Backend
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.missing import Missing
from gzarr.images.blocks import BlockGrid, start_of
from gzarr.images.pyramid.building import BlockSource, Build, cells_of
from gzarr.images.pyramid.cascade import Cascade
from gzarr.images.pyramid.downsample import Method
from gzarr.images.pyramid.phases import planned, run_phases
from gzarr.images.pyramid.recipes import Recipe
from gzarr.images.pyramid.units import Cells, plan_units
from gzarr.images.tasks import limit_of, run_tasks, with_memory
from gzarr.indexing.keys import Coords
from gzarr.indexing.regions import Region, size_of
from gzarr.scale.blocks import BlockPlan

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


@dataclass(frozen=True)
class PutBlock:
    """Makes what levels hold of a block of the first of them, by its number.

    Attributes
    ----------
    levels, factors, method, missing
        As of `Cascade`.
    blocks : BlockGrid
        Over the first level.
    produce : callable, optional
        Makes the elements of a region of the first level, which is then written too.
    """

    levels: Sequence[Array]
    factors: Sequence[Coords]
    method: Method
    missing: Missing | None
    blocks: BlockGrid
    produce: Callable[[Region], Any] | None = None

    def region(self, number: int) -> Region:
        """Where a block lies."""
        return self.blocks.region(self.blocks.at(number))

    def __call__(self, number: int) -> None:
        """Make it."""
        base, region, produce = self.levels[0], self.region(number), self.produce
        how: Any = {"backend": base.backend, "write_base": produce is not None, "missing": self.missing}
        cascade = Cascade(self.levels, self.factors, self.method, **how)
        cascade.put(start_of(region), base[region] if produce is None else produce(region))
        cascade.finish()

    def to(self, backend: Backend) -> Self:
        """The same on another device."""
        return replace(self, levels=[level.to(backend) for level in self.levels])


#: Blocks that are done before levels are made: their plan as JSON, and what makes blocks of that.
Before: TypeAlias = tuple[Any, Callable[[Any], BlockPlan]]


def build_rounds(build: Build, before: Before | None = None) -> None:
    """Build the levels of an image on an engine, or as a part of a job.

    Parameters
    ----------
    build : Build
        Its ``max_nbytes`` is the memory of one task.
    before : tuple, optional
        What makes level 0 before. By default it is stored.

    Raises
    ------
    StoreError, ValueError
        If workers cannot see what is written, or a task has too little memory.
    """
    levels, factors, base = build.levels, build.cascade.factors, build.levels[0]

    def phases(plan: Any) -> list[BlockPlan]:
        made = [] if before is None else [before[1](plan["before"])]
        for first, last, block in plan["rounds"]:
            blocks = BlockGrid(levels[first].shape, tuple(block))
            how = build.cascade.method, build.cascade.missing[first], blocks
            made.append(_blocks(PutBlock(levels[first : last + 1], factors[first:last], *how), build.recipe))
        return made

    rounds = planned(partial(plan_rounds, levels, factors), base.nbytes, build.recipe.max_nbytes)
    plan = {"rounds": [list(each) for each in rounds]}
    run_phases(build, plan if before is None else {**plan, "before": before[0]}, phases)


def base_blocks(build: Build, source: BlockSource, produce: Callable[[Region], Any]) -> Before:
    """What writes level 0 of regions that a function makes, which can be pickled. Raises: ValueError."""
    base, cells = build.levels[0], cells_of(build, source)
    cells = cells._replace(footprints=cells.footprints[:1], nbytes=cells.nbytes[:1])

    def blocks(unit: Any) -> BlockPlan:
        do = PutBlock([base], [], "nearest", None, BlockGrid(base.shape, tuple(unit)), produce)
        return _blocks(do, build.recipe, cells.more_nbytes(tuple(unit)))

    return unit_of_blocks(cells, base.nbytes, build.recipe), blocks


def unit_of_blocks(cells: Cells, nbytes: int, recipe: Recipe) -> list[int]:
    """The shape of blocks of an array. Raises: ValueError."""
    return list(planned(lambda most: plan_units(cells, most, 1), nbytes, recipe.max_nbytes).unit)


def _blocks(do: PutBlock, recipe: Recipe, more_nbytes: int = 0) -> BlockPlan:
    base = do.levels[0]
    cost = _BLOCKS_A_TASK * math.prod(map(min, do.blocks.block, base.shape)) * base.itemsize + more_nbytes
    return grid_blocks(base, do.blocks, do, cost, recipe)


def grid_blocks(
    array: Array,
    grid: BlockGrid,
    do: Callable[[int], None],
    cost_nbytes: int,
    recipe: Recipe,
    workers: int | None = None,
) -> BlockPlan:
    """The blocks of a grid over an array, on threads as many as the memory allows. workers: the most threads."""
    limit = limit_of(recipe.max_nbytes, cost_nbytes)
    tasks: Any = {"n_items": len(grid), "cost_nbytes": cost_nbytes, "max_nbytes": limit, "workers": workers}
    return BlockPlan(
        name=with_memory(str(array.store_path), recipe.max_nbytes, limit),
        n=len(grid),
        do=do,
        size=lambda number: size_of(grid.region(grid.at(number))) * array.itemsize,
        threads=partial(run_tasks, array.backend, waits=array.store.concurrency > 1, **tasks),
    )
