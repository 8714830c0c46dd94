"""Tasks on gzarr's threads, under one budget of bytes."""

from __future__ import annotations

import threading
import time
from queue import SimpleQueue
from typing import Any

import pytest

import gzarr
from gzarr.cpu.backend import CpuBackend
from gzarr.images.tasks import Budget, run_tasks


@pytest.fixture(autouse=True)
def _several_threads() -> Any:
    with gzarr.config.set({"threading.max_workers": 4}):
        yield


def peak_of(cost: Any, max_nbytes: int, items: list[int], **options: Any) -> int:
    """The most bytes that tasks held at once."""
    lock, held, most = threading.Lock(), 0, 0

    def task(item: int) -> None:
        nonlocal held, most
        nbytes = cost(item) if callable(cost) else cost
        with lock:
            held += nbytes
            most = max(most, held)
        time.sleep(0.002)
        with lock:
            held -= nbytes

    run_tasks(CpuBackend(), task, items, n_items=len(items), cost_nbytes=cost, max_nbytes=max_nbytes, **options)
    return most


def test_every_item_is_done_once() -> None:
    done: list[int] = []
    run_tasks(CpuBackend(), done.append, range(100), n_items=100, cost_nbytes=1, max_nbytes=3)
    assert sorted(done) == list(range(100))


def test_tasks_stay_within_the_budget() -> None:
    assert peak_of(10, 35, [1] * 40) == 30
    assert peak_of(lambda item: item, 50, [30, 10, 40, 20, 50, 5] * 5) <= 50


def test_what_is_pending_counts() -> None:
    assert peak_of(10, 35, [1] * 20, pending=lambda: 20) == 10


def test_no_more_workers_than_wanted() -> None:
    assert peak_of(1, 100, [1] * 20, workers=2) == 2


def test_a_task_beyond_the_budget_runs_alone() -> None:
    assert peak_of(lambda item: item, 10, [100, 1, 1, 100, 1, 1, 100]) == 100


def test_no_task_is_put_off_by_later_ones() -> None:
    budget, let_in = Budget(10, most=3), SimpleQueue[int]()
    budget.take(6)

    def wait_for(nbytes: int) -> None:
        budget.take(nbytes)
        let_in.put(nbytes)

    threads = [threading.Thread(target=wait_for, args=(nbytes,), daemon=True) for nbytes in (7, 1)]
    for n, thread in enumerate(threads):
        thread.start()
        while len(budget._waiting) <= n:
            time.sleep(0.001)
    assert let_in.empty()  # there is room for 1, but 7 asked first
    budget.give(6)
    assert {let_in.get(timeout=10), let_in.get(timeout=10)} == {7, 1}


def test_the_first_error_stops_the_rest() -> None:
    began: list[int] = []

    def task(item: int) -> None:
        began.append(item)
        time.sleep(0.001)
        if item == 5:
            raise RuntimeError("the fifth")

    with pytest.raises(RuntimeError, match="the fifth"):
        run_tasks(CpuBackend(), task, range(1000), n_items=1000, cost_nbytes=1, max_nbytes=2)
    assert len(began) < 500  # 7, unless the thread of the fifth is not given a processor for long


def test_reads_within_a_task_stay_on_its_thread() -> None:
    z = gzarr.array(list(range(1000)), chunks=10)
    sums: list[int] = []
    run_tasks(CpuBackend(), lambda n: sums.append(int(z[: n + 1].sum())), range(50), n_items=50, cost_nbytes=1,
              max_nbytes=4)  # fmt: skip
    assert sorted(sums) == [n * (n + 1) // 2 for n in range(50)]
