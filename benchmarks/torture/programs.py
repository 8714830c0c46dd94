"""Random programs by threads on one array: reads and writes of every kind of selection, appends and resizes.

Every write stores a number of its own. A read may show in each element any write that had begun when it ended, unless
another write of that element came wholly after that one and wholly before the read; so may the array at the end.
"""

from __future__ import annotations

import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.torture.children import Log, apart, found
from benchmarks.torture.libraries import Gzarr, Layout
from benchmarks.torture.scenario import Counts, Scenario, Setting, rounds
from benchmarks.torture.stores import AT_CLOSE, DATABASES, Place

N_THREADS = 4
PHASES = 5  # of a program; in each, threads read and write what stays, and perhaps append or resize
CALLS = 25  # of each thread in a phase
FILL = 0
Numbers = npt.NDArray[Any]


@dataclass(slots=True)
class Call:
    """A read or a write that a thread made. places: its elements, numbered in C order, in the shape of its values."""

    what: str
    began: float
    ended: float
    places: Numbers
    value: Any


@dataclass(slots=True)
class Made:
    """What one thread did in a phase. appended: the number of rows by the number that they hold."""

    log: Log = field(default_factory=Log)
    writes: list[Call] = field(default_factory=list)
    reads: list[Call] = field(default_factory=list)
    appended: dict[int, int] = field(default_factory=dict)


def programs(setting: Setting) -> Counts:
    """Threads use one array object, or one each, in every layout."""
    library, total = Gzarr(), Counts()
    for number, _ in rounds(setting):
        place = Place(setting.store, setting.folder, f"x{number}")
        total += found(apart(_program, library, place, [setting.seed, number]))
        place.remove()
    return total


def _program(library: Gzarr, place: Place, seed: list[int]) -> Any:
    rng = np.random.default_rng(seed)
    library.vary(int(rng.integers(3)))
    layout, n_objects = _layout(rng), int(rng.choice([1, N_THREADS]))
    first = library.create(place, "a", layout)
    values, counts = np.full(layout.shape, FILL, layout.dtype), Counts()
    for _ in range(PHASES):
        kept = n_objects == 1 or place.kind in AT_CLOSE  # one store for all, which its writer has open
        stores = [first.store if kept else place.store() for _ in range(n_objects)]
        arrays = [first] if n_objects == 1 else [library.lib.open_array(each, "r+", path="a") for each in stores]
        phase = Phase(arrays, layout.chunks, values, rng)
        counts += phase.run()
        values = phase.after
        if counts.losses:
            counts = Counts(notes=(f"seed {seed}, {layout}, {n_objects} objects, {phase.change}",)) + counts
            break
    first.store.close()
    return counts.to_json()


def _layout(rng: np.random.Generator) -> Layout:
    chunks = (int(rng.integers(1, 9)), int(rng.integers(1, 9)))[: rng.integers(1, 3)]
    shape = tuple(int(rng.integers(1, 40 if len(chunks) == 1 else 18)) for _ in chunks)
    shards = tuple(n * int(rng.integers(1, 4)) for n in chunks) if rng.integers(2) else None
    dtype = str(rng.choice(["int64", "float32", "uint16"]))
    return Layout(shape, chunks, shards, 3 if shards else int(rng.integers(2, 4)), bool(rng.integers(2)), dtype)


