"""The arrays of an image's levels: made like level 0, put into their places, and taken away again."""

import math
from collections.abc import Sequence
from dataclasses import replace

from gzarr.errors import OVERWRITE, ArrayNotFoundError, ContainsArrayError, MetadataError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.create import check_vacant
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.resizing import objects_stored
from gzarr.images.ome.documents import Multiscale, write_multiscale
from gzarr.images.pyramid.levels import PyramidLevel
from gzarr.indexing.grid import RegularAxis
from gzarr.indexing.keys import join_path
from gzarr.metadata.conventions import ATTRIBUTE, MASK, NODATA
from gzarr.metadata.documents import delete_node, read_node, write_node
from gzarr.metadata.model import ArrayMeta, NodeMeta

#: What attributes say of axes and missing data; other attributes of level 0 are its own.
_OF_ALL_LEVELS = (ATTRIBUTE, MASK, NODATA)
#: Shards of levels are gathered in memory; larger ones than this, decoded, are not made.
SHARD_NBYTES = 32 << 20


def level_array(group: Group, base: Array, level: PyramidLevel) -> Array:
    """The array of a level, which may not be stored yet: like level 0, but of another shape, with chunks no longer."""
    if not all(isinstance(axis, RegularAxis) for axis in base.metadata.grid):
        raise MetadataError(f"{base.store_path} has chunks of several sizes; rechunk it first, with gzarr.transfer")
    kept = {key: value for key, value in base.metadata.attributes.items() if key in _OF_ALL_LEVELS}
    meta = replace(base.metadata.resized(level.shape), attributes=kept)
    axes = zip(level.shape, base.shape, base.chunks, strict=True)  # one that is not reduced may grow
    cut = [n if extent == whole else min(n, extent) for extent, whole, n in axes]
    lengths = cut if base.shards is None else _level_shards(base)
    meta = replace(meta, grid=tuple(map(RegularAxis, level.shape, lengths)))
    return Array(
        group.store,
        join_path(group.path, level.path),
        meta,
        base.opened_with,
        write_empty_chunks=base.write_empty_chunks,
    )


def _level_shards(base: Array) -> tuple[int, ...]:
    """The shards of levels: those of level 0, in halves until one fits into memory beside those of other levels."""
    chunks = base.chunks
    counts = [s // c for s, c in zip(base.shards or chunks, chunks, strict=True)]
    while math.prod(counts) * math.prod(chunks) * base.itemsize > SHARD_NBYTES and max(counts) > 1:
        axis = counts.index(max(counts))
        counts[axis] = -(-counts[axis] // 2)
    return tuple(n * c for n, c in zip(counts, chunks, strict=True))


def is_bare(group: Group, first: str) -> bool:
    """Whether a group has no more than what comes before the first note of a build: an array without chunks.

    first: path of level 0.
    """
    if group.attrs.asdict() or set(group) - {first}:
        return False
    array = group.get(first)
    return array is None or (isinstance(array, Array) and not objects_stored(array.metadata, array.store, array.path))


def take_off_levels(group: Group, multiscale: Multiscale, replaced: Sequence[str]) -> None:
    """Take the levels above level 0 out of the metadata, and delete those that are not replaced by a build."""
    write_multiscale(group, replace(multiscale, datasets=multiscale.datasets[:1]))
    for dataset in multiscale.datasets[1:]:
        path = join_path(group.path, dataset.path)
        if path not in replaced:
            delete_node(group.store, path)


def create_level(level: Array, *, overwrite: bool, was_begun: bool = False, keep: bool = False) -> None:
    """Write the documents of a level.

    was_begun: whether what is in its place is of an earlier build. keep: whether that is gone on with.
    Raises: ContainsArrayError if something else is in its place.
    """
    store, path = level.store, level.path
    found = read_node(store.live(), path)
    if was_begun and keep and isinstance(found, ArrayMeta) and _same(found, level.metadata):
        return
    if found is not None and overwrite:
        delete_node(store, path)
        found = None
    try:
        check_place(level, found)
    except ArrayNotFoundError:
        if not was_begun:
            raise
        delete_node(store, path)  # chunks of a level that was being deleted
    write_node(store, path, level.metadata)


def check_place(level: Array, found: NodeMeta | None) -> None:
    """Check that nothing is where a level is to be. found: the node there.

    Raises: ContainsArrayError; ArrayNotFoundError for what is no node.
    """
    if found is not None:
        raise ContainsArrayError(
            f"something is already stored at {str(level.store_path)!r}, where a level of the image is to be: pass "
            f"{OVERWRITE} to replace it"
        )
    check_vacant(level.store, level.path, ArrayNotFoundError)


def _same(one: ArrayMeta, other: ArrayMeta) -> bool:
    return (one.shape, one.data_type, one.grid) == (other.shape, other.data_type, other.grid)
