"""Blocks on engines: real processes and a real cluster of Dask; and a simulated cluster of 1,000 workers."""

import heapq
import os
import signal
import struct
import sys
from concurrent.futures import CancelledError, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from resource import RUSAGE_SELF, getrusage
from threading import Barrier, Timer
from time import process_time, sleep
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import StoreError
from gzarr.scale import engines
from gzarr.scale.blocks import BlockPlan, JobPart, parse_part
from gzarr.scale.engines import Ended, Engine, open_engine
from gzarr.scale.running import run
from tests.scale.conftest import killing


class Simulated(Engine):
    """Workers whose units take a time that is drawn, on a clock of their own, and that die now and then."""

    def __init__(self, workers: int, deaths: float = 0.0, block_s: float = 0.4) -> None:
        self.name, self.workers, self.shares_memory, self.deaths = "simulated", workers, True, deaths
        self.clock, self.busy_s, self.most, self._block_s = 0.0, 0.0, 0, block_s
        self._random = np.random.default_rng(5)
        self._free = [0.0] * workers  # when each worker is free
        self._ends: list[tuple[float, int, range, float, bool]] = []

    def submit(self, number: int, token: Any, unit: range, given: Any = None) -> None:
        start = max(heapq.heappop(self._free), self.clock)
        seconds = float(self._random.gamma(4.0 * len(unit), self._block_s / 4))
        dies = self._random.random() < self.deaths
        heapq.heappush(self._free, start + seconds)
        heapq.heappush(self._ends, (start + seconds, number, unit, seconds, dies))
        self.busy_s += 0.0 if dies else seconds
        self.most = max(self.most, len(self._ends))

    def wait(self) -> Ended:
        self.clock, number, unit, seconds, dies = heapq.heappop(self._ends)
        if dies:
            return number, CancelledError(), None
        return number, None, ([None] * len(unit), seconds, "there")

    def recover(self) -> None:
        pass

    def cancel(self, numbers: list[int]) -> None:
        pass


@pytest.mark.parametrize("deaths", [0.0, 0.01])
def test_a_cluster_of_1000_workers_is_kept_busy(deaths: float) -> None:
    engine, done = Simulated(1000, deaths), np.zeros(400_000, np.uint8)

    def take(unit: range, _: list[Any]) -> None:
        done[unit.start : unit.stop] += 1

    report = run([BlockPlan(name="a", n=done.size, do=int, take=take)], engine)
    assert done.min() == done.max() == 1
    assert bool(report.repeated) == bool(deaths)
    assert engine.most <= 2 * engine.workers
    assert engine.busy_s / (engine.clock * engine.workers) > 0.95


def test_ten_million_blocks_are_planned_in_little_memory_and_time() -> None:
    engine = Simulated(1000, block_s=0.05)
    before, began = getrusage(RUSAGE_SELF).ru_maxrss, process_time()
    report = run([BlockPlan(name="a", n=10_000_000, do=int)], engine)
    assert report.n_blocks == 10_000_000
    assert process_time() - began < 20
    assert getrusage(RUSAGE_SELF).ru_maxrss - before < 100 << 10


def slow(number: int) -> int:
    """A block that takes a while."""
    from time import sleep

    sleep(0.05)
    return number * number


def test_units_of_workers_that_are_killed_are_done_again(engine: Any) -> None:
    made: dict[int, int] = {}

    def take(unit: range, results: list[int]) -> None:
        assert made.keys().isdisjoint(unit)
        made.update(zip(unit, results, strict=True))

    with open_engine(engine) as opened:
        with killing(2) as killed:
            report = run([BlockPlan(name="squares", n=60, do=slow, take=take)], opened)
        assert killed
        assert run([BlockPlan(name="a", n=3, do=slow)], opened).n_blocks == 3  # as the next phase of an operation
    assert made == {n: n * n for n in range(60)}
    assert report.n_blocks == 60


def fail(number: int) -> None:
    """A block that fails."""
    if number == 7:
        raise ZeroDivisionError("of 7")


def test_errors_of_blocks_are_raised(engine: Any) -> None:
    with pytest.raises(ZeroDivisionError, match="of 7"):
        run([BlockPlan(name="a", n=60, do=fail)], engine)
    assert run([BlockPlan(name="a", n=3, do=slow)], engine).n_blocks == 3  # it is still of use


