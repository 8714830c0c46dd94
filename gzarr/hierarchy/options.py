"""Everything that the creation functions can be told of a new array, as one record, and how "nothing" is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any


class _Unset:
    """Marks keywords that were not given, where None means something."""

    def __repr__(self) -> str:
        return "<default>"


UNSET: Any = _Unset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayOptions:
    """Everything that can be said of a new array; each field is a keyword of the creation functions.

    Attributes:
        shape: extents; an int for one dimension.
        dtype: anything that `gzarr.dtypes.parse_dtype` takes; float64 if nothing is said; "array:i4" for elements that
            are arrays of a type.
        chunks: see `gzarr.indexing.chunking.parse_chunks`.
        shards: shape of the shards, "auto", or None for none.
        compressor: one codec (numcodecs object, gzarr or zarr-python codec, dict), None for none, or "default".
        compressors: one or several such codecs, None for none, or "auto".
        filters: codecs between the array and its bytes.
        serializer: the codec from array to bytes.
        codecs: the whole chain instead of the four above; a missing serializer is put in.
        object_codec: for ``dtype=object``: the numcodecs codec that turns objects into bytes.
        fill_value: what unwritten elements are; None is "undefined" in v2 and the dtype's default in v3.
        order: "C" or "F", the memory order in chunks.
        zarr_format: 2 or 3; if nothing is said, the configured default, but 2 for arrays of Python objects.
        attributes: user attributes.
        dimension_names: names of the axes (v3).
        dimension_separator: what stands between chunk coordinates in keys.
        chunk_key_encoding: {"name": "default" or "v2", "separator": "/" or "."}; v2 arrays have "v2".
        write_empty_chunks: whether chunks equal to the fill value are stored.
        layout: "gpu" for chunks, shards and a compressor that suit GPUs, where none are given
            (`gzarr.hierarchy.presets`); "gpu:batch", "gpu:plane", "gpu:volume" or "gpu:random" if it is known how the
            array will be read.
    """

    shape: Any = None
    dtype: Any = None
    chunks: Any = None
    shards: Any = None
    compressor: Any = UNSET
    compressors: Any = UNSET
    filters: Any = UNSET
    serializer: Any = UNSET
    codecs: Any = UNSET
    object_codec: Any = None
    fill_value: Any = UNSET
    order: Any = None
    zarr_format: Any = None
    attributes: Mapping[str, Any] = dataclass_field(default_factory=dict)
    dimension_names: Any = None
    dimension_separator: Any = None
    chunk_key_encoding: Any = None
    write_empty_chunks: bool | None = None
    layout: str | None = None


def is_default(value: Any) -> bool:
    """Whether a keyword for codecs leaves the choice open."""
    return value is UNSET or (isinstance(value, str) and value in ("auto", "default"))


def as_list(value: Any) -> list[Any]:
    """One or several codecs as a list."""
    if value is None:
        return []
    return list(value) if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else [value]
