"""Chunks of copies that are given by the names of axes, or chosen so that colours and channels stay together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from gzarr.copying.sources import Source
from gzarr.errors import CopyError
from gzarr.indexing.chunking import guess_chunks
from gzarr.metadata.conventions import split_names

#: Names of axes along which a pixel has its values, and the most elements for which they stay in one chunk.
_CHANNELS = frozenset({"c", "s", "channel", "channels", "band", "bands", "sample", "samples", "rgb", "rgba"})
_FEW_CHANNELS = 16
#: A last axis without a name of so many elements holds colours.
_COLOURS = (3, 4)


def axis_names(source: Source) -> tuple[str | None, ...]:
    """The names of a source's axes, wherever they are stored; None for those without one."""
    names = split_names(source.attributes, source.dimension_names, len(source.shape))[1]
    return (None,) * len(source.shape) if names is None else names


def is_named(lengths: Any) -> bool:
    """Whether ``chunks=`` or ``shards=`` gives lengths by the names of axes."""
    return isinstance(lengths, Mapping) and "shape" not in lengths


def check_names(keywords: Mapping[str, Any], names: Iterable[str | None], what: str) -> None:
    """Refuse lengths for axes that nothing has. Raises CopyError."""
    known = sorted({name for name in names if name is not None})
    for key in ("chunks", "shards"):
        lengths: Any = keywords.get(key)
        unknown = [name for name in lengths if name not in known] if is_named(lengths) else []
        if unknown:
            raise CopyError(f"{key}: {what} has no axis named {unknown[0]!r}; it has {', '.join(known) or 'no names'}")


def with_lengths(keywords: Mapping[str, Any], source: Source) -> dict[str, Any]:
    """Keywords with a length for every axis, where they give some by name.

    Other axes keep the source's chunks, or are whole if it has none; shards are as long as a chunk there. An array
    that has none of the axes keeps its chunks.
    """
    given, names = dict(keywords), axis_names(source)
    stored = source.options.get("chunks") if source.array is None else source.array.chunks
    for key in ("chunks", "shards"):
        if is_named(given.get(key)):
            lengths = given.pop(key)
            if any(name in lengths for name in names):
                rest = given.get("chunks", stored) or source.shape
                given[key] = tuple(lengths.get(name, length) for name, length in zip(names, rest, strict=True))
    return given


def guessed(source: Source) -> tuple[int, ...] | None:
    """Chunks for a source that has none, with colours and few channels whole; None if it has neither."""
    names, shape = axis_names(source), source.shape
    whole = {
        axis
        for axis, (name, extent) in enumerate(zip(names, shape, strict=True))
        if name is not None and name.lower() in _CHANNELS and extent <= _FEW_CHANNELS
    }
    if len(shape) > 2 and names[-1] is None and shape[-1] in _COLOURS:
        whole.add(len(shape) - 1)
    if not whole:
        return None
    others = [extent for axis, extent in enumerate(shape) if axis not in whole]
    lengths = iter(guess_chunks(others, source.itemsize * math.prod(shape[axis] for axis in whole)))
    return tuple(max(extent, 1) if axis in whole else next(lengths) for axis, extent in enumerate(shape))


def leaves_open(keywords: Mapping[str, Any]) -> bool:
    """Whether keywords leave the choice of chunks open."""
    chunks = keywords.get("chunks")
    guess = chunks is None or chunks is True or (isinstance(chunks, str) and chunks == "auto")
    return guess and keywords.get("shards") is None and keywords.get("layout") is None
