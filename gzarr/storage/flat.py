"""The common part of stores with keys but no directories: databases and object stores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gzarr.errors import StoreError
from gzarr.storage.base import Buffer, Request, Store
from gzarr.storage.rules import check_move, children, cut


class FlatStore(Store):
    """Listings, renaming and emptying, made of the other verbs."""

    def list_dir(self, path: str = "") -> tuple[list[str], list[str]]:
        """Names directly under a path, sorted: (objects, sub-paths)."""
        return children(self.list_prefix(path), path)

    def clear(self) -> None:
        """Delete everything."""
        self.delete_prefix()

    def delete_prefix(self, path: str = "") -> None:
        """Delete every key under a path."""
        self.check_writable()
        self.delete_many(list(self.list_prefix(path)))

    def move_prefix(self, source: str, dest: str) -> None:
        """Copy every key under `source` to lie under `dest`, then delete it.

        Raises: StoreError if anything lies at the destination.
        """
        self.check_writable()
        check_move(source, dest)
        if next(self.list_prefix(dest), None) is not None:
            raise StoreError(f"store {self}: cannot move {source!r} to {dest!r}, which is not empty; delete it first")
        keys = list(self.list_prefix(source))
        self.together(lambda key: self._copy(key, dest + key[len(source) :]), keys)
        self.delete_many(keys)

    def _copy(self, source: str, dest: str) -> None:
        value = self.get_one(Request(source))
        if value is not None:
            self.set(dest, value)


def cut_all(values: Sequence[bytes | None], requests: Sequence[Request]) -> list[Buffer | None]:
    """Cut the requested parts out of whole objects."""
    return [
        None if value is None else cut(value, request.start, request.length)
        for value, request in zip(values, requests, strict=True)
    ]


def under(keys: Sequence[str] | Iterator[str], path: str) -> Iterator[str]:
    """The keys that lie under a path."""
    prefix = f"{path}/" if path else ""
    return (key for key in keys if key.startswith(prefix))
