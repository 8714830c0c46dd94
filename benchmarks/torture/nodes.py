"""Processes that change nodes at once: appends, resizing, attributes, creation, deletion, consolidated documents."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.torture.children import Child, Log, apart, ended, found, logged, shared, together
from benchmarks.torture.libraries import LIBRARIES, Layout, Library
from benchmarks.torture.scenario import Counts, Scenario, Setting, rounds
from benchmarks.torture.stores import PROCESSES, SEEN, Place, leftover_files

N_PROCESSES = 4
CALLS = 8
ALL = ("gzarr", "zarr", "tensorstore")
WITH_GROUPS = ("gzarr", "zarr")


# -- appends ---------------------------------------------------------------------------------------------------------


def appends(setting: Setting) -> Counts:
    """Every process appends rows of its own, which are all there once in the end, and nothing else."""
    library, total = LIBRARIES[setting.writer](), Counts()
    for number, rng in rounds(setting):
        place = Place(setting.store, setting.folder, f"x{number}")
        inner = int(rng.integers(1, 9))
        sharded = bool(rng.integers(2))
        layout = Layout((0,), (inner,), (4 * inner,) if sharded else None, 3 if sharded else int(rng.integers(2, 4)))
        lengths = [[int(n) for n in rng.integers(1, 5, CALLS)] for _ in range(N_PROCESSES)]
        total += apart(_create, library, place, layout).counts()
        outcomes = together([partial(_append, library, place, n, lengths[n]) for n in range(N_PROCESSES)])
        done, counts = logged(outcomes)
        total += counts + found(apart(_check_appended, library, place, done, lengths))
        place.remove()
    return total


def _create(library: Library, place: Place, layout: Layout) -> None:
    library.create(place, "a", layout)


def _append(library: Library, place: Place, process: int, lengths: list[int]) -> Any:
    array, log = library.open(place, "a"), Log()
    for call, length in enumerate(lengths):
        log.attempt((process, call), library.append, array, np.full(length, _mark(process, call)))
    return log.to_json()


def _mark(process: int, call: int) -> int:
    return 1 + process * 1000 + call


def _check_appended(library: Library, place: Place, done: list[list[Any]], lengths: list[list[int]]) -> Any:
    values = Counter(np.asarray(library.read(library.open(place, "a", read_only=True))).tolist())
    returned = {_mark(*each): lengths[each[0]][each[1]] for calls in done for each in calls}
    known = {_mark(p, c): lengths[p][c] for p in range(N_PROCESSES) for c in range(CALLS)}
    lost = [mark for mark, length in returned.items() if values[mark] < length]
    wrong = {mark: n for mark, n in values.items() if n > known.get(mark, 0)}
    notes = (f"lost {lost[:5]}, unexplained {dict(list(wrong.items())[:5])}",) if lost or wrong else ()
    return Counts(lost=len(lost), wrong=len(wrong), notes=notes).to_json()


# -- resizing --------------------------------------------------------------------------------------------------------

KEPT_LENGTH = 50  # elements that every extent includes; the last of them share their chunk with what comes and goes


def resizing(setting: Setting) -> Counts:
    """One process changes the extent while others write elements that every extent includes."""
    library, total = LIBRARIES[setting.writer](), Counts()
    for number, rng in rounds(setting):
        place = Place(setting.store, setting.folder, f"x{number}")
        chunk = int(rng.integers(3, 17))
        extents = [int(n) for n in rng.integers(KEPT_LENGTH, 90, 10)]
        order = rng.permutation(KEPT_LENGTH)
        total += apart(_create, library, place, Layout((KEPT_LENGTH,), (chunk,))).counts()
        writers = [partial(_write_elements, library, place, order[n::3].tolist()) for n in range(3)]
        outcomes = together([partial(_resize, library, place, extents), *writers])
        done, counts = logged(outcomes)
        written = [element for calls in done for element in calls if element >= 0]
        total += counts + found(apart(_check_resized, library, place, written, extents[-1]))
        place.remove()
    return total


def _resize(library: Library, place: Place, extents: list[int]) -> Any:
    array, log = library.open(place, "a"), Log()
    for extent in extents:
        log.attempt(-extent, library.resize, place, "a", array, (extent,))
    return log.to_json()


def _write_elements(library: Library, place: Place, elements: list[int]) -> Any:
    array, log = library.open(place, "a"), Log()
    for element in elements:
        log.attempt(element, library.write, array, slice(element, element + 1), element + 1)
    return log.to_json()


def _check_resized(library: Library, place: Place, written: list[int], extent: int) -> Any:
    array = library.open(place, "a")
    wrong = int(array.shape[0] != extent)
    library.resize(place, "a", array, (100,))
    values = np.asarray(library.read(library.open(place, "a", read_only=True)))
    lost = [element for element in written if values[element] != element + 1]
    beyond = int(np.count_nonzero(values[KEPT_LENGTH:]))
    notes = (f"elements {lost[:5]} lost, {beyond} beyond the extent, shape {array.shape} not {extent}",)
    counts = Counts(lost=len(lost), wrong=wrong + beyond, notes=notes if lost or wrong or beyond else ())
    return counts.to_json()


# -- attributes ------------------------------------------------------------------------------------------------------


def attributes(setting: Setting) -> Counts:
    """Every process sets attributes of its own on one node."""
    library, total = LIBRARIES[setting.writer](), Counts()
    for number, rng in rounds(setting):
        place = Place(setting.store, setting.folder, f"x{number}")
        kind = ("array", "group", "root")[int(rng.integers(3))]
        path = {"array": "a", "group": "g", "root": ""}[kind]
        zarr_format = int(rng.integers(2, 4))
        total += apart(_create_node, library, place, path, zarr_format).counts()
        outcomes = together([partial(_set_attributes, library, place, path, n) for n in range(N_PROCESSES)])
        done, counts = logged(outcomes)
        total += counts + found(apart(_check_attributes, library, place, path, done))
        place.remove()
    return total


def _create_node(library: Library, place: Place, path: str, zarr_format: int) -> None:
    if path == "a":
        library.create(place, path, Layout((4,), (2,), zarr_format=zarr_format))
    else:
        library.create_group(place, path, zarr_format)


def _set_attributes(library: Library, place: Place, path: str, process: int) -> Any:
    node, log = library.open_node(place, path), Log()
    for call in range(CALLS):
        log.attempt(f"p{process}-{call}", library.set_attribute, node, f"p{process}-{call}", call)
    return log.to_json()


def _check_attributes(library: Library, place: Place, path: str, done: list[list[str]]) -> Any:
    there = library.attributes(place, path)
    lost = [key for keys in done for key in keys if there.get(key) != int(key.partition("-")[2])]
    return Counts(lost=len(lost), notes=(f"of {path!r}: {lost[:5]}",) if lost else ()).to_json()


# -- creation --------------------------------------------------------------------------------------------------------


def creation(setting: Setting) -> Counts:
    """Processes create one array where nothing is: exactly one succeeds, and its values stay."""
    library, total = LIBRARIES[setting.writer](), Counts()
    for number, rng in rounds(setting):
        place = Place(setting.store, setting.folder, f"x{number}")
        path = ("a", "g/a")[int(rng.integers(2))]
        layouts = _layouts(rng)
        outcomes = together([partial(_create_and_fill, library, place, path, n, layouts) for n in range(N_PROCESSES)])
        done, counts = logged(outcomes)
        winners = [n for calls in done for n in calls]
        total += counts + found(apart(_check_created, library, place, path, winners, layouts))
        place.remove()
    return total


def _layouts(rng: np.random.Generator) -> list[Layout]:
    zarr_format = int(rng.integers(2, 4))
    return [Layout((10 + n,), (2 + n,), zarr_format=zarr_format) for n in range(N_PROCESSES)]


def _create_and_fill(library: Library, place: Place, path: str, process: int, layouts: list[Layout]) -> Any:
    log = Log()

    def create() -> None:
        array = library.create(place, path, layouts[process])
        library.write(array, slice(None), process + 1)

    log.attempt(process, create)
    return log.to_json()


def _check_created(library: Library, place: Place, path: str, winners: list[int], layouts: list[Layout]) -> Any:
    if len(winners) != 1:
        note = f"{path}: {len(winners)} processes created it"
        return Counts(wrong=max(0, len(winners) - 1), lost=int(not winners), notes=(note,)).to_json()
    values = np.asarray(library.read(library.open(place, path, read_only=True)))
    right = values.shape == layouts[winners[0]].shape and bool((values == winners[0] + 1).all())
    note = f"{path}: created by {winners[0]}, holds {np.unique(values).tolist()} in shape {values.shape}"
    return Counts(wrong=int(not right), notes=() if right else (note,)).to_json()


def opening(setting: Setting) -> Counts:
    """Processes open an array with mode "a", which the first creates, and each writes a chunk."""
    library, total = LIBRARIES[setting.writer](), Counts()
    for number, rng in rounds(setting):
        place = Place(setting.store, setting.folder, f"x{number}")
        path = ("a", "g/a")[int(rng.integers(2))]
        layout = Layout((2 * N_PROCESSES,), (2,), zarr_format=int(rng.integers(2, 4)))
        outcomes = together([partial(_open_and_write, library, place, path, n, layout) for n in range(N_PROCESSES)])
        done, counts = logged(outcomes)
        written = [n for calls in done for n in calls]
        counts = replace(counts, wrong=counts.wrong + counts.refused, refused=0)  # mode "a" opens what another made
        total += counts + found(apart(_check_opened, library, place, path, written))
        place.remove()
    return total


def _open_and_write(library: Library, place: Place, path: str, process: int, layout: Layout) -> Any:
    log = Log()

    def work() -> None:
        array = library.create(place, path, layout, "a")
        library.write(array, slice(2 * process, 2 * process + 2), process + 1)

    log.attempt(process, work)
    return log.to_json()


def _check_opened(library: Library, place: Place, path: str, written: list[int]) -> Any:
    values = np.asarray(library.read(library.open(place, path, read_only=True)))
    lost = [n for n in written if (values[2 * n : 2 * n + 2] != n + 1).any()]
    return Counts(lost=len(lost), notes=(f"{path}: chunks {lost} lost",) if lost else ()).to_json()


def overwriting(setting: Setting) -> Counts:
    """Processes create one array with mode "w", each in place of the other's: one of them is there in the end."""
    library, total = LIBRARIES[setting.writer](), Counts()
    for number, rng in rounds(setting):
        place = Place(setting.store, setting.folder, f"x{number}")
        layouts = _layouts(rng)
        outcomes = together([partial(_overwrite, library, place, n, layouts) for n in range(N_PROCESSES)])
        _, counts = logged(outcomes)
        total += counts + found(apart(_check_overwritten, library, place, layouts)) + leftover_files(place)
        place.remove()
    return total


