"""Children that are forked while threads read and write: they work, or raise at once."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

from benchmarks.torture import kills
from benchmarks.torture.children import Child, Log, apart, ended, error_text, found, is_own, logged, shared
from benchmarks.torture.kills import Numbers
from benchmarks.torture.libraries import Gzarr
from benchmarks.torture.scenario import Counts, Scenario, Setting, rounds
from benchmarks.torture.stores import PROCESSES, Place

N_FORKS = 10
N_THREADS = 3
CHILD_S = 10.0


def forks(setting: Setting) -> Counts:
    """Threads write their rows while children are forked, each of which reads all and writes a row of its own."""
    library, total = Gzarr(), Counts()
    for number, _ in rounds(setting):
        place = Place(setting.store, setting.folder, f"x{number}")
        state = shared((2, 2, kills.ROWS))
        total += apart(kills.create, library, place).counts()
        child = Child(_fork_among_threads, library, place, state)
        with ended([child]):
            total += logged([child.wait(4 * CHILD_S)])[1]
        total += found(apart(kills.check_rows, library, place, state))
        total += found(apart(kills.rewrite, library, place, state))
        place.remove()
    return total


def _fork_among_threads(library: Gzarr, place: Place, state: Numbers) -> Any:
    log, group, stop = Log(), library.open_node(place, ""), threading.Event()
    logs = [Log() for _ in range(N_THREADS)]

    def work(own: int) -> None:
        while not stop.is_set():
            for row in range(own, kills.ROWS // 2, N_THREADS):
                logs[own].attempt(0, kills.write_row, group, state, row)

    threads = [threading.Thread(target=work, args=(own,)) for own in range(N_THREADS)]
    for thread in threads:
        thread.start()
    for number in range(N_FORKS):
        time.sleep(0.01)
        outcome = Child(_read_and_write, group, state, kills.ROWS // 2 + number).wait(CHILD_S)
        log.count(operations=1)
        log.add(Counts.from_json(outcome.value or {}) if outcome.status == "done" else outcome.counts())
        if outcome.status == "hung":
            break
    stop.set()
    for thread in threads:
        thread.join(CHILD_S)
        if thread.is_alive():
            log.count(hung=1, notes=("a thread of the parent",))
    return sum(logs, log).to_json()


def _read_and_write(group: Any, state: Numbers, row: int) -> Any:
    start = time.monotonic()
    try:
        for name in "cs":
            np.asarray(group[name][...])
        kills.write_row(group, state, row)
    except Exception as error:  # noqa: BLE001 - raising at once is allowed
        own = is_own(error) and time.monotonic() - start < CHILD_S / 2
        return Counts(refused=int(own), raw_errors=int(not own), notes=(error_text(error),)).to_json()
    return None


SCENARIOS = (Scenario("forks", "children are forked while threads read and write", forks, PROCESSES),)
