"""The functions of gzarr as coroutines: zarr-python's ``zarr.api.asynchronous``.

Each runs on a thread, takes the arguments of the function of its name in `gzarr`, and gives an `AsyncArray` or
`AsyncGroup` where that gives an array or a group.
"""

from typing import TYPE_CHECKING, Any

from gzarr.api import consolidated, groups, like, save
from gzarr.api import create as creating
from gzarr.api import open as opening
from gzarr.hierarchy.asynchronous import awaited, iterating

_NAMES = {
    creating: "array create create_array empty full ones zeros",
    like: "empty_like from_array full_like ones_like zeros_like",
    opening: "open open_array open_like",
    groups: "create_group group open_group tree",
    consolidated: "consolidate_metadata open_consolidated",
    save: "load save save_array save_group",
}
globals().update({name: awaited(getattr(home, name)) for home, names in _NAMES.items() for name in names.split()})
create_hierarchy = iterating(groups.create_hierarchy)

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


__all__ = sorted({"create_hierarchy", *" ".join(_NAMES.values()).split()})  # noqa: PLE0605
