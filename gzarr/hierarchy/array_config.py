"""How an array object reads and writes, none of which is stored: ``array.config`` and ``config=``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from gzarr.errors import MetadataError


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
