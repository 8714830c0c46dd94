"""What runs units elsewhere: executors of `concurrent.futures`, clients of Dask, and Ray, behind one small protocol."""

import os
import pickle
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import lru_cache, partial
from importlib import import_module
from math import inf
from multiprocessing import get_context
from queue import Empty
from time import perf_counter
from typing import Any, TypeAlias

from gzarr.concurrency import TimedQueue, new_lock
from gzarr.config import config
from gzarr.errors import StoreError
from gzarr.scale.processes import Processes
from gzarr.storage.extras import require

#: Number of a unit, what it raised, or what it made: results, seconds, and where.
Ended: TypeAlias = tuple[int, BaseException | None, Any]
#: Bytes that go to workers with every unit, at most.
_MOST_NBYTES = 32 << 20
#: Seconds without the end of a unit after which workers are looked at.
CHECK_S = 5.0
#: Seconds for which a cluster may have no worker at all.
NO_WORKERS_S = 120.0


class Engine:
    """What runs units, here an executor of `concurrent.futures`, such as that of mpi4py.

    Attributes
    ----------
    name : str
        For reports.
    workers : int
        Units that run at once.
    threads : int or None
        Threads of gzarr in each of them; None for as many as by default.
    shares_memory : bool
        Whether workers are threads of this process.
    lost : tuple of type
        Errors of units whose worker died.
    """

    shares_memory = False
    lost: tuple[type[BaseException], ...] = (BrokenExecutor, CancelledError)
    _replaced = _doubted = False
    _seen = inf

    def __init__(self, executor: Any) -> None:
        self.name = type(executor).__name__
        told: Any = getattr(executor, "_max_workers", None) or getattr(executor, "num_workers", 8)
        self.workers = int(told)
        self.shares_memory = self.name == "ThreadPoolExecutor"
        self.threads = None if self.shares_memory else max(1, (os.cpu_count() or 1) // self.workers)
        self._executor = executor
        self._begin()

    def _begin(self) -> None:
        self._futures: dict[int, Any] = {}
        self._ended: TimedQueue[int] = TimedQueue()

    def prepare(self, do: Callable[[int], Any], name: str) -> Any:
        """What workers get with every unit. Raises: TypeError if it cannot be pickled."""
        return do if self.shares_memory else packed(do, name)

    def submit(self, number: int, token: Any, unit: range, given: Any = None) -> None:
        """Begin a unit. given: what each of its blocks gets."""
        future = self._submitted(partial(run_unit, token, unit.start, unit.stop, self.threads, given))
        self._futures[number] = future
        future.add_done_callback(lambda _: self._ended.put(number))

    def _submitted(self, function: Callable[[], Any]) -> Any:
        try:
            return self._executor.submit(function)
        except BrokenExecutor:
            self.recover()
            return self._executor.submit(function)

    def wait(self) -> Ended:
        """Wait for the end of any unit. Raises: StoreError if there is no worker any more."""
        while True:
            try:
                number = self._ended.get(CHECK_S)
                break
            except Empty:
                self._check()
        self._doubted, self._seen = False, inf
        if (future := self._futures.pop(number, None)) is None:  # it was lost before it ended
            return number, None, None
        try:
            return number, None, future.result()
        except (Exception, CancelledError) as error:  # noqa: BLE001 - the caller's to raise
            return number, error, None

    def recover(self) -> None:
        """Go on after the death of a worker: a pool of processes ends with it, and others take its place."""
        if isinstance(self._executor, ProcessPoolExecutor) and getattr(self._executor, "_broken", False):
            old: Any = self._executor
            alike = old._mp_context, old._initializer, old._initargs  # noqa: SLF001 - it says so nowhere else
            self._executor, self._replaced = Processes(self.workers, *alike), True

    def _count(self) -> int:
        """How many workers there are now."""
        return self.workers

    def _check(self) -> None:
        """See to workers that died without anybody noticing, and to clusters that have none. Raises: StoreError."""
        pool: Any = getattr(self, "_executor", None)
        if isinstance(pool, ProcessPoolExecutor):
            processes = list((pool._processes or {}).values())  # noqa: SLF001
            doubted, self._doubted = self._doubted, not all(one.is_alive() for one in processes)
            if doubted and self._doubted:
                self._give_up(pool, processes)
        now, count = perf_counter(), 0
        with suppress(Exception):  # of a scheduler that is gone, or comes back
            count = self._count()
        self._seen = now if count else min(self._seen, now)
        if now - self._seen > NO_WORKERS_S:
            raise StoreError(
                f"{self.name}: the cluster has had no worker for {NO_WORKERS_S:.0f} s, and nothing starts one: start "
                "workers, and go on with resume=True, or part=, if the operation has it"
            )

    def _give_up(self, pool: Any, processes: list[Any]) -> None:
        """End a pool one of whose processes died with what others wait for: its units are lost."""
        pool._broken = pool._broken or "a process died"  # noqa: SLF001 - as it does itself
        for process in processes:
            process.kill()
        pool._result_queue._writer.close()  # noqa: SLF001 - so that its thread does not wait for the rest of a message
        self.recover()
        for number in self._futures:
            self._futures[number] = lost = Future[Any]()
            lost.set_exception(BrokenProcessPool("a process died, and the pool did not notice"))
            self._ended.put(number)

    def cancel(self, numbers: list[int]) -> None:
        """Cancel units that have not begun."""
        for number in numbers:
            if (future := self._futures.get(number)) is not None:
                future.cancel()

    def close(self) -> None:
        """End processes that took the place of others, when their units have ended."""
        if self._replaced:
            self._executor.close()


class _Dask(Engine):
    """A cluster of Dask."""

    def __init__(self, client: Any) -> None:
        threads = client.nthreads()
        super().__init__(client)
        self.name, self.workers = f"Dask, {len(threads)} workers", max(1, sum(map(int, threads.values())))
        self.threads, self.shares_memory = 1, False
        self.lost = (import_module("distributed").KilledWorker, CancelledError)

    def _submitted(self, function: Callable[[], Any]) -> Any:
        return self._executor.submit(function, pure=False)

    def _count(self) -> int:
        return len(self._executor.nthreads())


class _Ray(Engine):
    """Ray, which is started if need be."""

    def __init__(self, address: str | None) -> None:
        ray = require("ray", "ray", "on='ray'")
        if not ray.is_initialized():
            ray.init(address, log_to_driver=False)
        super().__init__(ray)
        self.workers = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self.name, self.threads, errors = f"Ray, {self.workers} CPUs", 1, ray.exceptions
        self.lost = (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError, errors.ObjectLostError)
        self._task, self._put = ray.remote(max_retries=0)(run_unit), ray.put

    def prepare(self, do: Callable[[int], Any], name: str) -> Any:
        return self._put(packed(do, name))

    def _submitted(self, function: Any) -> Any:
        return self._task.remote(*function.args).future()

    def _count(self) -> int:
        return int(self._executor.cluster_resources().get("CPU", 0))

    def wait(self) -> Ended:
        number, error, made = super().wait()
        return number, getattr(error, "cause", None) or error, made


@contextmanager
def open_engine(on: Any) -> Iterator[Engine]:
    """What runs units, closed at the end if it is opened here.

    Parameters
    ----------
    on : Engine, Executor, distributed.Client, str or int
        An executor; a client of Dask, or ``"dask://host:port"``; ``"ray"`` or ``"ray://host:port"``; or how many
        processes of this machine.

    Raises
    ------
    TypeError, ValueError
        If it is none of these.
    """
    with ExitStack() as stack:
        if not isinstance(on, Engine):
            on = _opened(on, stack)
            stack.callback(on.close)
        yield on


def _opened(on: Any, stack: ExitStack) -> Engine:
    """An engine, of what ends with a stack. Raises: TypeError."""
    if isinstance(on, int) and not isinstance(on, bool) and on > 0:
        return Engine(stack.enter_context(closing(Processes(on, get_context("spawn")))))
    if isinstance(on, str) and on.startswith("dask://"):
        distributed = require("distributed", "scale", "on='dask://...'")
        return _Dask(stack.enter_context(distributed.Client(on.replace("dask://", "tcp://"))))
    if isinstance(on, str) and (on == "ray" or on.startswith("ray://")):
        return _Ray(None if on == "ray" else on)
    if hasattr(on, "nthreads") and hasattr(on, "submit"):
        return _Dask(on)
    if hasattr(on, "submit"):
        return Engine(on)
    raise TypeError(
        f"on={on!r} runs nothing: give a distributed.Client, an executor of concurrent.futures, 'ray', "
        "'dask://host:port', or a number of processes"
    )


def packed(do: Callable[[int], Any], name: str) -> bytes:
    """A function for other processes. Raises: TypeError, ValueError if it takes too much memory."""
    with suppress(ImportError):
        return _checked(import_module("cloudpickle").dumps(do), name)
    try:
        return _checked(pickle.dumps(do), name)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise TypeError(
            f"{name}: what workers need cannot be pickled ({error}); pip install 'gzarr[scale]' pickles more"
        ) from error


def _checked(data: bytes, name: str) -> bytes:
    if len(data) > _MOST_NBYTES:
        raise ValueError(
            f"{name}: every unit would take {len(data) >> 20} MiB from this process to a worker: store the arrays in "
            "memory that the operation reads, and pass what gzarr.open returns"
        )
    return data


@lru_cache(maxsize=8)
def _unpacked(data: bytes) -> Callable[[int], Any]:
    do: Callable[[int], Any] = pickle.loads(data)
    return do


_entering = new_lock()
_units, _setting = 0, ExitStack()


@contextmanager
def _few_threads(threads: int | None) -> Iterator[None]:
    """A context in which gzarr has so many threads, with others like it in other threads: the last one restores it."""
    global _units  # noqa: PLW0603
    if threads is None:
        yield
        return
    with _entering:
        if not _units:
            _setting.enter_context(config.set({"threading.max_workers": threads}))
        _units += 1
    try:
        yield
    finally:
        with _entering:
            _units -= 1
            if not _units:
                _setting.close()


def run_unit(
    token: Any, start: int, stop: int, threads: int | None, given: list[Any] | None = None
) -> tuple[list[Any], float, str]:
    """Do the blocks of a unit, in a worker. Returns: what was made of them, seconds, and where."""
    began = perf_counter()
    do = _unpacked(token) if isinstance(token, bytes) else token
    with _few_threads(threads):
        unit: Any = getattr(do, "unit", None)  # of what is opened once for all blocks
        each = zip(range(start, stop)) if given is None else zip(range(start, stop), given, strict=True)
        made = [do(*one) for one in each] if unit is None else unit(range(start, stop))
    return made, perf_counter() - began, f"process {os.getpid()} of {socket.gethostname()}"
