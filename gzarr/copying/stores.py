"""zarr 2's ``copy_store``: copies stored objects unchanged from one store to another, and prints lines of it."""

import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from gzarr.copying.arrays import BUDGET_NBYTES
from gzarr.errors import SKIP, CopyError, GzarrError
from gzarr.errors.escaping import escaped
from gzarr.hierarchy.node import lies_within
from gzarr.indexing.keys import join_path, normalize_path
from gzarr.metadata.consolidated import refresh_stored
from gzarr.storage import open_store
from gzarr.storage.base import Request, Store, host_view
from gzarr.storage.in_place import call, is_repository
from gzarr.storage.rules import KEY_RULE, is_allowed


def copy_store(
    source: Any,
    dest: Any,
    source_path: str = "",
    dest_path: str = "",
    excludes: Sequence[str] | str | None = None,
    includes: Sequence[str] | str | None = None,
    flags: int = 0,
    if_exists: Literal["raise", "replace", "skip"] = "raise",
    dry_run: bool = False,
    log: Any = None,
) -> tuple[int, int, int]:
    """Copy stored objects unchanged from one store to another. Nothing is decoded, so this is the fastest copy.

    Parameters
    ----------
    source, dest : store, mapping, str or path
        Stores, or paths or URLs of them.
    source_path, dest_path : str, default ""
        Path in the source below which keys are copied, and their new path in the destination.
    excludes, includes : str or sequence of str, optional
        Regular expressions. A key of the source that an expression of ``excludes`` matches anywhere is not copied,
        unless one of ``includes`` matches too.
    flags : int, default 0
        Flags of `re.compile`.
    if_exists : {"raise", "replace", "skip"}
        For keys that exist: raise before anything is copied, replace them, or skip them.
    dry_run : bool, default False
        Whether to only print what would be done.
    log : callable, str or file, optional
        Where lines are printed, as in `gzarr.copy`.

    Returns
    -------
    ncopied, nskipped, nbytes : int
        Numbers of objects copied and skipped, and bytes copied.

    Raises
    ------
    CopyError
        If a key exists, or if something fails midway. The message says what was copied and how to go on.

    Examples
    --------
    >>> import gzarr
    >>> source, dest = gzarr.MemoryStore(), gzarr.MemoryStore()
    >>> _ = gzarr.create_array(source, name="a", data=[1, 2, 3])
    >>> ncopied, nskipped, nbytes = gzarr.copy_store(source, dest)
    >>> gzarr.open_array(dest, path="a")[:].tolist()
    [1, 2, 3]
    """
    allowed = ["raise", "replace", "skip"]
    if if_exists not in allowed:
        raise ValueError(f"if_exists must be one of {allowed!r}; found {if_exists!r}")
    wanted = _key_filter(excludes, includes, flags)
    with opened(source, "r") as (source_store, base), opened(dest, None if dry_run else "a") as (dest_store, dest_base):
        start, end = join_path(base, normalize_path(source_path)), join_path(dest_base, normalize_path(dest_path))
        if lies_within(dest_store, end, source_store, start):
            place = join_path(str(source_store), start)
            raise CopyError(f"cannot copy {place} into itself ({end!r}); choose another place")
        keys = sorted(key for key in source_store.list_prefix(start) if wanted(key))
        pairs = [(key, join_path(end, key[len(start) + 1 if start else 0 :])) for key in keys]
        for key, to in pairs:
            if not is_allowed(to):
                raise CopyError(f"key {key!r} is not allowed: {KEY_RULE}; rename it, or leave it out with excludes=")
        taken = set() if if_exists == "replace" else _taken(dest_store, [to for _, to in pairs])
        if taken and if_exists == "raise" and not dry_run:
            raise CopyError(f"key {min(taken)!r} exists in destination")
        if not dry_run:
            dest_store.check_metadata_writable()
        with log_lines(log) as write_line, _consolidated_after(dest_store, end, pairs, dry_run=dry_run):
            counts = _copy_keys(source_store, dest_store, pairs, write_line, taken, if_exists, dry_run=dry_run)
            summary(write_line, counts, dry_run=dry_run)
    return counts.ncopied, counts.nskipped, counts.nbytes


@contextmanager
def opened(place: Any, mode: Literal["r", "a"] | None, message: str = "Copy") -> Iterator[tuple[Store, str]]:
    """The store of a place, and the path in it. A store that is opened here, from a path, is closed at the end.

    To a repository of Icechunk, all changes are committed at the end. message: what the version then says of itself.
    """
    if mode == "a" and is_repository(place):
        with call("commits", place, message) as changed:
            yield changed, ""
        return
    store, path = open_store(place, mode=mode)
    try:
        yield store, path
    finally:
        if isinstance(place, (str, os.PathLike)):
            store.close()


