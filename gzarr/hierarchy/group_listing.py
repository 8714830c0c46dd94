"""Lists what is in a group and below it."""

from __future__ import annotations

from collections.abc import Iterator

from gzarr.hierarchy.node import Node
from gzarr.indexing.keys import join_path
from gzarr.metadata.documents import members
from gzarr.metadata.model import GroupMeta, NodeMeta


def descendants(group: Node[GroupMeta], max_depth: int | None) -> Iterator[tuple[str, NodeMeta]]:
    """Iterate over everything in a group, groups before their members: (path from the group, metadata).

    max_depth: how many levels to go down; 0 lists the group's own members, None lists all.
    """
    zarr_format = group.metadata.zarr_format
    levels = [("", members(group.store, group.path, zarr_format))]
    while levels:  # not by recursion: an archive may be deeper than Python allows
        prefix, listed = levels[-1]
        for name, meta in listed:
            path = prefix + name
            yield path, meta
            if isinstance(meta, GroupMeta) and (max_depth is None or path.count("/") < max_depth):
                levels.append((f"{path}/", members(group.store, join_path(group.path, path), zarr_format)))
                break
        else:
            levels.pop()
