"""Opening, reading, writing and closing again and again: descriptors, threads and memory stay what they were."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.torture.children import apart, found
from benchmarks.torture.scenario import Counts, Scenario, Setting
from benchmarks.torture.stores import DATABASES, Place

WARM_UP = 20
PATIENCE_S = 60.0
#: Growth that is no leak: arenas of the allocator, pages of files that are mapped; and the same for each use.
MOST_NBYTES, MOST_NBYTES_EACH = 24 << 20, 100
MOST_OBJECTS, MOST_OBJECTS_EACH = 2000, 0.1


class Usage(NamedTuple):
    """What a process uses. threads: those of Python and others."""

    descriptors: int
    threads: int
    objects: int
    nbytes: int


def leaks(setting: Setting) -> Counts:
    """One process uses a store as often as it can."""
    place = Place(setting.store, setting.folder, "x")
    return found(apart(_use_again, place, setting.budget_s, timeout_s=2 * setting.budget_s + PATIENCE_S))


def usage() -> Usage:
    """What this process uses now."""
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    threads = max(threading.active_count(), len(list(Path("/proc/self/task").iterdir())))
    return Usage(len(list(Path("/proc/self/fd").iterdir())), threads, len(gc.get_objects()), resident)


def _use_again(place: Place, budget_s: float) -> Any:
    import gzarr

    with place.store() as store:
        group = gzarr.create_group(store)
        group.create_array("a", shape=100, chunks=10, dtype="i4")[...] = 0
        group.create_array("s", shape=100, chunks=5, shards=50, dtype="i4")[...] = 0
        many = group.create_array("many", shape=300, chunks=1, dtype="i4", write_empty_chunks=True)
        for n in range(4):  # starts the threads that a process keeps, as many as it ever has
            many[...] = n
            many[...]
        del group["many"]
    end, n, before = time.monotonic() + budget_s, 0, usage()
    while n < 2 * WARM_UP or time.monotonic() < end:
        if n == WARM_UP:
            before = usage()
        counts = _use(place, n)
        if counts.losses:
            return counts.to_json()
        n += 1
    return (Counts(operations=n) + grown(before, usage(), n - WARM_UP)).to_json()


def _use(place: Place, n: int) -> Counts:
    import gzarr

    with place.store() as store:
        group = gzarr.open_group(store, "r+")
        for name in ("a", "s"):
            z = group[name]
            z[n % 100] = n
            if z[...][n % 100] != n or not isinstance(z[3:50:7], np.ndarray):
                return Counts(wrong=1, notes=(f"{name}[{n % 100}] is not {n}",))
        group.attrs["n"] = n
        with contextlib.suppress(KeyError):
            group["absent"]
        with gzarr.profile():
            gzarr.open_array(store, path="s", mode="r", chunk_cache=1 << 16)[:20]
    return Counts()


def grown(before: Usage, after: Usage, n: int) -> Counts:
    """What `n` uses have left behind."""
    notes = []
    most = {"objects": MOST_OBJECTS + MOST_OBJECTS_EACH * n, "nbytes": MOST_NBYTES + MOST_NBYTES_EACH * n, "threads": 1}
    for name, old, new in zip(Usage._fields, before, after, strict=True):
        if new - old > most.get(name, 0):
            notes.append(f"leak: {name} grew from {old:,} to {new:,} in {n:,} uses")
    return Counts(leaked=len(notes), notes=tuple(notes))


SCENARIOS = (
    Scenario("leaks", "opening, reading and writing again and again", leaks, ("local", "zip", "memory", *DATABASES)),
)
