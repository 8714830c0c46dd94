"""Notes which units of a long computation are done, so that one that was killed goes on where it was.

Theory of operation. The notes are one small object beside what is computed. It is written before anything else and
removed last. A unit is noted once all that it writes is stored, so a killed run repeats at most the units that were
under way: one for each thread. Units are taken in order, so those that are done are nearly a prefix. In a store that
takes no such object, nothing is noted.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any
from uuid import uuid4

from gzarr.concurrency import new_lock
from gzarr.errors import OVERWRITE, RESUME, ChunkError, ContainsNodeError, StoreError
from gzarr.identity.runs import Run
from gzarr.indexing.keys import join_path
from gzarr.metadata.occupied import PART, PROGRESS
from gzarr.scale.blocks import JobPart
from gzarr.scale.parts import remove_parts
from gzarr.storage import Store
from gzarr.storage.base import Request


class UnitsDone:
    """Which units of a computation are done.

    Attributes
    ----------
    plan : mapping
        What the first run has decided and later ones keep, such as the shape of a unit; JSON values.
    id : str
        What all parts of a run share, and no other run.
    n_done : int
        How many units are done.
    may_have_parts : bool
        Whether parts of a job may have left notes beside these.
    """

    def __init__(self, store: Store, path: str, state: Mapping[str, Any], name: str = PROGRESS) -> None:
        self.plan: Mapping[str, Any] = state["plan"]
        self._store, self._path, self._name = store, path, name
        self._state, self.id = dict(state), str(state.get("id"))
        self._first = int(state["first"])  # all units before it are done
        self._others = set(map(int, state["others"]))  # and these
        self._is_stored = _takes_notes(store, path)
        self.may_have_parts = True
        self._lock = new_lock()

    @property
    def n_done(self) -> int:
        """How many units are done."""
        return self._first + len(self._others)

    def is_done(self, unit: int) -> bool:
        """Whether the unit with a number is done."""
        return unit < self._first or unit in self._others

    def left(self, first: int, n: int) -> Iterator[range]:
        """Which of so many units, from the one with a number on, are not done: runs, counted from 0."""
        start = max(first, self._first)
        for done in [*sorted(unit for unit in self._others if first <= unit < first + n), first + n]:
            if start < done:
                yield range(start - first, done - first)
            start = done + 1

    def of_part(self, part: JobPart) -> "UnitsDone":
        """The notes of one of several processes, with the same plan."""
        name = f"{PART}{part.number}-of-{part.of}-units"
        data = self._store.get_one(Request(join_path(self._path, name)))
        state = {} if data is None else json.loads(bytes(data))
        if state.get("id") != self.id:  # of another run
            state = {**self._state, "first": 0, "others": []}
        return UnitsDone(self._store, self._path, state, name)

    def note(self, *units: int) -> None:
        """Note that all that units write is stored. Raises: StoreError."""
        with self._lock:
            others, first = self._others.union(units), self._first
            while first in others:
                others.remove(first)
                first += 1
            self._first, self._others = first, others
            self.write()

    def write(self, *, new: bool = False) -> bool:
        """Write the notes, if the store takes such objects. Returns: False if they must be new and there are some."""
        state = {**self._state, "first": self._first, "others": sorted(self._others)}
        put = self._store.set_if_missing if new else self._store.set
        return not self._is_stored or put(join_path(self._path, self._name), json.dumps(state).encode()) is not False

    def note_failure(self, error: Exception) -> None:
        """Note a chunk that could not be read: it may have been repaired when the run goes on."""
        if isinstance(error, ChunkError):
            with self._lock, suppress(StoreError):  # the other error is raised
                self._state["failed"] = [*self._state.get("failed", ()), error.key]
                self.write()

    def remove(self) -> None:
        """Remove the notes of what is complete."""
        if self.may_have_parts:
            remove_parts(self._store, self._path)
        remove_marks(self._store, self._path)


def begin(
    store: Store,
    path: str,
    *,
    name: str,
    run: Run,
    plan: Mapping[str, Any],
    resume: bool,
    anew: bool = False,
    run_id: str = "",
    remedy: str = f"pass {OVERWRITE}",
) -> UnitsDone:
    """Begin a computation, or go on with one that was not finished.

    Parameters
    ----------
    store, path : Store and str
        Where the computation writes.
    name : str
        Of the function, for messages.
    run : Run
        What is computed of what: only the same run goes on.
    plan : mapping
        What `UnitsDone.plan` is in a first run.
    resume : bool
        Whether to go on with an unfinished run, if there is one.
    anew : bool
        Whether to take no notice of an unfinished run.
    run_id : str, optional
        What `UnitsDone.id` is in a first run.
    remedy : str
        What to do to begin anew, for messages.

    Returns
    -------
    Marks
        The units that are done; their notes are written.

    Raises
    ------
    ContainsNodeError
        If an unfinished run is there that is not resumed, or is another one.
    """
    store.check_writable()
    where, state = join_path(str(store), path), None if anew else read_marks(store, path)
    if state is None:
        first: Any = {"id": run_id or uuid4().hex[:12], "first": 0, "others": []}
        marks = UnitsDone(store, path, {**first, "name": name, "run": run.to_json(), "plan": plan})
        marks.may_have_parts = bool(run_id)
        if marks.write(new=not anew):
            return marks
        return begin(store, path, name=name, run=run, plan=plan, resume=resume, remedy=remedy)  # another has begun
    if not resume:
        raise ContainsNodeError(
            f"an unfinished {state['name']} is at {where!r}: pass {RESUME} to go on with it, or {remedy} to begin anew"
        )
    found = run.differences(state.get("run"), state.get("failed", ()))
    if state["name"] != name:
        found.insert(0, f"{name} is called")
    if found:
        raise ContainsNodeError(
            f"the unfinished {state['name']} at {where!r} is of something else: {'; '.join(found)}. Go on with the "
            f"same functions, inputs and arguments, or {remedy} instead of {RESUME} to begin anew"
        )
    return UnitsDone(store, path, state)


def read_marks(store: Store, path: str) -> Mapping[str, Any] | None:
    """The notes of an unfinished computation at a path, or None. Raises ContainsNodeError if they are damaged."""
    data = store.get_one(Request(join_path(path, PROGRESS))) if _takes_notes(store, path) else None
    if data is None:
        return None
    try:
        state = json.loads(bytes(data))
        UnitsDone(store, path, state)
        return {**state, "name": str(state["name"])}
    except (ValueError, TypeError, LookupError) as error:
        where = join_path(str(store), join_path(path, PROGRESS))
        raise ContainsNodeError(f"{where} is damaged ({error}): pass {OVERWRITE} to begin anew") from error


def remove_marks(store: Store, path: str) -> None:
    """Remove the notes at a path, if there are any."""
    if _takes_notes(store, path):
        store.delete_many((join_path(path, PROGRESS),))


def _takes_notes(store: Store, path: str) -> bool:
    """Whether a store takes objects that are no part of Zarr. Icechunk does not: there, nothing can be resumed."""
    try:
        store.get_one(Request(join_path(path, PROGRESS)))
    except StoreError:
        return False
    return True