@contextmanager
def _consolidated_after(store: Store, path: str, pairs: Sequence[tuple[str, str]], *, dry_run: bool) -> Iterator[None]:
    """Update consolidated metadata of the destination at the end, even if the copy stops midway."""
    if dry_run:
        yield
        return
    try:
        yield
    except BaseException as error:
        try:
            refresh_stored(store, path, [to for _, to in pairs])
        except (GzarrError, OSError) as second:
            error.add_note(f"consolidated metadata above {path!r} could not be updated: {second}")
        raise
    refresh_stored(store, path, [to for _, to in pairs])


def _key_filter(
    excludes: Sequence[str] | str | None, includes: Sequence[str] | str | None, flags: int
) -> Callable[[str], bool]:
    def compiled(patterns: Sequence[str] | str | None) -> list[re.Pattern[str]]:
        return [re.compile(p, flags) for p in ([patterns] if isinstance(patterns, str) else patterns or ())]

    out, back = compiled(excludes), compiled(includes)
    return lambda key: not any(p.search(key) for p in out) or any(p.search(key) for p in back)


def _taken(store: Store, keys: Sequence[str]) -> set[str]:
    """The keys that exist in a store, which looks many up at once."""
    return {key for key, there in zip(keys, store.together(store.__contains__, keys), strict=True) if there}


def _copy_keys(
    source: Store,
    dest: Store,
    pairs: Sequence[tuple[str, str]],
    log: "Log",
    taken: Collection[str],
    if_exists: str,
    *,
    dry_run: bool,
) -> "Counts":
    counts = Counts()
    for batch in _batches(source, dest, pairs, dry_run=dry_run):
        todo = []
        for key, to in batch:
            what = key if to == key else f"{key} -> {to}"
            if to in taken and if_exists == "raise":
                raise CopyError(f"key {to!r} exists in destination")
            log(f"{'skip' if to in taken else 'copy'} {what}")
            if to not in taken:
                todo.append((key, to))
        nbytes = _copy_batch(source, dest, todo, counts.ncopied) if todo and not dry_run else 0
        counts = counts.plus(Counts(len(todo), len(batch) - len(todo), nbytes))
    return counts


def _batches(
    source: Store, dest: Store, pairs: Sequence[tuple[str, str]], *, dry_run: bool
) -> Iterator[Sequence[tuple[str, str]]]:
    """Keys that are copied at once: as many as the stores take, within the memory budget."""
    most = 1 if dry_run else max(source.concurrency, dest.concurrency, 1)
    for start in range(0, len(pairs), most):
        some = pairs[start : start + most]
        sizes = source.together(source.getsize, [key for key, _ in some]) if len(some) > 1 else [0]
        first, nbytes = 0, 0
        for position, size in enumerate(sizes):
            if position > first and nbytes + (size or 0) > BUDGET_NBYTES:
                yield some[first:position]
                first, nbytes = position, 0
            nbytes += size or 0
        yield some[first:]


def _copy_batch(source: Store, dest: Store, pairs: Sequence[tuple[str, str]], ncopied: int) -> int:
    """Copy some objects at once; return their bytes. Raises CopyError."""
    try:
        buffers = source.get_many([Request(key) for key, _ in pairs])
        gone = next((key for (key, _), data in zip(pairs, buffers, strict=True) if data is None), None)
        if gone is not None:
            raise CopyError(f"key {gone!r} was deleted from the source meanwhile")
        items = [(to, data) for (_, to), data in zip(pairs, buffers, strict=True) if data is not None]
        dest.set_many(items)
    except (GzarrError, OSError) as error:
        among = "" if len(pairs) == 1 else f" or one of the {len(pairs) - 1} after it, some of which may be copied"
        raise CopyError(
            f"the copy stopped at key {pairs[0][0]!r}{among}: {error}. Before it, {ncopied} objects were copied; "
            f"go on with {SKIP}"
        ) from error
    return sum(host_view(data).nbytes for _, data in items)


# -- lines of zarr 2 ---------------------------------------------------------------------------------------------------

Log: TypeAlias = Callable[[str], object]


class Counts(NamedTuple):
    """What a copy did: items copied, items skipped, decoded bytes copied."""

    ncopied: int = 0
    nskipped: int = 0
    nbytes: int = 0

    def plus(self, other: "Counts") -> "Counts":
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
