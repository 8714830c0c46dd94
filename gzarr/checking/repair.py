"""Repairs what a verification has found and a caller names: drops chunks, removes leftover files, consolidates again.

Rules. Only what is asked for is touched. A chunk is read again under its lock, and stays if it is sound by then. In a
shard, only the bad chunks are dropped; the others are copied as they are encoded.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

from gzarr.checking.chunks import check_object, prepare_chunks
from gzarr.checking.nodes import coords_of, is_outside, leftover_objects, remove_leftover
from gzarr.checking.report import Place, Problem, Verification, one_line
from gzarr.display.info import number
from gzarr.errors import GzarrError
from gzarr.errors.escaping import as_lines, escaped
from gzarr.indexing.keys import Coords
from gzarr.layout.chunk_layout import Layout
from gzarr.metadata.consolidated import consolidate
from gzarr.metadata.documents import document_key, read_node
from gzarr.metadata.model import ArrayMeta
from gzarr.storage.base import Buffer, Request, Store
from gzarr.storage.capabilities import Change
from gzarr.storage.invalidation import invalidate

Repairable: TypeAlias = Literal["chunks", "leftovers", "consolidated"]
KINDS: tuple[str, ...] = get_args(Repairable)

#: Which problems each kind of repair deals with.
_DEALS_WITH = {"chunk": "chunks", "shard": "chunks", "temporary": "leftovers", "unreachable": "leftovers"}


@dataclass(frozen=True, slots=True)
class Action:
    """One step of a repair.

    Attributes
    ----------
    what : str
        What is done, in words.
    key : str
        Key of the object, or path of a folder, which ends with a slash.
    done : bool
        Whether it was done; False in a dry run.
    error : str
        Why it failed, or "".
    """

    what: str
    key: str
    done: bool = False
    error: str = ""

    def __str__(self) -> str:
        return escaped(f"{self.what}: {self.key}" + (f": FAILED: {one_line(self.error)}" if self.error else ""))


@dataclass(frozen=True, slots=True, repr=False)
class Repair:
    """What a repair did, or would do. Prints as a report.

    Attributes
    ----------
    actions : tuple of Action
        The steps.
    left : tuple of Problem
        Problems that it does not deal with.
    dry_run : bool
        Whether nothing was changed.
    """

    actions: tuple[Action, ...]
    left: tuple[Problem, ...]
    dry_run: bool

    @property
    def ok(self) -> bool:
        """Whether every step succeeded; in a dry run, True."""
        return not any(action.error for action in self.actions)

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values.

        Returns
        -------
        dict
            The attributes and ``ok``.
        """
        return {"ok": self.ok, **asdict(self)}

    def __repr__(self) -> str:
        begin = "dry run: would do" if self.dry_run else "did"
        lines = [f"{begin} {number(len(self.actions), 'repair')}, {number(len(self.left), 'problem')} left"]
        return as_lines([*lines, *map(str, self.actions), *(f"left: {problem}" for problem in self.left)])


def repair_found(
    place: Place, found: Verification, kinds: Iterable[str], names: Iterable[str], *, apply: bool
) -> Repair:
    """Repair what was found at a place.

    kinds: some of `KINDS`. names: keys of leftover files to delete. apply: whether to do it.
    Raises: ValueError for other kinds, or names that are no leftover files; ReadOnlyError.
    """
    kinds, names = set(kinds), set(names)
    if unknown := sorted(kinds - set(KINDS)):
        raise ValueError(f"repair: {unknown[0]!r} is not one of {', '.join(map(repr, KINDS))}")
    if missing := sorted(names - {leftover.key for leftover in found.leftover_files}):
        raise ValueError(f"{found.name}: {missing[0]!r} is no leftover file; name one that the verification lists")
    if apply:
        place.store.check_metadata_writable()
    steps = list(_steps(place, found, kinds, names))
    actions = tuple(_done(what, key, step) if apply else Action(what, key) for what, key, step, _ in steps)
    dealt = {id(problem) for *_, problems in steps for problem in problems}
    return Repair(actions, tuple(p for p in found.problems if id(p) not in dealt), not apply)


