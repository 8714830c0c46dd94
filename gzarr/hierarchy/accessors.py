"""One way to select with brackets: ``vindex``, ``oindex`` and ``blocks``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gzarr.backend import Array as AnyArray
from gzarr.indexing.selection import split_fields


class Accessor:
    """One way to select, with brackets. Made by `Array.vindex`, `Array.oindex` and `Array.blocks`."""

    __slots__ = ("_read", "_write")

    def __init__(self, read: Callable[..., AnyArray], write: Callable[..., None]) -> None:
        self._read = read
        self._write = write

    def __getitem__(self, key: Any) -> AnyArray:
        key, fields = split_fields(key)
        return self._read(key, fields=fields)

    def __setitem__(self, key: Any, value: Any) -> None:
        key, fields = split_fields(key)
        self._write(key, value, fields=fields)

    def __repr__(self) -> str:
        return f"<Accessor: {self._read.__name__} of {self._read.__self__!r}>"  # type: ignore[attr-defined]
