"""Migrates arrays and groups from Zarr v2 to v3 in place: documents are written, chunks stay where they are.

Rules. A v3 array can name its chunks as v2 does (``chunk_key_encoding`` "v2") and encode them alike, so that no chunk
is touched. Everything is planned before anything is written. The outermost document comes last: readers see v2 until
then, and a migration that was interrupted can be repeated: what has a document of v3 keeps it.
"""

from dataclasses import dataclass, replace
from typing import Any

from gzarr.copying.arrays import same_objects
from gzarr.copying.planning import new_meta
from gzarr.copying.sources import from_array
from gzarr.errors import MetadataError, NodeNotFoundError
from gzarr.errors.escaping import as_lines
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.options import OpenedWith
from gzarr.hierarchy.reaching import reach_node
from gzarr.indexing.keys import join_path
from gzarr.metadata.consolidated import consolidate
from gzarr.metadata.documents import descendants, read_node, write_node
from gzarr.metadata.model import ArrayMeta, GroupMeta, NodeMeta
from gzarr.storage.base import Store

_V2 = (".zarray", ".zgroup", ".zattrs")
_CONSOLIDATED = ".zmetadata"


@dataclass(frozen=True, slots=True, repr=False)
class Migration:
    """What a migration did, or would do.

    Attributes
    ----------
    written : tuple of str
        Keys of the new documents.
    removed : tuple of str
        Keys of the documents of v2 that were deleted.
    dry_run : bool
        Whether nothing was done.
    """

    written: tuple[str, ...]
    removed: tuple[str, ...]
    dry_run: bool

    def __repr__(self) -> str:
        written, removed = ("dry run: would write", "dry run: would delete") if self.dry_run else ("wrote", "deleted")
        lines = [f"{written} metadata of v3:", *(f"  {key}" for key in self.written)] if self.written else []
        if self.removed:
            lines += [f"{removed} metadata of v2:", *(f"  {key}" for key in self.removed)]
        return as_lines(lines)


def migrate(store: Any, *, remove_v2: bool = False, dry_run: bool = False) -> Migration:
    """Migrate an array, or a group with everything in it, from Zarr v2 to v3, without touching a chunk.

    Parameters
    ----------
    store : path, URL or store
        Where the node is.
    remove_v2 : bool, default False
        Whether to delete the documents of v2 after those of v3 have been written. Until then, programs that know only
        v2 can read the node; they must not write to it any more.
    dry_run : bool, default False
        Whether to only say what would be done.

    Returns
    -------
    Migration
        What was done.

    Raises
    ------
    NodeNotFoundError
        If there is nothing of Zarr v2.
    MetadataError
        If an array cannot be described in v3 without rewriting its chunks. Nothing is written.

    Examples
    --------
    >>> import gzarr
    >>> from gzarr.copying.migrating import migrate
    >>> store = gzarr.MemoryStore()
    >>> z = gzarr.array([1, 2, 3], store=store, zarr_format=2)
    >>> migrate(store).written
    ('zarr.json',)
    >>> gzarr.open(store, mode="r").zarr_format
    3
    """
    opened, path, _, opened_with = reach_node(store, None, "r" if dry_run else "r+", "cpu", {})
    opened = opened.live()
    root = read_node(opened, path, 2)
    if root is None:
        raise NodeNotFoundError(f"there is nothing of Zarr v2 at {join_path(str(opened), path)!r}; check the path")
    below = [] if isinstance(root, ArrayMeta) else list(descendants(opened, path, 2))
    nodes = [*((join_path(path, inner), meta) for inner, meta in reversed(below)), (path, root)]  # groups come last
    planned = [(at, _in_v3(opened, at, meta, opened_with)) for at, meta in nodes if read_node(opened, at, 3) is None]
    keys = [join_path(at, name) for at, _ in nodes for name in (*_V2, _CONSOLIDATED)]
    there = [key for key, found in zip(keys, opened.contains_many(keys), strict=True) if found]
    removed = tuple(there if remove_v2 else ())
    if not dry_run:
        for at, meta in planned:
            write_node(opened, at, meta)
        for key in there:
            if key.endswith(_CONSOLIDATED):
                consolidate(opened, key.rpartition("/")[0])
        opened.delete_many(removed)
    return Migration(tuple(join_path(at, "zarr.json") for at, _ in planned), removed, dry_run)


def _in_v3(store: Store, path: str, before: NodeMeta, opened_with: OpenedWith) -> NodeMeta:
    """A node's metadata in v3; those of an array have the same chunks under the same keys. Raises MetadataError."""
    if isinstance(before, GroupMeta):
        return GroupMeta(before.attributes, 3)
    array = Array(store, path, before, opened_with)
    try:
        after = replace(new_meta(from_array(array), {"zarr_format": 3}), keys=before.keys, grid=before.grid)
    except MetadataError as error:
        raise MetadataError(f"{array.store_path}: {error}") from error
    if not same_objects(before, after):
        raise MetadataError(
            f"{array.store_path}: Zarr v3 cannot describe its chunks as they are; copy it, with zarr_format=3"
        )
    return after
