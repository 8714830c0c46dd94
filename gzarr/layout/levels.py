"""Levels of sharding: how shards nest, and new shards from old ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from gzarr.indexing.keys import Coords
from gzarr.layout.shard import MISSING, Coder, assemble, decode_index, slice_entry, split_index
from gzarr.storage.base import Buffer, host_view


class Level(NamedTuple):
    """One level of sharding, for shards of one shape.

    Attributes:
        chunk_shape: shape of the chunks of this level, in elements and array order.
        counts: chunks per shard and axis, in array order.
        order: permutation of the axes in which the index is laid out, or None.
        coder: codecs of the index.
        index_nbytes: size of the encoded index.
        location: where the index lies.
        wrap: codecs around the shard, or None.
    """

    chunk_shape: Coords
    counts: Coords
    order: Coords | None
    coder: Coder
    index_nbytes: int
    location: Literal["start", "end"]
    wrap: Coder | None

    def place(self, coords: Coords) -> Coords:
        """Coordinates of a chunk in the index."""
        return coords if self.order is None else tuple(coords[axis] for axis in self.order)


def by_owner(inner: Sequence[Level], chunks: Sequence[Coords]) -> dict[Coords, list[tuple[int, Coords]]]:
    """Group chunks, given by coordinates within a shard, by the chunk of its first level that holds them."""
    counts = [1] * len(inner[0].counts)
    for level in inner:
        counts = [a * b for a, b in zip(counts, level.counts, strict=True)]
    owners: dict[Coords, list[tuple[int, Coords]]] = {}
    for position, coords in enumerate(chunks):
        pairs = [divmod(c, n) for c, n in zip(coords, counts, strict=True)]
        owners.setdefault(tuple(p[0] for p in pairs), []).append((position, tuple(p[1] for p in pairs)))
    return owners


def rebuild(
    levels: Sequence[Level], stored: memoryview | None, changed: Mapping[Coords, Buffer | None]
) -> Buffer | None:
    """A shard's new bytes: the old ones with some chunks replaced or removed. None if nothing is left."""
    level = levels[0]
    shape = level.place(level.counts)
    entries: list[Buffer | None] = [None] * int(np.prod(shape, dtype=np.int64))
    if stored is not None:
        if level.wrap is not None:
            stored = host_view(level.wrap.decode([stored])[0])
        index = decode_index(split_index(stored, level.index_nbytes, level.location), level.coder)
        for i, (offset, size) in enumerate(index.reshape(-1, 2).tolist()):
            if offset != MISSING:
                entries[i] = slice_entry(stored, (offset, size))
    if len(levels) == 1:
        for coords, data in changed.items():
            entries[_ravel(level.place(coords), shape)] = data
    else:
        items = list(changed.items())
        for outer, members in by_owner(levels[1:], [coords for coords, _ in items]).items():
            at = _ravel(level.place(outer), shape)
            old = entries[at]
            updates = {local: items[position][1] for position, local in members}
            entries[at] = rebuild(levels[1:], None if old is None else host_view(old), updates)
    shard = assemble(entries, shape, level.coder, level.location)
    if shard is None or level.wrap is None:
        return shard
    wrapped: Buffer = level.wrap.encode([shard])[0]
    return wrapped


def _ravel(coords: Coords, shape: Coords) -> int:
    index = 0
    for c, n in zip(coords, shape, strict=True):
        index = index * n + c
    return index
