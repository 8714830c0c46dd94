"""Where the chunks of an array are: a row for each chunk of its grid, with an object, an offset and a length."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.indexing.keys import Coords
from gzarr.storage.base import Buffer

#: In place of an object's number: the chunk is not stored, or its bytes are in `ChunkTable.inline`.
MISSING: Final = -1
INLINE: Final = -2

#: Bytes of a virtual chunk: so many that the table is small, so few that little is read that is not wanted.
RUN_NBYTES = 1 << 20

#: Bytes of an encoded chunk, or a function that makes them.
Inline: TypeAlias = "Buffer | Callable[[], Buffer]"


@dataclass(frozen=True, slots=True)
class ChunkTable:
    """Where the chunks of an array are. It takes 20 bytes for each.

    Attributes
    ----------
    counts : tuple of int
        Number of chunks along each axis. Rows are in C order.
    objects : numpy.ndarray
        For each chunk, the number of the object that it is in (int32); `MISSING` or `INLINE`.
    offsets, lengths : numpy.ndarray
        Its bytes there (int64). A length of -1 stands for the whole object.
    inline : mapping
        Encoded chunks that are in no object, by row.
    padded_nbytes : int
        Shorter chunks are filled up with zeros to this: the last ones of data that are stored without gaps, whose
        elements outside the array are not stored.
    """

    counts: Coords
    objects: NDArray[np.int32]
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]
    inline: Mapping[int, Inline] = field(default_factory=dict)
    padded_nbytes: int = 0

    @classmethod
    def empty(cls, counts: Coords, *, padded_nbytes: int = 0) -> ChunkTable:
        """A table without chunks, to be filled."""
        n = prod(counts)
        objects, offsets, lengths = np.full(n, MISSING, np.int32), np.zeros(n, np.int64), np.zeros(n, np.int64)
        return cls(counts, objects, offsets, lengths, {}, padded_nbytes)

    def row(self, coords: Coords) -> int | None:
        """The row of a chunk; None if the grid does not have it."""
        number = 0
        for at, count in zip(coords, self.counts, strict=True):
            if at >= count:
                return None
            number = number * count + at
        return number


def cut_run(
    shape: Coords, itemsize: int, offset: int, nbytes: int | None = None, *, stride: int | None = None
) -> tuple[Coords, ChunkTable]:
    """Cut elements that follow each other in object 0, in C order, into virtual chunks.

    Parameters
    ----------
    shape, itemsize
        Of the array.
    offset : int
        Where its first byte is.
    nbytes : int, optional
        What a chunk may have.
    stride : int, optional
        Bytes from an index of the first axis to the next, if there is something else in between (records); a chunk
        then has one index of the first axis.

    Returns
    -------
    tuple of (Coords, ChunkTable)
        Shape of a chunk, and where the chunks are.
    """
    room, chunks = max((nbytes or RUN_NBYTES) // max(itemsize, 1), 1), [1] * len(shape)
    for axis in reversed(range(0 if stride is None else 1, len(shape))):
        chunks[axis] = max(min(shape[axis], room), 1)
        room //= chunks[axis]
        if chunks[axis] < shape[axis]:
            break
    counts = tuple([-(-n // c) for n, c in zip(shape, chunks, strict=True)])
    table = ChunkTable.empty(counts, padded_nbytes=prod(chunks) * itemsize)
    if not table.objects.size:
        return tuple(chunks), table
    steps = [prod(shape[axis + 1 :]) * itemsize for axis in range(len(shape))]
    if stride is not None:
        steps[0] = stride
    begin = np.zeros(counts, np.int64)
    length = np.full(counts, itemsize, np.int64)
    for axis, (n, c, step) in enumerate(zip(shape, chunks, steps, strict=True)):
        at = np.arange(counts[axis], dtype=np.int64) * c
        along = (-1,) + (1,) * (len(shape) - axis - 1)
        begin += (at * step).reshape(along)
        length *= np.minimum(n - at, c).reshape(along)
    table.objects[:] = 0
    table.offsets[:] = begin.ravel() + offset
    table.lengths[:] = length.ravel()
    return tuple(chunks), table


def inline_bytes(chunk: Inline) -> Buffer:
    """The bytes of an inline chunk."""
    return chunk() if callable(chunk) else chunk
