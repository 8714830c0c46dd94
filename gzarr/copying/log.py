"""Where zarr 2's copying functions print their lines: a function, a file by name, a file object, or nowhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

Log: TypeAlias = Callable[[str], object]


@contextmanager
def log_lines(log: Any) -> Iterator[Log]:
    """A function that prints one line. Raises: TypeError."""
    if log is None:
        yield lambda line: None
    elif callable(log):
        yield log
    elif isinstance(log, str):
        with Path(log).open("w", encoding="utf-8") as file:
            yield lambda line: _print(line, file)
    elif hasattr(log, "write"):
        yield lambda line: _print(line, log)
    else:
        raise TypeError(f"log must be a callable function, file path or file-like object, found {log!r}")


def _print(line: str, file: Any) -> None:
    print(line, file=file)
    if hasattr(file, "flush"):
        file.flush()  # whoever watches sees each line at once


def summary(log: Log, counts: tuple[int, int, int], *, dry_run: bool) -> None:
    """Print the last line."""
    ncopied, nskipped, nbytes = counts
    begin, end = ("dry run", "") if dry_run else ("all done", f", {nbytes:,} bytes copied")
    log(f"{begin}: {ncopied:,} copied, {nskipped:,} skipped{end}")
