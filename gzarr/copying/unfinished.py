"""Marks a place in a store where a copy is under way, so that one that was killed can be told apart and gone on with.

Theory of operation. The mark is written before anything else and removed last. It says what is copied, and how. An
array's metadata documents are written after its chunks, so an array that can be opened is complete, and of an array
that cannot the stored objects are those that are done: each was stored whole or not at all. Nothing else is recorded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from gzarr.errors import CopyError
from gzarr.indexing.keys import join_path
from gzarr.metadata.documents import documents
from gzarr.metadata.model import ArrayMeta
from gzarr.storage.base import Request, Store

#: Name of the object that is the mark, directly under the destination.
MARK = "gzarr-unfinished-copy.json"


@dataclass(frozen=True, slots=True)
class Mark:
    """What is being copied.

    Attributes:
        source: name of the source.
        fingerprint: hash of the metadata of all arrays of source and destination.
    """

    source: str
    fingerprint: str


def make_mark(source: str, metas: Iterable[tuple[str, Any, ArrayMeta]]) -> Mark:
    """The mark of a copy. metas: for every array its path, a description of the source, the new metadata."""
    digest = hashlib.sha256()
    for path, origin, meta in metas:
        digest.update(repr((path, origin)).encode())
        for _, data in documents(meta, path):
            digest.update(data)
    return Mark(source, digest.hexdigest())


def read_mark(store: Store, path: str) -> Mark | None:
    """The mark at a place; None if there is none. Raises: CopyError if it cannot be read."""
    data = store.get_one(Request(join_path(path, MARK)))
    if data is None:
        return None
    try:
        return Mark(**json.loads(bytes(data)))
    except (ValueError, TypeError) as error:
        raise CopyError(
            f"{join_path(str(store), path)}: {MARK} is damaged: {error}; delete it, or copy with if_exists='replace'"
        ) from error


def write_mark(store: Store, path: str, mark: Mark) -> None:
    """Mark a place."""
    store.set(join_path(path, MARK), json.dumps(asdict(mark)).encode())


def remove_mark(store: Store, path: str) -> None:
    """Take the mark away: the copy is complete."""
    store.delete_many((join_path(path, MARK),))
