"""Watches the stored arrays of a loader, whose rows others may cut off, replace or delete while it reads them.

Theory of operation. The documents are read when an epoch begins. Within it, their tokens are compared after every read
of chunks, before any of its rows is handed out; a document with another token is read again. Stores across a network,
and those without tokens, are asked every `EVERY_S` seconds at most. Arrays that have become longer are as good as
before: the rows of a loader are those that the arrays had when it was made.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gzarr.errors import ArrayNotFoundError
from gzarr.hierarchy.array import Array
from gzarr.loader.state import differences
from gzarr.metadata.documents import read_node, shape_key
from gzarr.metadata.model import ArrayMeta
from gzarr.storage.base import token_of

#: Seconds between two looks within an epoch where a look takes as long as a read of a small object.
EVERY_S = 10.0


class Watch:
    """The arrays of a loader as they were when it was made.

    Parameters
    ----------
    arrays : mapping
        By name; those of NumPy are passed over.
    """

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self._arrays = {name: array for name, array in arrays.items() if isinstance(array, Array)}
        # A view has metadata of its own. What is stored below it counts from the first look on.
        self._made = {name: array.metadata for name, array in self._arrays.items() if not array.is_view}
        self._tokens: dict[str, object | None] = {}
        self._next = 0.0

    def check(self, *, begins: bool = False) -> None:
        """Look whether the arrays have the rows that they had.

        Parameters
        ----------
        begins : bool
            Whether an epoch begins, so that all documents are read.

        Raises
        ------
        ValueError
            If an array was made smaller, or replaced by one that is stored in another way.
        ArrayNotFoundError
            If it was deleted.
        """
        now = time.monotonic()
        is_due = begins or now >= self._next
        if is_due:
            self._next = now + EVERY_S
        by_store: dict[int, list[str]] = {}
        for name, array in self._arrays.items():
            if begins or self._may_have_changed(name, is_due=is_due):
                by_store.setdefault(id(array.store), []).append(name)
        for names in by_store.values():
            self._arrays[names[0]].store.together(self._look, names)

    def _may_have_changed(self, name: str, *, is_due: bool) -> bool:
        array = self._arrays[name]
        versions = array.store.live().versions
        if versions is None or versions.remote:
            return is_due
        return versions.token(shape_key(array.metadata, array.path)) != self._tokens.get(name)

    def _look(self, name: str) -> None:
        """Read the document of an array, and compare it with what it was."""
        array = self._arrays[name]
        store, path = array.store.live(), array.path
        versions = store.versions
        if versions is not None and not versions.remote:
            self._tokens[name] = token_of(store, shape_key(array.metadata, path))
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
        if meta.shape[0] < made.shape[0] or meta.shape[1:] != made.shape[1:]:
            raise ValueError(
                f"{what} resized from {made.shape} to {meta.shape} since the loader was made; make another loader, "
                "which has the rows that are there now"
            )


def _differences(made: ArrayMeta, now: ArrayMeta) -> list[tuple[str, Any, Any]]:
    """What differs in how two arrays are stored, but for their extents."""
    if len(made.shape) != len(now.shape):
        return [("shape", made.shape, now.shape)]
    shape = tuple(map(min, made.shape, now.shape))
    one, two = (replace(meta.resized(shape), attributes={}, dimension_names=None, extra={}) for meta in (made, now))
    return differences(one.to_dict(), two.to_dict())
