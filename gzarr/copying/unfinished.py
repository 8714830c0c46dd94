"""Marks the destination of a copy that is under way, so that a copy that was killed can be recognized and resumed.

Theory of operation. The mark is written first and removed last. It identifies the source and the new metadata. The
metadata of an array is written after its chunks, and those of groups after all arrays, so an array or a group that can
be opened is complete. If an array cannot be opened, its stored objects are still complete, because each is stored whole
or not at all. Nothing else is recorded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from gzarr.errors import REPLACE, CopyError
from gzarr.indexing.keys import join_path
from gzarr.metadata.documents import documents
from gzarr.metadata.model import ArrayMeta
from gzarr.metadata.occupied import MARK
from gzarr.storage.base import Request, Store


@dataclass(frozen=True, slots=True)
class Mark:
    """What is being copied.

    Attributes
    ----------
    source : str
        Name of the source.
    fingerprint : str
        Hash of the metadata of all arrays of source and destination.
    """

    source: str
    fingerprint: str


def make_mark(source: str, metas: Iterable[tuple[str, Any, ArrayMeta]]) -> Mark:
    """The mark of a copy, from the path, a description of the source and the new metadata of every array."""
    digest = hashlib.sha256()
    for path, origin, meta in metas:
        digest.update(repr((path, origin)).encode())
        for _, data in documents(meta, path):
            digest.update(data)
    return Mark(source, digest.hexdigest())


def read_mark(store: Store, path: str) -> Mark | None:
    """The mark at a place, or None. Raises CopyError if it cannot be read."""
    data = store.get_one(Request(join_path(path, MARK)))
    if data is None:
        return None
    try:
        return Mark(**json.loads(bytes(data)))
    except (ValueError, TypeError) as error:
        raise CopyError(
            f"{join_path(str(store), path)}: {MARK} is damaged: {error}; delete it, or copy with {REPLACE}"
        ) from error


def write_mark(store: Store, path: str, mark: Mark) -> None:
    """Write the mark at a place."""
    store.set(join_path(path, MARK), json.dumps(asdict(mark)).encode())


def remove_mark(store: Store, path: str) -> None:
    """Remove the mark of a complete copy."""
    store.delete_many((join_path(path, MARK),))
