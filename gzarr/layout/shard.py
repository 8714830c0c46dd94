"""Shard bytes to index table and back, and new shards from old ones: pure functions, no I/O.

A shard is a row of encoded chunks and an index: for every chunk, in C order of the chunk grid within the shard, its
offset and size as two little-endian uint64, encoded by the index codecs (normally a crc32c). A missing chunk has
2**64-1 for both. Offsets count from the start of the shard.
Source: Zarr v3 codecs, "sharding_indexed" version 1.0.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gzarr.errors import CodecError
from gzarr.indexing.keys import Coords
from gzarr.indexing.selection import Indices
from gzarr.layout.chunk_layout import MISSING
from gzarr.storage.base import Buffer, host_view


class Coder(Protocol):
    """A prepared chain of codecs on the host."""

    def decode(self, buffers: Sequence[Any]) -> list[Any]:
        """Decode a batch."""
        ...

    def encode(self, chunks: Sequence[Any]) -> list[Any]:
        """Encode a batch."""
        ...


def shard_error(why: str, index: int = 0) -> CodecError:
    """The error for a damaged shard. index: of the chunk in its batch."""
    return CodecError(why, index=index, codec="sharding_indexed")


def decode_index(encoded: Buffer, coder: Coder) -> NDArray[np.uint64]:
    """Decode an index: a uint64 array of shape (*chunks per shard, 2).

    Raises: CodecError if the index is damaged.
    """
    index: NDArray[np.uint64] = coder.decode([encoded])[0]
    entries = index.reshape(-1, 2)
    offsets, sizes = entries[:, 0], entries[:, 1]
    half = (offsets == MISSING) != (sizes == MISSING)
    if half.any() or (offsets + sizes < offsets)[offsets != MISSING].any():
        raise shard_error("the shard index holds an impossible entry")
    return index


def check_overlaps(
    index: NDArray[np.uint64], nbytes: int, index_nbytes: int, location: Literal["start", "end"]
) -> None:
    """Check that no chunk of a shard of ``nbytes`` bytes overlaps another in part, or the index.

    Chunks with the same bytes may share them. Raises: CodecError.
    """
    entries = index.reshape(-1, 2)
    entries = entries[(entries[:, 0] != MISSING) & (entries[:, 1] != 0)]
    if not len(entries):
        return
    entries = entries[np.lexsort((entries[:, 1], entries[:, 0]))]
    distinct = np.append(True, (entries[1:] != entries[:-1]).any(axis=1))
    starts, ends = entries[distinct, 0], entries[distinct].sum(axis=1)
    low, high = (index_nbytes, nbytes) if location == "start" else (0, nbytes - index_nbytes)
    if starts[0] < low or ends.max() > high:
        raise shard_error(f"the shard index points outside the shard's chunks, which are bytes {low} to {high}")
    overlaps = np.flatnonzero(starts[1:] < np.maximum.accumulate(ends)[:-1])
    if overlaps.size:
        first = starts[overlaps[0] + 1]
        raise shard_error(
            f"the shard index is damaged: {overlaps.size} chunks overlap others, the first at byte {first}"
        )


def slice_entry(shard: memoryview, place: tuple[int, int]) -> memoryview:
    """The bytes of one chunk of a whole shard. Raises: CodecError if they are outside of it."""
    offset, size = place
    if offset + size > len(shard):
        end = offset + size
        raise shard_error(f"the shard index points outside the shard: bytes {offset} to {end} of {len(shard)}")
    return shard[offset : offset + size]


def split_index(shard: memoryview, index_nbytes: int, location: Literal["start", "end"]) -> memoryview:
    """The encoded index of a whole shard. Raises: CodecError if the shard is too short."""
    if len(shard) < index_nbytes:
        raise shard_error(f"the shard is truncated: {len(shard)} bytes, its index alone has {index_nbytes}")
    return shard[:index_nbytes] if location == "start" else shard[len(shard) - index_nbytes :]


def split_entries(
    shard: memoryview, index_nbytes: int, location: Literal["start", "end"], coder: Coder
) -> list[memoryview | None]:
    """The bytes of the chunks of a whole shard, in the order of its index. Raises: CodecError."""
    index = decode_index(split_index(shard, index_nbytes, location), coder)
    places = index.reshape(-1, 2).tolist()
    return [None if offset == MISSING else slice_entry(shard, (offset, size)) for offset, size in places]


def assemble(
    entries: Sequence[Buffer | None],
    counts: tuple[int, ...],
    coder: Coder,
    location: Literal["start", "end"],
    order: Sequence[int] | None = None,
) -> list[Buffer]:
    """Make a shard of encoded chunks.

    entries: for every chunk, in C order, its bytes; None where it is missing.
    counts: chunks per shard and axis.
    order: in which order they are in it; None for C order.
    Returns: the buffers that are the shard, one after the other; none if every chunk is missing.
    """
    if all(e is None for e in entries):
        return []
    index = np.full((len(entries), 2), MISSING, dtype="<u8")
    position = 0
    order = range(len(entries)) if order is None else order
    for i in order:
        item = entries[i]
        if item is not None:
            size = host_view(item).nbytes
            index[i] = position, size
            position += size
    head: list[Buffer] = []
    if location == "start":
        index_nbytes = host_view(coder.encode([index.reshape(*counts, 2)])[0]).nbytes
        index[index[:, 0] != MISSING, 0] += np.uint64(index_nbytes)
        head = coder.encode([index.reshape(*counts, 2)])
    tail: list[Buffer] = []
    if location == "end":
        tail = coder.encode([index.reshape(*counts, 2)])
    chunks = (entries[i] for i in order)
    return [*head, *(item for item in chunks if item is not None), *tail]


def join(segments: Sequence[Buffer]) -> Buffer | None:
    """The buffers of an object as one; None if there are none."""
    return segments[0] if len(segments) == 1 else b"".join(map(host_view, segments)) or None


@lru_cache(maxsize=64)
def write_order(name: str, counts: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the numbers of a shard's chunks, in C order, in an order of writing; None for C order.

    counts: chunks per shard and axis. Morton's order is that of the numbers made of the coordinates' bits: the first
    axis has the lowest, and an axis has no more of them than its coordinates need.
    """
    if name == "lexicographic":
        return None
    numbers = np.arange(math.prod(counts)).reshape(counts)
    if name == "colexicographic":
        ordered = numbers.ravel(order="F")
    else:
        code, at = np.zeros_like(numbers), 0
        for bit in range(max((n - 1).bit_length() for n in (1, *counts))):
            for axis, n in zip(np.indices(counts), counts, strict=True):
                if bit < (n - 1).bit_length():
                    code |= (axis >> bit & 1) << at
                    at += 1
        ordered = np.argsort(code, axis=None)
    return None if np.all(ordered[1:] > ordered[:-1]) else tuple(ordered.tolist())