def _overwrite(library: Library, place: Place, process: int, layouts: list[Layout]) -> Any:
    log = Log()
    for call in range(CALLS):
        log.attempt(call, library.create, place, "a", layouts[process], "w")
    return log.to_json()


def _check_overwritten(library: Library, place: Place, layouts: list[Layout]) -> Any:
    array = library.open(place, "a", read_only=True)
    known = any(tuple(array.shape) == each.shape and library.chunks(array) == each.chunks for each in layouts)
    values = np.asarray(library.read(array))
    right = known and not values.any()
    return Counts(wrong=int(not right), notes=() if right else (f"{array.shape} {library.chunks(array)}",)).to_json()


def members(setting: Setting) -> Counts:
    """Every process creates arrays of its own below groups that do not exist yet."""
    library, total = LIBRARIES[setting.writer](), Counts()
    for number, rng in rounds(setting):
        place = Place(setting.store, setting.folder, f"x{number}")
        zarr_format = int(rng.integers(2, 4))
        outcomes = together([partial(_create_members, library, place, n, zarr_format) for n in range(N_PROCESSES)])
        done, counts = logged(outcomes)
        total += counts + found(apart(_check_members, library, place, [name for names in done for name in names]))
        place.remove()
    return total


def _create_members(library: Library, place: Place, process: int, zarr_format: int) -> Any:
    log = Log()
    for call in range(CALLS):
        name = f"g{call % 3}/h/a{process}-{call}"
        log.attempt(name, library.create, place, name, Layout((4,), (2,), zarr_format=zarr_format))
    return log.to_json()


