"""Takes the keywords that many functions share out of a call: mode, format, device and how a node is reached."""

from __future__ import annotations

from typing import Any

from gzarr.backend import Backend
from gzarr.devices import DEVICE_OPTIONS, take_backend
from gzarr.errors import MetadataError
from gzarr.hierarchy import new_nodes
from gzarr.hierarchy.open_options import NAMES as OPEN_OPTIONS
from gzarr.hierarchy.open_options import OpenedWith, OpenOptions, take_open_options
from gzarr.hierarchy.options import unknown_keyword


def take_mode(mode: str | None, keywords: dict[str, Any]) -> str | None:
    """Return the mode, "r" for ``read_only=True``, after a check that creation knows all other keywords.

    Raises TypeError for unknown keywords, even if an array exists and none of them would be used.
    """
    if keywords.pop("read_only", False):
        if mode not in (None, "r"):
            raise ValueError(f"read_only=True and mode={mode!r} contradict each other")
        mode = "r"
    elsewhere = ("data", "overwrite", "device", "write_data", *OPEN_OPTIONS, *DEVICE_OPTIONS)
    given = {name: value for name, value in keywords.items() if name not in elsewhere}
    if given:
        new_nodes.options_from(given)
    return mode


def checked_format(zarr_format: Any) -> Any:
    """Return a Zarr format, or None. Raises MetadataError if it is neither."""
    if zarr_format not in (None, 2, 3):
        raise MetadataError(f"zarr_format must be 2, 3 or None, got {zarr_format!r}")
    return zarr_format


def take_node_options(device: str | Backend | None, keywords: dict[str, Any]) -> tuple[OpenOptions, OpenedWith]:
    """Take the keywords that say how a node is reached, and on which device, out of a call's keywords."""
    options = take_open_options(keywords)
    return options, options.opened_with(OpenedWith(take_backend(options.device(device), keywords)))


def take_group_options(device: str | Backend | None, keywords: dict[str, Any]) -> tuple[OpenOptions, OpenedWith]:
    """`take_node_options` for a group. Raises TypeError for other keywords, except one of zarr that changes nothing."""
    taken = take_node_options(device, keywords)
    for name, value in keywords.items():
        if name != "cache_attrs":
            raise unknown_keyword(name, {*OPEN_OPTIONS, *DEVICE_OPTIONS, "device", "storage_options"})
        if value not in (None, True, False):
            raise MetadataError(f"the keyword {name!r} has no such value; leave it out")
    return taken
