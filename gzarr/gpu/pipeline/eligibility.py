"""Decides whether the device does a read or a write by tables, and says why the reference path has to if it does not.

Conditions on the array alone (its chain, layout and store) are checked at the first read or write and then remembered.
Conditions on the selection, the values and the settings are checked every time.
"""

from functools import cached_property
from math import prod

import numpy as np

from gzarr.backend import Array, Compiled, Fields, Placement, ReadExecutor, Work, WriteExecutor
from gzarr.cpu.compiled import library
from gzarr.cpu.compiled.points import make_point_batches
from gzarr.cpu.compiled.shards import ReadShards
from gzarr.cpu.compiled.source import PLAIN_ARRAYS
from gzarr.gpu.codecs.batch import has_dtype
from gzarr.gpu.native.fetch import make_fetch
from gzarr.gpu.pipeline.batches import Resources, batch_nchunks, batch_size, read_memory
from gzarr.gpu.pipeline.copies import memory_of
from gzarr.gpu.pipeline.launching import is_placeable
from gzarr.gpu.pipeline.placement import DevicePlan
from gzarr.gpu.pipeline.read_job import DeviceRead, Source
from gzarr.gpu.pipeline.write_job import MIN_NCHUNKS as MIN_WRITTEN_NCHUNKS
from gzarr.gpu.pipeline.write_job import Writable, make_writable, make_write
from gzarr.indexing.copies import CopyPlan, Plan, make_batches
from gzarr.indexing.plan import BoxPlan, PointPlan
from gzarr.indexing.tables import Batches
from gzarr.layout.chunk_layout import Layout
from gzarr.layout.sharded import Sharded
from gzarr.storage.base import Store


class DeviceJobs:
    """Decides which reads and writes of one array the device does by tables.

    Parameters
    ----------
    resources : Resources
        What batches are carried out with.
    store, layout
        Where the array's chunks are.
    plan : DevicePlan or None
        How the device decodes and encodes all chunks; None if they differ in shape.
    host : Compiled
        Decides which writes the host does by tables.
    """

    def __init__(
        self, resources: Resources, store: Store, layout: Layout, plan: DevicePlan | None, host: Compiled
    ) -> None:
        self._resources, self._store, self._layout, self._plan, self._host = resources, store, layout, plan, host

    def take_read(self, plan: Plan, nparts: int, out: Array, fields: Fields) -> ReadExecutor | str:
        """Return a read in batches, or the reason why the reference path has to do it. nparts: of the plan."""
        if not nparts:
            return "nothing is read"
        blocks = out if isinstance(plan, CopyPlan) else (out,)
        if not all(map(self._resources.device.owns, blocks)) or not has_dtype(blocks[0].dtype):
            return self._host.take_read(plan, nparts, out, fields)
        source = self._read
        if isinstance(source, str):
            return source
        if not all(is_placeable(source.plan, block, fields) for block in blocks):
            return "results of this kind or dtype are made by the reference path"
        decoding, resources, layout = source.plan, self._resources, self._layout
        if source.files is not None and (off := library.obstacle()) is not None:
            return off
        chunk_nbytes, limit = decoding.chunk.nbytes or 1, resources.pipeline_slots.limit
        nchunks = min(nparts, prod(axis.nchunks for axis in layout.grid))  # of points, perhaps fewer
        size = batch_nchunks(nchunks, chunk_nbytes, read_memory(decoding, chunk_nbytes), limit)
        if isinstance(plan, PointPlan):
            batches: Batches | None = make_point_batches(plan, layout, (decoding.strides, chunk_nbytes), 0, size)
            if batches is None:
                return "points of this grid are read by the reference path"
            nparts = batches.nchunks
        else:
            batches = make_batches(plan, layout.objects, batch_size(plan, layout, size))
        if isinstance(plan, CopyPlan):
            if fields is not None or not np.can_cast(decoding.chunk.dtype, out[0].dtype, "same_kind"):
                return "values would change their kind"
            nbytes = plan.nelements * int(out[0].dtype.itemsize)
        else:
            nbytes, decoded_nbytes = out.nbytes, nparts * (decoding.chunk.nbytes or 0)
            if decoding.host_decodes and resources.small_reads.prefers_host(nparts, decoded_nbytes, nbytes):
                return str(resources.small_reads)
        waits = self._store.concurrency > 1
        work = Work(nparts, nbytes // nparts, size, unlocked=True, waits=waits)
        shards = ReadShards(self._store, layout, batches) if isinstance(layout, Sharded) else None
        return DeviceRead(resources, source, batches, memory_of(resources.device, out), fields, work, shards)

    def reads_copies(self) -> bool:
        """Whether the device makes copies of the array's chunks."""
        return self._host.reads_copies() if self._of_records else not isinstance(self._read, str)

    def take_write(
        self, plan: Plan, nparts: int, value: Array, fields: Fields, *, keep_empty: bool
    ) -> WriteExecutor | str:
        """Return a write in batches, or the reason why the reference path has to do it.

        nparts: of the plan. keep_empty: as in `Backend.merge_and_encode`.
        """
        if nparts < MIN_WRITTEN_NCHUNKS:
            return "too few chunks to gain from tables"
        writable = self._write
        if isinstance(writable, str):
            return writable
        if not isinstance(plan, BoxPlan) or fields is not None:
            return "points and fields are written by the reference path"
        is_plain = type(value) in PLAIN_ARRAYS and not value.dtype.hasobject
        if not (is_plain or self._resources.device.owns(value)) or value.shape != plan.shape:
            return "values of this kind or shape are read by the reference path"
        if not self._resources.encodes(writable.plan, value, nparts, fields):
            return self._host.take_write(plan, nparts, value, fields, keep_empty=keep_empty)
        return make_write(self._resources, writable, plan, value, keep_empty=keep_empty)

    def basic(self) -> None:
        """Nothing: a device takes plans."""

    def placement(self) -> tuple[Placement, ...]:
        """Say what reads and writes many chunks, and why."""
        if self._of_records:
            return self._host.placement()  # but for single fields
        note = self._resources.reader.note
        decisions = (("bulk reads", self._read, f"; {note}" if note else ""), ("bulk writes", self._write, ""))
        return tuple(
            Placement(
                step,
                self._resources.device.name,
                f"by the reference path: {found}" if isinstance(found, str) else f"by tables{more}",
            )
            for step, found, more in decisions
        )

    @property
    def _of_records(self) -> bool:
        """Whether whole elements are on the host."""
        return self._plan is not None and not has_dtype(self._plan.chunk.dtype)

    @cached_property
    def _read(self) -> Source | str:
        """How the array is read by tables, or why it is not."""
        if (problem := library.problem()) is not None:
            return problem
        if self._plan is None:
            return "chunks differ in shape"
        if self._plan.host:
            return "codecs run on the host"
        if not self._layout.grid:
            return "the array has no axes"
        files = make_fetch(self._store, self._layout)
        if not isinstance(files, str):
            return Source(self._store, self._layout, self._plan, files)
        in_store = self._store.files is None and self._layout.objects is self._layout.grid
        return Source(self._store, self._layout, self._plan, None) if in_store else files

    @cached_property
    def _write(self) -> Writable | str:
        """The same of writes."""
        return make_writable(self._store, self._layout, self._plan)
