"""Checks the keywords that many functions share: mode and format."""

from __future__ import annotations

from typing import Any

from gzarr.errors import MetadataError
from gzarr.hierarchy import new_nodes
from gzarr.hierarchy.keywords import OpenMode


def take_mode(mode: OpenMode | None, keywords: dict[str, Any]) -> OpenMode | None:
    """Return the mode, "r" for ``read_only=True``, after a check that creation knows all other keywords.

    Raises TypeError for unknown keywords, even if an array exists and none of them would be used.
    """
    if keywords.pop("read_only", False):
        if mode not in (None, "r"):
            raise ValueError(f"read_only=True and mode={mode!r} contradict each other")
        mode = "r"
    given = {name: value for name, value in keywords.items() if name not in new_nodes.ELSEWHERE}
    if given:
        new_nodes.options_from(given, "mode")
    return mode


def checked_format(zarr_format: Any) -> Any:
    """Return a Zarr format, or None. Raises MetadataError if it is neither."""
    if zarr_format not in (None, 2, 3):
        raise MetadataError(f"zarr_format must be 2, 3 or None, got {zarr_format!r}")
    return zarr_format
