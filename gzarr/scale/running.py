"""Hands units of blocks to workers, a few at a time, repeats those whose worker died, and says how it went.

Theory of operation. There is no graph: a unit is cut off when a worker is about to be free, as long as blocks that were
done before let expect `TARGET_S` seconds, and shorter towards the end, so that workers end together. A unit whose
worker dies is handed out again. What is stored is known to the operation alone, so nothing is lost with this process.
"""

import heapq
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from gzarr.concurrency import new_lock
from gzarr.errors import StoreError
from gzarr.profiling import recorder
from gzarr.scale.blocks import BlockPlan, JobPart
from gzarr.scale.engines import Ended, Engine, open_engine
from gzarr.scale.results import PartResults
from gzarr.storage.wrappers import type_name

#: Seconds that a unit takes: long beside the milliseconds of handing it over, short beside what its loss costs.
TARGET_S = 5.0
#: Units for each worker that are handed over at once: one runs, the others are on their way.
_UNITS_A_WORKER = 2
#: The last blocks are cut into so many units for each worker.
_LAST_UNITS = 3
#: How often a unit may lose its worker: the fault is then its own.
_MOST_LOSSES = 5
#: Units that are called slow, and by how many times their blocks must exceed the mean.
_MOST_SLOW, _SLOW = 5, 3.0
#: Stores that only the process that opened them writes.
_OF_ONE_PROCESS = ("MemoryStore", "ZipStore", "SQLiteStore", "ZarrStore")

_log = logging.getLogger("gzarr.scale")


@dataclass
class RunReport:
    """How blocks were done. Prints as text.

    Attributes
    ----------
    engine : str
        What ran them.
    n_blocks, n_units : int
        Blocks that were done, and units that were handed over.
    seconds : float
        From the first to the last.
    busy_s : float
        Sum of the seconds of all units.
    slow : list of (float, str)
        The slowest units: seconds of a block, and which blocks.
    repeated : list of str
        Units that were done again, and why.
    """

    engine: str = "threads"
    n_blocks: int = 0
    n_units: int = 0
    seconds: float = 0.0
    busy_s: float = 0.0
    slow: list[tuple[float, str]] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        mean = self.busy_s / max(self.n_blocks, 1)
        slowest = [one for one in sorted(self.slow, reverse=True) if one[0] > _SLOW * mean]
        slow = [f"{seconds:.2g} s a block: {where}" for seconds, where in slowest]
        head = (
            f"{self.n_blocks:,} blocks in {self.n_units:,} units on {self.engine}: {self.seconds:.1f} s, "
            f"{mean:.2g} s a block"
        )
        return "\n".join([head, *(f"slow: {line}" for line in slow), *(f"repeated: {line}" for line in self.repeated)])


def run(
    plans: Iterable[BlockPlan],
    on: Any = None,
    part: JobPart | None = None,
    add: Callable[[int, str], object] | None = None,
) -> RunReport:
    """Do all blocks of some plans, which may overlap in time.

    Parameters
    ----------
    plans : iterable of BlockPlan
        Taken one after the other, when there are workers for their blocks.
    on : optional
        What runs them: see `gzarr.scale.engines.open_engine`. By default threads of this process; so do those of one
        of several parts, given its results.
    part : JobPart, optional
        Which part of the blocks is done here. The plans are then not closed.
    add : callable, optional
        Called with bytes that are done, and the name of their plan.

    Raises
    ------
    Exception
        What the first failing block raised. What is under way has ended, or is cancelled.
    """
    if on is not None and part is not None:
        raise ValueError("on= and part= are two ways to use several machines; leave one of them away")
    report, began = RunReport(), perf_counter()
    add = add or (lambda _nbytes, _name: None)
    if on is None or isinstance(on, PartResults):
        for plan in plans:
            if on is None or on.is_last:
                _run_here(plan, part, report, add)
            else:
                on.gather(plan, lambda mine: _run_here(mine, on.part, report, add))
                plan.close()
    else:
        with open_engine(on) as engine, recorder.span("gzarr.run") as span:
            report.engine = engine.name
            listener = recorder.listener  # of the span
            _Running(engine, report, add).run(plans)
            if listener is not None:
                listener.ran(span, report)
    report.seconds = perf_counter() - began
    if on is not None:
        _log.info("%s", report)
    return report


def _run_here(plan: BlockPlan, part: JobPart | None, report: RunReport, add: Callable[[int, str], object]) -> None:
    ranges = plan.ranges() if part is None else part.share(plan.ranges(), plan.n)
    lock = new_lock()
    plan.begin()

    def carry_out(number: int) -> None:
        began = perf_counter()
        given = () if plan.give is None else (plan.give(number),)
        plan.take(range(number, number + 1), [plan.do(number, *given)])
        add(plan.size(number), plan.name)
        with lock:
            report.n_blocks += 1
            report.n_units += 1
            report.busy_s += perf_counter() - began

    plan.threads(carry_out, (number for one in ranges for number in one))
    if part is None:
        plan.close()


