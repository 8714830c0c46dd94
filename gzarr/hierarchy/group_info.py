"""What a group shows of itself: its report, its tree and its page in a notebook."""

from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import Any

from gzarr.display.info import Report, Tree
from gzarr.errors.escaping import escaped
from gzarr.hierarchy.node import Node
from gzarr.indexing.keys import join_path
from gzarr.metadata.conventions import UNREADABLE
from gzarr.metadata.documents import members
from gzarr.metadata.model import ArrayMeta, GroupMeta
from gzarr.storage.wrappers import full_type_name, type_name

#: How many members and levels of a group a notebook shows: listing costs one request for each group.
_MAX_MEMBERS, _MAX_LEVELS = 40, 3


def group_report(group: Node[GroupMeta]) -> Report:
    """Return the report that ``group.info`` shows."""
    listed = list(members(group.store, group.path, group.metadata.zarr_format))
    array_names = [name for name, meta in listed if isinstance(meta, ArrayMeta)]
    group_names = [name for name, meta in listed if isinstance(meta, GroupMeta)]
    return Report(
        [
            ("Name", group.name),
            ("Type", "gzarr.Group"),
            ("Zarr format", str(group.metadata.zarr_format)),
            ("Read-only", str(group.read_only)),
            ("Store type", full_type_name(group.store)),
            ("No. members", str(len(listed))),
            ("No. arrays", str(len(array_names))),
            ("No. groups", str(len(group_names))),
            *([("Arrays", ", ".join(array_names))] if array_names else []),
            *([("Groups", ", ".join(group_names))] if group_names else []),
            *(("Left out", f"{name}: {why}") for name, why in left_out(group.metadata.attributes).items()),
        ]
    )


def left_out(attributes: Mapping[str, Any]) -> dict[str, str]:
    """Why members and attributes of a node in a file of another format cannot be read, by name."""
    found = attributes.get(UNREADABLE)
    return found if isinstance(found, dict) else {}


def trees_left_out(meta: GroupMeta) -> list[Tree]:
    """The same, as parts of a tree."""
    return [Tree(f"{escaped(name)}: {escaped(str(why))}") for name, why in left_out(meta.attributes).items()]


def group_page(group: Node[GroupMeta]) -> str:
    """Return what a notebook shows of a group, as HTML."""
    facts = [
        ("Group", str(group.store_path)),
        ("Device", group.device),
        ("Store", f"{type_name(group.store)}{', read-only' if group.read_only else ''}"),
        ("Format", f"Zarr v{group.metadata.zarr_format}"),
        *([("Attributes", ", ".join(group.attrs))] if group.attrs else []),
    ]
    tree = group_tree(group, _MAX_LEVELS, _MAX_MEMBERS)
    return f"<div>{Report(facts)._repr_html_()}{tree._repr_html_()}</div>"


def group_tree(group: Node[GroupMeta], level: int | None, max_nodes: int | None) -> Tree:
    """Return the hierarchy below a group, down to a number of levels and of nodes; None has no limit."""
    budget = repeat(0) if max_nodes is None else iter(range(max_nodes))
    store, zarr_format, truncated = group.store, group.metadata.zarr_format, False

    def below(path: str, level: int | None) -> Iterator[Tree]:
        nonlocal truncated
        deeper = None if level is None else level - 1
        for name, meta in members(store, path, zarr_format) if level != 0 else ():
            if truncated or next(budget, None) is None:
                truncated = True
                return
            if isinstance(meta, ArrayMeta):
                yield Tree(f"{escaped(name)} {meta.shape} {meta.data_type.name}")
            else:
                yield Tree(escaped(name), [*below(join_path(path, name), deeper), *trees_left_out(meta)])

    children = [*below(group.path, level), *trees_left_out(group.metadata)]
    note = f"Truncated at max_nodes={max_nodes}: some arrays and groups are missing\n" if truncated else ""
    return Tree(note + escaped(group.basename or "/"), children)
