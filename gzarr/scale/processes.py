"""Processes that do one function at a time, each over a pipe of its own.

Theory of operation. The processes of a `ProcessPoolExecutor` share locks and pipes, so one that dies amid a message, or
with a lock, may block all others for ever, and costs their units in any case. Here a thread waits for each process: it
sees the end of the pipe when the process dies, and nobody else is concerned.
"""

import os
import pickle
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import parent_process
from traceback import format_exc
from typing import Any

from gzarr.concurrency import Pool, new_lock

#: Seconds that a process may take to end when it has nothing to do.
_END_S = 10.0


class Processes:
    """So many processes, which start when they are needed. The methods are those of an executor.

    Parameters
    ----------
    n : int
        How many.
    context, initializer, initargs
        As of `concurrent.futures.ProcessPoolExecutor`.
    """

    def __init__(self, n: int, context: Any, initializer: Any = None, initargs: tuple[Any, ...] = ()) -> None:
        self._max_workers, self._context, self._given = n, context, (initializer, initargs)
        self._pool, self._lock = Pool(), new_lock()
        self._futures: set[Future[Any]] = set()
        self._idle: list[tuple[Any, Connection]] = []

    def submit(self, function: Callable[[], Any]) -> Future[Any]:
        """Have a function called. Its future raises BrokenProcessPool if the process dies."""
        future = self._pool.future(lambda: self._call(function), self._max_workers)
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        return future

    def close(self) -> None:
        """End the processes when they have done what they got."""
        wait_for(list(self._futures))
        for process, pipe in self._idle:
            pipe.close()
            process.join(_END_S)
            process.kill()

    def _call(self, function: Callable[[], Any]) -> Any:
        with self._lock:  # a process that is forked meanwhile would keep the other end open
            process, pipe = self._idle.pop() if self._idle else self._started()
        try:
            pipe.send(function)
            error, made = pipe.recv()
        except (EOFError, OSError) as lost:
            pipe.close()
            process.kill()
            process.join()
            raise BrokenProcessPool(f"process {process.pid} ended with {process.exitcode}") from lost
        self._idle.append((process, pipe))
        if error is not None:
            raise error
        return made

    def _started(self) -> tuple[Any, Connection]:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs, *self._given))
        process.start()
        theirs.close()
        return process, ours


def _serve(pipe: Connection, initializer: Callable[..., object] | None, initargs: tuple[Any, ...]) -> None:
    """Call one function after the other, until there are no more, or the process that gives them is gone."""
    if initializer is not None:
        initializer(*initargs)
    parent: Any = parent_process()
    with suppress(EOFError, OSError):
        while pipe in wait([pipe, parent.sentinel]):
            function: Callable[[], Any] = pipe.recv()
            try:
                pipe.send((None, function()))
            except Exception as error:  # noqa: BLE001 - raised where the result is asked for
                _send_error(pipe, error)


def _send_error(pipe: Connection, error: Exception) -> None:
    error.add_note(f"in process {os.getpid()}:\n{format_exc()}")
    try:
        told = pickle.dumps(error)
        pickle.loads(told)
    except Exception:  # noqa: BLE001 - of any type that does not define how it is pickled
        error = RuntimeError("\n".join([repr(error), *error.__notes__]))
    pipe.send((error, None))
