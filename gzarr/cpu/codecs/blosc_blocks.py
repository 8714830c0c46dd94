"""Cuts a Blosc frame down to some of its blocks, so that only those are read and decoded.

A frame is a header, a table of block offsets, and the blocks, each compressed by itself. The cut frame holds the same
bytes of these blocks under a header and a table of its own, so that any Blosc library decodes it.
Source: Blosc 1 frame format (c-blosc, README_CHUNK_FORMAT.rst; offsets count from the start of the frame).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.cpu.codecs.per_chunk import Bytes, wrong_size

#: Reads from the frame: takes an offset and a number of bytes.
Read = Callable[[int, int], Bytes]

HEADER = struct.Struct("<4B3I")
#: Flag of a frame whose payload is not compressed.
_MEMCPY = 0x02
#: First read: the header and the table of up to 60 blocks.
_HEAD_NBYTES = 256


class Blocks(NamedTuple):
    """The table of a frame.

    Attributes
    ----------
    head : tuple of int
        Fields of the header.
    nbytes, blocksize, cbytes : int
        Decoded size, decoded size of a block, and encoded size, in bytes.
    starts, ends : array of int64
        Where each block begins and ends in the frame; empty if the payload is plain.
    """

    head: tuple[int, ...]
    nbytes: int
    blocksize: int
    cbytes: int
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    @property
    def plain(self) -> bool:
        """Whether the payload is not compressed."""
        return bool(self.head[2] & _MEMCPY)


def read_table(read: Read, nbytes: int, expected: int) -> Blocks:
    """Read the header and the table of a frame of ``nbytes`` stored bytes and the ``expected`` decoded size.

    Raises ValueError or CodecError if they are damaged.
    """
    head = read(0, min(_HEAD_NBYTES, nbytes))
    try:
        fields = HEADER.unpack_from(head)
    except struct.error as error:
        raise ValueError(f"truncated: {nbytes} bytes are too few for a blosc header of 16") from error
    decoded, blocksize, cbytes = fields[4:]
    if cbytes != nbytes:
        what = "truncated" if cbytes > nbytes else "too long"
        raise ValueError(f"{what}: expected {cbytes} encoded bytes, got {nbytes}")
    if decoded != expected:
        raise wrong_size("blosc", expected, decoded)
    none = np.empty(0, np.int64)
    if fields[2] & _MEMCPY:
        return Blocks(fields, decoded, blocksize, cbytes, none, none)
    n = -(-decoded // blocksize) if blocksize else 0
    table_end = HEADER.size + 4 * n
    if not n or table_end > nbytes:
        raise ValueError(f"damaged: no table of {n} blocks fits {nbytes} encoded bytes")
    if table_end > len(head):
        head = read(0, table_end)
    starts = np.frombuffer(head, "<i4", n, HEADER.size).astype(np.int64)
    order = np.argsort(starts)
    ends = np.empty(n, np.int64)
    ends[order[:-1]] = starts[order[1:]]
    ends[order[-1]] = cbytes
    if starts[order[0]] < table_end or starts[order[-1]] > cbytes:
        raise ValueError("damaged: a block starts outside of the frame")
    return Blocks(fields, decoded, blocksize, cbytes, starts, ends)


def cut_frame(read: Read, table: Blocks, blocks: NDArray[np.int64]) -> tuple[bytes, NDArray[np.int64]]:
    """Make a frame of some blocks, given by distinct numbers in order; the table is not plain.

    Returns the frame and the blocks in it. A frame needs a block of full length, so the last block brings the one
    before it along if it would be alone.
    """
    if table.nbytes % table.blocksize and blocks.size == 1 and blocks[0] == table.starts.size - 1:
        blocks = np.array([blocks[0] - 1, blocks[0]]) if blocks[0] else blocks
    starts, ends = table.starts[blocks], table.ends[blocks]
    pieces: list[Any] = []
    first = 0
    for last in range(1, blocks.size + 1):
        if last == blocks.size or starts[last] != ends[last - 1]:
            begin = int(starts[first])
            pieces.append(read(begin, int(ends[last - 1]) - begin))
            first = last
    sizes = ends - starts
    table_end = HEADER.size + 4 * blocks.size
    placed = (table_end + np.concatenate([[0], np.cumsum(sizes[:-1])])).astype("<i4")
    short = table.nbytes - (table.starts.size - 1) * table.blocksize
    decoded = (blocks.size - 1) * table.blocksize + (short if blocks[-1] == table.starts.size - 1 else table.blocksize)
    head = HEADER.pack(*table.head[:4], decoded, table.blocksize, table_end + int(sizes.sum()))
    frame = b"".join((head, placed.tobytes(), *pieces))
    if len(frame) != table_end + int(sizes.sum()):
        raise ValueError("truncated: a block reaches past the end of the frame")
    return frame, blocks
