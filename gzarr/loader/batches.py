"""The iterator over the batches of an epoch, and how its producer thread hands them over.

Theory of operation. One thread produces batches, in order, and puts them into a table by number. It goes on as long as
fewer than ``prefetch`` batches wait there. The iterator takes a batch by its number and says so. Both wait for tokens,
which say only that something has changed; the table and two numbers are the truth. So an interrupt (Ctrl-C) between any
two steps of the iterator loses neither a batch nor a token.

Rules.

1. The producer refers to a `Handover`, never to the iterator or the loader: dropping these ends the producer.
2. `Handover.stop` only sets a flag and puts tokens, so that finalizers may call it. Those that can wait call `join`.
3. In a forked child, the iterator starts a producer of its own where it stands: the order of batches is a function.
4. Where loaders share memory, one of them has a producer at a time. The others begin again where they stand
   (`SharedTurn`), and nobody gives a turn away before a batch was handed out.
"""

import atexit
import os
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from queue import Empty, SimpleQueue
from time import monotonic, sleep
from typing import Any, NamedTuple, Self
from weakref import WeakSet

from gzarr.concurrency import Lock, Pool, after_fork, new_lock, reraise
from gzarr.loader.stats import Meter

#: Seconds that the exit of the interpreter waits for producers, which end after the read that is under way, and between
#: two looks at them.
_EXIT_TIMEOUT_S, _POLL_S = 5.0, 0.005


class BatchItem(NamedTuple):
    """A batch as it is handed over.

    Attributes
    ----------
    step : int
        Its number among the batches of the epoch.
    batch : object
        What the caller gets.
    mark : object
        What the caller's stream has to wait for (`gzarr.backend.Backend.record`).
    leases : tuple
        Of the memory of the batch.
    samples, nbytes : int
        What is in it.
    """

    step: int
    batch: Any
    mark: Any = None
    leases: tuple[Any, ...] = ()
    samples: int = 0
    nbytes: int = 0


class Handover:
    """What a producer and its iterator share.

    Parameters
    ----------
    prefetch : int
        Number of batches that may wait for the caller.
    meter : Meter
        Counts the seconds that each side waits.

    Attributes
    ----------
    ready : dict
        Batches by number.
    stopped, ended, suspended : bool
        Whether the producer is to end, whether it has ended, and whether it ends for another loader.
    error : BaseException or None
        What it ended with.
    """

    def __init__(self, prefetch: int, meter: Meter) -> None:
        self.prefetch, self.meter = prefetch, meter
        self.ready: dict[int, BatchItem] = {}
        self.n_taken = 0
        self.stopped = self.ended = self.suspended = False
        self.error: BaseException | None = None
        self._to_producer: SimpleQueue[None] = SimpleQueue()
        self._to_iterator: SimpleQueue[None] = SimpleQueue()
        self._over: SimpleQueue[None] = SimpleQueue()
        _live.add(self)

    # -- the producer's side -------------------------------------------------------------------------------------

    def produce(self, items: Callable[[], Iterator[BatchItem]]) -> None:
        """Hand over all items: the task of the producer's thread, which never raises."""
        try:
            if not self.stopped:
                self._hand_over(items())
        except BaseException as error:  # noqa: BLE001 - raised again by the iterator
            traceback.clear_frames(error.__traceback__)  # which hold the memory of batches
            self.error = error
        finally:
            self.ended = True
            if self.stopped:
                self.ready.clear()
            self._to_iterator.put(None)
            self._over.put(None)

    def _hand_over(self, items: Iterator[BatchItem]) -> None:
        number = 0
        while self._has_room(number):
            item = next(items, None)
            if item is None:
                return
            self.ready[number] = item
            del item  # nothing may keep it alive but the table
            number += 1
            self._to_iterator.put(None)
        items.close()  # type: ignore[attr-defined] # a generator

    def _has_room(self, number: int) -> bool:
        """Wait until another batch may be made. Returns: whether it is wanted."""
        _drain(self._to_producer)
        with self.meter.stage("caller"):
            while not self.stopped and number - self.n_taken >= self.prefetch:
                self._to_producer.get()
        return not self.stopped

    # -- the iterator's side -------------------------------------------------------------------------------------

    def wait_for(self, number: int) -> BatchItem | None:
        """Return a batch; None if there is no such batch. Raises: what the producer failed with."""
        _drain(self._to_iterator)
        self.note_taken(number)
        while True:
            ended = self.ended  # asked first: what was put into the table before is seen
            item = self.ready.get(number)
            if item is not None:
                return item
            if ended:
                break
            with self.meter.stage("stall"):
                self._to_iterator.get()
        reraise(self.error)
        return None

    def note_taken(self, number: int) -> None:
        """Say how many batches the caller has taken."""
        for taken in [n for n in list(self.ready) if n < number]:
            self.ready.pop(taken, None)
        self.n_taken = number
        self._to_producer.put(None)

    def stop(self) -> None:
        """Let the producer end, after the read that is under way."""
        self.stopped = True
        self.ready.clear()
        self._to_producer.put(None)

    def join(self) -> None:
        """Wait for the end of the producer."""
        if not self.ended:
            self._over.get()
            self._over.put(None)  # others may wait, too


#: Of producers that may be running.
_live: WeakSet[Handover] = WeakSet()
after_fork(_live.clear)


@atexit.register
def _stop_all() -> None:
    """End all producers before the interpreter ends, which does not wait for threads."""
    running = [hand for hand in list(_live) if not hand.ended]
    for hand in running:
        hand.stop()
    end = monotonic() + _EXIT_TIMEOUT_S
    while not all(hand.ended for hand in running) and monotonic() < end:
        sleep(_POLL_S)


