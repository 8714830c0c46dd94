"""The options of a new array, how an array object reads and writes, and the marker for an option not given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from dataclasses import field as dataclass_field
from inspect import signature
from typing import Any, Literal

from gzarr.errors import MetadataError


class _Unset:
    """Marks keywords that were not given, where None means something."""

    def __repr__(self) -> str:
        return "<default>"


UNSET: Any = _Unset()
#: Keywords of zarr that change nothing here: metadata are always cached, chunks are decoded in part where possible.
HARMLESS = frozenset({"cache_metadata", "cachesize", "cache_type", "partial_decompress"})
#: The similarity from which a name is taken for a misspelt keyword, between "storre" as "store" and as "stream".
_CLOSE = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayOptions:
    """The options of a new array. Each field is a keyword of the creation functions.

    Attributes
    ----------
    shape : int or sequence of int
        Extents.
    dtype : dtype-like, optional
        Anything that `gzarr.dtypes.parse_dtype` takes; "array:i4" for elements that are arrays of a type. By default
        float64.
    chunks : optional
        See `gzarr.indexing.chunking.parse_chunks`.
    shards : tuple, dict, "auto" or None
        Shape of the shards; None for none.
    compressor : codec, None or "default", optional
        One codec (numcodecs object, gzarr or zarr-python codec, dict), or None for none.
    compressors : codec, sequence of codecs, None or "auto", optional
        One or several such codecs, or None for none.
    filters : codec or sequence of codecs, optional
        Codecs between the array and its bytes.
    serializer : codec, optional
        The codec from array to bytes.
    codecs : sequence of codecs, optional
        The whole chain instead of the four above; a missing serializer is added.
    object_codec : codec, optional
        For ``dtype=object``: the numcodecs codec that turns objects into bytes.
    fill_value : scalar, optional
        Value of unwritten elements; None is "undefined" in v2 and the data type's default in v3.
    order : {"C", "F"}, optional
        Memory order in chunks.
    zarr_format : {2, 3}, optional
        By default the configured format, but 2 for arrays of Python objects.
    attributes : mapping
        User attributes.
    dimension_names : sequence of str or None, optional
        Names of the axes (v3).
    dimension_separator : {".", "/"}, optional
        Separator of the chunk coordinates in keys.
    chunk_key_encoding : str, mapping or object, optional
        {"name": "default" or "v2", "separator": "/" or "."}; v2 arrays have "v2".
    read_missing_chunks : bool, optional
        Whether chunks that are not stored are read as the fill value.
    write_empty_chunks : bool, optional
        Whether chunks equal to the fill value are stored.
    layout : str, optional
        "gpu" for chunks, shards and a compressor that suit GPUs, where none are given (`gzarr.hierarchy.presets`);
        "gpu:batch", "gpu:plane", "gpu:volume" or "gpu:random" if it is known how the array will be read.
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
    read_missing_chunks: bool | None = None
    layout: str | None = None


def check_keywords(given: Iterable[str], typed: type, function: Callable[..., Any]) -> None:
    """Raise TypeError for a keyword that is no field of the TypedDict of a function; suggest one that it takes."""
    name = next((name for name in given if name not in typed.__annotations__), None)
    if name is None:
        return
    if name == "maxshape":
        raise TypeError("unknown keyword 'maxshape'; leave it out: every array can be resized")
    from difflib import get_close_matches

    named = {
        p.name for p in signature(function).parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }
    known = sorted(named - {"self", name} | typed.__annotations__.keys())
    near = get_close_matches(name, known, 1, _CLOSE)
    hint = f"did you mean {near[0]!r}?" if near else f"known keywords: {', '.join(known)}"
    raise TypeError(f"unknown keyword {name!r}; {hint}")


def is_default(value: Any) -> bool:
    """Return whether a keyword for codecs leaves the choice open."""
    return value is UNSET or (isinstance(value, str) and value in ("auto", "default"))


def as_list(value: Any) -> list[Any]:
    """Return one or several codecs as a list."""
    if value is None:
        return []
    return list(value) if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else [value]


@dataclass(frozen=True, slots=True)
class ArrayConfig:
    """How an array object reads and writes.

    Attributes
    ----------
    order : {"C", "F"}
        Memory order of the elements in a chunk.
    write_empty_chunks : bool
        Whether chunks equal to the fill value are stored.
    read_missing_chunks : bool
        Whether chunks that are not stored are read as the fill value, instead of raising `ChunkNotFoundError`.
    """

    order: Literal["C", "F"] = "C"
    write_empty_chunks: bool = False
    read_missing_chunks: bool = True


_NAMES = tuple(field.name for field in fields(ArrayConfig))
#: Of zarr-python's, which change nothing here: requests are joined by rules of the store.
_HARMLESS = frozenset({"sharding_coalesce_max_gap_bytes", "sharding_coalesce_max_bytes"})


def given_config(value: Any) -> dict[str, Any]:
    """Return what a ``config=`` sets: an `ArrayConfig`, one of zarr-python, a mapping or None.

    Raises TypeError for names that are none of its fields, MetadataError for values that those cannot have.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        value = {name: getattr(value, name) for name in _NAMES if hasattr(value, name)}
    unknown = sorted(value.keys() - {*_NAMES, *_HARMLESS})
    if unknown:
        raise TypeError(f"config has no {', '.join(map(repr, unknown))}; it has {', '.join(_NAMES)}")
    given = {name: value[name] for name in _NAMES if value.get(name) is not None}
    for name, item in given.items():
        allowed: tuple[Any, ...] = ("C", "F") if name == "order" else (True, False)
        if item not in allowed:
            raise MetadataError(f"config: {name} must be {' or '.join(map(repr, allowed))}, got {item!r}")
    return given


def given_usage(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a caller's keywords say of how an array object reads and writes: those of `Array`."""
    given = {name: keywords.get(name) for name in ("write_empty_chunks", "read_missing_chunks")}
    if keywords.get("config") is None:
        return given
    asked = given_config(keywords.get("config"))
    return {name: asked.get(name) if value is None else value for name, value in given.items()}
