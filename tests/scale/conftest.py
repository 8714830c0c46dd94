"""Engines of real processes, and what kills their workers."""

import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import active_children, get_context
from typing import Any

import pytest


@pytest.fixture(scope="session")
def dask_client() -> Iterator[Any]:
    dask, distributed = map(pytest.importorskip, ("dask", "distributed"))
    with (
        # By default, a cluster does without a worker that was killed if the next one takes 15 s to start.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"}),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(3, get_context("spawn")) as executor:
        yield executor


@pytest.fixture(params=["processes", "dask"])
def engine(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "dask":
        yield request.getfixturevalue("dask_client")
        return
    with ProcessPoolExecutor(2, get_context("spawn")) as executor:
        yield executor


@contextmanager
def killing(times: int, every_s: float = 0.4) -> Iterator[list[int]]:
    """Kill a worker now and then, so many times at most. Yields: those that were killed."""
    killed: list[int] = []
    over = threading.Event()

    def kill() -> None:
        while len(killed) < times and not over.wait(every_s):
            for pid in random.sample(pids := [one.pid or 0 for one in active_children()], len(pids)):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
                    break

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


Operation = Callable[[Any, Any], Any]
