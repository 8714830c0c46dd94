"""Runs a computation of blocks on engines, or as a part of a job: in phases, each of which needs the one before.

Theory of operation. The blocks of a phase do not depend on each other. What is done is noted where one process notes it
(`gzarr.images.pyramid.resuming`). Parts of a job share the first phase, which is most of the work; the last of them to
end does the other phases.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, TypeVar

from gzarr.display.progress import counted
from gzarr.images.pyramid.building import Build
from gzarr.images.tasks import limit_of
from gzarr.scale.blocks import BlockPlan
from gzarr.scale.engines import Engine, open_engine
from gzarr.scale.parts import check_parts, note_part
from gzarr.scale.running import check_seen, run

#: Arrays are cut into so many blocks at least, unless these have fewer bytes than that.
_BLOCKS, _LEAST_NBYTES = 32, 16 << 20

T = TypeVar("T")


def planned(plan: Callable[[int | None], T], nbytes: int, max_nbytes: int | None) -> T:
    """A plan whose blocks are small enough for several workers, if there can be such blocks.

    plan: given the memory of a block. nbytes: of the array. Raises: ValueError if ``max_nbytes`` is too little.
    """
    try:
        return plan(min(limit_of(max_nbytes), max(nbytes // _BLOCKS, _LEAST_NBYTES)))
    except ValueError:
        return plan(max_nbytes)


def run_phases(
    build: Build, plan: Mapping[str, Any], phases: Callable[[Mapping[str, Any]], Sequence[BlockPlan]]
) -> None:
    """Carry out a build where its recipe says; what a part leaves to others makes it incomplete.

    Parameters
    ----------
    build : Build
        Within its context `Build.writing`.
    plan : mapping
        What the first run decides: see `Build.begin`.
    phases : callable
        Given the plan of the first run, returns the blocks.

    Raises
    ------
    StoreError
        If workers cannot see a store, or it has no place for the notes of parts.
    Exception
        What the first failing block raised.
    """
    on, part, store = build.recipe.on, build.recipe.part, build.node.store
    levels = [level.store for level in build.levels]
    with nullcontext() if on is None else open_engine(on) as engine:
        if isinstance(engine, Engine):
            check_seen(engine, replace(phases(plan)[0], stores=(store, *levels)))
        if part is not None:
            check_parts(store)
        marks = build.begin(plan)
        todo, first = phases(marks.plan), 0
        if part is not None:
            marks = build.marks = marks.of_part(part)
        with counted(build.recipe.progress, sum(sum(map(one.size, range(one.n))) for one in todo)) as add:
            for blocks in todo:

                def take(numbers: range, _: list[Any], first: int = first) -> None:
                    marks.note(*(first + number for number in numbers))

                run([replace(blocks, take=take, todo=marks.left(first, blocks.n))], engine, part, add)
                first += blocks.n
                if part is not None and not note_part(store, build.node.path, part, marks.id.encode()):
                    build.is_complete = False
                    return
                part = None
