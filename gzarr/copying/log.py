"""The lines that zarr 2's copying functions print, and where: a function, a file by name, a file object, or nowhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from gzarr.errors.escaping import escaped

Log: TypeAlias = Callable[[str], object]


class Counts(NamedTuple):
    """What a copy did: items copied, items skipped, decoded bytes copied."""

    ncopied: int = 0
    nskipped: int = 0
    nbytes: int = 0

    def plus(self, other: Counts) -> Counts:
        """The sum of both."""
        return Counts(self[0] + other[0], self[1] + other[1], self[2] + other[2])


@contextmanager
def log_lines(log: Any) -> Iterator[Log]:
    """A function that prints one line. Raises TypeError."""
    if log is None:
        yield lambda line: None
    elif callable(log):
        yield lambda line: log(escaped(line))
    elif isinstance(log, str):
        with Path(log).open("w", encoding="utf-8") as file, log_lines(file) as to_file:
            yield to_file
    elif hasattr(log, "write"):
        write = partial(print, file=log, flush=hasattr(log, "flush"))  # a progress display is read line by line
        yield lambda line: write(escaped(line))
    else:
        raise TypeError(f"log must be a callable function, file path or file-like object, found {log!r}")


def summary(log: Log, counts: Counts, *, dry_run: bool) -> None:
    """Print the last line."""
    ncopied, nskipped, nbytes = counts
    begin, end = ("dry run", "") if dry_run else ("all done", f", {nbytes:,} bytes copied")
    log(f"{begin}: {ncopied:,} copied, {nskipped:,} skipped{end}")
