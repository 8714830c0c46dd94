"""Merges what is written with shards that are covered in part.

Theory of operation. The store gives the old shards. Chunks that are covered whole, mostly all but those at the edge of
a shard, are encoded by tables; the others are merged with their old contents on the reference path. The loop puts every
shard together from new chunks and, encoded as they are, old ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.cpu.compiled.fetch import spans_of
from gzarr.cpu.compiled.write import level_of
from gzarr.errors import CodecError
from gzarr.gpu.pipeline.writable import Write
from gzarr.indexing.selection import Indices
from gzarr.layout.shard import MISSING, decode_index, split_index
from gzarr.layout.sharded import Sharded
from gzarr.profiling.recorder import stage
from gzarr.storage.base import Buffer, Request, host_view


class _Parts(NamedTuple):
    """The parts of some shards.

    Attributes
    ----------
    spans : NDArray[np.int32]
        int32 (n, ndim): the span of each on every axis.
    owners, entries : Indices
        int64 (n,): which of the shards holds the chunk, and where in its index.
    whole : NDArray[np.bool_]
        bool (n,): whether the chunk is covered whole.
    """

    spans: NDArray[np.int32]
    owners: Indices
    entries: Indices
    whole: NDArray[np.bool_]


class _Chunks(NamedTuple):
    """The chunks of some shards, a row for each shard, in the order of its index.

    Attributes
    ----------
    addresses, sizes : Indices
        int64 (shards, entries): in memory; the size is -1 for none.
    held : list of Any
        What keeps the memory.
    """

    addresses: Indices
    sizes: Indices
    held: list[Any]

    def put(self, at: Any, addresses: Any, sizes: Any) -> None:
        """Note where some chunks are. at: their shards and entries."""
        self.addresses[at] = addresses
        self.sizes[at] = sizes


def merge_shards(write: Write, numbers: Indices, keys: Sequence[str]) -> None:
    """Write some shards, which are locked. Raises: CodecError if anything is wrong, DeviceError, StoreError."""
    store, layout, into = write.array.store, write.array.layout, write.array.into
    if not isinstance(layout, Sharded) or into is None:
        raise TypeError("chunks that are files are not merged by tables")
    with stage("load old") as noted:
        stored = store.get_many([Request(key) for key in keys])
        nbytes = sum(host_view(data).nbytes for data in stored if data is not None)
        noted.count(0, nbytes, nbytes)
    coords = write.windows.shards(numbers)
    parts = _parts_of(write, numbers, coords)
    shape = len(keys), len(write.covered.wholes.inner)
    chunks = _Chunks(np.zeros(shape, np.int64), np.full(shape, -1, np.int64), [])
    for number, data in enumerate(stored):
        if data is not None:
            _keep_old(layout, chunks, number, data)
    chunks.sizes[parts.owners, parts.entries] = -1
    _merge(write, layout, parts, (coords, stored), chunks)
    _encode(write, parts, chunks)
    with stage("store") as noted:
        for key, addresses, sizes in zip(keys, chunks.addresses, chunks.sizes, strict=True):
            shard = into.join(addresses, sizes)
            if shard is None:
                store.delete_many([key])
            else:
                store.set(key, shard.data)
                noted.count(0, shard.nbytes, shard.nbytes)


def _parts_of(write: Write, numbers: Indices, coords: Indices) -> _Parts:
    """coords: of the shards."""
    windows, wholes = write.windows, write.covered.wholes
    ends = windows.ends
    runs = np.stack([numbers, np.zeros_like(numbers), ends[numbers + 1] - ends[numbers]], axis=1)
    spans = spans_of(windows, runs)
    owners = np.repeat(np.arange(len(numbers)), runs[:, 2])
    counts = wholes.inner.max(axis=0).astype(np.int64) + 1
    inside = windows.coords(spans) - (coords * counts)[owners]
    whole = np.logical_and.reduce([full[rows] for full, rows in zip(write.covered.full, spans.T, strict=True)])
    return _Parts(spans, owners, inside @ np.asarray(write.array.steps, np.int64), whole)


def _keep_old(layout: Sharded, chunks: _Chunks, number: int, data: Buffer) -> None:
    """Note where the chunks of an old shard are. Raises: CodecError if its index is damaged."""
    level = level_of(layout)
    view = np.frombuffer(host_view(data), np.uint8)
    index = decode_index(split_index(host_view(data), level.index_nbytes, level.location), level.coder)
    entries = np.array(index, np.uint64).reshape(-1, 2)
    there = entries[:, 0] != MISSING
    starts, sizes = entries[there].T
    if (starts + sizes > view.nbytes).any():
        raise CodecError("the shard index points outside the shard", codec="sharding_indexed")
    chunks.addresses[number, there] = view.__array_interface__["data"][0] + starts.astype(np.int64)
    chunks.sizes[number, there] = sizes.astype(np.int64)
    chunks.held.append(view)


def _merge(
    write: Write, layout: Sharded, parts: _Parts, old: tuple[Indices, Sequence[Buffer | None]], chunks: _Chunks
) -> None:
    """Merge the chunks that are not covered whole with their old contents. old: coordinates and bytes of the shards."""
    which = np.flatnonzero(~parts.whole)
    if not which.size:
        return
    coords, stored = old
    members = [write.box.part(row) for row in parts.spans[which].tolist()]
    owners = parts.owners[which]
    buffers: list[Buffer | None] = []
    for number in np.unique(owners).tolist():
        some = [members[i].coords for i in np.flatnonzero(owners == number).tolist()]
        data = stored[number]
        there = None if data is None else layout.extract(data, tuple(coords[number].tolist()), some)
        buffers += [None] * len(some) if there is None else there
    new = write.array.merge(buffers, write.value, members, write.keep_empty)
    for owner, entry, data in zip(owners.tolist(), parts.entries[which].tolist(), new, strict=True):
        if data is not None:
            view = np.frombuffer(host_view(data), np.uint8)
            chunks.held.append(view)
            chunks.put((owner, entry), view.__array_interface__["data"][0], view.nbytes)


def _encode(write: Write, parts: _Parts, chunks: _Chunks) -> None:
    """Encode the chunks that are covered whole."""
    which = np.flatnonzero(parts.whole)
    for some in write.encoder.encode(parts.spans[which]) if which.size else ():
        numbers = which[some.numbers]
        chunks.held.append(some.host)
        chunks.put((parts.owners[numbers], parts.entries[numbers]), some.addresses, some.sizes)