def _check_members(library: Library, place: Place, names: list[str]) -> Any:
    lost = []
    for group in sorted({name.rpartition("/")[0] for name in names}):
        there = {f"{group}/{name}" for name in library.members(place, group)}
        lost += [name for name in names if name.startswith(f"{group}/") and name not in there]
    return Counts(lost=len(lost), notes=(f"not listed: {lost[:5]}",) if lost else ()).to_json()


# -- consolidated documents ------------------------------------------------------------------------------------------


def consolidation(setting: Setting) -> Counts:
    """Every process creates arrays and consolidates after each: the document has all of them in the end."""
    return _consolidated(setting, explicit=True)


def consolidated_documents(setting: Setting) -> Counts:
    """The same in a hierarchy that is consolidated already, whose document every creation updates."""
    return _consolidated(setting, explicit=False)


def _consolidated(setting: Setting, *, explicit: bool) -> Counts:
    library, total = LIBRARIES[setting.writer](), Counts()
    for number, rng in rounds(setting):
        place = Place(setting.store, setting.folder, f"x{number}")
        zarr_format = int(rng.integers(2, 4))
        total += apart(_create_consolidated, library, place, zarr_format).counts()
        work = partial(_create_in_document, library, place, explicit, zarr_format)
        done, counts = logged(together([partial(work, n) for n in range(N_PROCESSES)]))
        names = [name for names in done for name in names]
        total += counts + found(apart(_check_document, library, place, names))
        place.remove()
    return total


