"""Reads fields of JSON documents, and says which field is wrong and how. Equal documents are parsed once."""

import json
import sys
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from gzarr.codecs.registry import registry_state
from gzarr.errors import GzarrError, MetadataError
from gzarr.indexing.grid import Grid, RegularAxis
from gzarr.metadata.model import ArrayMeta, NodeMeta
from gzarr.storage.base import Buffer, host_view
from gzarr.tensors import from_tensor


def parse_json(data: Buffer, what: str) -> dict[str, Any]:
    """Parse a document that must be a JSON object. Raises: MetadataError naming it."""
    try:
        document = json.loads(bytes(data))
    except RecursionError as error:
        raise _too_deep(f"{what}: not valid JSON, or", "read") from error
    except ValueError as error:
        raise MetadataError(f"{what}: not valid JSON ({error}); restore the document, or delete the node") from error
    if not isinstance(document, dict):
        raise MetadataError(f"{what}: expected a JSON object, got {type(document).__name__}")
    return document


def dump_json(document: Mapping[str, Any], indent: int | None, what: str, *, sort_keys: bool = False) -> bytes:
    """Write a document. NumPy scalars and arrays become numbers and lists; NaN and infinities stay Python's literals.

    Raises: TypeError for values that JSON does not have, MetadataError naming the document if they are nested too deep.
    """
    try:
        if indent is None:
            return _COMPACT.encode(document).encode()
        return json.dumps(document, indent=indent, sort_keys=sort_keys, default=_plain).encode()
    except RecursionError as error:
        raise _too_deep(f"{what}:", "written") from error


def _too_deep(begin: str, done: str) -> MetadataError:
    limit = sys.getrecursionlimit()
    return MetadataError(
        f"{begin} nested too deep to be {done} with Python's recursion limit of {limit}; "
        "make the attributes flatter, or raise the limit with sys.setrecursionlimit"
    )


def _plain(value: Any) -> Any:
    value = from_tensor(value)
    if isinstance(value, np.generic | np.ndarray) and value.dtype.char not in "mMgG":
        return value.tolist()  # times of nanoseconds would be numbers without a unit
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


_COMPACT = json.JSONEncoder(default=_plain)


def require(document: Mapping[str, Any], field: str, what: str) -> Any:
    """A field that must be there. Raises: MetadataError."""
    if field not in document:
        raise MetadataError(f"{what}: field {field!r} is missing")
    return document[field]


def integers(value: Any, field: str, what: str, *, low: int) -> tuple[int, ...]:
    """A list of integers, none below ``low``. Raises: MetadataError."""
    if not isinstance(value, list) or not all(type(n) is int and n >= low for n in value):
        raise MetadataError(f"{what}: field {field!r} must be a list of integers >= {low}, got {_short(value)}")
    return tuple(value)


def regular_grid(value: Any, shape: tuple[int, ...], field: str, what: str) -> Grid:
    """The grid of chunks of one shape. Raises: MetadataError."""
    chunks = integers(value, field, what, low=1)
    if len(chunks) != len(shape):
        raise MetadataError(f"{what}: field {field!r} has {len(chunks)} dimensions, the shape {len(shape)}")
    return tuple(RegularAxis(extent, length) for extent, length in zip(shape, chunks, strict=True))


def no_others(document: Mapping[str, Any], known: tuple[str, ...], field: str, what: str) -> None:
    """Refuse fields that are not known, which could change the meaning of the others. Raises: MetadataError."""
    for name in document:
        if name not in known:
            raise MetadataError(f"{what}: field {field!r} has an unknown field {name!r}; known are {', '.join(known)}")


def attributes_of(value: Any, what: str) -> dict[str, Any]:
    """The user attributes. Raises: MetadataError."""
    if not isinstance(value, dict):
        raise MetadataError(f"{what}: field 'attributes' must be an object, got {_short(value)}")
    return value


def expect(value: Any, allowed: tuple[Any, ...], field: str, what: str) -> Any:
    """A field that has one of a few values. Raises: MetadataError."""
    if isinstance(value, bool) or value not in allowed:
        names = " or ".join(map(repr, allowed))
        raise MetadataError(f"{what}: field {field!r} must be {names}, got {_short(value)}")
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


# -- documents that are parsed once ------------------------------------------------------------------------------------

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
