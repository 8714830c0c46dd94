"""The locks and threads of gzarr, and what a forked child does with them.

Theory of operation. Between any two steps of a thread, Python may run re-entrant code on it: finalizers and
``__del__`` methods when it collects garbage, and handlers of signals. That code may use any store and any array, also
while the thread holds a lock of gzarr: it must then not wait for that lock. An interrupt may end a function at any
step. A fork copies the memory at any step of the other threads, which the child does not have.

Rules.

1. Every lock that outlives a call is made by `new_lock`: its thread knows that it holds it, and in a forked child it is
   free, unless the forking thread itself holds it.
2. What a lock protects is valid after every step of the region, because an interrupt may end it there, and a fork may
   copy it there. A region computes first, and changes what it protects by single operations of built-in containers or
   by one assignment. Where one operation does everything, as in ``dict.setdefault`` and ``next(count)``, no lock is
   needed.
3. Where re-entrant code must not enter a region (a file with one position, a transaction, the change of an object), it
   gets a `StoreError` (`gzarr.storage.locks.entering`). Caches are passed by (`is_held_here`).
4. Threads come from a `Pool`, and results through `SimpleQueue`, or `TimedQueue` where a wait has a limit. Executors,
   queues and events of the standard library have locks that re-entrant code on the same thread would wait for forever.
5. Whatever a child has to do after a fork is registered with `after_fork`.
"""

import os
import threading
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, Generic, TypeAlias, TypeVar
from weakref import WeakSet
from weakref import ref as weak_reference

T = TypeVar("T")
#: What `new_lock` makes.
Lock: TypeAlias = "threading.RLock"

_locks: WeakSet[Any] = WeakSet()
_hooks: list[Callable[[], object]] = []


def new_lock() -> Lock:
    """Make a lock that knows its thread (`is_held_here`) and that is free in a forked child."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def is_held_here(lock: Lock) -> bool:
    """Whether the current thread holds a lock."""
    return lock._is_owned()  # type: ignore[attr-defined]  # noqa: SLF001 - as `threading.Condition` asks


def after_fork(hook: Callable[[], object]) -> Callable[[], object]:
    """Call a function in every forked child, after its locks were made free."""
    _hooks.append(hook)
    return hook


def _begin_child() -> None:
    for lock in list(_locks):
        if not is_held_here(lock):
            lock._at_fork_reinit()  # noqa: SLF001 - as `logging` does
    for pool in list(_pools):
        pool.reset()
    for hook in _hooks:
        hook()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_child)


class Collected:
    """Objects, each with something that is given back once it is collected.

    No Python code runs at that moment, which may be any: an interrupt (Ctrl-C) in it would be lost, and what is to be
    given back with it.
    """

    def __init__(self) -> None:
        self._watched: dict[int, tuple[weak_reference[Any], Any]] = {}
        self._ended: deque[weak_reference[Any]] = deque()

    def watch(self, watched: Any, what: Any) -> None:
        """Give something back once an object is collected."""
        reference = weak_reference(watched, self._ended.append)
        self._watched[id(reference)] = reference, what

    def pop(self) -> Any:
        """The next thing that is given back; None if nothing is."""
        try:
            return self._watched.pop(id(self._ended.popleft()))[1]
        except IndexError:
            return None


class TimedQueue(Generic[T]):
    """A queue whose waits end in time.

    Those of a `SimpleQueue` of CPython go on for ever if the handler of a signal interrupts them and returns too late.
    """

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        # It protects nothing, and nobody owns it: to put something is to let it go, to wait is to acquire it.
        self._filled = threading.Lock()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> None:
        """Add an item, and wake a thread that waits for one."""
        self._items.append(item)
        self._wake()

    def get(self, timeout_s: float | None = None) -> T:
        """Remove the oldest item and return it. Raises: Empty if there is none for so many seconds."""
        end = None if timeout_s is None else monotonic() + timeout_s
        try:
            while True:
                try:
                    return self._items.popleft()
                except IndexError:
                    left = -1 if end is None else max(end - monotonic(), 0)
                if not self._filled.acquire(timeout=left):
                    raise Empty
        finally:
            if self._items:  # another thread may wait, and this one was woken instead
                self._wake()

    def _wake(self) -> None:
        if self._filled.locked():
            with suppress(RuntimeError):  # another thread was as fast
                self._filled.release()


class Turns:
    """Turns, of which so many are taken at once, to do what takes much memory.

    Waits are bounded: the holder may itself be waiting for this thread. If an interrupt loses a turn, the next waiter
    creates a new one.

    Parameters
    ----------
    number : int
        How many turns there are.
    patience_s : float
        Seconds to wait for one, at most.
    """

    def __init__(self, number: int, patience_s: float) -> None:
        self._number, self._patience_s = number, patience_s
        self._here = threading.local()  # `taken`: a turn within a turn is the same
        self.reset()
        after_fork(self.reset)

    def reset(self) -> None:
        """Begin with all turns: a forked child has none of the threads that took them."""
        self._free: TimedQueue[None] = TimedQueue()
        for _ in range(self._number):
            self._free.put(None)

    def call(self, function: Callable[[], T]) -> T:
        """Call a function when it is its turn. Raises: what it raises."""
        if getattr(self._here, "taken", False):
            return function()
        self._here.taken = True
        try:
            with suppress(Empty):
                self._free.get(self._patience_s)
            return function()
        finally:
            self._here.taken = False
            if len(self._free) < self._number:
                self._free.put(None)


class Pool:
    """Threads that carry out tasks: started when they are needed, reused, ended when the pool is forgotten."""

    def __init__(self) -> None:
        self._growing = new_lock()
        self.reset()
        _pools.add(self)

    def reset(self) -> None:
        """Begin without threads: a forked child has none of its parent's."""
        self._tasks: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._idle: deque[None] = deque()
        self.n_threads = 0

    def submit(self, task: Callable[[], object], most: int) -> None:
        """Let one of at most so many threads carry out a task, which must not raise.

        Raises: RuntimeError if there is no thread and none can be started.
        """
        try:
            self._idle.pop()
        except IndexError:
            if self.n_threads < most:
                self._grow(most)
        self._tasks.put(task)

    def future(self, function: Callable[[], T], most: int) -> Future[T]:
        """Call a function on one of at most so many threads. Returns: its future."""
        future = Future[T]()
        self.submit(partial(_answer, future, function), most)
        return future

    def _grow(self, most: int) -> None:
        with self._growing:
            if self.n_threads >= most:
                return
            try:
                start_new_thread(_work, (self._tasks, self._idle))
                self.n_threads += 1
            except RuntimeError:
                if not self.n_threads:
                    raise

    def is_here(self) -> bool:
        """Whether the thread that asks is one of the pool's."""
        return getattr(_here, "tasks", None) is self._tasks

    def call(self, function: Callable[[], T]) -> T:
        """Call a function on the only thread of the pool and wait for its end. Raises: what it raises."""
        answer: SimpleQueue[tuple[list[T], BaseException | None]] = SimpleQueue()
        self.submit(lambda: answer.put(_outcome(function)), 1)
        results, error = answer.get()
        try:
            reraise(error)
        finally:
            del error  # no cycle of an error and this frame
        return results[0]

    def __del__(self) -> None:
        for _ in range(self.n_threads):
            self._tasks.put(None)


