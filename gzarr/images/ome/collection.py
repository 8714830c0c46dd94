"""Creates collections of images: a group with several, and a list of them, as bioformats2raw makes them.

Source: OME-Zarr 0.4 and 0.5, "bioformats2raw.layout" metadata.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gzarr.api.groups import open_group
from gzarr.errors import MetadataError
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.keywords import GroupKeywords


def create_collection(store: Any, names: Sequence[str], given: Mapping[str, Any]) -> tuple[Group, dict[str, Any]]:
    """Create a collection, as yet without its images.

    Parameters
    ----------
    store : Store, path, URL or mapping
        Where.
    names : sequence of str
        Paths of the images in it.
    given : mapping
        Keywords of `create_image`, of which this takes those that say how the store and the device are used.

    Returns
    -------
    tuple
        The group, and the keywords that are left for the images.

    Raises
    ------
    MetadataError
        If the names are none, or not different.
    ContainsArrayError, ContainsGroupError
        If something is stored there and ``overwrite`` is false.
    """
    if isinstance(names, str) or not names or len(set(names)) < len(names) or "OME" in names:
        raise MetadataError(f"positions: expected different names of images, none of them 'OME', got {names!r}")
    left = dict(given)
    reach = {name: left.pop(name) for name in (*GroupKeywords.__annotations__, "device") if name in left}
    version, path, overwrite = left.get("version", "0.5"), left.pop("path", None), left.pop("overwrite", False)
    if version not in ("0.4", "0.5"):
        raise MetadataError(f"version: {version!r} is not written; choose '0.5' or '0.4'")
    root = open_group(store, "w" if overwrite else "w-", path=path, zarr_format=2 if version == "0.4" else 3, **reach)
    fields = collection_attributes(names, version)
    root.attrs.put(fields[""])
    root.create_group("OME").attrs.put(fields["OME"])
    return root, left


def collection_attributes(names: Sequence[str], version: str) -> dict[str, dict[str, Any]]:
    """The attributes of a collection's groups, by path. names: paths of the images."""
    return {
        "": _fields({"bioformats2raw.layout": 3}, version),
        "OME": _fields({"series": list(names)}, version),
    }


def _fields(fields: dict[str, Any], version: str) -> dict[str, Any]:
    return {"ome": {"version": version, **fields}} if version == "0.5" else fields
