"""Checks keywords that many functions share."""

from __future__ import annotations

from typing import Any

from gzarr.hierarchy.keywords import OpenMode


def take_mode(mode: OpenMode | None, keywords: dict[str, Any]) -> OpenMode | None:
    """Return the mode, "r" for ``read_only=True``, which is taken out of the keywords."""
    if keywords.pop("read_only", False):
        if mode not in (None, "r"):
            raise ValueError(f"read_only=True and mode={mode!r} contradict each other")
        mode = "r"
    return mode
