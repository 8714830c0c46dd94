"""Parses equal metadata documents once: similar arrays have equal documents, and arrays are opened repeatedly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import lru_cache
from typing import Any, TypeVar

from gzarr.codecs.registry import registry_state
from gzarr.errors import GzarrError
from gzarr.metadata.fields import parse_json
from gzarr.metadata.model import ArrayMeta, NodeMeta
from gzarr.storage.base import Buffer, host_view

Meta = TypeVar("Meta", ArrayMeta, NodeMeta)

#: Larger documents (consolidated metadata, long attributes, data types of many fields) are not cached.
_MAX_NBYTES = 1 << 12
_MAX_DOCUMENTS = 256


def parsed_once(parse: Callable[[Mapping[str, Any], str], Meta]) -> Callable[..., Meta]:
    """A parser of stored documents that caches its results while the registry of codecs stays unchanged.

    It takes the bytes of a document, how errors call it, and attributes if they are not in it. Raises: MetadataError.
    """

    @lru_cache(maxsize=_MAX_DOCUMENTS)
    def parse_cached(data: bytes, registry: int) -> Meta:
        return parse(parse_json(data, ""), "")

    def parse_bytes(data: Buffer, what: str, attributes: Mapping[str, Any] | None = None) -> Meta:
        if (len(data) if type(data) is bytes else host_view(data).nbytes) <= _MAX_NBYTES:
            try:
                meta = parse_cached(bytes(data), registry_state())
                # The caller may change what these hold.
                if attributes is None:
                    attributes = deepcopy(meta.attributes) if meta.attributes else {}
                return meta.holding(attributes, deepcopy(meta.extra) if meta.extra else {})
            except (GzarrError, RecursionError):
                pass  # raised again below, with the name of the document, unless only copying goes too deep
        meta = parse(parse_json(data, what), what)
        return meta if attributes is None else meta.holding(attributes, meta.extra)

    return parse_bytes
