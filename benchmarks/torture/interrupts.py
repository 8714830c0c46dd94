"""Ctrl-C at random moments: the array is usable afterwards, in the same process and in others."""

from __future__ import annotations

import gc
import signal
import time
from types import FrameType
from typing import Any

import numpy as np

from benchmarks.torture import kills
from benchmarks.torture.children import Child, apart, ended, found, shared
from benchmarks.torture.kills import Numbers
from benchmarks.torture.libraries import Gzarr
from benchmarks.torture.scenario import Counts, Scenario, Setting, rounds
from benchmarks.torture.stores import AT_CLOSE, KEPT, Place, leftover_files

ROUND_S = 1.0
TYPICAL_S = (0.002, 0.01, 0.05)  # from the begin of a write until it is interrupted


class _Interrupts:
    """Raises KeyboardInterrupt for a signal that comes while it is armed, and not in the code that looks on."""

    def __init__(self, armed: Numbers) -> None:
        self._armed = armed
        signal.signal(signal.SIGINT, self._handle)

    def arm(self) -> None:
        self._armed[0] = 1

    def disarm(self) -> None:
        self._armed[0] = 0

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._armed[0]:
            self.disarm()
            raise KeyboardInterrupt


def interrupts(setting: Setting) -> Counts:
    """A writer is interrupted again and again, looks what is there, and goes on; another process writes at the end."""
    library, total = Gzarr(), Counts()
    for number, rng in rounds(setting):
        place = Place(setting.store, setting.folder, f"x{number}")
        state, armed, stop = shared((2, 2, kills.ROWS)), shared(1), shared(1)
        total += apart(kills.create, library, place, bool(rng.integers(2))).counts()
        child = Child(_write_interrupted, library, place, state, armed, stop, int(rng.integers(1 << 30)))
        with ended([child]):
            _interrupt(child, armed, rng)
            stop[0] = 1
            total += found(child.wait())
        total += found(apart(kills.check_rows, library, place, state))
        total += found(apart(kills.rewrite, library, place, state)) + leftover_files(place)
        place.remove()
    return total


def _interrupt(child: Child, armed: Numbers, rng: np.random.Generator) -> None:
    end = time.monotonic() + ROUND_S
    while time.monotonic() < end and child.alive():
        if armed[0]:
            time.sleep(float(rng.exponential(rng.choice(TYPICAL_S))))
            child.signal(signal.SIGINT)
        else:
            time.sleep(0.0002)


def _write_interrupted(library: Gzarr, place: Place, state: Numbers, armed: Numbers, stop: Numbers, seed: int) -> Any:
    signals, rng, counts = _Interrupts(armed), np.random.default_rng(seed), Counts()
    held: kills.Held = []
    group = None if place.kind in AT_CLOSE else library.open_node(place, "")
    while not stop[0] and not counts.losses:
        row = int(rng.integers(kills.ROWS))
        try:
            signals.arm()
            if group is None:
                kills.write_rows(library, place, state, int(rng.integers(1 << 30)), most=1, held=held)
            else:
                kills.write_row(group, state, row)
                group["cs"[row % 2]][row]
            signals.disarm()
            counts += Counts(operations=1)
            continue
        except KeyboardInterrupt:
            counts += Counts(operations=1)
        gc.collect()  # an interrupted store is closed when the exception that holds it is gone
        for store in held:
            store.close()  # again, as the interrupt may have been in it
        held.clear()
        looked = kills.check_rows(library, place, state) if group is None else _look(group, state, row).to_json()
        counts += Counts.from_json(looked)
    signals.disarm()
    return counts.to_json()


def _look(group: Any, state: Numbers, row: int) -> Counts:
    """After an interrupt: the row is read, written and read again with the same objects."""
    counts = kills.compare_row(group, state, row)
    kills.write_row(group, state, row)
    return counts + kills.compare_row(group, state, row)


SCENARIOS = (Scenario("interrupts", "a writer is interrupted (Ctrl-C)", interrupts, KEPT),)
