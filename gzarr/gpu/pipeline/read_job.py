"""Reads tables on the device, without an object for each chunk.

Theory of operation. A read is cut into batches, each one table (`gzarr.indexing.tables`). The pipeline slot that reads
a batch fetches its encoded chunks into one staging buffer, which gives offsets and sizes as columns. These become the
streams of the decoders, and the table becomes the descriptors of the placement kernels. Chunks that found no room in
the buffer are fetched once more, into one that is large enough. Of those of shards, the places are known before.

Rules: chunks that are odd in any way (files that cannot be read, damaged chunks) are left to the reference path, so its
answers and its errors are the only ones there are. All chunks of a shard are of one version (`ReadShards`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Work
from gzarr.codecs.spec import ArrayRepr
from gzarr.cpu.compiled.ranges import replaced
from gzarr.cpu.compiled.shards import ReadShards
from gzarr.errors import CodecError
from gzarr.gpu.codecs.batch import BatchContext, Chunks
from gzarr.gpu.device.pipeline_slots import PipelineSlot
from gzarr.gpu.device.protocol import Table
from gzarr.gpu.native.fetch import LEFT, MISSING, Fetch, Wanted
from gzarr.gpu.pipeline.batches import in_batches
from gzarr.gpu.pipeline.copies import Memory, box_copies, take
from gzarr.gpu.pipeline.placement import DevicePlan
from gzarr.gpu.pipeline.placing import place_batch
from gzarr.gpu.pipeline.read import decode_streams
from gzarr.gpu.pipeline.resources import Resources
from gzarr.gpu.pipeline.sizing import read_cost
from gzarr.gpu.reading.host import Batch, fetch_from_store
from gzarr.indexing.keys import Coords
from gzarr.indexing.plan import Groups, Part
from gzarr.indexing.tables import Batches, CopyTable
from gzarr.layout.chunk_layout import Layout
from gzarr.profiling.recorder import here, stage
from gzarr.storage.base import Store

#: Chunks whose sizes are asked for before the first buffer is taken, if its chunks have more decoded bytes than this.
_N_SAMPLED, _MAX_UNSAMPLED_NBYTES = 16, 1 << 22
#: A buffer is larger than the last chunks were, as chunks differ; alignment and checksums take some bytes for each.
_SPARE, _SPARE_NBYTES = 1.15, 32
#: Encoded chunks of more times the decoded bytes, and these besides, are left: an index may say anything.
_MAX_GROWTH, _MAX_OVERHEAD = 8, 1 << 16


class Source(NamedTuple):
    """The chunks of an array: where they are, and how the device decodes them.

    Attributes
    ----------
    store, layout
        Where they are.
    plan : DevicePlan
        Of all chunks.
    files : Fetch or None
        How they are found in local files; None if the store is asked for them.
    sizes : EncodedSizes
        How large they have been.
    """

    store: Store
    layout: Layout
    plan: DevicePlan
    files: Fetch | None
    sizes: EncodedSizes


class EncodedSizes:
    """How large the encoded chunks of an array are, as far as is known: staging buffers are sized by it.

    Attributes
    ----------
    mean : float or None
        Bytes of a chunk on average, of the batch where they were largest; None if nothing is known.
    """

    __slots__ = ("mean",)

    def __init__(self) -> None:
        self.mean: float | None = None

    def add(self, sizes: Table) -> None:
        """Learn the sizes of some chunks."""
        if sizes.size:  # the negative numbers of chunks without a size do not matter
            self.mean = max(self.mean or 0.0, int(sizes.sum()) / sizes.size)

    def buffer_nbytes(self, n: int, chunk_nbytes: int) -> int:
        """Bytes of a buffer for n chunks."""
        mean = chunk_nbytes if self.mean is None else self.mean
        return int(n * (mean * _SPARE + _SPARE_NBYTES)) + _SPARE_NBYTES


def _room(sizes: Table) -> int:
    """Bytes of a buffer for chunks of some sizes."""
    return int((np.maximum(sizes, 0) + _SPARE_NBYTES).sum()) + _SPARE_NBYTES


@dataclass(slots=True, eq=False)
class DeviceRead:
    """A read in batches.

    Attributes
    ----------
    resources, source
        What it is done with, and of which array.
    tables : Batches
        What is read.
    memory : Memory
        Where it goes.
    work : Work
        How much there is to do.
    shards : ReadShards or None
        The shards, if chunks are in shards.
    """

    resources: Resources
    source: Source
    tables: Batches
    memory: Memory
    work: Work
    shards: ReadShards | None = None
    stage = "locate"

    @property
    def batches(self) -> range:
        """The numbers of the batches."""
        return range(self.tables.n)

    def read(self, number: int) -> Groups:
        """Read a batch into the result, all but the parts that are returned. Raises: StoreError, DeviceError."""
        table: CopyTable = self.tables.table(number)
        if not table.nchunks:
            return []
        ranges = None if self.source.files is None else self.source.files.ranges
        found = None if ranges is None else ranges.rows(table.coords)
        if self.shards is not None:
            found = self.shards.find(number, table)
        odd, on_host = np.ones(table.nchunks, np.bool_), False
        wanted = Wanted(np.ascontiguousarray(table.coords), found)
        with self.resources.pipeline_slots.borrow() as pipeline_slot, suppress(CodecError):
            # The reference path says what is wrong.
            odd, on_host = self._read(pipeline_slot, table, wanted)
        if ranges is not None and found is not None and not on_host:
            odd |= replaced(found)
        if self.shards is None or found is None:
            parts = self.tables.parts(number, table, np.flatnonzero(odd).tolist())
            return [(part.coords, [part]) for part in parts]
        self.shards.give_up(number, table, found, odd, checked=on_host)
        return []

    def retry(self) -> Iterator[tuple[Coords, list[Part]]] | None:
        """All parts of the shards that were given up; None if none was."""
        return None if self.shards is None else self.shards.retry()

    def _read(self, pipeline_slot: PipelineSlot, table: CopyTable, wanted: Wanted) -> tuple[NDArray[np.bool_], bool]:
        """Read chunks into the result. Raises: CodecError.

        Returns: which of them are left, and whether files were read on the host.
        """
        batch = self._fetch(pipeline_slot, wanted, self._buffer_nbytes(pipeline_slot, wanted))
        odd: NDArray[np.bool_] = batch.sizes == LEFT
        waiting = (batch.offsets < 0) & (batch.sizes >= 0)
        on_host = batch.host is not None
        self._place(pipeline_slot, table, batch, ~odd & ~waiting)
        if wanted.shards is not None or not waiting.any():
            return odd | waiting, on_host
        numbers = np.flatnonzero(waiting)
        batch = self._fetch(pipeline_slot, Wanted(wanted.coords[numbers]), _room(batch.sizes[numbers]))
        ready = (batch.offsets >= 0) | (batch.sizes == MISSING)
        self._place(pipeline_slot, take(table, numbers), batch, ready)
        odd[numbers[~ready]] = True  # what grows while it is read, too
        return odd, on_host

    def _fetch(self, pipeline_slot: PipelineSlot, wanted: Wanted, nbytes: int) -> Batch:
        """Fetch chunks into a buffer of so many bytes."""
        store, layout, plan, files, sizes = self.source
        pipeline_slot.rewind()
        with stage("read") as noted:
            if files is None:
                keys = list(map(layout.key, map(tuple, wanted.coords.tolist())))
                batch = fetch_from_store(pipeline_slot, store, keys, plan.phase)
            else:
                batch = self.resources.reader.fetch(pipeline_slot, files, wanted, plan, nbytes)
            if noted:
                there = batch.sizes[batch.offsets >= 0]
                noted.count(there.size, int(there.sum()), int(there.sum()))
        sizes.add(batch.sizes)
        return batch

    def _buffer_nbytes(self, pipeline_slot: PipelineSlot, wanted: Wanted) -> int:
        """Bytes of a buffer for some chunks. If there are many and nothing is known, a few of them are asked for."""
        sizes, chunk_nbytes, n = self.source.sizes, self.source.plan.chunk.nbytes or 1, len(wanted.coords)
        if wanted.shards is not None:
            known = wanted.shards.rows[:, 1].astype(np.int64)
            known[known > _MAX_GROWTH * chunk_nbytes + _MAX_OVERHEAD] = 0  # which find no room
            sizes.add(known)
            return max(_room(known), sizes.buffer_nbytes(n, chunk_nbytes))
        if self.source.files and sizes.mean is None and n * chunk_nbytes > _MAX_UNSAMPLED_NBYTES:
            self._fetch(pipeline_slot, Wanted(wanted.coords[:: -(-n // _N_SAMPLED)].copy()), 0)
        return sizes.buffer_nbytes(n, chunk_nbytes)

    def _place(self, pipeline_slot: PipelineSlot, table: CopyTable, batch: Batch, ready: NDArray[np.bool_]) -> None:
        """Decode chunks, which are there or missing, and place them. ready: which. Raises: CodecError."""
        plan = self.source.plan
        if not ready.all():
            numbers = np.flatnonzero(ready)
            table, batch = take(table, numbers), batch.take(numbers)
        n, chunk_nbytes = table.nchunks, plan.chunk.nbytes or 1

        def place_some(some: slice) -> None:
            nonlocal table, batch
            if some.start == 0 and some.stop < n:
                # In the order of the buffer, so that a batch is a piece of it.
                order = np.argsort(batch.offsets, kind="stable")
                table, batch = take(table, order), batch.take(order)
            every = some.stop - some.start == n
            self._place_batch(
                pipeline_slot, table if every else take(table, some), batch if every else batch.take(some)
            )

        def chunk_at(number: int) -> tuple[Coords, ArrayRepr]:
            return tuple(table.coords[number].tolist()), plan.chunk

        in_batches(pipeline_slot, n, read_cost(plan, chunk_nbytes).memory, place_some, chunk_at, plan.reading)

    def _place_batch(self, pipeline_slot: PipelineSlot, table: CopyTable, batch: Batch) -> None:
        plan, there = self.source.plan, batch.offsets >= 0
        n, chunk_nbytes = int(np.count_nonzero(there)), plan.chunk.nbytes or 0
        present = slice(None) if n == there.size else np.flatnonzero(there)

        def decode(context: BatchContext) -> Chunks | None:
            if not n:
                return None
            streams = batch.take(present).streams(context)
            if noted := here():
                noted.count(n, int(streams.sizes.sum()), n * chunk_nbytes)
            return decode_streams(context, plan, streams)

        with stage("place") as placed:
            into = box_copies(plan, table, self.memory), self.memory, None
            nbytes = place_batch(pipeline_slot, plan, into, present, decode)
            placed.count(there.size, n * chunk_nbytes, nbytes)
