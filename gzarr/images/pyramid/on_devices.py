"""Builds levels on several devices of this process, as on a cluster: each task runs on the next device in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from itertools import cycle
from typing import Any

from gzarr.backend import Backend
from gzarr.concurrency import Pool
from gzarr.hierarchy.array import Array
from gzarr.images.tasks import DEVICE_WORKERS


class OnDevices:
    """What runs tasks of `gzarr.images.pyramid.cluster` on threads of this process; see `ClusterClient`.

    Parameters
    ----------
    backends : sequence of Backend
        Of the devices.
    """

    def __init__(self, backends: Sequence[Backend]) -> None:
        self._n, self._turns = len(backends), cycle(backends)
        self._threads = Pool()
        self._futures: list[Future[None]] = []

    def close(self) -> None:
        """Wait for all tasks."""
        wait(self._futures)

    def nthreads(self) -> dict[int, int]:
        """How many tasks run at once, by device."""
        return dict.fromkeys(range(self._n), DEVICE_WORKERS)

    def submit(self, function: Callable[..., Any], levels: Sequence[Array], /, *arguments: Any) -> Future[None]:
        """Let the next device carry out a task of levels, on a stream of its own."""
        future, backend = Future[None](), next(self._turns)

        def task() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    with backend.own_stream():
                        function([level.to(backend) for level in levels], *arguments)
                except BaseException as error:  # noqa: BLE001 - raised where the future is asked
                    future.set_exception(error)
                else:
                    future.set_result(None)

        self._futures = [*(one for one in self._futures if not one.done()), future]
        self._threads.submit(task, DEVICE_WORKERS * self._n)
        return future
