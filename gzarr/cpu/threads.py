"""Threads that carry out tasks for batches, where that pays, and what fetches the encoded chunks of a batch.

NumPy and the codecs release the interpreter's lock while they work on large chunks, so threads gain there; for chunks
of a few kilobytes the interpreter is the cost, and one thread is faster.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import perf_counter
from typing import Any

from gzarr.backend import T, Work
from gzarr.concurrency import Pool, Turns, run_in_threads
from gzarr.config import config
from gzarr.errors import CodecError
from gzarr.layout.chunk_layout import Located
from gzarr.layout.shard import shard_error
from gzarr.storage.base import Buffer, Request, Store, host_view
from gzarr.storage.coalesce import MAX_NBYTES, WAITING_MAX_NBYTES, get_coalesced

#: Asking the system takes 10 us.
_N_CPUS = os.cpu_count() or 1
#: One batch is decoded while another waits for its server: 64 chunks of 4 MB from 20 ms away take 0.8 times as long.
_THREADS_A_CPU_WAITING = 2
#: Threads that only wait cost their memory and the switches between them.
_MAX_WAITING = 32
#: Decoding a chunk of so many bytes takes long enough for threads to pay.
THREADED_PART_NBYTES = 1 << 18
#: Smaller ones are timed: threads pay if a chunk takes so many seconds. Below that the time is the interpreter's, whose
#: lock threads pass to and fro: 6,400 files of lz4 chunks of 40 kB take 20 us each by one thread, 25 by two.
#: A first batch, with cold caches, takes half as long again.
THREADED_CHUNK_S = 45e-6 if getattr(sys, "_is_gil_enabled", lambda: True)() else 5e-6
#: Less than this much work, in seconds, is not worth waking a thread for, which takes 20 to 60 us.
THREADED_WORK_S = 150e-6
#: How long a thread waits for its turn, in seconds. Turns save memory; nothing else depends on them.
_PATIENCE_S = 1.0


def run(task: Callable[[T], None], batches: Iterable[T], work: Work) -> None:
    """Carry out a task for every batch, on several threads if a chunk takes long enough.

    A run within a task stays on its thread: the task may hold locks that the other threads wait for.
    Raises: what the first failing task raised; notes on it tell of the others.
    """
    batches = iter(batches)
    if _in_task.active:
        for batch in batches:
            task(batch)
        return
    n_threads = thread_count(waits=work.waits, at_once=work.at_once) if work.nchunks > 1 else 1
    small = work.part_nbytes < THREADED_PART_NBYTES and not work.waits
    if n_threads > 1 and small and not _takes_long(task, batches, work):
        n_threads = 1
    if n_threads > 1:
        run_in_threads(lambda batch: _carry_out(task, batch), batches, n_threads, _helpers)
    else:
        for batch in batches:
            _carry_out(task, batch)


def thread_count(*, waits: bool = False, at_once: int = 1) -> int:
    """Number of threads that decode at once. waits, at_once: as in `Work`."""
    default = max(_N_CPUS * _THREADS_A_CPU_WAITING, min(at_once, _MAX_WAITING)) if waits else _N_CPUS
    return int(config.get("threading.max_workers") or default)


_helpers = Pool()
#: What many threads have fetched is decoded one after the other, and dropped, instead of all of it at once.
decoders = Turns(_N_CPUS, _PATIENCE_S)


def share(task: Callable[[T], object], items: Sequence[T]) -> None:
    """Carry out tasks that take no locks at once, within a task of `run` or without one.

    Raises: what the first failing task raised.
    """
    if len(items) == 1:
        task(items[0])
    else:
        run_in_threads(task, items, len(items), _helpers)


def spread(n: int, n_threads: int) -> Iterator[int]:
    """The numbers below n, in an order in which threads that take them one by one stay apart from each other.

    Chunks beside each other are in the same pages of the result, which the system clears for every thread that finds
    them missing, and in the same directory, which one thread at a time may change.
    """
    each = -(-n // max(n_threads, 1))
    return (number for first in range(each) for number in range(first, n, each))


class _InTask(threading.local):
    """Whether the current thread carries out a task of `run`."""

    active = False


_in_task = _InTask()


def _carry_out(task: Callable[[T], None], batch: T) -> None:
    """Do a task for a batch. No context manager: an interrupt that comes as its exit begins would skip that."""
    _in_task.active = True
    try:
        task(batch)
    finally:
        _in_task.active = False


def _takes_long(task: Callable[[T], None], batches: Iterator[T], work: Work) -> bool:
    """Say whether batches should go to the pool, for which the first one may have to be carried out."""
    n = min(work.nchunks, work.batch_nchunks)
    beside = work.nchunks - n  # what other threads may do meanwhile
    if work.unlocked and work.chunk_s * beside >= THREADED_WORK_S:
        return True
    first = next(batches, None)
    if first is None:
        return False
    started = perf_counter()
    _carry_out(task, first)
    each = (perf_counter() - started) / n
    return (work.unlocked or each >= THREADED_CHUNK_S) and each * beside >= THREADED_WORK_S


def load_host(store: Store, wanted: Sequence[Located]) -> list[Buffer | None]:
    """Fetch located chunks into host memory, ranges of one object together. Raises: CodecError(index)."""
    positions = [i for i, item in enumerate(wanted) if isinstance(item, Request)]
    buffers: list[Any] = [None if isinstance(item, Request) else item for item in wanted]
    requests: list[Any] = [wanted[i] for i in positions]
    longest = MAX_NBYTES if store.concurrency == 1 else WAITING_MAX_NBYTES
    loaded = get_coalesced(store, requests, max_nbytes=longest)
    for i, request, buffer in zip(positions, requests, loaded, strict=True):
        if request.length is not None:
            if buffer is None:
                raise CodecError("the object that it is in was deleted while it was read, or is missing", index=i)
            size = host_view(buffer).nbytes
            if size != request.length:
                start, there = request.start or 0, f"of which {size} are there"
                where = f"bytes {start} to {start + request.length}, {there}"
                raise shard_error(f"the shard index points outside the shard: {where}", i)
        buffers[i] = buffer
    return buffers
