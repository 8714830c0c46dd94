"""Processes that write at once: parts of the same chunks and shards, rows, attributes, nodes, documents."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.torture.children import Child, Log, apart, ended, found, logged, shared, together
from benchmarks.torture.libraries import LIBRARIES, Layout, Library
from benchmarks.torture.scenario import Counts, Scenario, Setting, rounds
from benchmarks.torture.stores import SEEN, Place

N_PROCESSES = 4
ALL = ("gzarr", "zarr", "tensorstore")
Piece = tuple[slice, ...]
Numbers = npt.NDArray[np.int64]


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
        how = int(rng.integers(4)) if rng.integers(2) else 0
        work = partial(_write_pieces, library, place, pieces, how, bool(rng.integers(2)))
        total += logged(together([partial(work, n, share) for n, share in enumerate(shares)]))[1]
        total += found(apart(_check_pieces, library, place, layout, pieces))
        place.remove()
    return total


def _layout(rng: np.random.Generator, sharded: bool) -> Layout:
    options: dict[str, Any] = {"zarr_format": 3 if sharded else int(rng.integers(2, 4))}
    options |= {"compressed": bool(rng.integers(2)), "dtype": str(rng.choice(["int64", "float32", "uint16"]))}
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


def _pieces(layout: Layout, rng: np.random.Generator) -> list[Piece]:
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


def _write_pieces(
    library: Library, place: Place, pieces: list[Piece], how: int, threads: bool, process: int, share: list[int]
) -> Any:
    """Write some pieces, by one thread or by two."""
    library.vary(process)
    array = library.open(place, "a")
    logs = [Log() for _ in range(1 + threads)]

    def work(thread: int) -> None:
        for number in share[thread :: len(logs)]:
            logs[thread].attempt(number, library.write_otherwise, array, pieces[number], number + 1, how)

    if threads:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(work, range(2)))
    else:
        work(0)
    return sum(logs, Log()).to_json()


def _check_pieces(library: Library, place: Place, layout: Layout, pieces: list[Piece]) -> Any:
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


# -- readers beside writers ------------------------------------------------------------------------------------------

ROUND_S = 0.5
N_CHUNKS = 8


def readers(setting: Setting) -> Counts:
    """Chunks are replaced by other versions while others read them: each read gives one version, and no old one."""
    library, total = LIBRARIES[setting.writer](), Counts()
    for number, rng in rounds(setting):
        place = Place(setting.store, setting.folder, f"x{number}")
        n = int(rng.choice([50, 5_000, 50_000]))
        shards = (4 * n,) if rng.integers(2) else None
        layout = Layout((N_CHUNKS * n,), (n,), shards, compressed=bool(rng.integers(2)))
        versions = shared((3, N_CHUNKS))  # begun, returned, and whether to stop
        total += apart(_create, library, place, layout).counts()
        alone = bool(rng.integers(2))
        work = [partial(_replace_chunks, writer, alone) for writer in range(2)]
        work += [partial(_read_chunks, seed=int(rng.integers(1000))) for _ in range(2)]
        children = [Child(each, library, place, n, versions) for each in work]
        with ended(children):
            time.sleep(ROUND_S)
            versions[2] = 1
            total += logged([child.wait() for child in children])[1]
        place.remove()
    return total


def _replace_chunks(writer: int, alone: bool, library: Library, place: Place, n: int, versions: Numbers) -> Any:
    """Write the chunks of one writer: each alone, or neighbours together."""
    log, array, version = Log(), library.open(place, "a"), 0
    groups = [[chunk] for chunk in range(writer, N_CHUNKS, 2)] if alone else [list(range(4 * writer, 4 * writer + 4))]

    def write(chunks: list[int]) -> None:
        versions[0, chunks] = version
        library.write(array, slice(chunks[0] * n, (chunks[-1] + 1) * n), version)
        versions[1, chunks] = version

    while not version or not versions[2, 0]:  # once at least, however late it begins
        version += 1
        for chunks in groups:
            log.attempt(0, write, chunks)
    return log.to_json()


def _read_chunks(library: Library, place: Place, n: int, versions: Numbers, *, seed: int) -> Any:
    log, rng, array = Log(), np.random.default_rng(seed), library.open(place, "a", read_only=True)

    def read(first: int, last: int) -> None:
        returned = versions[1].copy()
        values = np.asarray(library.read(array, slice(first * n, last * n)))
        begun = versions[0].copy()
        for chunk in range(first, last):
            got = np.unique(values[(chunk - first) * n : (chunk - first + 1) * n])
            if len(got) > 1 or not returned[chunk] <= got[0] <= begun[chunk]:
                note = f"a chunk of {n} elements holds {got[:4].tolist()}, not {returned[chunk]} to {begun[chunk]}"
                log.count(wrong=1, notes=(note,))

    while not versions[2, 0]:
        first, last = sorted(rng.choice(N_CHUNKS + 1, 2, replace=False).tolist())
        log.attempt(0, read, first, last)
    return log.to_json()


SCENARIOS = (
    Scenario("parts of chunks", "processes write parts of the same chunks", parts_of_chunks, SEEN, ALL),
    Scenario("readers", "some replace chunks, others read them", readers, SEEN, ALL),
    Scenario("chunks of shards", "processes write chunks of the same shards", chunks_of_shards, SEEN, ALL),
)
