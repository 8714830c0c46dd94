"""Publishes a finished array or group in one step, so that readers see all of it or none."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from gzarr.errors import ContainsNodeError, NodeNotFoundError, StoreError
from gzarr.hierarchy.reaching import open_place
from gzarr.metadata.documents import move_node, read_node
from gzarr.metadata.occupied import unfinished_copy, unfinished_run
from gzarr.storage import LocalStore


def publish(source: Any, dest: Any) -> None:
    """Rename a finished array or group into place: readers see nothing before, and all of it afterwards.

    In Icechunk, a commit does the same: see `gzarr.transaction`.

    Parameters
    ----------
    source, dest : path
        Folders of one file system. Write to the first one, on as many machines as you like, and read the other one.

    Raises
    ------
    NodeNotFoundError
        If there is no array or group, or it is not finished.
    ContainsNodeError
        If something is at the destination.
    StoreError
        If one of the two is no folder, or they are on different file systems. Objects on servers cannot be renamed in
        one step: write to a repository of Icechunk there.

    Examples
    --------
    >>> import gzarr
    >>> gzarr.save("result.part.zarr", [1, 2, 3])
    >>> gzarr.publish("result.part.zarr", "result.zarr")
    >>> gzarr.load("result.zarr")
    array([1, 2, 3])
    """
    folders = []
    for place in (source, dest):
        store, path = place, ""
        with suppress(NodeNotFoundError):  # an archive that does not exist
            store, path = open_place(place, None, "r")
        if type(store) is not LocalStore:
            raise StoreError(f"publish: {store} is no folder, whose renaming is one step; commit to Icechunk instead")
        folders.append((store, path, Path(store.root, path)))
    (store, path, old), (_, _, new) = folders
    if read_node(store.live(), path) is None:
        raise NodeNotFoundError(f"publish: there is no array and no group at '{old}'")
    unfinished = unfinished_copy(store, path, above=False) or unfinished_run(store, path)
    if unfinished is not None:
        raise NodeNotFoundError(f"publish: '{old}' is not finished: {unfinished}")
    if os.path.lexists(new):
        raise ContainsNodeError(f"publish: something is at '{new}' already; choose another place, or delete it first")
    both = LocalStore(os.path.commonpath([old.parent, new.parent]))
    move_node(both, *(name.relative_to(both.root).as_posix() for name in (old, new)))
