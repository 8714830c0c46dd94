"""Where the chunks of shards are, for one read by compiled code.

Theory of operation. The layout finds the chunks of a table, and its cache knows the version that an index is of.
Compiled code compares that with the file that it has opened, before the first chunk and after the last one, so nobody
else has to look at versions of files. Versions of other kinds are compared here.

Rules: all chunks of a shard that a read takes are of one version. A shard of which anything is left is read from
scratch by the reference path, once all batches are done: how it reads a shard depends on how much is wanted and on
whether the index is cached.
"""

import os
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.errors import CodecError
from gzarr.indexing.keys import Coords
from gzarr.indexing.plan import Part
from gzarr.indexing.selection import Indices
from gzarr.indexing.tables import Batches
from gzarr.layout.chunk_layout import MISSING, Places
from gzarr.layout.sharded import Sharded
from gzarr.storage.base import Buffer, Store, token_of
from gzarr.storage.local_files import FileVersion

#: What compiled code is told of an object, in the order of its OBJECT_STATE: all of its chunks are left, no version is
#: checked, one is, and there must be no such file.
LEFT, UNCHECKED, CHECKED, ABSENT = range(-1, 3)


class Shard(NamedTuple):
    """A shard, as compiled code is told of it.

    Attributes
    ----------
    key : str
        Its key.
    token : object or None
        Of the version that is read; None if there is no object, or if it must be left.
    state : int
        What is known of it.
    places : Places or None
        Where its chunks are; None if there is no object, or if it must be left.
    stored : Buffer or None
        Its bytes, if they are in memory.
    """

    key: str
    token: object | None
    state: int
    places: Places | None = None
    stored: Buffer | None = None

    @property
    def numbers(self) -> bytes:
        """The numbers of it that compiled code takes."""
        version = self.token.packed() if isinstance(self.token, FileVersion) else bytes(40)
        return struct.pack("q40s", self.state, version)


class ShardRows(NamedTuple):
    """Where the chunks of a table are.

    Attributes
    ----------
    rows : NDArray[np.uint64]
        (n, 2): offset and number of bytes of each chunk.
    bounds : Indices
        (k + 1,): the first chunk of each shard, and how many chunks there are.
    shards : list of Shard
        The shards.
    """

    rows: NDArray[np.uint64]
    bounds: Indices
    shards: list[Shard]

    def cut(self, first: int, last: int) -> "ShardRows":
        """The chunks from ``first`` to ``last``, of which there must be some."""
        low, high = np.searchsorted(self.bounds, [first, last - 1], side="right").tolist()
        bounds = self.bounds[low - 1 : high + 1].clip(first, last) - first
        return ShardRows(self.rows[first:last], bounds, self.shards[low - 1 : high])

    def columns(self, path_of: Callable[[str], str] | None) -> tuple[Any, Indices, bytes, bytes]:
        """What compiled code takes. path_of: from a key to the path of a file; None if shards are in memory."""
        paths = b"".join([os.fsencode(path_of(shard.key)) + b"\0" for shard in self.shards]) if path_of else b""
        return self.rows, self.bounds, b"".join([shard.numbers for shard in self.shards]), paths


