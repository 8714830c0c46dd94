"""Runs tasks on gzarr's threads under one budget of bytes.

Theory of operation. The threads of `Backend.run` take items in order. A thread waits with its item until the budget has
room for it, and no later item is let in before it. A task always runs if no other does, so none waits forever. What a
task reads and writes stays on its thread.

On a device, a task has a stream of its own. It comes after what the caller had submitted before all tasks, and before
what the caller submits after them. So one task may be read, another one computed, and a third one encoded meanwhile.
"""

from collections import deque
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import TypeVar

from gzarr.backend import Backend, Work
from gzarr.concurrency import new_lock
from gzarr.cpu.threads import thread_count

#: Tasks at once on a device: one is read, one computed, and one encoded.
DEVICE_WORKERS = 3

#: Default memory in bytes, unless one block needs more.
MAX_NBYTES = 256 << 20

T = TypeVar("T")


def limit_of(max_nbytes: int | None, needed_nbytes: int = 0) -> int:
    """The limit of memory that was given; by default `MAX_NBYTES`, or what one block needs, if that is more."""
    return max(MAX_NBYTES, needed_nbytes) if max_nbytes is None else max_nbytes


def with_memory(name: str, max_nbytes: int | None, limit: int) -> str:
    """A name for progress, with the memory that is taken if that is more than by default. max_nbytes: as given."""
    return name if max_nbytes is not None or limit <= MAX_NBYTES else f"{name} ({limit >> 20} MiB of memory)"


class Budget:
    """What tasks hold, in bytes: each the same.

    Attributes
    ----------
    failed : bool
        Whether a task has failed, so that no other begins.
    """

    def __init__(self, max_nbytes: int, cost_nbytes: int, most: int, pending: Callable[[], int] = int) -> None:
        """Begin with no task.

        max_nbytes: what tasks and ``pending`` bytes may hold, unless a task runs alone. most: how many run at once.
        """
        self.failed = False
        self._limits = max_nbytes, cost_nbytes, most
        self._pending = pending
        self._lock = new_lock()
        self._n_tasks = 0
        self._waiting: deque[SimpleQueue[None]] = deque()

    def take(self) -> None:
        """Wait until those who asked before were let in and there is room for a task, and hold it."""
        turn = SimpleQueue[None]()
        try:
            self._waiting.append(turn)
            self._let_in()
            turn.get()
        except BaseException:  # an interrupt
            with self._lock:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                else:
                    self.give()
            raise

    def give(self) -> None:
        """Give back what a task held."""
        with self._lock:
            self._n_tasks -= 1
        self._let_in()

    def _let_in(self) -> None:
        with self._lock:
            while self._waiting and self._has_room():
                self._n_tasks += 1
                self._waiting.popleft().put(None)

    def _has_room(self) -> bool:
        max_nbytes, cost_nbytes, most = self._limits
        n = self._n_tasks + 1
        return n == 1 or (n <= most and n * cost_nbytes + self._pending() <= max_nbytes)


def worker_count(backend: Backend, concurrency: int) -> int:
    """How many tasks pay at once. concurrency: of the store that they read and write."""
    if backend is not backend.host:
        return DEVICE_WORKERS
    return thread_count(waits=concurrency > 1, at_once=concurrency)


def run_tasks(
    backend: Backend,
    task: Callable[[T], object],
    items: Iterable[T],
    *,
    n_items: int,
    cost_nbytes: int,
    max_nbytes: int,
    workers: int | None = None,
    waits: bool = False,
    pending: Callable[[], int] = int,
) -> None:
    """Carry out a task for every item, several at once, under one budget of bytes.

    Parameters
    ----------
    backend : Backend
        Its threads do the tasks; on a device, each task has a stream of its own.
    task : callable
        Called with each item.
    items : iterable
        Taken in order.
    n_items : int
        How many there are.
    cost_nbytes : int
        Bytes that a task holds.
    max_nbytes : int
        What all tasks under way, and what is pending, may hold. A task always begins if no other is under way.
    workers : int, optional
        The most tasks at once. By default, as many as there are threads.
    waits : bool
        Whether tasks wait for servers, so that more threads than processors pay.
    pending : callable
        Says how many bytes tasks that have ended left behind.

    Raises
    ------
    Exception
        What the first failing task raised, after all tasks under way have ended. No task begins after it.
    """
    budget = Budget(max_nbytes, cost_nbytes, n_items if workers is None else workers, pending)
    before = backend.record()
    ends: dict[int, object] = {}  # by stream, which later tasks take again

    def carry_out(item: T) -> None:
        budget.take()
        try:
            if not budget.failed:
                with backend.own_stream():
                    backend.wait(before)
                    try:
                        task(item)
                    finally:
                        ends[id(backend.current_stream())] = backend.record()
        except BaseException:
            budget.failed = True
            raise
        finally:
            budget.give()

    try:
        backend.run(carry_out, items, Work(n_items, max(max_nbytes, 1 << 20), 1, unlocked=True, waits=waits))
    finally:
        for end in ends.values():
            backend.wait(end)