_pools: WeakSet[Pool] = WeakSet()
_here = threading.local()  # the tasks of the pool that a thread belongs to


def reraise(error: BaseException | None) -> None:
    """Raise what another thread has raised, if it has, without a cycle of the error and this frame."""
    if error is not None:
        try:
            raise error
        finally:
            del error


def _answer(future: Future[T], function: Callable[[], T]) -> None:
    try:
        if future.set_running_or_notify_cancel():
            future.set_result(function())
    except BaseException as error:  # noqa: BLE001 - raised where the future is asked
        future.set_exception(error)
    finally:
        del future  # no cycle of an error and this frame


def _outcome(function: Callable[[], T]) -> tuple[list[T], BaseException | None]:
    try:
        return [function()], None
    except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
        return [], error


def _work(tasks: SimpleQueue[Callable[[], object] | None], idle: deque[None]) -> None:
    _here.tasks = tasks
    task = tasks.get()
    while task is not None:
        task()
        del task  # nothing may keep its result alive until the next one
        try:
            task = tasks.get_nowait()
        except Empty:
            idle.append(None)
            task = tasks.get()


def run_in_threads(
    task: Callable[[T], object], items: Iterable[T], n_threads: int, pool: Pool, *, most: int | None = None
) -> None:
    """Carry out a task for every item on several threads, which take items from one iterator.

    The caller's thread is one of them: it goes on alone while other calls keep the pool busy, so that callers do not
    wait for each other.

    most: the largest number of threads of the pool; one less than this call wants if not given.
    Raises: what the first failing task raised, with notes of the others, after all tasks have ended.
    """
    errors = _SharedRun(task, iter(items)).carry_out(n_threads, pool, most or n_threads - 1)
    if errors:
        first = errors[0]
        for other in errors[1:]:
            first.add_note(f"another one failed too: {other}")
        errors.clear()
        try:
            raise first
        finally:
            del first  # no cycle of an error and its frames


class _SharedRun:
    """One call of `run_in_threads`. Nothing in it can be left half done by an interrupt."""

    def __init__(self, task: Callable[[Any], object], items: Iterator[Any]) -> None:
        self._task = task
        self._items = items
        # No other call has it, so no re-entrant code can want it. A fork need not free it.
        self._turn = threading.RLock()
        self._ended: SimpleQueue[None] = SimpleQueue()
        self._errors: list[BaseException] = []
        self._n_started = self._n_finished = 0
        self._stopped = self._over = False

    def carry_out(self, n_threads: int, pool: Pool, most: int) -> list[BaseException]:
        """Carry out all tasks. Returns: what was raised, the first one first."""
        try:
            with suppress(RuntimeError):  # no more threads: the system's limit is reached, or the interpreter exits
                for _ in range(n_threads - 1):
                    pool.submit(self._help_out, most)
            self._pull()
        except BaseException as error:  # noqa: BLE001 - raised by the caller, with notes of what else failed
            self._stopped = True
            self._errors.insert(0, error)
        finally:
            waiting = True
            while waiting:
                try:
                    self._over = True
                    with self._turn:  # threads that come later see that it is over
                        pass
                    while self._n_finished < self._n_started:
                        self._ended.get()
                    waiting = False
                except BaseException as interrupt:  # noqa: BLE001 - nothing may go on behind the caller's back
                    self._stopped = True
                    self._errors.insert(0, interrupt)
            # Tasks that still wait for a thread keep this object, but not what it was about.
            self._task, self._items = (lambda _: None), iter(())
        return self._errors

    def _pull(self) -> None:
        while not self._stopped:
            with self._turn:
                item = next(self._items, _END)
            if item is _END:
                return
            try:
                self._task(item)
            except BaseException:
                self._stopped = True
                raise

    def _help_out(self) -> None:
        with self._turn:
            if self._over:
                return
            self._n_started += 1
        try:
            self._pull()
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            self._errors.append(error)
        finally:
            with self._turn:
                self._n_finished += 1
            self._ended.put(None)


_END: Any = object()
