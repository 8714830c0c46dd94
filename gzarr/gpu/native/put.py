"""Stores encoded chunks by compiled code (`put.c`).

Files and shards are replaced as by `gzarr.cpu.compiled.write`, each under its lock, which is not waited for.

Rules: the caller holds the locks that the store asks for, and has the reference path do what is left; the memory at the
addresses of chunks must live until `put` returns.
"""

from __future__ import annotations

import os
import struct
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.cpu.compiled import library
from gzarr.cpu.compiled.basic import checksum_of
from gzarr.gpu.native.fetch import make_fetch
from gzarr.indexing.grid import RegularAxis
from gzarr.indexing.selection import Indices
from gzarr.layout.chunk_layout import Layout
from gzarr.layout.sharded import Sharded
from gzarr.storage.base import Store, Target

#: Status of a file or shard: stored (0), left to the reference path, or deleted.
LEFT, EMPTY = 1, 2

#: Larger indexes are made by the reference path.
_MAX_INDEX_NBYTES = 16 << 20


class Put(NamedTuple):
    """How the encoded chunks of an array are stored as local files.

    Attributes
    ----------
    places : bytes
        The loop's struct Places.
    target : Target
        How files may be replaced.
    path : bytes
        Beginning of the paths of files.
    """

    places: bytes
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
        library.extension().put(self.places, self.path, temporary, *where, target.number(), status)
        return np.frombuffer(status, np.uint8)


def make_put(store: Store, layout: Layout) -> Put | str:
    """Find out how chunks are stored as local files, or why the loop cannot do that."""
    fetch, names, files = make_fetch(store, layout), layout.names, store.files
    if isinstance(fetch, str):
        return fetch
    target = None if files is None else files.target(names.path)
    if target is None:
        return "only the store may replace its files"
    shard = _shard_of(layout) if isinstance(layout, Sharded) else (0, 0, 0)
    if isinstance(shard, str):
        return shard
    places = struct.pack("5q", len(layout.grid), ord(names.keys.separator), *shard)
    return Put(places, target, os.fsencode(target.prefix + names.keys.prefix))


def _shard_of(layout: Sharded) -> tuple[int, int, int] | str:
    """Entries of the index of shards, whether it has a checksum, and comes first; or why the loop does not make it."""
    if not layout.is_flat:
        return "shards are nested, or codecs are around them"
    if not all(isinstance(axis, RegularAxis) for axis in (*layout.grid, *layout.objects)):
        return "shards differ in shape"
    level = layout.level
    if level.index_nbytes > _MAX_INDEX_NBYTES:
        return f"the indexes of shards are larger than {_MAX_INDEX_NBYTES >> 20} MiB"
    checksum = checksum_of(level)
    if checksum is None:
        return "the indexes of shards are encoded in a way that the loop does not know"
    return prod(level.counts), checksum, level.location == "start"
