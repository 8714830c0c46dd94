"""Marks the destination of a copy that is under way, so that a copy that was killed can be recognized and resumed.

Theory of operation. The mark is written first and removed last. It identifies the source and the new metadata. The
metadata of an array is written after its chunks, and those of groups after all arrays, so an array or a group that can
be opened is complete. If an array cannot be opened, its stored objects are still complete, because each is stored whole
or not at all. Nothing else is recorded.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from gzarr.errors import REPLACE, ChunkError, CopyError, StoreError
from gzarr.indexing.keys import join_path
from gzarr.metadata.occupied import MARK
from gzarr.scale.parts import remove_parts
from gzarr.storage.base import Request, Store
from gzarr.storage.foreign import is_transactional


@dataclass(frozen=True, slots=True)
class UnfinishedMark:
    """What is being copied.

    Attributes
    ----------
    source : str
        Name of the source.
    run : object
        What is copied and how (`gzarr.identity.runs.Run.to_json`).
    failed : sequence of str
        Chunks and files that could not be read: they may have been repaired when the copy goes on.
    """

    source: str
    run: Any
    failed: Sequence[str] = ()


def read_mark(store: Store, path: str) -> UnfinishedMark | None:
    """The mark at a place, or None. Raises CopyError if it cannot be read."""
    if is_transactional(store):
        return None
    data = store.get_one(Request(join_path(path, MARK)))
    if data is None:
        return None
    try:
        stored = json.loads(bytes(data))
        return UnfinishedMark(str(stored["source"]), stored.get("run"), stored.get("failed", ()))
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise CopyError(
            f"{join_path(str(store), path)}: {MARK} is damaged: {error}; delete it, or copy with {REPLACE}"
        ) from error


def write_mark(store: Store, path: str, mark: UnfinishedMark) -> None:
    """Write the mark at a place. What is committed at once needs none."""
    if is_transactional(store):
        return
    store.set(join_path(path, MARK), json.dumps(asdict(mark)).encode())


def note_failure(store: Store, path: str, mark: UnfinishedMark, error: Exception, files: Sequence[str]) -> None:
    """Note what could not be read: a chunk, or one of several files."""
    failed = [error.key] if isinstance(error, ChunkError) else [name for name in files if repr(name) in str(error)]
    if failed and (len(files) > 1 or not files):
        with suppress(StoreError, OSError):  # the other error is raised
            write_mark(store, path, replace(mark, failed=(*mark.failed, *failed)))


def remove_mark(store: Store, path: str) -> None:
    """Remove the mark of a complete copy, and the notes of its parts."""
    if is_transactional(store):
        return
    store.delete_many((join_path(path, MARK),))
    remove_parts(store, path)
