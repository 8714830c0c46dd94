"""Tasks on gzarr's threads, under one budget of bytes."""

import threading
import time
from queue import SimpleQueue
from typing import Any

import pytest

import gzarr
from gzarr.cpu.backend import CpuBackend
from gzarr.images.tasks import Budget, run_tasks
from tests.support.meeting import Meeting, while_patient


@pytest.fixture(autouse=True)
def _several_threads() -> Any:
    with gzarr.config.set({"threading.max_workers": 4}):
        yield


def test_every_item_is_done_once() -> None:
    done: list[int] = []
    run_tasks(CpuBackend(), done.append, range(100), n_items=100, cost_nbytes=1, max_nbytes=3)
    assert sorted(done) == list(range(100))


@pytest.mark.parametrize(
    ("cost", "max_nbytes", "options", "most"),
    [
        (10, 35, {}, 3),
        (10, 35, {"pending": lambda: 20}, 1),
        (1, 100, {"workers": 2}, 2),
        (100, 10, {}, 1),
        (1, 0, {"workers": 0}, 1),
    ],
    ids=["limit", "what is pending", "workers", "beyond the limit", "no workers"],
)
def test_tasks_stay_within_the_budget(cost: int, max_nbytes: int, options: Any, most: int) -> None:
    meeting = Meeting(most)
    options |= {"n_items": 20, "cost_nbytes": cost, "max_nbytes": max_nbytes}
    run_tasks(CpuBackend(), lambda _: meeting.attend(0.002), range(20), **options)
    assert meeting.most == most


def test_tasks_are_let_in_in_order() -> None:
    budget, let_in = Budget(1, 1, most=3), SimpleQueue[int]()
    budget.take()

    def wait(number: int) -> None:
        budget.take()
        let_in.put(number)

    for number in range(2):
        threading.Thread(target=wait, args=(number,), daemon=True).start()
        while len(budget._waiting) <= number:
            time.sleep(0.001)
    for number in range(2):
        assert let_in.empty()
        budget.give()
        assert let_in.get(timeout=60) == number


def test_the_first_error_stops_the_rest() -> None:
    def task(item: int) -> None:
        if item == 5:
            raise RuntimeError("the fifth")

    with pytest.raises(RuntimeError, match="the fifth"):
        run_tasks(CpuBackend(), task, while_patient(), n_items=1000, cost_nbytes=1, max_nbytes=2)


def test_reads_within_a_task_stay_on_its_thread() -> None:
    z = gzarr.array(list(range(1000)), chunks=10)
    sums: list[int] = []
    run_tasks(
        CpuBackend(), lambda n: sums.append(int(z[: n + 1].sum())), range(50), n_items=50, cost_nbytes=1, max_nbytes=4
    )
    assert sorted(sums) == [n * (n + 1) // 2 for n in range(50)]
