"""Gathers values into decoded chunks, and stores encoded chunks, by the compiled loop (`loop/put.c`).

What is between the two, encoding, is somebody else's. Chunks are rows of memory, one after the other; files and shards
are replaced as by `gzarr.cpu.compiled.write`, each under its lock, which is not waited for.

Rules: the caller holds the locks that the store asks for, and has the reference path do what is left; the memory at the
addresses of chunks must live until `put` returns.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.cpu.compiled import library
from gzarr.cpu.compiled.fetch import Fetch, make_fetch
from gzarr.cpu.compiled.tables import Boxes, Windows
from gzarr.indexing.selection import Indices
from gzarr.layout.chunk_layout import Layout
from gzarr.storage.base import Store, Target

#: Status of a file or shard: stored (0), left to the reference path, or deleted.
LEFT, EMPTY = 1, 2
#: Larger chunks are not gathered by the loop: its numbers of bytes have 31 bits.
MAX_NBYTES = (1 << 30) - 1


class Gather(NamedTuple):
    """How the parts of a value are gathered into chunks.

    Attributes
    ----------
    value : NDArray[Any]
        The value: it must live as long as its address is used.
    job, spans, lists : bytes
        The loop's tables.
    axes : Indices
        The loop's table, as in `Windows`.
    """

    value: NDArray[Any]
    job: bytes
    spans: bytes
    lists: bytes
    axes: Indices

    def into(self, rows: NDArray[np.uint8], part_spans: NDArray[np.int32]) -> None:
        """Gather parts. rows: uint8, contiguous, a chunk for each. part_spans: (n, ndim), its span on every axis."""
        library.extension().gather(self.job, self.spans, self.lists, self.axes, part_spans, rows)


def make_gather(
    boxes: Boxes, windows: Windows, value: NDArray[Any], chunk: tuple[Sequence[int], Sequence[int]], swap: int
) -> Gather:
    """Prepare to gather the parts of a value.

    Parameters
    ----------
    boxes, windows
        The parts.
    value : NDArray[Any]
        Of the plan's shape, with elements of the size that chunks have.
    chunk : tuple
        The shape of a chunk and its strides in bytes, by axis of the array.
    swap : int
        Bytes that are swapped at a time; 0 for none.
    """
    lengths, strides = chunk
    nbytes = sum((n - 1) * step for n, step in zip(lengths, strides, strict=True)) + value.itemsize
    head = value.ndim, value.itemsize, nbytes, nbytes + 4, 0, swap, 0, 0, value.__array_interface__["data"][0], -1
    job = struct.pack(f"{10 + 4 * value.ndim}q", *head, *lengths, *strides, *value.shape, *value.strides)
    spans, lists = boxes.tables()
    return Gather(value, job, spans, lists, windows.axes)


class Put(NamedTuple):
    """How the encoded chunks of an array are stored as local files.

    Attributes
    ----------
    fetch : Fetch
        How they are found.
    target : Target
        How files may be replaced.
    path : bytes
        Beginning of the paths of files.
    """

    fetch: Fetch
    target: Target
    path: bytes

    def put(self, coords: Indices, addresses: Indices, sizes: Indices) -> NDArray[np.uint8]:
        """Store files or whole shards.

        Parameters
        ----------
        coords : Indices
            int64 (n, ndim), coordinates of the files or shards.
        addresses, sizes : Indices
            int64 (n,) or (n, chunks of a shard, in the order of its index), of encoded chunks in memory; -1 for none.

        Returns
        -------
        NDArray[np.uint8]
            The status of each file or shard.
        """
        status = bytearray(len(coords))
        target = self.target
        temporary = os.fsencode(target.temporary)
        where = np.ascontiguousarray(coords, np.int64), addresses, sizes
        library.extension().put(
            self.fetch.places, self.path, temporary, *where, target.written, target.number(), status
        )
        return np.frombuffer(status, np.uint8)

    def join(self, addresses: Indices, sizes: Indices) -> NDArray[np.uint8] | None:
        """Put a shard together in memory; None if it has no chunks. Arguments as of `put`, of one shard."""
        out = np.empty(int(np.maximum(sizes, 0).sum()) + self.fetch.index_nbytes, np.uint8)
        made = library.extension().join(self.fetch.places, addresses, sizes, out)
        return out[:made] if made else None


def make_put(store: Store, layout: Layout) -> Put | str:
    """Find out how chunks are stored as local files, or why the loop cannot do that."""
    fetch = make_fetch(store, layout)
    if isinstance(fetch, str):
        return fetch
    files = store.files
    target = None if files is None else files.target(layout.names.path)
    if target is None:
        return "only the store may replace its files"
    return Put(fetch, target, os.fsencode(target.prefix + layout.names.keys.prefix))
