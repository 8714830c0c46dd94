"""What Python and NumPy allocate."""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import sleep

from gzarr.cpu.scratch import LET_IN_S


@contextmanager
def traced() -> Iterator[Callable[[], int]]:
    """A context that yields a function, which gives the most bytes so far that were allocated in the context."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1]
    finally:
        sleep(LET_IN_S)
        tracemalloc.stop()