class Level(NamedTuple):
    """One level of sharding, for shards of one shape.

    Attributes
    ----------
    chunk_shape : Coords
        Shape of the chunks of this level, in elements and array order.
    counts : Coords
        Chunks per shard and axis, in array order.
    order : Coords or None
        Permutation of the axes in which the index is laid out, or None.
    coder : Coder
        Codecs of the index.
    index_nbytes : int
        Size of the encoded index.
    location : {"start", "end"}
        Where the index lies.
    wrap : Coder or None
        Codecs around the shard, or None.
    steps : Indices
        How many entries of the index further the next chunk along each axis of the array is.
    write_order : tuple of int, or None
        Numbers of the chunks, in C order of the index, in the order in which they are written; None for C order.
    """

    chunk_shape: Coords
    counts: Coords
    order: Coords | None
    coder: Coder
    index_nbytes: int
    location: Literal["start", "end"]
    wrap: Coder | None
    steps: Indices
    write_order: tuple[int, ...] | None = None

    def place(self, coords: Coords) -> Coords:
        """Coordinates of a chunk in the index."""
        return coords if self.order is None else tuple(coords[axis] for axis in self.order)

    def blank_index(self) -> NDArray[np.uint64]:
        """The index of a shard without chunks."""
        return np.full((*self.place(self.counts), 2), MISSING, np.uint64)


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
) -> Sequence[Buffer]:
    """A shard's new bytes, as `assemble` gives them: the old ones with some chunks replaced or removed."""
    level = levels[0]
    shape = level.place(level.counts)
    entries: list[Buffer | None] = [None] * int(np.prod(shape, dtype=np.int64))
    if stored is not None:
        if level.wrap is not None:
            stored = host_view(level.wrap.decode([stored])[0])
        entries[:] = split_entries(stored, level.index_nbytes, level.location, level.coder)
    if len(levels) == 1:
        for coords, data in changed.items():
            entries[_ravel(level.place(coords), shape)] = data
    else:
        items = list(changed.items())
        for outer, members in by_owner(levels[1:], [coords for coords, _ in items]).items():
            at = _ravel(level.place(outer), shape)
            old = entries[at]
            updates = {local: items[position][1] for position, local in members}
            entries[at] = join(rebuild(levels[1:], None if old is None else host_view(old), updates))
    shard = assemble(entries, shape, level.coder, level.location, level.write_order)
    if not shard or level.wrap is None:
        return shard
    return level.wrap.encode([join(shard)])


def _ravel(coords: Coords, shape: Coords) -> int:
    index = 0
    for c, n in zip(coords, shape, strict=True):
        index = index * n + c
    return index