class Phase:
    """Threads at work on the rows that stay, while at most one kind of change is made to the number of rows."""

    def __init__(self, arrays: list[Any], chunks: tuple[int, ...], values: Numbers, rng: np.random.Generator) -> None:
        self.arrays, self.chunks, self.before = arrays, chunks, values
        self.change = str(rng.choice(["none", "append", "resize"]))
        rows = len(values)
        self.rows = int(rng.integers(0, rows * 2 + 2)) if self.change == "resize" else rows
        self.stay = min(rows, self.rows)
        self.ids = np.arange(values[: self.stay].size).reshape(self.stay, *values.shape[1:])
        self.seeds = [int(each) for each in rng.integers(1 << 30, size=N_THREADS)]
        self.first = int(values.max(initial=0)) + 1  # of the numbers that no element holds
        self.gate = threading.Barrier(N_THREADS)
        self.after = values

    def run(self) -> Counts:
        """Make all calls, and compare what was read, and what is there, with what may be."""
        import gzarr

        with ThreadPoolExecutor(N_THREADS) as pool:
            made = list(pool.map(self._work, range(N_THREADS)))
        counts = Counts.from_json(sum((each.log for each in made), Log()).to_json()["counts"])
        if counts.losses or counts.refused:
            return counts + Counts(raw_errors=counts.refused)  # nothing here may be refused
        self.after = np.asarray(gzarr.open_array(self.arrays[0].store, "r", path="a")[...])
        counts += self._check_rows({number: n for each in made for number, n in each.appended.items()})
        if counts.losses:
            return counts
        writes = [call for each in made for call in each.writes]
        now = time.monotonic()
        last = Call("the end", now, now, self.ids, self.after[: self.stay])
        return counts + check(self.before[: self.stay], writes, [call for each in made for call in each.reads] + [last])

    def _work(self, thread: int) -> Made:
        rng, made, array = np.random.default_rng(self.seeds[thread]), Made(), self.arrays[thread % len(self.arrays)]
        self.gate.wait()
        for n in range(CALLS):
            number = self.first + n * N_THREADS + thread
            if self.change == "append" and thread < 2 and n % 5 == 0:
                made.appended[number] = rows = int(rng.integers(1, 6))
                block = np.full((rows, *self.before.shape[1:]), number, self.before.dtype)
                made.log.attempt("append", array.append, block)
            elif self.change == "resize" and thread == 0 and n == CALLS // 2:
                made.log.attempt("resize", array.resize, (self.rows, *self.before.shape[1:]))
            elif self.stay:
                self._call(array, rng, number, made)
        return made

    def _call(self, array: Any, rng: np.random.Generator, number: int, made: Made) -> None:
        how, key, places = selection(rng, self.ids, self.chunks, whole=self.change == "none")
        target = array if how == "basic" else getattr(array, how)
        writes = bool(rng.integers(2))
        value: Any = np.full(places.shape, number, array.dtype) if rng.integers(2) else number
        what = f"{'write' if writes else 'read'} of {how} {str(key)[:60]}"
        call = Call(what, time.monotonic(), math.inf, places, number)

        def read() -> None:
            call.value = np.asarray(target[key])

        if made.log.attempt(what, target.__setitem__ if writes else read, *[key, value][: 2 * writes]):
            call.ended = time.monotonic()
        (made.writes if writes else made.reads).append(call)

    def _check_rows(self, appended: dict[int, int]) -> Counts:
        """Compare the rows that were added: each append once and in one piece, or the fill value."""
        rows = self.rows + sum(appended.values())
        new = self.after[self.stay :].reshape(len(self.after) - self.stay, math.prod(self.after.shape[1:]))
        if len(self.after) != rows:
            return Counts(wrong=1, notes=(f"{self.change}: there are {len(self.after)} rows, not {rows}",))
        if self.change != "append":
            wrong = bool((new != FILL).any())
            return Counts(wrong=int(wrong), notes=(f"{self.change} shows {np.unique(new)[:5]}",) if wrong else ())
        firsts = [n for n in range(len(new)) if n == 0 or (new[n] != new[n - 1]).any()]
        got = {int(new[a, 0]): b - a for a, b in zip(firsts, [*firsts[1:], len(new)], strict=True)}
        wrong = got != appended or bool((new != new[:, :1]).any())
        return Counts(wrong=int(wrong), notes=(f"appended {appended}, there is {got}",) if wrong else ())