class ReadShards:
    """The shards of one read.

    Parameters
    ----------
    store, layout
        Where they are.
    tables : Batches
        What is read.
    fetch : callable, optional
        From keys to shards in memory; None for files.
    """

    __slots__ = ("_fetch", "_given_up", "_layout", "_shared", "_store", "_tables")

    def __init__(
        self,
        store: Store,
        layout: Sharded,
        tables: Batches,
        fetch: Callable[[Sequence[str]], Sequence[Buffer | None]] | None = None,
    ) -> None:
        self._store, self._layout, self._tables, self._fetch = store, layout, tables, fetch
        #: Those that have chunks in several batches, with what the first of these found, and their numbers.
        self._shared: dict[Coords, tuple[Shard, list[int]]] = {}
        #: Those that are left to the reference path, with the numbers of their batches.
        self._given_up: dict[Coords, list[int]] = {}

    def find(self, number: int, table: Any) -> ShardRows:
        """Find the chunks of a batch. Raises: StoreError."""
        owners, bounds, coords = list(map(tuple, table.owners.tolist())), table.bounds.tolist(), table.coords
        shards: list[Shard] = []
        rows: list[NDArray[np.uint64]] = []
        for at, owner in enumerate(owners):
            is_shared = (at == 0 and table.cut[0]) or (at == len(owners) - 1 and table.cut[1])
            shard, places = self._find(owner, coords[bounds[at] : bounds[at + 1]], number if is_shared else None)
            shards.append(shard)
            rows.append(places)
        return ShardRows(rows[0] if len(rows) == 1 else np.concatenate(rows), table.bounds, shards)

    def give_up(self, number: int, table: Any, found: ShardRows, left: Any, *, checked: bool = True) -> None:
        """Note which shards of a batch are read again.

        left: for every chunk whether it was left. checked: whether versions of files were compared meanwhile.
        """
        unknown = [self._fetch is None and (shard.state == UNCHECKED or not checked) for shard in found.shards]
        if not any(left) and True not in unknown:
            return
        owners, bounds = map(tuple, table.owners.tolist()), found.bounds.tolist()
        for at, (owner, shard) in enumerate(zip(owners, found.shards, strict=True)):
            is_other = unknown[at] and self._token(shard.key) != shard.token
            if is_other or any(left[bounds[at] : bounds[at + 1]]):
                self._given_up[owner] = self._shared[owner][1] if owner in self._shared else [number]
                self._layout.forget(shard.key)

    def retry(self) -> Iterator[tuple[Coords, list[Part]]] | None:
        """All parts of the shards that were given up; None if none was."""
        return map(self._all_of, sorted(self._given_up)) if self._given_up else None

    def _all_of(self, owner: Coords) -> tuple[Coords, list[Part]]:
        parts: list[Part] = []
        for number in sorted(self._given_up[owner]):
            table = self._tables.table(number)
            at = table.owners.tolist().index(list(owner))
            parts += self._tables.parts(number, table, range(*table.bounds[at : at + 2].tolist()))
        return owner, parts

    def _find(self, owner: Coords, chunks: Indices, number: int | None) -> tuple[Shard, NDArray[np.uint64]]:
        """Find a shard, and the places of some of its chunks. Raises: StoreError.

        number: of the batch, if other ones have chunks of the shard: they see one version.
        """
        if number is None:
            shard = self._locate(owner)
        else:
            entry = self._shared.get(owner)
            if entry is None:
                entry = self._shared.setdefault(owner, (self._locate(owner), []))
            entry[1].append(number)
            shard = entry[0]
        if shard.places is not None:
            try:
                return shard, shard.places.find(chunks)[1]
            except CodecError:  # the reference path says what is wrong
                shard = shard._replace(state=LEFT)
        return shard, np.full((len(chunks), 2), MISSING, np.uint64)

    def _locate(self, owner: Coords) -> Shard:
        layout, store = self._layout, self._store
        key = layout.key(owner)
        try:
            if self._fetch is not None:
                (stored,) = self._fetch([key])
                if stored is None:
                    return Shard(key, None, ABSENT)
                token = None if store.versions is None else store.versions.of(stored)
                return Shard(key, token, UNCHECKED, layout.locate(store, owner, token, stored=stored), stored)
            token = layout.cached_token(key)
            if isinstance(token, FileVersion):  # compiled code will see whether it holds
                return Shard(key, token, CHECKED, layout.locate(store, owner, token))
            token = self._token(key)
            places = layout.locate(store, owner, token)
            if token is None:
                return Shard(key, None, ABSENT if places.index() is None else LEFT)  # or it has just come
            if places.index() is None:
                return Shard(key, None, ABSENT)
            return Shard(key, token, CHECKED if isinstance(token, FileVersion) else UNCHECKED, places)
        except CodecError:  # the reference path says what is wrong
            return Shard(key, None, LEFT)

    def _token(self, key: str) -> object | None:
        return token_of(self._store, key)
