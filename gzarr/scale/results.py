"""Keeps what parts of a job make of their blocks, until the part that ends last brings it together.

Theory of operation. Each part stores one object: which of its blocks are done, and what was made of them. It is stored
again now and then, so a part that is killed goes on. The part that finds all others complete takes their results in the
order of the blocks, and does alone whatever depends on them. Two parts may end at once: a claim lets one of them go on,
and a part that is started again, with nothing left to do, takes the claim of one that was killed.
"""

import pickle
import zlib
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import Any, NamedTuple

from gzarr.concurrency import new_lock
from gzarr.errors import PartsMissingError, StoreError
from gzarr.indexing.keys import join_path
from gzarr.metadata.occupied import PART
from gzarr.scale.blocks import BlockPlan, JobPart
from gzarr.scale.parts import check_parts, key_of, note_part, remove_parts
from gzarr.storage.base import Request, Store

#: Results are stored again after so many seconds, and so many times as long as storing them took.
_STORED_S, _STORED_TIMES = 20.0, 10.0


class _JoinedBlocks(NamedTuple):
    """Blocks that are done, up to one: what was made of them."""

    stop: int
    made: Any


class PartResults:
    """The results of a part of a job, which `gzarr.scale.running.run` takes in place of an engine.

    Parameters
    ----------
    part : JobPart
        Which one.
    store, path : Store and str
        Where parts find each other's results. Whoever writes there is trusted: results are pickled.
    run_id : str
        What all parts of a run share, and no other run.

    Attributes
    ----------
    part
        The same.
    is_last : bool
        Whether all results were taken: what follows is done here.

    Raises
    ------
    StoreError
        If the store has no place for results.
    """

    def __init__(self, part: JobPart, store: Store, path: str, run_id: str) -> None:
        check_parts(store)
        self.part, self.is_last = part, False
        self._store, self._path, self._id = store, path, run_id
        self._runs: dict[int, _JoinedBlocks] = {}  # by their first blocks
        self._firsts: dict[int, int] = {}  # by where they stop
        self._lock, self._due = new_lock(), 0.0

    def gather(self, plan: BlockPlan, run: Callable[[BlockPlan], object]) -> None:
        """Do the blocks of this part, and take the results of all parts.

        run: does the blocks that a plan has to do. Raises: PartsMissingError if other parts are not done.
        """
        self._id = f"{self._id} {plan.n}"
        self._runs, mine = self._load(self.part.number) or {}, self.part.blocks(plan.n)
        self._firsts = {run.stop: first for first, run in self._runs.items()}
        edges = [
            mine.start,
            *(edge for first in sorted(self._runs) for edge in (first, self._runs[first].stop)),
            mine.stop,
        ]
        left = [range(*pair) for pair in zip(edges[::2], edges[1::2], strict=True) if pair[0] < pair[1]]
        self._due = perf_counter() + _STORED_S

        def take(numbers: range, made: list[Any]) -> None:
            with self._lock:
                for number, one in zip(numbers, made, strict=True):
                    self._keep(plan, number, one)
                if perf_counter() > self._due:
                    self._save()

        run(replace(plan, take=take, todo=left))
        self._save()
        if not note_part(self._store, self._path, self.part, self._id.encode()) or not self._claim(bool(left)):
            raise PartsMissingError(f"part {self.part.number} of {self.part.of} is done; others of {plan.name} are not")
        self.is_last = True
        for number in range(self.part.of):
            runs = self._load(number)
            if runs is None:  # removed by another part that ended meanwhile, with its claim
                self._store.delete_many([self._claimed])
                raise PartsMissingError(f"{plan.name}: another part has brought the results together")
            for first, (stop, made) in sorted(runs.items()):
                plan.take(range(first, stop), [made, *(plan.nothing for _ in range(first + 1, stop))])

    def remove(self) -> None:
        """Remove the results of all parts, when nothing depends on them."""
        remove_parts(self._store, self._path)

    def _keep(self, plan: BlockPlan, number: int, made: Any) -> None:
        """Note the result of a block, joined with those of the blocks before and after it where that is exact."""
        first, stop = number, number + 1
        before = self._firsts.get(first)
        if before is not None and plan.group(before) == plan.group(number):
            joined = plan.join(self._runs[before].made, made)
            if joined is not NotImplemented:
                del self._firsts[first]
                first, made = before, joined
        if stop in self._runs and plan.group(stop) == plan.group(number):
            joined = plan.join(made, self._runs[stop].made)
            if joined is not NotImplemented:
                made, stop = joined, self._runs.pop(stop).stop
        self._runs[first], self._firsts[stop] = _JoinedBlocks(stop, made), first

    def _save(self) -> None:
        began = perf_counter()
        made = zlib.compress(pickle.dumps({first: tuple(run) for first, run in self._runs.items()}), 1)
        self._store.set(self._key(self.part.number), self._id.encode() + b"\n" + made)
        now = perf_counter()
        self._due = now + max(_STORED_S, _STORED_TIMES * (now - began))

    def _load(self, number: int) -> dict[int, _JoinedBlocks] | None:
        """The results of a part; None if there are none of this run."""
        key = self._key(number)
        data = self._store.get_one(Request(key))
        run_id, _, made = (b"" if data is None else bytes(data)).partition(b"\n")
        if run_id != self._id.encode():
            return None
        try:
            runs = pickle.loads(zlib.decompress(made))
        except (zlib.error, pickle.UnpicklingError, EOFError) as error:
            raise StoreError(f"{self._store}: {key!r} is damaged; delete it, and start all parts again") from error
        return {first: _JoinedBlocks(*run) for first, run in runs.items()}

    def _key(self, number: int) -> str:
        return f"{key_of(self._path, self.part._replace(number=number))}-results"

    @property
    def _claimed(self) -> str:
        return join_path(self._path, f"{PART}last")

    def _claim(self, had_blocks: bool) -> bool:
        """Whether this part brings the results together: the first to claim it, or one that is started again."""
        key, claimed = self._claimed, self._id.encode()
        if self._store.set_if_missing(key, claimed) or not had_blocks:
            return True
        found = self._store.get_one(Request(key))
        return found is not None and bytes(found) != claimed  # of another run
