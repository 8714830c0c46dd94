"""Processes that write at once: parts of the same chunks and shards, rows, attributes, nodes, documents."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.torture.children import Outcome, apart, together
from benchmarks.torture.libraries import LIBRARIES, Layout, Library
from benchmarks.torture.scenario import Counts, Scenario, Setting, rounds
from benchmarks.torture.stores import PROCESSES, Place

N_PROCESSES = 4
ALL = ("gzarr", "zarr", "tensorstore")


def parts_of_chunks(setting: Setting) -> Counts:
    """Every process writes its parts of chunks that all of them share."""
    return _parts(setting, sharded=False)


def chunks_of_shards(setting: Setting) -> Counts:
    """Every process writes its chunks, or parts of chunks, of shards that all of them share."""
    return _parts(setting, sharded=True)


def _parts(setting: Setting, *, sharded: bool) -> Counts:
    library, total = LIBRARIES[setting.writer](), Counts()
    for number, rng in rounds(setting):
        place = Place(setting.store, setting.folder, f"x{number}")
        layout = _layout(rng, sharded)
        pieces = _pieces(layout, rng)
        order = rng.permutation(len(pieces))
        shares = [[int(i) for i in order[n::N_PROCESSES]] for n in range(N_PROCESSES)]
        made = apart(_create, library, place, layout)
        total += made.counts()
        outcomes = together([partial(_write_pieces, library, place, pieces, share) for share in shares])
        total += sum((each.counts() for each in outcomes), Counts(operations=len(pieces)))
        total += found(apart(_check_pieces, library, place, layout, pieces))
        place.remove()
    return total


def found(outcome: Outcome) -> Counts:
    """What a check says: it returns counts as JSON; that it raises is damage."""
    if outcome.status == "done":
        return Counts.from_json(outcome.value)
    counts = outcome.counts()
    return Counts(damaged=1, hung=counts.hung, notes=counts.notes)


def _layout(rng: np.random.Generator, sharded: bool) -> Layout:
    options = {"zarr_format": 3 if sharded else int(rng.integers(2, 4)), "compressed": bool(rng.integers(2))}
    if rng.integers(2):  # one object, or a few
        n = int(rng.integers(30, 120))
        objects = n if rng.integers(2) else -(-n // 3)
        if not sharded:
            return Layout((n,), (objects,), **options)
        inner = int(rng.integers(1, 4))
        return Layout((n,), (inner,), (-(-objects // inner) * inner,), **options)
    columns = int(rng.integers(20, 60))
    chunks = (4, 10)
    return Layout((16, columns), (2, 2) if sharded else chunks, chunks if sharded else None, **options)


def _pieces(layout: Layout, rng: np.random.Generator) -> list[tuple[slice, ...]]:
    """Selections that cover an array without overlap: runs of elements, or columns, which cut several objects."""
    if len(layout.shape) == 2:
        return [(slice(None), slice(i, i + 1)) for i in range(layout.shape[1])]
    n = layout.shape[0]
    if rng.integers(4) == 0:
        return [(slice(i, n, 20),) for i in range(20)]
    cuts = [0, *sorted(set(rng.integers(1, n, n // 2).tolist())), n]
    return [(slice(a, b),) for a, b in pairwise(cuts)]


def _create(library: Library, place: Place, layout: Layout) -> None:
    library.create(place, "a", layout)


def _write_pieces(library: Library, place: Place, pieces: list[tuple[slice, ...]], share: list[int]) -> None:
    array = library.open(place, "a")
    for number in share:
        library.write(array, pieces[number], number + 1)


def _check_pieces(library: Library, place: Place, layout: Layout, pieces: list[tuple[slice, ...]]) -> Any:
    values = np.asarray(library.read(library.open(place, "a", read_only=True)))
    counts = Counts()
    for number, piece in enumerate(pieces):
        got = values[piece]
        if (got == number + 1).all():
            continue
        lost = bool(np.isin(got, (0, number + 1)).all())
        note = f"{layout}: {piece} is {np.unique(got).tolist()}, written was {number + 1}"
        counts += Counts(lost=int(lost), wrong=int(not lost), notes=() if counts.notes else (note,))
    return counts.to_json()


SCENARIOS = (
    Scenario("parts of chunks", "processes write parts of the same chunks", parts_of_chunks, PROCESSES, ALL),
    Scenario("chunks of shards", "processes write chunks of the same shards", chunks_of_shards, PROCESSES, ALL),
)
