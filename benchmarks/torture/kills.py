"""Writers that are killed at random moments, as by `kill -9`: what they reported written is there afterwards."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.torture.children import Child, Log, apart, ended, found, killed, logged, shared
from benchmarks.torture.libraries import Gzarr, Layout
from benchmarks.torture.scenario import Counts, Scenario, Setting, rounds
from benchmarks.torture.stores import AT_CLOSE, DATABASES, KEPT, PROCESSES, Place, leftover_files

Held = list[Any]  # an open store, or none
Numbers = npt.NDArray[np.int64]
ROWS = 24  # of both arrays; a row holds one version
WIDTH = 400
KILLS = 4  # of one hierarchy
TYPICAL_S = (0.01, 0.05, 0.2)  # until a process is killed, from when its first write began or returned
GROWTH = 50  # rows by which an array grows after a kill
BATCH = 3  # rows between two closings of a store that promises nothing before it is closed


def kills(setting: Setting) -> Counts:
    """Rows of chunks and of shards are written until the writer is killed, again and again in one hierarchy."""
    library, total = Gzarr(), Counts()
    for number, rng in rounds(setting):
        place = Place(setting.store, setting.folder, f"x{number}")
        compressed = bool(rng.integers(2))
        state = shared((2, 2, ROWS))  # versions begun and returned, of both arrays
        total += apart(create, library, place, compressed).counts()
        for kill in range(KILLS):
            after_s = float(rng.exponential(rng.choice(TYPICAL_S)))
            seed = int(rng.integers(1 << 30))
            total += killed(write_rows, library, place, state, seed, begun=state[kill % 2], after_s=after_s).counts()
            checked = found(apart(check_rows, library, place, state))
            total += checked
            if checked.damaged:
                break  # and be counted once
        else:
            total += found(apart(rewrite, library, place, state)) + leftover_files(place)
        total += Counts(operations=int(state[1].sum()))
        place.remove()
    return total


def create(library: Gzarr, place: Place, compressed: bool = False) -> None:
    """Create the two arrays: "c" of chunks of three rows, "s" of shards of eight."""
    with closing(place, library.create_group(place, "", 3)):
        pass
    for path, layout in layouts(compressed).items():
        with closing(place, library.create(place, path, layout)):
            pass


def layouts(compressed: bool) -> dict[str, Layout]:
    """The layouts by path."""
    shape = (ROWS, WIDTH)
    return {
        "c": Layout(shape, (3, WIDTH), compressed=compressed),
        "s": Layout(shape, (2, WIDTH // 2), (8, WIDTH), compressed=compressed),
    }


def closing(place: Place, node: Any) -> Any:
    """A context that closes the store of a node at its end, if it is one that must be closed."""
    return contextlib.closing(node.store) if place.kind in AT_CLOSE else contextlib.nullcontext()


def write_rows(
    library: Gzarr, place: Place, state: Numbers, seed: int, *, most: int | None = None, held: Held | None = None
) -> None:
    """Write random rows of both arrays, each with its next version, for ever or so many batches.

    held: gets the store that could not be closed after a batch.
    """
    held = [] if held is None else held
    rng = np.random.default_rng(seed)
    number = 0
    group = None if place.kind in AT_CLOSE else library.open_node(place, "")
    while most is None or number < most:
        number += 1
        rows = [(int(rng.integers(2)), int(rng.integers(ROWS))) for _ in range(BATCH)]
        if group is None:
            opened = library.open_node(place, "")
            held.append(opened.store)
            try:
                written = [_write(opened, state, *row) for row in rows]
            finally:
                opened.store.close()
                held.clear()
            for version, row in zip(written, rows, strict=True):
                state[1, *row] = version
        else:
            for row in rows:
                state[1, *row] = _write(group, state, *row)


def _write(group: Any, state: Numbers, which: int, row: int) -> int:
    state[0, which, row] += 1
    version = int(state[0, which, row])
    group["cs"[which]][row] = version
    return version


def check_rows(library: Gzarr, place: Place, state: Numbers, *, settled: bool = True) -> Any:
    """Compare every row with the versions begun and returned, which then become what is there, if that is settled."""
    state = state if settled else state.copy()
    counts = Counts()
    with closing(place, group := library.lib.open_group(place.store("r"), "r")):
        for which, name in enumerate("cs"):
            values = np.full((ROWS, WIDTH), -1)
            for row in range(ROWS):
                try:
                    values[row] = np.asarray(group[name][row])
                except library.lib.ChunkError as error:
                    counts += Counts(damaged=1, notes=(str(error)[:300],))
            counts += _compare(name, values, state[:, which])
    return counts.to_json()


def _compare(name: str, values: Any, state: Numbers) -> Counts:
    counts, (begun, returned) = Counts(), state
    for row, line in enumerate(values):
        got = np.unique(line)
        note = (f"{name}[{row}] holds {got[:4].tolist()}, written were {returned[row]} to {begun[row]}",)
        if got[0] == -1:
            continue  # damaged
        if len(got) > 1 or got[0] > begun[row]:
            counts += Counts(wrong=1, notes=note)
        elif got[0] < returned[row]:
            counts += Counts(lost=1, notes=note)
        begun[row] = returned[row] = got[-1]
    return counts


def write_row(group: Any, state: Numbers, row: int) -> None:
    """Write the next version of a row of both arrays."""
    for which in range(2):
        state[1, which, row] = _write(group, state, which, row)


def compare_row(group: Any, state: Numbers, row: int) -> Counts:
    """Compare a row of both arrays with the versions begun and returned."""
    counts = Counts()
    for which, name in enumerate("cs"):
        counts += _compare(name, np.asarray(group[name][row])[None], state[:, which, row : row + 1])
    return counts


def rewrite(library: Gzarr, place: Place, state: Numbers) -> Any:
    """Write everything anew, as the next writer does; a kill shall not keep it from that."""
    with closing(place, group := library.open_node(place, "")):
        group["c"][:] = 1
        group["s"][:] = 1
    return {}


# -- appends ---------------------------------------------------------------------------------------------------------


def kills_of_appends(setting: Setting) -> Counts:
    """Rows are appended until the writer is killed: those reported are there, and none that was never appended.

    After some kills, the array grows and shows the fill value, where the killed writer may have stored rows. After the
    others, the next writer appends over what is left.
    """
    library, total = Gzarr(), Counts()
    for number, rng in rounds(setting):
        place = Place(setting.store, setting.folder, f"x{number}")
        inner = int(rng.integers(1, 6))
        layout = Layout((0, WIDTH), (inner, WIDTH), (inner * 4, WIDTH) if rng.integers(2) else None)
        state = shared(2)  # appends begun and returned
        total += apart(_create_empty, library, place, layout).counts()
        for kill in range(KILLS):
            after_s = float(rng.exponential(rng.choice(TYPICAL_S)))
            begun = state[kill % 2 : kill % 2 + 1]
            total += killed(_append_rows, library, place, state, begun=begun, after_s=after_s).counts()
            grows = bool(rng.integers(2))
            checked = found(apart(_check_appended, library, place, state, grows))
            total += checked
            if checked.damaged:
                break
        else:
            total += found(apart(_append_to_the_end, library, place, layout)) + leftover_files(place)
        total += Counts(operations=int(state[1]))
        place.remove()
    return total


def _create_empty(library: Gzarr, place: Place, layout: Layout) -> None:
    with closing(place, library.create(place, "a", layout)):
        pass


def _append_rows(library: Gzarr, place: Place, state: Numbers) -> None:
    array = library.open(place, "a")
    while True:
        state[0] += 1
        array.append(np.full((1, WIDTH), state[0]))
        if place.kind in AT_CLOSE:
            array.store.close()
        state[1] = state[0]


def _append_to_the_end(library: Gzarr, place: Place, layout: Layout) -> Any:
    """Append beyond whatever a killed writer began, and write everything anew."""
    with closing(place, array := library.open(place, "a")):
        array.append(np.ones(((layout.shards or layout.chunks)[0], WIDTH)))
        array[:] = 1
    return {}


def _check_appended(library: Gzarr, place: Place, state: Numbers, grows: bool) -> Any:
    with closing(place, array := library.open(place, "a")):
        rows = np.asarray(array[...])
        beyond = 0
        if grows:
            array.resize((len(rows) + GROWTH, WIDTH))
            beyond = int(np.asarray(array[len(rows) :]).any(1).sum())
            array.resize(rows.shape)
        first = rows[:, 0].tolist()
        lost = set(range(1, int(state[1]) + 1)) - set(first)
        known = range(int(place.kind not in DATABASES), int(state[0]) + 1)  # those may keep the fill value of a row
        unexplained = [row for row, n in Counter(first).items() if row not in known or (row and n > 1)]
        mixed = int((rows != rows[:, :1]).any(1).sum())
        note = f"{len(lost)} lost, {unexplained[:5]} unexplained, {mixed} mixed, {beyond} beyond {len(rows)} rows"
        counts = Counts(lost=len(lost), wrong=len(unexplained) + mixed + beyond)
        if counts.losses:
            counts += Counts(notes=(note,))
            array.resize((0, WIDTH))
            state[:] = 0
        else:
            state[:] = len(first)
            if sorted(first) != list(range(1, len(first) + 1)):
                array[:] = np.arange(1, len(first) + 1)[:, None]
    return counts.to_json()


# -- beside others ---------------------------------------------------------------------------------------------------


def kills_beside_writers(setting: Setting) -> Counts:
    """Two processes write their rows while a third, which writes others of the same chunks and shards, is killed."""
    library, total = Gzarr(), Counts()
    for number, rng in rounds(setting):
        place = Place(setting.store, setting.folder, f"x{number}")
        state = shared((2, 2, ROWS))
        stop = shared(1)
        total += apart(create, library, place).counts()
        others = [Child(_write_own_rows, library, place, state, own, stop) for own in range(2)]
        with ended(others):
            for _ in range(KILLS):
                after_s, begun = float(rng.exponential(rng.choice(TYPICAL_S))), state[0, :, 2::3]
                work = (_write_own_rows, library, place, state, 2, stop)
                total += killed(*work, begun=begun, after_s=after_s).counts()
            stop[0] = 1
            total += logged([child.wait() for child in others])[1]
        total += found(apart(check_rows, library, place, state))
        total += found(apart(rewrite, library, place, state)) + leftover_files(place)
        place.remove()
    return total


def _write_own_rows(library: Gzarr, place: Place, state: Numbers, own: int, stop: Numbers) -> Any:
    log, group = Log(), library.open_node(place, "")

    def write(which: int, row: int) -> None:
        state[1, which, row] = _write(group, state, which, row)

    while not stop[0]:
        for row in range(own, ROWS, 3):
            for which in range(2):
                log.attempt(0, write, which, row)
    return log.to_json()


SCENARIOS = (
    Scenario("kills", "writers are killed (`kill -9`)", kills, KEPT),
    Scenario("kills of appends", "a process that appends is killed", kills_of_appends, KEPT),
    Scenario("kills beside writers", "a writer is killed, others go on", kills_beside_writers, PROCESSES),
)