def test_a_block_that_ends_every_worker_is_told() -> None:
    with pytest.raises(StoreError, match="of a: BrokenProcessPool ended 5 workers"):
        run([BlockPlan(name="a", n=1, do=os._exit)], 1)


def die_amid_a_message(number: int) -> int:
    """A block whose process dies once it has sent the length of its result, or, if it is idle, with the lock of all."""
    frame: Any = sys._getframe()
    while frame is not None and "result_queue" not in frame.f_locals:
        frame = frame.f_back
    if frame is not None:  # of a ProcessPoolExecutor
        os.write(frame.f_locals["result_queue"]._writer.fileno(), struct.pack("!i", 100))
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_a_death_that_an_executor_does_not_notice_costs_its_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "CHECK_S", 0.2)
    made: list[int] = []
    plan = BlockPlan(name="a", n=20, do=die_amid_a_message, take=lambda _, results: made.extend(results))
    with ProcessPoolExecutor(2, get_context("spawn")) as executor:
        report = run([plan], executor)
    assert sorted(made) == [*range(20)]
    assert 1 <= len(report.repeated) <= 4


def test_workers_are_looked_at_though_the_handler_of_a_signal_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A SimpleQueue would wait without a limit when the handler has returned."""
    monkeypatch.setattr(engines, "CHECK_S", 0.2)
    before = signal.signal(signal.SIGALRM, lambda *_: sleep(0.4))
    engine = Engine(SimpleNamespace(num_workers=1))
    monkeypatch.setattr(engine, "_check", lambda: 1 / 0)
    rescue = Timer(20, engine._ended.put, [0])  # which wait() then returns
    rescue.start()
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(ZeroDivisionError):
            engine.wait()
    finally:
        signal.signal(signal.SIGALRM, before)
        rescue.cancel()


def test_what_was_amiss_before_a_unit_ended_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as executor:
        engine, now = Engine(executor), 0.0
        engine._count = lambda: 0  # type: ignore[method-assign]
        monkeypatch.setattr(engines, "perf_counter", lambda: now)
        for number in range(2):
            now = 110.0 * number
            with monkeypatch.context() as patch:  # a process that has done max_tasks_per_child, say
                patch.setattr(executor, "_processes", {0: SimpleNamespace(is_alive=lambda: False)})
                engine._check()
            engine.submit(number, int, range(number, number + 1))
            assert engine.wait()[2][0] == [number]
        now = 121.0
        engine._check()
        assert engine._executor is executor


@pytest.mark.parametrize("answers", [True, False])
def test_a_cluster_without_workers_is_told(answers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")
    if not answers:  # a client of a scheduler that is gone
        monkeypatch.setattr(engines._Dask, "_count", lambda _: None.ncores)  # type: ignore[attr-defined]
    monkeypatch.setattr(engines, "CHECK_S", 0.2)
    monkeypatch.setattr(engines, "NO_WORKERS_S", 1.0)
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=":0") as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
        pytest.raises(StoreError, match="the cluster has had no worker for 1 s"),
    ):
        run([BlockPlan(name="a", n=3, do=int)], client)


def test_units_in_threads_leave_the_number_of_threads_as_it_was() -> None:
    before, seen, meeting = gzarr.config.get("threading.max_workers"), list[Any](), Barrier(2)

    def do(number: int) -> None:
        meeting.wait(60)
        seen.append(gzarr.config.get("threading.max_workers"))
        if number:  # the other one, which began first, ends first
            first.result(60)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(engines.run_unit, do, 0, 1, 1)
        while not engines._units:
            sleep(0.001)
        pool.submit(engines.run_unit, do, 1, 2, 1).result(60)
    assert (seen, gzarr.config.get("threading.max_workers")) == ([1, 1], before)


def test_parts_are_all_and_disjoint() -> None:
    parts = [list(JobPart(k, 7).share([range(3, 40), range(50, 100)], 100)) for k in range(7)]
    assert sorted(n for part in parts for one in part for n in one) == [*range(3, 40), *range(50, 100)]
    for bad in [(3, 3), (-1, 2), (0,)]:
        with pytest.raises(ValueError, match="0 <= k < n"):
            parse_part(bad)  # type: ignore[arg-type]
