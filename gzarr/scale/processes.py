"""Processes that do one function at a time, each over a pipe of its own.

Theory of operation. The processes of a `ProcessPoolExecutor` share locks and pipes, so one that dies amid a message, or
with a lock, may block all others for ever, and costs their units in any case. Here a thread waits for each process: it
sees the end of the pipe when the process dies, and nobody else is concerned. A forked process has the parent's ends
of pipes: it closes that of its own, and is told to end, as those that are forked later keep its pipe open.
"""

import os
import pickle
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
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
#: Processes start one after the other: one that is forked meanwhile would keep the other end of a pipe open.
_starting = new_lock()


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
        self._pool = Pool()
        self._futures: set[Future[Any]] = set()
        self._all: set[Any] = set()
        self._idle: list[tuple[Any, Connection]] = []
        self._closed = False

    def submit(self, function: Callable[[], Any]) -> Future[Any]:
        """Have a function called. Its future raises BrokenProcessPool if the process dies."""
        future = self._pool.future(lambda: self._call(function), self._max_workers)
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        return future

    def close(self) -> None:
        """End the processes when they have done what they got, or at once if this is interrupted."""
        try:
            wait_for(list(self._futures))
            for _, pipe in self._idle:
                with suppress(OSError):
                    pipe.send_bytes(b"")
            for process, _ in self._idle:
                process.join(_END_S)
        finally:
            with _starting:
                self._closed = True
            for process in list(self._all):
                process.kill()
                process.join()

    def _call(self, function: Callable[[], Any]) -> Any:
        data = pickle.dumps(function)
        with _starting:
            if self._closed:
                raise CancelledError
            process, pipe = self._idle.pop() if self._idle else self._started()
        try:
            pipe.send_bytes(data)
            told = pipe.recv_bytes()
        except (EOFError, OSError) as lost:
            pipe.close()
            process.join(_END_S)
            process.kill()
            process.join()
            self._all.discard(process)
            raise BrokenProcessPool(f"process {process.pid} ended with {process.exitcode}") from lost
        self._idle.append((process, pipe))
        error, made = pickle.loads(told)
        if error is not None:
            raise error
        return made

    def _started(self) -> tuple[Any, Connection]:
        ours, theirs = self._context.Pipe()
        inherited = ours if self._context.get_start_method() == "fork" else None
        process = self._context.Process(target=_serve, args=(theirs, inherited, *self._given))
        process.start()
        self._all.add(process)
        theirs.close()
        return process, ours


def _serve(
    pipe: Connection, inherited: Connection | None, initializer: Callable[..., object] | None, initargs: tuple[Any, ...]
) -> None:
    """Call one function after the other, until there are no more, or the process that gives them is gone."""
    if inherited is not None:
        inherited.close()
    if initializer is not None:
        initializer(*initargs)
    parent: Any = parent_process()
    with suppress(EOFError, OSError):
        while pipe in wait([pipe, parent.sentinel]) and (data := pipe.recv_bytes()):
            pipe.send_bytes(_answer(data))
            del data


def _answer(data: bytes) -> bytes:
    """What a function raises and makes, pickled; of what cannot be pickled, its text."""
    try:
        return pickle.dumps((None, pickle.loads(data)()))
    except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
        error.add_note(f"in process {os.getpid()}:\n{format_exc()}")
        try:
            told = pickle.dumps((error, None))
            pickle.loads(told)
        except Exception:  # noqa: BLE001 - of any type that does not define how it is pickled
            told = pickle.dumps((RuntimeError("\n".join([repr(error), *error.__notes__])), None))
        return told
