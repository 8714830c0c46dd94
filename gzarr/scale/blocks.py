"""What an operation is to whoever runs it: numbered blocks, a function of a number, and what is done with results.

Theory of operation. A block holds whole write cells of the target (chunks or shards), so no two blocks write one
object. Blocks are found from their numbers by arithmetic, and nothing is listed. What runs them draws *units*, runs of
consecutive numbers, as long as they take about `TARGET_S` seconds.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

#: A function for every item, on threads of this process or one after the other.
Threads: TypeAlias = Callable[[Callable[[int], None], Iterable[int]], object]


def one_by_one(task: Callable[[int], None], numbers: Iterable[int]) -> None:
    """Carry out a task for one number after the other."""
    for number in numbers:
        task(number)


def _nothing(*_: Any) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class BlockPlan:
    """Blocks that can be done in any order, anywhere.

    Attributes
    ----------
    name : str
        What they are of, for progress and messages.
    n : int
        How many there are.
    do : callable
        Does the block with a number, and returns what is made of it. It is pickled for other processes.
    give : callable, optional
        Called in this process with a number: what ``do`` gets with it.
    size : callable
        Bytes of the block with a number, for progress.
    take : callable
        Called in this process with a range of numbers, and the results of their blocks; in any order.
    todo : iterable of range, optional
        The blocks that are not done yet.
    begin, close : callable
        Called in this process before the first block and after the last one.
    threads : callable
        Carries out a task for numbers in this process.
    stores : tuple of Store
        What workers have to see.
    group, join : callable
        Of a part of a job whose results are kept: ``join`` makes one result of those of blocks in a row that have the
        same ``group``, or NotImplemented if that is not exact. By default none are joined.
    nothing : object
        What is taken of blocks whose results have joined those before.
    """

    name: str
    n: int
    do: Callable[..., Any]
    size: Callable[[int], int] = field(default=lambda _: 0)
    take: Callable[[range, list[Any]], object] = _nothing
    todo: Iterable[range] | None = None
    begin: Callable[[], object] = _nothing
    close: Callable[[], object] = _nothing
    threads: Threads = one_by_one
    give: Callable[[int], Any] | None = None
    stores: tuple[Any, ...] = ()
    group: Callable[[int], int] = int
    join: Callable[[Any, Any], Any] = _nothing
    nothing: Any = None

    def ranges(self) -> Iterator[range]:
        """The blocks that are not done yet, in order."""
        return iter([range(self.n)] if self.todo is None else self.todo)


class JobPart(NamedTuple):
    """The part of a job that one of several processes does, which know nothing of each other.

    Attributes
    ----------
    number, of : int
        Which one, from 0, and how many there are.
    """

    number: int
    of: int

    def blocks(self, n: int) -> range:
        """The blocks of this part, of so many."""
        return range(n * self.number // self.of, n * (self.number + 1) // self.of)

    def share(self, ranges: Iterable[range], n: int) -> Iterator[range]:
        """Those of some blocks that are of this part, of so many."""
        mine = self.blocks(n)
        for one in ranges:
            start, stop = max(one.start, mine.start), min(one.stop, mine.stop)
            if start < stop:
                yield range(start, stop)


def parse_part(part: tuple[int, int] | None) -> JobPart | None:
    """Check which part of a job is done. Raises: ValueError."""
    if part is None:
        return None
    found = JobPart(*map(int, part)) if len(part) == 2 else JobPart(-1, 0)
    if not 0 <= found.number < found.of:
        raise ValueError(f"part={part!r} must be (k, n) with 0 <= k < n: which one, and how many processes there are")
    return found
