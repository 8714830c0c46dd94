"""Metadata documents that are parsed once: arrays of one kind have equal documents, and arrays are opened again."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

from gzarr.codecs.registry import registry_state
from gzarr.errors import GzarrError
from gzarr.storage.base import Buffer, host_view

T = TypeVar("T")

#: Larger documents (consolidated metadata, long attributes, data types of many fields) are not kept.
_MAX_NBYTES = 1 << 12
_MAX_DOCUMENTS = 256


def parsed_once(parse: Callable[[bytes], T]) -> Callable[[Buffer], T | None]:
    """A parser that keeps what it made of a document, as long as the registry of codecs stays as it is.

    It returns None for documents that are not kept: long ones, and bad ones, of which the caller says what is wrong
    with their names. What it returns is shared: it may not be changed.
    """

    @lru_cache(maxsize=_MAX_DOCUMENTS)
    def parse_kept(data: bytes, registry: int) -> T:
        return parse(data)

    def find(data: Buffer) -> T | None:
        if host_view(data).nbytes > _MAX_NBYTES:
            return None
        try:
            return parse_kept(bytes(data), registry_state())
        except GzarrError:
            return None

    return find
