"""Stores encoded chunks by compiled code (`put.c`).

Files and shards are replaced as by `gzarr.cpu.compiled.write`, each under its lock, which is not waited for.

Rules: the caller holds the locks that the store asks for, and has the reference path do what is left; the memory at the
addresses of chunks must live until `put` returns.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.cpu.compiled import library
from gzarr.gpu.native.fetch import Fetch, make_fetch
from gzarr.indexing.selection import Indices
from gzarr.layout.chunk_layout import Layout
from gzarr.storage.base import Store, Target

#: Status of a file or shard: stored (0), left to the reference path, or deleted.
LEFT, EMPTY = 1, 2


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
