"""Shard bytes to index table and back: pure functions, no I/O.

A shard is a row of encoded chunks and an index: for every chunk, in C order of the chunk grid within the shard, its
offset and size as two little-endian uint64, encoded by the index codecs (normally a crc32c). A missing chunk has
2**64-1 for both. Offsets count from the start of the shard.
Source: Zarr v3 codecs, "sharding_indexed" version 1.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from gzarr.errors import CodecError
from gzarr.storage.base import Buffer, host_view

MISSING = 2**64 - 1


class Coder(Protocol):
    """A prepared chain of codecs on the host."""

    def decode(self, buffers: Sequence[Any]) -> list[Any]:
        """Decode a batch."""
        ...

    def encode(self, chunks: Sequence[Any]) -> list[Any]:
        """Encode a batch."""
        ...


def decode_index(encoded: Buffer, coder: Coder) -> NDArray[np.uint64]:
    """Decode an index: a uint64 array of shape (*chunks per shard, 2).

    Raises: CodecError if the index is damaged.
    """
    index: NDArray[np.uint64] = coder.decode([encoded])[0]
    entries = index.reshape(-1, 2)
    offsets, sizes = entries[:, 0], entries[:, 1]
    half = (offsets == MISSING) != (sizes == MISSING)
    if half.any() or (offsets + sizes < offsets)[offsets != MISSING].any():
        raise CodecError("the shard index holds an impossible entry", codec="sharding_indexed")
    return index


def entry(index: NDArray[np.uint64], coords: tuple[int, ...]) -> tuple[int, int] | None:
    """(offset, size) of one chunk, or None if it is missing."""
    offset, size = index[coords].tolist()
    return None if offset == MISSING else (offset, size)


def slice_entry(shard: memoryview, place: tuple[int, int]) -> memoryview:
    """The bytes of one chunk of a whole shard. Raises: CodecError if they lie outside of it."""
    offset, size = place
    if offset + size > len(shard):
        raise CodecError(
            f"the shard index points outside the shard: bytes {offset} to {offset + size} of {len(shard)}",
            codec="sharding_indexed",
        )
    return shard[offset : offset + size]


def split_index(shard: memoryview, index_nbytes: int, location: Literal["start", "end"]) -> memoryview:
    """The encoded index of a whole shard. Raises: CodecError if the shard is too short."""
    if len(shard) < index_nbytes:
        raise CodecError(
            f"the shard is truncated: {len(shard)} bytes, its index alone has {index_nbytes}", codec="sharding_indexed"
        )
    return shard[:index_nbytes] if location == "start" else shard[len(shard) - index_nbytes :]


def assemble(
    entries: Sequence[Buffer | None], counts: tuple[int, ...], coder: Coder, location: Literal["start", "end"]
) -> bytes | None:
    """Make a shard of encoded chunks, which lie in it in the order given.

    entries: for every chunk, in C order, its bytes; None where it is missing.
    counts: chunks per shard and axis.
    Returns: the shard's bytes, or None if every chunk is missing.
    """
    if all(e is None for e in entries):
        return None
    index = np.full((len(entries), 2), MISSING, dtype="<u8")
    position = 0
    for i, item in enumerate(entries):
        if item is not None:
            size = host_view(item).nbytes
            index[i] = position, size
            position += size
    head: Buffer = b""
    if location == "start":
        index_nbytes = host_view(coder.encode([index.reshape(*counts, 2)])[0]).nbytes
        index[index[:, 0] != MISSING, 0] += np.uint64(index_nbytes)
        head = coder.encode([index.reshape(*counts, 2)])[0]
    tail: Buffer = b""
    if location == "end":
        tail = coder.encode([index.reshape(*counts, 2)])[0]
    return b"".join(host_view(item) for item in (head, *entries, tail) if item is not None)
