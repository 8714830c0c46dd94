"""Images of labels that belong to an image."""

from __future__ import annotations

from gzarr.hierarchy.group import Group
from gzarr.images.documents import ome_attributes


def label_names(group: Group) -> list[str]:
    """Names of the images of labels that belong to the image in a group."""
    found = group.get("labels")
    if not isinstance(found, Group):
        return []
    listed = ome_attributes(found.attrs.asdict(), group.metadata.zarr_format).get("labels")
    return [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
