"""Tables of where chunks are (`gzarr.storage.tables`), of elements that follow each other."""

from math import prod

import numpy as np

from gzarr.indexing.keys import Coords
from gzarr.storage.base import Buffer
from gzarr.storage.tables import INLINE, MISSING, ChunkTable, Inline

__all__ = ["INLINE", "MISSING", "RUN_NBYTES", "ChunkTable", "Inline", "cut_run", "inline_bytes"]

#: Bytes of a virtual chunk: so many that the table is small, so few that little is read that is not wanted.
RUN_NBYTES = 1 << 20


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
