"""Replaces few chunks of a large shard that is a file: the system copies the file, and the new chunks come at its end.

Theory of operation. The copy is a clone that shares the old blocks where the file system has such, so that it costs
nothing; elsewhere the bytes do not leave the system. The new chunks and the new index are written where the old index
was, and the copy takes the place of the file as any new file does: readers see the old shard or the new one. What the
replaced chunks leave behind in the file is reclaimed when it is more than the chunks themselves: the shard is then put
together anew.

Rule: the caller holds the lock of the object. Other libraries do not ask for it, so the file must still be the version
of which the index was read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from gzarr.indexing.keys import Coords
from gzarr.layout.chunk_layout import MISSING, Layout
from gzarr.layout.shard import Level
from gzarr.layout.sharded import Sharded
from gzarr.storage.base import Buffer, Request, Store, Target, host_view, token_of

#: Bytes of shards from which on copying the file takes no longer than putting the shard together, clones aside.
LARGE_NBYTES = 1 << 23
#: At most this share of a shard's chunks is appended.
_APPENDED_SHARE = 1 / 8


@dataclass(frozen=True, slots=True)
class ShardFile:
    """A shard whose file can be replaced by a copy with other chunks.

    Attributes
    ----------
    layout : Sharded
        Says where its chunks are.
    store : Store
        Where it is.
    target : Target
        How its file may be replaced.
    coords : tuple of int
        Of the shard.
    token : object
        The version of the file.
    nbytes : int
        Its size.
    """

    layout: Sharded
    store: Store
    target: Target
    coords: Coords
    token: object
    nbytes: int

    def extract(self, chunks: Sequence[Coords]) -> list[Buffer | None]:
        """Read the encoded bytes of chunks; None for those that are missing. Raises: CodecError."""
        key = self.layout.key(self.coords)
        places = self.layout.locate(self.store, self.coords, self.token).located(key, chunks)
        asked = [place for place in places if isinstance(place, Request)]
        answers = iter(self.store.get_many(asked))
        return [next(answers) if isinstance(place, Request) else place for place in places]

    def replace(self, changed: Mapping[Coords, Buffer | None]) -> bool:
        """Replace chunks, or remove them (None).

        Returns: whether that was done. If not, nothing was changed: the shard has to be put together anew.
        Raises: CodecError, StoreError.
        """
        level, end = self.layout.level, self.nbytes - self.layout.level.index_nbytes
        known = self.layout.locate(self.store, self.coords, self.token).index()
        if known is None:
            return False
        index, at, chunks = known.copy(), end, [host_view(data) for data in changed.values() if data is not None]
        if index[index[:, 0] != MISSING].sum(axis=1).max(initial=0) > end:
            return False
        for entry, data in zip(self.layout.entries(self.coords, np.array([*changed])), changed.values(), strict=True):
            nbytes = 0 if data is None else host_view(data).nbytes
            index[entry] = MISSING if data is None else (at, nbytes)
            at += nbytes
        in_use = int(index[index[:, 0] != MISSING, 1].sum())
        if not in_use or at > 2 * in_use:
            return False
        encoded = level.coder.encode([index.reshape(level.blank_index().shape).astype("<u8", copy=False)])
        tail = b"".join([*chunks, host_view(encoded[0])])
        return self.target.replace_end(self.layout.key(self.coords), self.token, end, tail)


def can_be_large(level: Level, chunk_nbytes: int) -> bool:
    """Whether shards may be so large that files are copied. chunk_nbytes: of a decoded chunk."""
    return prod(level.counts) * chunk_nbytes >= LARGE_NBYTES


def find_shard_file(layout: Layout, store: Store, coords: Coords, nchunks: int) -> ShardFile | None:
    """Find out whether chunks of an object are replaced in a copy of its file; None if it is put together anew.

    nchunks: that are replaced. Raises: StoreError.
    """
    if not isinstance(layout, Sharded) or not layout.is_flat or layout.level.location != "end":
        return None
    files, versions = store.files, store.versions
    if files is None or versions is None or nchunks > prod(layout.level.counts) * _APPENDED_SHARE:
        return None
    target = files.target(layout.names.path)
    key = layout.key(coords)
    token = None if target is None else token_of(store, key)
    nbytes = 0 if token is None else store.getsize(key) or 0
    if target is None or nbytes < LARGE_NBYTES:
        return None
    return ShardFile(layout, store, target, coords, token, nbytes)
