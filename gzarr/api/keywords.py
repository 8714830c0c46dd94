"""Checks the keywords that many functions share: mode and format."""

from __future__ import annotations

from typing import Any

from gzarr.errors import MetadataError
from gzarr.hierarchy.keywords import OpenMode


def take_mode(mode: OpenMode | None, keywords: dict[str, Any]) -> OpenMode | None:
    """Return the mode, "r" for ``read_only=True``, which is taken out of the keywords."""
    if keywords.pop("read_only", False):
        if mode not in (None, "r"):
            raise ValueError(f"read_only=True and mode={mode!r} contradict each other")
        mode = "r"
    return mode


def checked_format(zarr_format: Any) -> Any:
    """Return a Zarr format, or None. Raises MetadataError if it is neither."""
    if zarr_format not in (None, 2, 3):
        raise MetadataError(f"zarr_format must be 2, 3 or None, got {zarr_format!r}")
    return zarr_format
