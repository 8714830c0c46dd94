"""Builds levels on several devices of this process, as on an engine: each unit runs on the next device in turn."""

from collections.abc import Sequence
from concurrent.futures import wait
from itertools import cycle
from typing import Any

from gzarr.backend import Backend
from gzarr.concurrency import Pool
from gzarr.images.tasks import DEVICE_WORKERS
from gzarr.scale.engines import Engine, run_unit


class OnDevices(Engine):
    """Runs units on threads of this process.

    Parameters
    ----------
    backends : sequence of Backend
        Of the devices.
    """

    shares_memory = True

    def __init__(self, backends: Sequence[Backend]) -> None:
        self.name, self.workers, self.threads = f"{len(backends)} devices", DEVICE_WORKERS * len(backends), None
        self._turns, self._pool = cycle(backends), Pool()
        self._begin()

    def close(self) -> None:
        """Wait for all units."""
        wait(self._futures.values())

    def submit(self, number: int, token: Any, unit: range, given: Any = None) -> None:
        """Let the next device do a unit, on a stream of its own."""
        backend = next(self._turns)

        def task() -> Any:
            with backend.own_stream():
                return run_unit(token.to(backend), unit.start, unit.stop, None, given)

        future = self._pool.future(task, self.workers)
        self._futures[number] = future
        future.add_done_callback(lambda _: self._ended.put(number))
