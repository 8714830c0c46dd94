"""Stores a batch whose objects are partly covered, on stores that replace an object only if it is unchanged.

Theory of operation. The old objects are read with tags of their versions, merged, and stored if they still have these
versions. What another process replaced meanwhile is read and merged again. Objects that are covered whole are stored in
the same call, without a condition: whoever is merging one of them is refused, and begins again with the new bytes.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import compress
from operator import not_
from typing import TypeAlias

from gzarr.profiling.recorder import count_bytes, staged
from gzarr.storage.base import Buffer, Store
from gzarr.storage.capabilities import ANY, Change, Conditional, Versioned
from gzarr.storage.changing import attempts, given_up

#: Gives the new bytes of some objects of a batch, by their positions; None for those that are now empty. Arguments: the
#: positions, the old bytes, and whether empty chunks are stored whatever the array says.
Build: TypeAlias = Callable[[Sequence[int], Sequence[Buffer | None], bool], list[Buffer | None]]


def merge_unless_replaced(
    store: Store,
    conditional: Conditional,
    objects: tuple[Sequence[str], Sequence[bool]],
    build: Build,
    check: Callable[[], object] | None = None,
) -> None:
    """Merge and store the objects of a batch. Raises: what `build` and `check` raise, StoreError.

    objects: their keys, and which of them are covered whole. check: called when old objects were read; they are stored
        only if nothing has changed them since.
    """
    keys, whole = objects
    left: Sequence[int] = range(len(keys))
    for _ in attempts():
        merged = [keys[i] for i in left if not whole[i]]
        old = dict(zip(merged, staged("load old", conditional.get_tagged, merged, count=_count_tagged), strict=True))
        if check is not None:
            check()
        found = [None if whole[i] else old[keys[i]] for i in left]
        stored = [None if item is None else item.data for item in found]
        built = build(left, stored, False)
        if not conditional.deletes:
            built = _never_empty(left, stored, built, build)
        changes = {
            i: Change(keys[i], data, ANY if whole[i] else item and item.version)
            for i, item, data in zip(left, found, built, strict=True)
            if whole[i] or item is not None or data is not None  # else it was empty, and stays so
        }
        count = partial(_count_changes, list(changes.values()))
        done = staged("store", conditional.set_if, list(changes.values()), count=count) if changes else []
        left = list(compress(changes, map(not_, done)))
        if not left:
            return
    raise given_up(store, keys[left[0]])


def _count_tagged(found: Iterable[Versioned | None]) -> tuple[int, int, int]:
    return count_bytes([item and item.data for item in found])


def _count_changes(changes: Sequence[Change], _done: Sequence[bool]) -> tuple[int, int, int]:
    return count_bytes([change.value for change in changes])


def _never_empty(
    left: Sequence[int], stored: Sequence[Buffer | None], built: list[Buffer | None], build: Build
) -> list[Buffer | None]:
    """Build objects that became empty by merging with their fill values, where the store cannot delete them safely."""
    emptied = [n for n, (old, new) in enumerate(zip(stored, built, strict=True)) if old is not None and new is None]
    if emptied:
        for n, data in zip(emptied, build([left[n] for n in emptied], [stored[n] for n in emptied], True), strict=True):
            built[n] = data
    return built