def selection(rng: np.random.Generator, ids: Numbers, chunks: tuple[int, ...], *, whole: bool) -> Any:
    """A selection: "basic" or the attribute of an array that takes it, a key, and the numbers of its elements.

    whole: whether the array has the shape of ``ids`` and keeps it, which masks and a last block that is smaller need.
    """
    how = str(rng.choice(["basic", "basic", "oindex", "vindex", "blocks", "mask" if whole else "basic"]))
    if how == "mask":
        mask = rng.random(ids.shape) < rng.choice([0.05, 0.5, 1.0])
        return "vindex", mask, ids[mask]
    if how == "vindex":
        size = int(rng.integers(1, 8))
        points = tuple(rng.integers(0, n, size) for n in ids.shape)
        return how, points, ids[points]
    if how == "blocks":
        n_blocks = [-(-n // chunk) if whole else n // chunk for n, chunk in zip(ids.shape, chunks, strict=True)]
        ranges = [sorted(rng.integers(0, n + 1, 2).tolist()) for n in n_blocks]
        means = tuple(slice(a * chunk, b * chunk) for (a, b), chunk in zip(ranges, chunks, strict=True))
        return how, tuple(slice(a, b) for a, b in ranges), ids[means]
    key = tuple(_along(rng, n, lists=how == "oindex") for n in ids.shape)
    if how == "basic":
        return how, key, np.asarray(ids[key])
    picked = [np.atleast_1d(np.arange(n)[part]) for n, part in zip(ids.shape, key, strict=True)]
    kept = [len(each) for each, part in zip(picked, key, strict=True) if not isinstance(part, int)]
    return how, key, ids[np.ix_(*picked)].reshape(kept)


def _along(rng: np.random.Generator, n: int, *, lists: bool) -> Any:
    kind = int(rng.integers(4))
    if kind == 0:
        return int(rng.integers(n))
    if lists and kind < 3:
        return rng.integers(0, n, int(rng.integers(1, 7)))
    a, b = sorted(rng.integers(0, n + 1, 2).tolist())
    if a == b or rng.integers(4):
        return slice(a, b, int(rng.choice([1, 1, 2, 3])))
    return slice(b - 1, a - 1 if a else None, -int(rng.choice([1, 2])))


def check(before: Numbers, writes: list[Call], reads: list[Call]) -> Counts:
    """Compare what reads gave with what the order of the writes allows. before: what was there when they began."""
    began, ended = (np.array([getattr(call, name) for call in writes]) for name in ("began", "ended"))
    covered = np.zeros((len(writes), before.size), bool)
    for covers, call in zip(covered, writes, strict=True):
        covers[call.places] = True
    values, number_of = before.ravel(), {call.value: number for number, call in enumerate(writes)}
    counts = Counts()
    for read in reads:
        got = np.asarray(read.value)
        if got.shape != read.places.shape:
            counts += Counts(wrong=1, notes=(f"shape {got.shape} instead of {read.places.shape}",))
            continue
        older = covered & (ended < read.began)[:, None]
        newest = np.where(older, began[:, None], -1).max(0, initial=-1)  # when the newest of them began
        for value, at in zip(got.ravel().tolist(), read.places.ravel().tolist(), strict=True):
            number = number_of.get(value)
            if number is None:
                right = value == values[at] and newest[at] < 0
            else:
                right = covered[number, at] and began[number] <= read.ended and ended[number] >= newest[at]
            if not right:
                last = [writes[n] for n in np.flatnonzero(older[:, at])][-2:]
                lost = number is None or covered[number, at]
                note = f"{read.what}: element {at} is {value}; it was {values[at]}, later came {[c.what for c in last]}"
                counts += Counts(lost=int(lost), wrong=int(not lost), notes=(note,))
    return counts


SCENARIOS = (
    Scenario(
        "programs by threads",
        "threads read and write any selections, append and resize",
        programs,
        ("local", *DATABASES, *AT_CLOSE, "memory"),
        weight=3.0,
    ),
)