@dataclass(eq=False)
class _Plan:
    """A plan whose units are handed out."""

    blocks: BlockPlan
    token: Any
    ranges: Iterator[range]
    rest: range = range(0)
    n_left: int = 0  # blocks that nobody has, at most
    n_running: int = 0  # units, with those that are to be repeated
    block_s: float = 0.0  # seconds of a block, as known so far

    def next_unit(self, workers: int) -> range | None:
        """The next unit, as long as it should be; None if there is no more."""
        while not self.rest:
            self.rest = next(self.ranges, None)  # type: ignore[assignment]
            if self.rest is None:
                self.rest, self.n_left = range(0), 0
                return None
        fair = -(-self.n_left // (_LAST_UNITS * workers))
        wanted = int(TARGET_S / self.block_s) if self.block_s else 1
        length = max(1, min(fair, wanted))
        unit, self.rest = self.rest[:length], self.rest[length:]
        self.n_left -= len(unit)
        return unit


class _Running:
    """A run on an engine."""

    def __init__(self, engine: Engine, report: RunReport, add: Callable[[int, str], object]) -> None:
        self._engine, self._report, self._add = engine, report, add
        self._under_way: dict[int, tuple[_Plan, range]] = {}
        self._losses: dict[tuple[str, range], int] = {}
        self._waiting: deque[tuple[_Plan, range]] = deque()  # units that are to be repeated
        self._number = 0

    def run(self, plans: Iterable[BlockPlan]) -> None:
        """Do all blocks. Raises: what the first failing block raised."""
        units = self._units(iter(plans))
        try:
            while self._fill(units) or self._under_way:
                self._take(self._engine.wait())
        finally:
            self._engine.cancel(list(self._under_way))

    def _fill(self, units: Iterator[tuple[_Plan, range]]) -> bool:
        """Hand out units while workers want some. Returns: whether any was."""
        found = False
        while len(self._under_way) < _UNITS_A_WORKER * self._engine.workers:
            unit = self._waiting.popleft() if self._waiting else next(units, None)
            if unit is None:
                break
            self._hand_over(*unit)
            found = True
        return found

    def _units(self, plans: Iterator[BlockPlan]) -> Iterator[tuple[_Plan, range]]:
        for blocks in plans:
            check_seen(self._engine, blocks)
            blocks.begin()
            plan = _Plan(blocks, self._engine.prepare(blocks.do, blocks.name), blocks.ranges(), n_left=blocks.n)
            plan.n_running += 1  # so that it is not closed before all its units are handed out
            while (unit := plan.next_unit(self._engine.workers)) is not None:
                plan.n_running += 1
                yield plan, unit
            self._end_one(plan)

    def _hand_over(self, plan: _Plan, unit: range) -> None:
        self._number += 1
        self._under_way[self._number] = plan, unit
        give = plan.blocks.give
        self._engine.submit(self._number, plan.token, unit, None if give is None else list(map(give, unit)))

    def _take(self, ended: Ended) -> None:
        number, error, made = ended
        if number not in self._under_way:
            return
        plan, unit = self._under_way.pop(number)
        if error is not None:
            self._repeat(plan, unit, error)
            return
        results, seconds, where = made
        plan.blocks.take(unit, results)
        a_block = seconds / len(unit)
        plan.block_s = a_block if not plan.block_s else 0.7 * plan.block_s + 0.3 * a_block
        self._note(plan, unit, seconds, where)
        self._end_one(plan)

    def _note(self, plan: _Plan, unit: range, seconds: float, where: str) -> None:
        report = self._report
        report.n_units += 1
        report.n_blocks += len(unit)
        report.busy_s += seconds
        told = seconds / len(unit), f"{_named(plan, unit)}, {where}"
        (heapq.heappush if len(report.slow) < _MOST_SLOW else heapq.heappushpop)(report.slow, told)
        self._add(sum(map(plan.blocks.size, unit)), plan.blocks.name)

    def _repeat(self, plan: _Plan, unit: range, error: BaseException) -> None:
        """Hand a unit out again whose worker died. Raises: another error, or if it has cost too many workers."""
        if not isinstance(error, self._engine.lost):
            raise error
        told = f"{_named(plan, unit)}: {type(error).__name__}"
        losses = self._losses[plan.blocks.name, unit] = self._losses.get((plan.blocks.name, unit), 0) + 1
        if losses >= _MOST_LOSSES:
            raise StoreError(
                f"{told} ended {losses} workers ({error}), for want of memory perhaps: give max_nbytes= less, or "
                "workers more"
            ) from error
        _log.warning("repeated: %s", told)
        self._report.repeated.append(told)
        self._engine.recover()
        self._waiting.append((plan, unit))

    def _end_one(self, plan: _Plan) -> None:
        plan.n_running -= 1
        if not plan.n_running:
            plan.blocks.close()


def _named(plan: _Plan, unit: range) -> str:
    last = "" if len(unit) == 1 else f" to {unit.stop - 1}"
    return f"block{'s' * (len(unit) > 1)} {unit.start}{last} of {plan.blocks.name}"


def check_seen(engine: Engine, blocks: BlockPlan) -> None:
    """Refuse stores that workers do not see, or must not write. Raises: StoreError."""
    for store in () if engine.shares_memory else blocks.stores:
        if type_name(store) in _OF_ONE_PROCESS:
            what = "memory" if type_name(store) == "MemoryStore" else f"a {type_name(store)}"
            raise StoreError(
                f"{blocks.name} is in {what} of this process, which workers cannot share: use a directory or a "
                "server, or leave on= out"
            )
