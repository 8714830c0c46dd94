"""Watches the stored arrays of a loader, whose rows others may cut off, replace or delete while it reads them.

Theory of operation. The documents are read when an epoch begins. Within it, their tokens are compared after every read
of chunks, before any of its rows is handed out; a document with another token is read again. Stores across a network,
and those without tokens, are asked every `EVERY_S` seconds at most. Arrays that have become longer are as good as
before: the rows of a loader are those that the arrays had when it was made. Of arrays that are joined, which are many,
documents are read after the first read of their chunks alone, or in an epoch if the store has no tokens.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from operator import lt
from typing import Any

from gzarr.errors import ArrayNotFoundError
from gzarr.hierarchy.array import Array
from gzarr.loader.state import differences
from gzarr.metadata.documents import read_node, shape_key
from gzarr.metadata.model import ArrayMeta
from gzarr.storage.capabilities import Versions

#: Seconds between two looks within an epoch where a look takes as long as a read of a small object.
EVERY_S = 10.0


class ArrayWatch:
    """The arrays of a loader as they were when it was made.

    Parameters
    ----------
    arrays : mapping
        By name.
    joined : mapping
        Those that are joined, by name.
    """

    def __init__(self, arrays: Mapping[str, Array], joined: Mapping[str, Array]) -> None:
        self._singles, self._joined, self._seen = list(arrays), joined, set[str]()
        self._arrays = arrays = {**arrays, **joined}
        # A view has metadata of its own. What is stored below it counts from the first look on, but for its extents.
        self._made = {name: array.metadata for name, array in arrays.items() if not array.is_view}
        self._shapes = {name: array.shape for name, array in arrays.items()}
        self._tokens: dict[str, tuple[Versions, str, object | None]] = {}
        self._next = 0.0

    def begin(self) -> None:
        """Read all documents, as an epoch begins. Raises: as `check`."""
        self._next = time.monotonic() + EVERY_S
        self._seen.clear()
        self._look_at(self._singles)

    def check(self, names: Iterable[str]) -> None:
        """Look whether some arrays still have the rows that they had.

        Parameters
        ----------
        names : iterable of str
            Of the arrays.

        Raises
        ------
        ValueError
            If an array was made smaller, or replaced by one that is stored in another way.
        ArrayNotFoundError
            If it was deleted.
        """
        is_due = time.monotonic() >= self._next
        if is_due:
            self._next = time.monotonic() + EVERY_S
        changed = []
        for name in names:
            known = self._tokens.get(name)
            is_first = name in self._joined and name not in self._seen and not self._is_remote(name)
            if is_first or is_due if known is None else known[0].token(known[1]) != known[2]:
                changed.append(name)
        if changed:
            self._look_at(changed)

    def _is_remote(self, name: str) -> bool:
        return self._arrays[name].store.concurrency > 1

    def _look_at(self, names: Iterable[str]) -> None:
        by_store: dict[int, list[str]] = {}
        for name in names:
            self._seen.add(name)
            by_store.setdefault(id(self._arrays[name].store), []).append(name)
        for some in by_store.values():
            self._arrays[some[0]].store.together(self._look, some)

    def _look(self, name: str) -> None:
        """Read the document of an array, and compare it with what it was."""
        array = self._arrays[name]
        store, path = array.store.live(), array.path
        versions = store.versions
        if versions is not None and not versions.remote:
            key = shape_key(array.metadata, path)
            self._tokens[name] = versions, key, versions.token(key)
        meta = read_node(store, path, array.metadata.zarr_format)
        what = f"array {name!r}, at {array.store_path}, was"
        if not isinstance(meta, ArrayMeta):
            raise ArrayNotFoundError(f"{what} deleted since the loader was made; store it again, or leave it out")
        made = self._made.setdefault(name, meta)
        changed = _differences(made, meta)
        if changed:
            raise ValueError(
                f"{what} replaced since the loader was made: "
                + "; ".join(f"{field} was {was!r}, is {now!r}" for field, was, now in changed)
                + "; make another loader"
            )
        had = self._shapes[name]
        if any(map(lt, meta.shape, had)) or meta.shape[1:] != made.shape[1:]:
            kind = "view" if array.is_view else "loader"
            raise ValueError(
                f"{what} resized from {had} to {meta.shape} since the {kind} was made; make another {kind}, which has "
                "the rows that are there now"
            )


def _differences(made: ArrayMeta, now: ArrayMeta) -> list[tuple[str, Any, Any]]:
    """What differs in how two arrays are stored, but for their extents."""
    if len(made.shape) != len(now.shape):
        return [("shape", made.shape, now.shape)]
    shape = tuple(map(min, made.shape, now.shape))
    one, two = (replace(meta.resized(shape), attributes={}, dimension_names=None, extra={}) for meta in (made, now))
    return differences(one.to_dict(), two.to_dict())
