"""Writes tables on the device: chunks of objects that are covered whole are gathered and encoded there.

Theory of operation. A write is cut into batches of whole stored objects (chunks that are files, or shards), each one
table. The values of the chunks of fully covered objects are gathered into rows and encoded, one copy brings the results
to the host, and compiled code stores all files or shards in one call; other stores are given the chunks. Objects that
are covered in part are left to the reference path, which merges them on the device, too.

Rules: what cannot be encoded or stored is left to the reference path, so its errors are the only ones there are. The
pipeline slot is returned before anything is stored. An object that reaches beyond the array is never covered whole:
others may have appended to it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Array, Work
from gzarr.codecs.spec import ArrayRepr
from gzarr.cpu.compiled import library
from gzarr.errors import CodecError, DeviceError
from gzarr.gpu.codecs.floats import why_not_cast
from gzarr.gpu.native.fetch import EMPTY, NOT_WRITTEN, Put, make_put
from gzarr.gpu.pipeline.batches import Resources, batch_nchunks, batch_size, in_batches, write_memory
from gzarr.gpu.pipeline.copies import take
from gzarr.gpu.pipeline.placement import DevicePlan
from gzarr.gpu.pipeline.write import Packed, encode_batch, values_of, values_of_table
from gzarr.indexing.copies import make_batches
from gzarr.indexing.grid import RegularAxis
from gzarr.indexing.keys import Coords, join_path
from gzarr.indexing.plan import BoxPlan, Groups
from gzarr.indexing.selection import Indices
from gzarr.indexing.tables import Batches, CopyTable
from gzarr.layout.chunk_layout import Layout
from gzarr.layout.sharded import Sharded
from gzarr.profiling.recorder import stage
from gzarr.storage.base import Buffer, Store, host_view

#: Tables do not pay for fewer chunks.
MIN_NCHUNKS = 4


class Writable(NamedTuple):
    """An array whose chunks are written by tables.

    Attributes
    ----------
    store, layout, plan
        Where its chunks are, and how they are encoded.
    into : Put or None
        How files are stored; None if the store is given the chunks.
    counts, steps : tuple[int, ...]
        Chunks of a shard on every axis, and entries of its index from one to the next; empty if chunks are files.
    """

    store: Store
    layout: Layout
    plan: DevicePlan
    into: Put | None
    counts: Coords = ()
    steps: Coords = ()


def make_writable(store: Store, layout: Layout, plan: DevicePlan | None) -> Writable | str:
    """Check the conditions on the array alone."""
    if (problem := library.problem()) is not None:
        return problem
    if plan is None or not all(isinstance(axis, RegularAxis) for axis in (*layout.grid, *layout.objects)):
        return "chunks differ in shape"
    if not layout.grid:
        return "the array has no axes"
    if plan.encoding.host or not plan.encoding.device:
        return f"codecs run on the host: {plan.encoding.obstacle or 'all of them'}"
    into = make_put(store, layout)
    if isinstance(layout, Sharded):
        if isinstance(into, str):
            return into
        return Writable(store, layout, plan, into, layout.level.counts, tuple(layout.level.steps.tolist()))
    return Writable(store, layout, plan, None if isinstance(into, str) else into)


class Piece(NamedTuple):
    """A batch of a write.

    Attributes
    ----------
    number : int
        Of the batch.
    table : CopyTable
        All chunks.
    objects, bounds : Indices
        Coordinates of the stored objects, and the number of the first chunk of each, with the number of chunks.
    whole : NDArray[np.bool_]
        Which objects are covered whole.
    """

    number: int
    table: CopyTable
    objects: Indices
    bounds: Indices
    whole: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class DeviceWrite:
    """A write in batches.

    Attributes
    ----------
    resources, array
        What it is done with, and of which array.
    tables : Batches
        What is written.
    value : Array
        The values, of the plan's shape.
    keep_empty : bool
        Whether chunks equal to the fill value are stored.
    work : Work
        How much there is to do.
    """

    resources: Resources
    array: Writable
    tables: Batches
    value: Array
    keep_empty: bool
    work: Work
    stage = "build"

    @property
    def batches(self) -> Iterator[Piece]:
        """The batches."""
        return map(self._piece, range(self.tables.n))

    def _piece(self, number: int) -> Piece:
        table: CopyTable = self.tables.table(number)
        coords, layout = table.coords, self.array.layout
        beyond = layout.cut or layout.find_cut()
        full = table.full & ~(coords == np.array(beyond[0])).any(axis=1)
        if table.owners is None or table.bounds is None:
            return Piece(number, table, coords, np.arange(len(full) + 1), full)
        counts = np.diff(table.bounds)
        whole = np.logical_and.reduceat(full, table.bounds[:-1]) if full.size else full
        whole &= (counts == np.prod(self.array.counts)) & ~(table.owners == np.array(beyond[1])).any(axis=1)
        return Piece(number, table, table.owners, table.bounds, whole)

    def objects(self, piece: Piece) -> tuple[list[str], list[str]]:
        """The objects that are covered whole. The reference path locks the others."""
        names = self.array.layout.names
        columns = [list(map(str, column)) for column in piece.objects[piece.whole].T.tolist()]
        prefix = f"{join_path(names.path, '_')[:-1]}{names.keys.prefix}"
        return list(map(prefix.__add__, map(names.keys.separator.join, zip(*columns, strict=True)))), []

    def write(self, piece: Piece, keys: Sequence[str], merged: Sequence[str]) -> Groups:
        """Write a batch, all but the parts that are returned. Raises: StoreError."""
        left = ~piece.whole
        if keys:
            chunks = np.flatnonzero(np.repeat(piece.whole, np.diff(piece.bounds)))
            try:
                encoded = self._encode(piece, chunks)
            except (CodecError, DeviceError):  # the reference path says what is wrong
                left[:] = True
            else:
                with stage("store") as noted:
                    if self.array.into is None:
                        self._store(keys, encoded)
                    else:
                        left[np.flatnonzero(piece.whole)] = self._put(self.array.into, piece, keys, chunks, encoded)
                    if noted:
                        nbytes = sum(int(some.sizes.sum()) for some in encoded)
                        noted.count(0, nbytes, nbytes)
        return self._parts(piece, left) if left.any() else []

    def _encode(self, piece: Piece, chunks: Indices) -> list[Packed]:
        """Encode chunks; those that are not among the result are not stored. Raises: CodecError, DeviceError."""
        resources, plan, device = self.resources, self.array.plan, self.resources.device
        if device.owns(self.value) and not why_not_cast(self.value.dtype, plan.chunk.dtype):
            values = values_of_table(device, plan, self.value, take(piece.table, chunks))
        else:
            parts = self.tables.parts(piece.number, piece.table, chunks.tolist())
            values = values_of(device, plan, self.value, parts)
        encoded: list[Packed] = []
        with resources.pipeline_slots.borrow(to_write=True) as pipeline_slot:

            def encode_some(some: slice) -> None:
                none = [None] * (some.stop - some.start)
                found = encode_batch(pipeline_slot, plan, none, (values, some, None), keep_empty=self.keep_empty)
                encoded.append(found._replace(numbers=found.numbers + some.start))

            def chunk_at(number: int) -> tuple[Coords, ArrayRepr]:
                return tuple(piece.table.coords[chunks[number]].tolist()), plan.chunk

            cost = write_memory(plan, plan.chunk.nbytes or 1)
            in_batches(pipeline_slot, chunks.size, cost, encode_some, chunk_at)
        return encoded

    def _store(self, keys: Sequence[str], encoded: Sequence[Packed]) -> None:
        """Give the store the chunks."""
        items: list[tuple[str, Buffer]] = []
        emptied = np.ones(len(keys), np.bool_)
        for numbers, host, starts, sizes in encoded:
            view = host_view(host)
            cuts = map(slice, starts.tolist(), (starts + sizes).tolist())
            items += zip(map(keys.__getitem__, numbers.tolist()), map(view.__getitem__, cuts), strict=True)
            emptied[numbers] = False
        if items:
            self.array.store.set_many(items)
        if emptied.any():
            self.array.store.delete_many([keys[number] for number in np.flatnonzero(emptied).tolist()])

    def _put(
        self, into: Put, piece: Piece, keys: Sequence[str], chunks: Indices, encoded: Sequence[Packed]
    ) -> NDArray[np.bool_]:
        """Store files or shards. Returns: which of the whole objects are left."""
        objects = piece.objects[piece.whole]
        places = np.arange(chunks.size)
        if self.array.counts:  # in the order of the index
            owner = places // np.prod(self.array.counts)
            inside = piece.table.coords[chunks] - objects[owner] * np.array(self.array.counts)
            places = owner * np.prod(self.array.counts) + inside @ np.array(self.array.steps)
        addresses, sizes = np.zeros(chunks.size, np.int64), np.full(chunks.size, -1, np.int64)
        for some in encoded:
            at = places[some.numbers]
            addresses[at] = some.host.__array_interface__["data"][0] + some.starts
            sizes[at] = some.sizes
        status = into.put(objects, addresses, sizes)
        emptied = np.flatnonzero(status == EMPTY).tolist()
        if emptied:
            into.target.tidy([keys[number] for number in emptied])
        return np.asarray(status == NOT_WRITTEN)

    def _parts(self, piece: Piece, left: NDArray[np.bool_]) -> Groups:
        """The parts of some objects, for the reference path."""
        owners = np.repeat(np.arange(left.size), np.diff(piece.bounds))
        chunks = np.flatnonzero(left[owners])
        parts = self.tables.parts(piece.number, piece.table, chunks.tolist())
        groups = groupby(zip(owners[chunks].tolist(), parts, strict=True), itemgetter(0))
        return [(tuple(piece.objects[owner].tolist()), [part for _, part in some]) for owner, some in groups]


def make_write(
    resources: Resources, array: Writable, box: BoxPlan, value: Any, *, keep_empty: bool
) -> DeviceWrite | str:
    """Prepare a write that the device encodes, or say why the reference path has to do it."""
    if (off := library.obstacle()) is not None:
        return off
    nbytes = array.plan.chunk.nbytes or 1
    size = batch_nchunks(box.nparts, nbytes, write_memory(array.plan, nbytes), resources.pipeline_slots.limit)
    most = max(batch_size(box, array.layout, size), int(np.prod(array.counts or (1,))))
    batches = make_batches(box, array.layout.objects, most)
    work = Work(box.nparts, nbytes, size, unlocked=True, waits=array.store.concurrency > 1)
    return DeviceWrite(resources, array, batches, value, keep_empty, work)
