"""Reads tables on the device, without an object for each chunk.

Theory of operation. A read is cut into batches, each one table (`gzarr.indexing.tables`). The pipeline slot that reads
a batch fetches its encoded chunks into one staging buffer, which gives offsets and sizes as columns. These become the
streams of the decoders, and the table becomes the descriptors of the placement kernels. The sizes of chunks are known
before: of shards, by the index; files are asked for theirs, unless all must be of one size.

Rules: chunks that are odd in any way (files that cannot be read, damaged chunks) are left to the reference path, so its
answers and its errors are the only ones there are. All chunks of a shard are of one version (`ReadShards`).
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Fields, Work
from gzarr.codecs.spec import ArrayRepr
from gzarr.cpu.compiled.ranges import replaced
from gzarr.cpu.compiled.shards import ReadShards
from gzarr.cpu.threads import thread_count
from gzarr.errors import CodecError
from gzarr.gpu.codecs.batch import BatchContext, Chunks, Streams
from gzarr.gpu.device.pipeline_slots import PipelineSlot
from gzarr.gpu.native.fetch import MISSING, Fetch, Wanted, fetch
from gzarr.gpu.pipeline.batches import Resources, in_batches, read_memory
from gzarr.gpu.pipeline.copies import Memory, box_copies, boxes_of, take
from gzarr.gpu.pipeline.placement import DevicePlan
from gzarr.gpu.pipeline.placing import decode_streams, place_batch
from gzarr.gpu.reading.host import fetch_from_store
from gzarr.indexing.keys import Coords
from gzarr.indexing.plan import Groups, Part, PointTable
from gzarr.indexing.selection import Indices
from gzarr.indexing.tables import Batches, CopyTable
from gzarr.layout.chunk_layout import Layout
from gzarr.profiling.recorder import here, stage
from gzarr.storage.base import Store

#: Bytes of a buffer for each chunk besides its own: alignment.
_SPARE_NBYTES = 32
_NOTHING = np.empty(0, np.uint8)
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
    """

    store: Store
    layout: Layout
    plan: DevicePlan
    files: Fetch | None


def _buffer_nbytes(files: Fetch, wanted: Wanted, plan: DevicePlan) -> int:
    """Bytes of a buffer for some chunks."""
    chunk_nbytes = plan.chunk.nbytes or 1
    if wanted.shards is None and plan.encoded_nbytes is not None:
        # Larger files may leave no room for others, which are then read by the reference path.
        return len(wanted.coords) * (plan.encoded_nbytes + _SPARE_NBYTES) + _SPARE_NBYTES
    if wanted.shards is None:
        sizes = fetch(files, wanted, _NOTHING, n_threads=thread_count()).sizes
    else:
        sizes = wanted.shards.rows[:, 1].astype(np.int64)
    sizes[sizes > _MAX_GROWTH * chunk_nbytes + _MAX_OVERHEAD] = 0  # which find no room
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
    fields : Fields
        The field that is taken.
    work : Work
        How much there is to do.
    shards : ReadShards or None
        The shards, if chunks are in shards.
    """

    resources: Resources
    source: Source
    tables: Batches
    memory: Memory
    fields: Fields
    work: Work
    shards: ReadShards | None = None
    stage = "locate"

    @property
    def batches(self) -> range:
        """The numbers of the batches."""
        return range(self.tables.n)

    def read(self, number: int) -> Groups:
        """Read a batch into the result, all but the parts that are returned. Raises: StoreError, DeviceError."""
        table: CopyTable | PointTable = self.tables.table(number)
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
            odd, on_host = self._read(pipeline_slot, boxes_of(table), wanted)
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
        batch = self._fetch(pipeline_slot, wanted)
        ready = (batch.offsets >= 0) | (batch.sizes == MISSING)
        self._place(pipeline_slot, table, batch, ready, wanted.coords)
        return ~ready, batch.copy is not None

    def _fetch(self, pipeline_slot: PipelineSlot, wanted: Wanted) -> Streams:
        """Fetch chunks into a buffer."""
        store, layout, plan, files = self.source
        pipeline_slot.rewind()
        with stage("read") as noted:
            if files is None:
                keys = layout.keys(wanted.coords)
                batch = fetch_from_store(pipeline_slot, store, keys, plan.phase)
            else:
                nbytes = _buffer_nbytes(files, wanted, plan)
                batch = self.resources.reader.fetch(pipeline_slot, files, wanted, plan, nbytes)
            if noted:
                there = batch.sizes[batch.offsets >= 0]
                noted.count(there.size, int(there.sum()), int(there.sum()))
        return batch

    def _place(
        self, pipeline_slot: PipelineSlot, table: CopyTable, batch: Streams, ready: NDArray[np.bool_], coords: Indices
    ) -> None:
        """Decode chunks, which are there or missing, and place them. ready: which. Raises: CodecError."""
        plan = self.source.plan
        if not ready.all():
            numbers = np.flatnonzero(ready)
            table, batch, coords = take(table, numbers), batch.take(numbers), coords[numbers]
        n, chunk_nbytes = table.nchunks, plan.chunk.nbytes or 1

        def place_some(some: slice) -> None:
            nonlocal table, batch, coords
            if some.start == 0 and some.stop < n:
                # In the order of the buffer, so that a batch is a piece of it.
                order = np.argsort(batch.offsets, kind="stable")
                table, batch, coords = take(table, order), batch.take(order), coords[order]
            every = some.stop - some.start == n
            self._place_batch(
                pipeline_slot, table if every else take(table, some), batch if every else batch.take(some)
            )

        def chunk_at(number: int) -> tuple[Coords, ArrayRepr]:
            return tuple(coords[number].tolist()), plan.chunk

        in_batches(pipeline_slot, n, read_memory(plan, chunk_nbytes), place_some, chunk_at)

    def _place_batch(self, pipeline_slot: PipelineSlot, table: CopyTable, batch: Streams) -> None:
        plan, there = self.source.plan, batch.offsets >= 0
        n, chunk_nbytes = int(np.count_nonzero(there)), plan.chunk.nbytes or 0
        present = slice(None) if n == there.size else np.flatnonzero(there)

        def decode(context: BatchContext) -> Chunks | None:
            if not n:
                return None
            streams = batch.take(present).within(context)
            if noted := here():
                noted.count(n, int(streams.sizes.sum()), n * chunk_nbytes)
            return decode_streams(context, plan, streams)

        with stage("place") as placed:
            into = box_copies(plan, table, self.memory), self.memory, self.fields
            nbytes = place_batch(pipeline_slot, plan, into, present, decode)
            if placed:
                placed.count(there.size, n * chunk_nbytes, nbytes)
