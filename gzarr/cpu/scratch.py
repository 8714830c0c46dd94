"""Memory to decode into, which stays in cache and costs no page faults; and how much memory a call takes."""

import mmap
import os
from collections import deque
from collections.abc import Callable
from time import sleep
from typing import Any, TypeVar

import numpy as np

#: No more than this is kept for each core.
_MAX_SCRATCH_NBYTES = 1 << 26

#: Seconds in which threads that wait for the interpreter's lock get it.
LET_IN_S = 5e-3

#: NumPy asks the system for huge pages for allocations of so many bytes.
_MIN_HUGE_NBYTES = 1 << 22


def _pages(nbytes: int) -> np.ndarray[Any, Any]:
    """Flat memory without the huge pages that NumPy asks for: little of it is touched, here and there."""
    if nbytes < _MIN_HUGE_NBYTES or not hasattr(mmap, "MAP_ANONYMOUS"):
        return np.empty(nbytes, np.uint8)
    return np.frombuffer(mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)


class _Scratch:
    """Memory to decode into, chunk after chunk."""

    __slots__ = ("_memory",)

    def __init__(self) -> None:
        self._memory: np.ndarray[Any, Any] = np.empty(0, np.uint8)

    def room(self, nbytes: int) -> np.ndarray[Any, Any]:
        """Memory that is valid until the next call: flat uint8."""
        if nbytes > _MAX_SCRATCH_NBYTES:
            return np.empty(nbytes, np.uint8)
        if self._memory.size < nbytes:
            self._memory = _pages(nbytes)
        return self._memory[:nbytes]


#: Scratch memory that nobody decodes into, for as many threads as decode at once: those that wait are many more.
_spare: deque[_Scratch] = deque(maxlen=os.cpu_count() or 1)


class lent_scratch:  # noqa: N801 - used like a function
    """A context with scratch memory, the one that was used last.

    Meanwhile nobody else has it: a read in the midst of another, as a signal handler or a finalizer may begin one, has
    its own.
    """

    __slots__ = ("_scratch",)

    def __enter__(self) -> _Scratch:
        try:
            self._scratch = _spare.pop()
        except IndexError:
            self._scratch = _Scratch()
        return self._scratch

    def __exit__(self, *exc: object) -> None:
        _spare.append(self._scratch)


T = TypeVar("T")


def measured(call: Callable[[], T]) -> tuple[T, int | None]:
    """The result of a call, and the most memory that it took at once; None if something else traces memory already."""
    import tracemalloc  # few programs measure

    if tracemalloc.is_tracing():
        return call(), None
    tracemalloc.start(1)
    try:
        before = tracemalloc.get_traced_memory()[0]
        result = call()
        return result, tracemalloc.get_traced_memory()[1] - before
    finally:
        # A thread of another language that comes into the interpreter may wait for its lock, within an allocation that
        # is traced: it crashes if nothing is traced any more when it goes on (CPython, gh-128679). It goes on now.
        sleep(LET_IN_S)
        tracemalloc.stop()
