"""Parses equal metadata documents once: similar arrays have equal documents, and arrays are opened repeatedly."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

from gzarr.codecs.registry import registry_state
from gzarr.errors import GzarrError
from gzarr.storage.base import Buffer, host_view

T = TypeVar("T")

#: Larger documents (consolidated metadata, long attributes, data types of many fields) are not cached.
_MAX_NBYTES = 1 << 12
_MAX_DOCUMENTS = 256


def parsed_once(parse: Callable[[bytes], T]) -> Callable[[Buffer], T | None]:
    """A parser that caches its results while the registry of codecs stays unchanged.

    It returns None for documents that are not cached: long ones, and bad ones, whose errors the caller reports with
    their names. Results are shared: they must not be changed.
    """

    @lru_cache(maxsize=_MAX_DOCUMENTS)
    def parse_cached(data: bytes, registry: int) -> T:
        return parse(data)

    def find(data: Buffer) -> T | None:
        if host_view(data).nbytes > _MAX_NBYTES:
            return None
        try:
            return parse_cached(bytes(data), registry_state())
        except GzarrError:
            return None

    return find