def _create_consolidated(library: Library, place: Place, zarr_format: int) -> None:
    library.create_group(place, "", zarr_format)
    library.consolidate(place)


def _create_in_document(library: Library, place: Place, explicit: bool, zarr_format: int, process: int) -> Any:
    log = Log()

    def create(name: str) -> None:
        library.create(place, name, Layout((4,), (2,), zarr_format=zarr_format))
        if explicit:
            library.consolidate(place)

    for call in range(CALLS // 2):
        log.attempt(f"a{process}-{call}", create, f"a{process}-{call}")
    return log.to_json()


def _check_document(library: Library, place: Place, names: list[str]) -> Any:
    there = library.consolidated_members(place)
    lost = [name for name in names if name not in there]
    return Counts(lost=len(lost), notes=(f"not in the document: {lost[:5]}",) if lost else ()).to_json()


# -- deletion --------------------------------------------------------------------------------------------------------

ROUND_S = 0.5


def deletion(setting: Setting) -> Counts:
    """An array is deleted and created again while others read it: they see it whole, empty, or not at all."""
    library, total = LIBRARIES[setting.writer](), Counts()
    for number, rng in rounds(setting):
        place = Place(setting.store, setting.folder, f"x{number}")
        layout = Layout((400,), (100,), (200,) if rng.integers(2) else None)
        state = shared(2)  # stop, version
        total += apart(_create_below_group, library, place, layout).counts()
        state[1] = 1
        children = [Child(_delete_and_create, library, place, layout, state)]
        children += [Child(_read_meanwhile, library, place, state) for _ in range(2)]
        with ended(children):
            time.sleep(ROUND_S)
            state[0] = 1
            _, counts = logged([child.wait() for child in children])
        total += counts
        place.remove()
    return total


def _create_below_group(library: Library, place: Place, layout: Layout) -> None:
    library.create_group(place, "", 3)
    library.write(library.create(place, "a", layout), slice(None), 1)


def _delete_and_create(library: Library, place: Place, layout: Layout, state: npt.NDArray[Any]) -> Any:
    log, version = Log(), 1

    def work() -> None:
        if version % 2:
            library.delete(place, "a")
            library.write(library.create(place, "a", layout), slice(None), version)
        else:
            array = library.open(place, "a")
            library.write(array, slice(None), 0)  # chunks of fill values are deleted
            library.write(array, slice(None), version)

    while version == 1 or not state[0]:  # once at least, however late it begins
        version += 1
        state[1] = version
        log.attempt(version, work)
    return log.to_json()


def _read_meanwhile(library: Library, place: Place, state: npt.NDArray[Any]) -> Any:
    log = Log()

    def read() -> None:
        array = None
        with contextlib.suppress(FileNotFoundError):
            array = library.open(place, "a", read_only=True)
        if array is None:
            return
        values = np.asarray(library.read(array)).reshape(4, 100)
        torn = [each.tolist() for each in map(np.unique, values) if len(each) > 1 or each[0] > state[1]]
        if torn:
            log.count(wrong=len(torn), notes=(f"chunks hold {torn}",))

    while not state[0]:
        log.attempt(0, read)
    return log.to_json()


SCENARIOS = (
    Scenario("appends", "processes append to one array", appends, SEEN, WITH_GROUPS),
    Scenario("resizing", "one process resizes, others write", resizing, SEEN, ALL),
    Scenario("attributes", "processes set attributes of one node", attributes, SEEN, WITH_GROUPS),
    Scenario("creation", 'processes create one array, mode "w-"', creation, PROCESSES, ALL),
    Scenario("opening", 'processes open one missing array, mode "a"', opening, PROCESSES, ALL),
    Scenario("overwriting", 'processes create one array, mode "w"', overwriting, PROCESSES, ALL),
    Scenario("members", "processes create members of new groups", members, PROCESSES, WITH_GROUPS),
    Scenario("consolidation", "processes create arrays and consolidate", consolidation, PROCESSES, WITH_GROUPS),
    Scenario(
        "consolidated documents", "processes create arrays in a consolidated group", consolidated_documents, PROCESSES
    ),
    Scenario("deletion", "an array is deleted and created while others read", deletion, PROCESSES, ALL),
)
