"""Reports the progress of a copy or a check to a function or as a bar in the terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from gzarr.concurrency import new_lock
from gzarr.errors.escaping import escaped

if TYPE_CHECKING:
    from rich.progress import Progress

#: True for a bar; a function of (bytes done, bytes in all, name of the array); None for nothing.
ProgressLike: TypeAlias = bool | Callable[[int, int, str], object] | None


def in_terminal() -> ProgressLike:
    """What commands report progress to: a bar if stderr is a terminal."""
    return True if sys.stderr.isatty() else None


@contextmanager
def counted(wanted: ProgressLike, total: int) -> Iterator[Callable[[int, str], None]]:
    """A function of (bytes done, name of the array) for several threads."""
    lock = new_lock()
    done = 0
    bar = _bar() if wanted is True else None
    task = None if bar is None else bar.add_task("", total=total)

    def add(nbytes: int, name: str) -> None:
        nonlocal done
        with lock:
            done += nbytes
            if bar is not None and task is not None:
                bar.update(task, advance=nbytes, description=escaped(name))
            if callable(wanted):
                wanted(done, total, name)

    if bar is None:
        yield add
        return
    with bar:
        yield add


def _bar() -> "Progress":
    """A bar on stderr, with what was done, the rate and the time that is left. Raises: MissingExtraError."""
    from gzarr.storage.extras import require  # with NumPy, which the help of commands does without

    require("rich", "cli", "a progress bar")
    from rich import progress
    from rich.console import Console

    return progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.DownloadColumn(binary_units=True),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
    )
