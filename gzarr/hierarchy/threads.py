"""Runs blocking calls on threads for callers that have an event loop: the whole of gzarr's asynchronous edge.

Theory of operation. The core is synchronous. A coroutine hands its call to a pool of threads and awaits the result, so
many calls wait for a remote store at the same time. The pool is bounded; calls beyond its size wait for a thread. Its
threads may wait for the threads that decode or for those of a store, but never the other way round: layers of pools
that wait in one direction only cannot block each other, however many reads are under way.

Cancelling the task that awaits a call gives up waiting. A call that has not begun is then never made. A call that has
begun runs to its end on its thread, so a cancelled write may or may not have been made, in whole objects.
"""

import atexit
import contextvars
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, TypeVar

from gzarr.concurrency import Pool, after_fork
from gzarr.config import config

T = TypeVar("T")

#: One pool, by the largest number of its threads.
_pools: dict[int, Pool] = {}
#: The calls that wait or are under way, which the end of the program waits for.
_calls: set[Future[Any]] = set()


async def run_in_thread(call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Make a blocking call on a thread, with the caller's context variables, and await what it returns or raises.

    At most ``config["async.concurrency"]`` calls run at once, over all event loops.
    """
    import asyncio  # callers that await have loaded it; others need not

    work = partial(contextvars.copy_context().run, call, *args, **kwargs)
    most = max(int(config["async.concurrency"]), 1)
    future: Future[T] = _pool(most).future(work, most)
    _calls.add(future)
    future.add_done_callback(_calls.discard)
    return await asyncio.wrap_future(future)


def _pool(most: int) -> Pool:
    """The pool of a size. One of another size ends with its calls."""
    pool = _pools.get(most)
    if pool is None:
        pool = _pools.setdefault(most, Pool())
        for other in list(_pools):
            if other != most:
                _pools.pop(other, None)
    return pool


after_fork(_calls.clear)
atexit.register(lambda: wait(list(_calls)))
