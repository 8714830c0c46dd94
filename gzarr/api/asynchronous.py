"""The functions of gzarr as coroutines: zarr-python's ``zarr.api.asynchronous``.

Each runs on a thread, takes the arguments of the function of its name in `gzarr`, and gives an `AsyncArray` or
`AsyncGroup` where that gives an array or a group.
"""

from __future__ import annotations

from gzarr.api import consolidated
from gzarr.api import create as creating
from gzarr.api import create_hierarchy as creating_many
from gzarr.api import open as opening
from gzarr.api import save as saving
from gzarr.hierarchy.asynchronous import awaited, iterating

array = awaited(creating.array)
consolidate_metadata = awaited(consolidated.consolidate_metadata)
create = awaited(creating.create)
create_array = awaited(creating.create_array)
create_group = awaited(opening.create_group)
create_hierarchy = iterating(creating_many.create_hierarchy)
empty = awaited(creating.empty)
empty_like = awaited(creating.empty_like)
from_array = awaited(creating.from_array)
full = awaited(creating.full)
full_like = awaited(creating.full_like)
group = awaited(opening.group)
load = awaited(saving.load)
ones = awaited(creating.ones)
ones_like = awaited(creating.ones_like)
open = awaited(opening.open)
open_array = awaited(opening.open_array)
open_consolidated = awaited(consolidated.open_consolidated)
open_group = awaited(opening.open_group)
open_like = awaited(opening.open_like)
save = awaited(saving.save)
save_array = awaited(saving.save_array)
save_group = awaited(saving.save_group)
tree = awaited(opening.tree)
zeros = awaited(creating.zeros)
zeros_like = awaited(creating.zeros_like)

__all__ = [
    "array",
    "consolidate_metadata",
    "create",
    "create_array",
    "create_group",
    "create_hierarchy",
    "empty",
    "empty_like",
    "from_array",
    "full",
    "full_like",
    "group",
    "load",
    "ones",
    "ones_like",
    "open",
    "open_array",
    "open_consolidated",
    "open_group",
    "open_like",
    "save",
    "save_array",
    "save_group",
    "tree",
    "zeros",
    "zeros_like",
]
