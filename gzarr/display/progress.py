"""Reports the progress of a copy or a check to a function or as a bar in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TypeAlias

from gzarr.concurrency import new_lock
from gzarr.storage.extras import require

#: True for a bar; a function of (bytes done, bytes in all, name of the array); None for nothing.
ProgressLike: TypeAlias = bool | Callable[[int, int, str], object] | None


def in_terminal() -> ProgressLike:
    """What commands report progress to: a bar if stderr is a terminal and tqdm is installed."""
    return True if sys.stderr.isatty() and find_spec("tqdm") is not None else None


@contextmanager
def counted(wanted: ProgressLike, total: int) -> Iterator[Callable[[int, str], None]]:
    """A function of (bytes done, name of the array) for several threads. Raises MissingExtraError without tqdm."""
    lock = new_lock()
    done = 0
    bar = None
    if wanted is True:
        tqdm = require("tqdm.auto", "progress", "progress=True, which a function can replace,").tqdm
        bar = tqdm(total=total, unit="B", unit_scale=True, unit_divisor=1024)

    def add(nbytes: int, name: str) -> None:
        nonlocal done
        with lock:
            done += nbytes
            if bar is not None:
                bar.set_description_str(name, refresh=False)
                bar.update(nbytes)
            if callable(wanted):
                wanted(done, total, name)

    try:
        yield add
    finally:
        if bar is not None:
            bar.close()
