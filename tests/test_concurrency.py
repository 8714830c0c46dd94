"""Locks that know their thread, threads that re-entrant code may ask for at any point, and fresh children."""

import gc
import os
import sys
import threading
import weakref
from collections.abc import Callable
from queue import Empty

import pytest

from gzarr import concurrency
from gzarr.concurrency import Pool, TimedQueue, after_fork, new_lock, run_in_threads

#: Without the interpreter's lock, objects of other threads are counted late: only a collection is sure to drop them.
counts_at_once = getattr(sys, "_is_gil_enabled", lambda: True)()
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


def in_child(task: Callable[[], bool]) -> bool:
    """Whether a task succeeds in a forked child within 20 s."""
    child = os.fork()
    if not child:
        threading.Timer(120, os._exit, (3,)).start()
        ok = False
        try:
            ok = task()
        finally:
            os._exit(not ok)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@needs_fork
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_finds_the_locks_of_other_threads_free_and_its_own_held() -> None:
    theirs, mine = new_lock(), new_lock()
    taken, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with theirs:
            taken.set()
            go_on.wait(60)

    def child() -> bool:
        free = theirs.acquire(timeout=60)
        mine.release()
        mine.release()
        return free and mine.acquire(timeout=60)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        taken.wait(60)
        with mine, mine:
            assert in_child(child)
    finally:
        go_on.set()
        thread.join()


@needs_fork
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_has_pools_without_threads_and_calls_what_was_registered() -> None:
    pool, called = Pool(), []
    pool.call(int)
    hook = after_fork(lambda: called.append(os.getpid()))
    try:
        assert in_child(lambda: pool.call(lambda: 3) == 3 and called == [os.getpid()])
    finally:
        concurrency._hooks.remove(hook)
    assert called == []


def test_a_lock_is_forgotten_with_its_owner() -> None:
    lock = new_lock()
    assert lock in concurrency._locks
    gone = weakref.ref(lock)
    del lock
    assert gone() is None


def test_a_timed_queue_gives_every_item_to_one_of_those_who_wait() -> None:
    queue, taken = TimedQueue[int](), TimedQueue[int]()
    threads = [threading.Thread(target=lambda: [taken.put(queue.get(60)) for _ in range(500)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(2000):
        queue.put(number)
    assert sorted(taken.get(60) for _ in range(2000)) == [*range(2000)]
    for timeout_s in (0.0, 0.01):
        with pytest.raises(Empty):
            queue.get(timeout_s)


def test_threads_are_reused_and_end_with_their_pool() -> None:
    pool = Pool()
    names: set[int] = set()
    for _ in range(20):
        pool.call(lambda: names.add(threading.get_ident()))
    assert len(names) == pool.n_threads == 1
    tasks = weakref.ref(pool._tasks)
    del pool
    ended = threading.Event()
    for _ in range(1000):
        if tasks() is None:  # the thread was the last that had them
            break
        ended.wait(0.01)
    assert tasks() is None


def test_what_a_call_raises_is_raised_and_not_kept() -> None:
    pool = Pool()

    class Large:
        pass

    dead: list[weakref.ref[Large]] = []

    def fail() -> None:
        large = Large()
        dead.append(weakref.ref(large))
        raise ValueError("it failed")

    gc.disable()
    try:
        with pytest.raises(ValueError, match="it failed") as caught:
            pool.call(fail)
        del caught
        assert not counts_at_once or dead[0]() is None
        with pytest.raises(ValueError, match="it failed") as caught:
            run_in_threads(lambda _: fail(), range(5), 3, pool)
        del caught
        if not counts_at_once:
            gc.collect()
        assert all(ref() is None for ref in dead)
    finally:
        gc.enable()


def test_a_pool_knows_its_threads() -> None:
    pool = Pool()
    assert pool.call(pool.is_here)
    assert not pool.is_here()
    assert not Pool().call(pool.is_here)


def test_a_task_may_run_tasks_on_the_same_pool() -> None:
    pool = Pool()
    done: list[tuple[int, int]] = []
    run_in_threads(
        lambda i: run_in_threads(lambda j: done.append((i, j)), range(10), 4, pool, most=4), range(10), 4, pool, most=4
    )
    assert sorted(done) == [(i, j) for i in range(10) for j in range(10)]
    assert pool.n_threads <= 4


def test_the_first_error_tells_of_the_others() -> None:
    meeting = threading.Barrier(2)

    def fail(i: int) -> None:
        meeting.wait(60)
        raise ValueError(f"item {i}")

    with pytest.raises(ValueError, match="item") as caught:
        run_in_threads(fail, range(20), 2, Pool())
    assert len(caught.value.__notes__) == 1
    assert "another one failed too: item" in caught.value.__notes__[0]
