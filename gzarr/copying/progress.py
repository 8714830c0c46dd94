"""Reports the progress of a copy to a function or as a bar in the terminal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from gzarr.errors import MissingExtraError

#: True for a bar; a function of (bytes done, bytes in all, name of the array); None for nothing.
ProgressLike: TypeAlias = bool | Callable[[int, int, str], object] | None


@contextmanager
def counted(wanted: ProgressLike, total: int) -> Iterator[Callable[[int, str], None]]:
    """A function of (bytes done, name of the array) for several threads. Raises MissingExtraError without tqdm."""
    lock = threading.Lock()
    done = 0
    bar = _bar(total) if wanted is True else None

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


def _bar(total: int) -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        raise MissingExtraError(
            "progress=True needs tqdm, which is not installed: pip install 'gzarr[progress]', or pass a function"
        ) from error
    return tqdm(total=total, unit="B", unit_scale=True, unit_divisor=1024)