def _drain(tokens: SimpleQueue[None]) -> None:
    """Take all tokens, of which only the next one matters."""
    with suppress(Empty):
        while True:
            tokens.get_nowait()


class SharedTurn:
    """Which of some iterators has a producer, and so memory for samples.

    Attributes
    ----------
    is_shared : bool
        Whether there are several loaders.
    """

    def __init__(self) -> None:
        self.is_shared = False
        self._lock = new_lock()
        self._holder: tuple[weakref.ref[BatchIterator], dict[str, Any]] | None = None

    @contextmanager
    def of(self, iterator: "BatchIterator", memory: dict[str, Any]) -> Iterator[None]:
        """Let an iterator have it for a while.

        memory: what its loader uses again in every epoch, which is dropped once another loader has the turn.
        """
        other = self._holder and self._holder[0]()
        if other is not None and other.is_here():  # the thread that waits for it has the lock
            raise RuntimeError("transform runs on its loader's thread: it cannot take batches of one that shares pool=")
        with self._lock:
            holder, self._holder = self._holder, (weakref.ref(iterator), memory)
            running = holder and holder[0]()
            if running is not None and running is not iterator:
                running.suspend()
            if holder is not None and holder[1] is not memory:
                holder[1].clear()
            yield


class BatchIterator:
    """The batches of an epoch: the iterator of a `gzarr.Loader`.

    Dropping it ends its thread. It is safe to go on after an interrupt, and in a forked process.

    Parameters
    ----------
    items : callable
        Yields the items from a step on.
    prefetch : int
        Number of batches that may wait for the caller.
    meter : Meter
        Counts what happens.
    threads : Pool
        Whose only thread produces.
    lock : Lock
        Of the loader: one thread at a time takes a batch, or begins or ends an iteration.
    taken : callable
        Called with every item that is handed out, on the caller's thread. Returns what the caller gets.
    ended : callable
        Called at the end of the epoch.
    turn : SharedTurn, optional
        Of the loaders that share memory.
    memory : dict, optional
        As of `SharedTurn.of`.
    first : int
        Number of the first batch of the epoch that is handed out.
    """

    def __init__(
        self,
        items: Callable[[int], Iterator[BatchItem]],
        prefetch: int,
        meter: Meter,
        threads: Pool,
        lock: Lock,
        taken: Callable[[BatchItem], Any],
        ended: Callable[[], object],
        turn: SharedTurn | None = None,
        memory: dict[str, Any] | None = None,
        first: int = 0,
    ) -> None:
        self._items, self._prefetch, self._meter, self._threads = items, prefetch, meter, threads
        self._lock, self._taken, self._ended = lock, taken, ended
        self._position = 0, first  # batches handed out; steps that are over, more where batches were left out
        self._closed = ""
        self._over = False
        self._turn, self._memory = turn or SharedTurn(), {} if memory is None else memory
        with self._turn.of(self, self._memory):
            self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._base, step = self._position
        self._hand = Handover(self._prefetch, self._meter)
        items = self._items
        _submit(self._threads, self._hand, lambda: items(step))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        with self._lock:
            if self._closed:
                raise RuntimeError(self._closed)
            number = self._position[0]
            item = None if self._over else self._wait_for(number)
            if item is None and self._closed:  # by another thread
                raise RuntimeError(self._closed)
            if item is None:
                over, self._over = self._over, True
                if not over:
                    self._ended()
                raise StopIteration
            batch = self._taken(item)
            self._meter.add_batch(item.samples, item.nbytes)
            self._position = number + 1, item.step + 1
            self._hand.note_taken(number + 1 - self._base)
            return batch

    def _wait_for(self, number: int) -> BatchItem | None:
        if not self._turn.is_shared and self._pid == os.getpid() and not self._hand.suspended:
            item = self._hand.wait_for(number - self._base)
            if item is not None or not self._hand.suspended:
                return item
        with self._turn.of(self, self._memory):
            if self._pid != os.getpid() or self._hand.suspended:  # the producer is a thread of another process, or over
                self._begin()
            return self._hand.wait_for(number - self._base)

    def is_here(self) -> bool:
        """Whether the producer's thread asks."""
        return self._threads.is_here()

    def suspend(self) -> None:
        """End the producer, for another loader. The next batch is made by another one."""
        self._hand.suspended = True
        if self._pid == os.getpid():
            self._hand.stop()
            self._hand.join()

    def close(self, reason: str = "this iteration was closed; iterate over the loader again") -> None:
        """End the iteration and wait for its thread.

        Parameters
        ----------
        reason : str
            What `next` says from now on.
        """
        self.stop(reason)
        if self._pid == os.getpid():
            self._hand.join()

    def stop(self, reason: str) -> None:
        """End the iteration, also while another thread waits for its next batch. Nobody waits for its thread."""
        self._closed = "" if self._over else reason
        if self._pid == os.getpid():
            self._hand.stop()

    def __del__(self, *, getpid: Callable[[], int] = os.getpid) -> None:  # `os` may be gone by then
        hand = getattr(self, "_hand", None)
        if hand is not None and self._pid == getpid():
            hand.stop()

    def __reduce__(self) -> Any:
        raise TypeError("an iteration of a gzarr.Loader cannot be pickled: pickle the loader, which keeps its place")


def _submit(threads: Pool, hand: Handover, items: Callable[[], Iterator[BatchItem]]) -> None:
    """Let the thread produce, in this thread's context. Neither it nor the task refers to the iterator."""
    context = copy_context()
    try:
        threads.submit(lambda: context.run(hand.produce, items), 1)
    except RuntimeError:
        hand.ended = True
        raise
