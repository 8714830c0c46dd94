"""zarr 2's ``copy_store``: stored objects as they are from one store to another, with the lines that it prints."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from gzarr.copying.log import Counts, Log, log_lines, summary
from gzarr.errors import CopyError, GzarrError
from gzarr.keys import join_path, normalize_path
from gzarr.metadata.consolidated import refresh_stored
from gzarr.node import lies_within
from gzarr.storage import open_store
from gzarr.storage.base import Request, Store, host_view


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
    """Copy stored objects as they are from one store to another: the fastest copy, as nothing is decoded.

    source, dest: stores, mappings, paths or URLs. source_path, dest_path: only what lies there; where it goes.
    excludes: regular expressions; keys of the source that one of them is found in are not copied.
    includes: regular expressions that win over ``excludes``. flags: of `re.compile`.
    if_exists: of keys that are there: "raise", before anything is copied; "replace" them; "skip" them.
    dry_run: only print what would be done. log: see `copy`.
    Returns: (number of objects copied, number skipped, bytes copied).
    Raises: CopyError, also if something fails on the way; it says what was copied and how to go on.
    """
    allowed = ["raise", "replace", "skip"]
    if if_exists not in allowed:
        raise ValueError(f"if_exists must be one of {allowed!r}; found {if_exists!r}")
    source_store, source_base = open_store(source, mode="r")
    dest_store, dest_base = open_store(dest, mode=None if dry_run else "a")
    start = join_path(source_base, normalize_path(source_path))
    end = join_path(dest_base, normalize_path(dest_path))
    if lies_within(dest_store, end, source_store, start):
        raise CopyError(
            f"cannot copy {join_path(str(source_store), start)} into itself ({end!r}); choose another place"
        )
    wanted = _key_filter(excludes, includes, flags)
    keys = sorted(key for key in source_store.list_prefix(start) if wanted(key))
    pairs = [(key, join_path(end, key[len(start) :].lstrip("/"))) for key in keys]
    if if_exists == "raise" and not dry_run:
        taken = next((to for _, to in pairs if to in dest_store), None)
        if taken is not None:
            raise CopyError(f"key {taken!r} exists in destination")
    if not dry_run:
        dest_store.check_metadata_writable()
    try:
        with log_lines(log) as write_line, _consolidated_after(dest_store, end, pairs, dry_run=dry_run):
            counts = _copy_keys(source_store, dest_store, pairs, write_line, if_exists, dry_run=dry_run)
            summary(write_line, counts, dry_run=dry_run)
    finally:
        if isinstance(dest, str) or hasattr(dest, "__fspath__"):
            dest_store.close()
    return counts.ncopied, counts.nskipped, counts.nbytes


@contextmanager
def _consolidated_after(store: Store, path: str, pairs: Sequence[tuple[str, str]], *, dry_run: bool) -> Iterator[None]:
    """Bring consolidated metadata of the destination up to date in the end, also if the copy stops midway."""
    if dry_run:
        yield
        return
    try:
        yield
    except BaseException as error:
        try:
            refresh_stored(store, path, [to for _, to in pairs])
        except (GzarrError, OSError) as second:
            error.add_note(f"consolidated metadata above {path!r} could not be brought up to date: {second}")
        raise
    refresh_stored(store, path, [to for _, to in pairs])


def _key_filter(
    excludes: Sequence[str] | str | None, includes: Sequence[str] | str | None, flags: int
) -> Callable[[str], bool]:
    def compiled(patterns: Sequence[str] | str | None) -> list[re.Pattern[str]]:
        return [re.compile(p, flags) for p in ([patterns] if isinstance(patterns, str) else patterns or ())]

    out, back = compiled(excludes), compiled(includes)
    return lambda key: not any(p.search(key) for p in out) or any(p.search(key) for p in back)


def _copy_keys(
    source: Store, dest: Store, pairs: Sequence[tuple[str, str]], log: Log, if_exists: str, *, dry_run: bool
) -> Counts:
    counts = Counts()
    for key, to in pairs:
        what = key if to == key else f"{key} -> {to}"
        if if_exists != "replace" and to in dest:
            if if_exists == "raise":
                raise CopyError(f"key {to!r} exists in destination")
            log(f"skip {what}")
            counts = counts.plus(Counts(nskipped=1))
            continue
        log(f"copy {what}")
        nbytes = 0
        if not dry_run:
            try:
                data = source.get_one(Request(key))
                if data is None:
                    raise CopyError(f"key {key!r} was deleted from the source meanwhile")
                dest.set(to, data)
            except (GzarrError, OSError) as error:
                raise CopyError(
                    f"the copy stopped at key {key!r}: {error}. Before it, {counts.ncopied} objects were copied; "
                    "go on with if_exists='skip'"
                ) from error
            nbytes = host_view(data).nbytes
        counts = counts.plus(Counts(1, 0, nbytes))
    return counts