#: What is done, the key, a function that does it if that is still right, and the problems that it deals with.
_Step: TypeAlias = tuple[str, str, Callable[[], bool], list[Problem]]


def _steps(place: Place, found: Verification, kinds: set[str], names: set[str]) -> Iterator[_Step]:
    store = place.store.live()
    by_key: dict[tuple[str, str, str], list[Problem]] = {}
    for problem in found.problems:
        kind = _DEALS_WITH.get(problem.kind, problem.kind)
        is_member = problem.kind == "unreachable" and problem.chunk_coords is None
        if kind in kinds and not is_member:
            by_key.setdefault((kind, problem.path, problem.key), []).append(problem)
    for (kind, path, key), problems in by_key.items():
        first, what, step = problems[0], "delete", None
        if kind == "chunks":
            coords = ", ".join(str(problem.chunk_coords) for problem in problems)
            what = "drop the whole shard" if first.kind == "shard" else f"drop chunk {coords}"
            step = partial(_drop, place._replace(store=store, path=path), key, first.kind)
        elif kind == "consolidated":
            what, step = "consolidate again", partial(consolidate, store, path)
        elif first.kind == "temporary":
            step = partial(remove_leftover, store, key)
        else:
            step = partial(_delete_outside, store, path, key)
        yield what, key, step, problems
    for leftover in found.leftover_files:
        if leftover.key in names:
            yield "delete", leftover.key, partial(_delete, store, leftover_objects(store, leftover)), []


def _done(what: str, key: str, step: Callable[[], bool]) -> Action:
    try:
        done = step()
    except GzarrError as error:
        return Action(what, key, error=str(error))
    return Action(what, key, done, "" if done else "it has changed since it was verified")


def _delete(store: Store, keys: Iterable[str]) -> bool:
    try:
        store.delete_many(list(keys))
    finally:
        invalidate()
    return True


def _delete_outside(store: Store, path: str, key: str) -> bool:
    """Delete a chunk that is outside of its array, unless that has grown: data may be written before the shape."""
    meta = read_node(store, path)
    if meta is None:
        return False
    with store.node_locked(document_key(meta, path)):
        meta = read_node(store, path)
        return isinstance(meta, ArrayMeta) and is_outside(meta, path, key) and _delete(store, [key])


def _drop(place: Place, key: str, kind: str) -> bool:
    """Drop the bad chunks of an object, or for a kind "shard" all of it, if it is still bad in the same way."""
    store, meta = place.store, read_node(place.store, place.path)
    if not isinstance(meta, ArrayMeta):
        return False
    coords = coords_of(meta, place.path, key)
    if coords is None:
        return False
    chunks = prepare_chunks(place, meta)
    try:
        with store.locked([key]):
            conditional = store.conditional
            tagged = None if conditional is None else conditional.get_tagged([key])[0]
            stored = store.get_one(Request(key)) if conditional is None else tagged and tagged.data
            problems = check_object(chunks, place, coords)
            if stored is None or {problem.kind for problem in problems} != {kind}:
                return False
            rest = None
            if kind == "chunk":
                rest = _without(chunks.io.layout, coords, stored, {problem.chunk_coords for problem in problems})
            if conditional is not None and tagged is not None and (rest is not None or conditional.deletes):
                return conditional.set_if([Change(key, rest, tagged.version)])[0]
            if rest is None:
                store.delete_many([key])
            else:
                store.set(key, rest)
    finally:
        invalidate(lambda: [store.lock_name(key)])
    return True


def _without(layout: Layout, coords: Coords, stored: Buffer, bad: set[Coords | None]) -> Buffer | None:
    """The bytes of an object without its bad chunks; None if no others are left. Raises: CodecError."""
    bounds = [(inner, *axis.bounds(c)) for axis, inner, c in zip(layout.objects, layout.grid, coords, strict=True)]
    spans = [range(inner.locate(start), inner.locate(stop - 1) + 1) for inner, start, stop in bounds]
    good = [chunk for chunk in itertools.product(*spans) if chunk not in bad]
    if not good:
        return None
    data = zip(good, layout.extract(stored, coords, good), strict=True)
    return layout.build(None, coords, {chunk: encoded for chunk, encoded in data if encoded is not None})
