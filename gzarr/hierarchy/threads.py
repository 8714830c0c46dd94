"""Runs blocking calls on threads for callers that have an event loop: the whole of gzarr's asynchronous edge.

Theory of operation. The core is synchronous. A coroutine hands its call to a pool of threads and awaits the result, so
many calls wait for a remote store at the same time. The pool is bounded; calls beyond its size wait for a thread. Its
threads may wait for the threads that decode or for those of a store, but never the other way round: layers of pools
that wait in one direction only cannot block each other, however many reads are under way.

Cancelling the task that awaits a call gives up waiting. A call that has not begun is then never made. A call that has
begun runs to its end on its thread, so a cancelled write may or may not have been made, in whole objects.
"""

from __future__ import annotations

import contextvars
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from gzarr.config import config

T = TypeVar("T")

_pool: ThreadPoolExecutor | None = None
_pool_size = 0
_pool_lock = threading.Lock()


async def run_in_thread(call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Make a blocking call on a thread, with the caller's context variables, and await what it returns or raises.

    At most ``config["async.concurrency"]`` calls run at once, over all event loops.
    """
    context = contextvars.copy_context()
    import asyncio  # callers that await have loaded it; others need not

    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_executor(), partial(context.run, call, *args, **kwargs))


def _executor() -> ThreadPoolExecutor:
    """Return the pool: a new one if the setting has changed, while the old one ends with its calls."""
    global _pool, _pool_size
    size = max(int(config["async.concurrency"]), 1)
    with _pool_lock:
        if _pool is None or _pool_size != size:
            _pool, _pool_size = ThreadPoolExecutor(size, "gzarr-async"), size
        return _pool


def _forget_pool() -> None:
    """Forget the pool after a fork: the child has none of the parent's threads."""
    global _pool, _pool_size, _pool_lock
    _pool, _pool_size, _pool_lock = None, 0, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)
