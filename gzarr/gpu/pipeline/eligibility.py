"""Decides whether the device does a read or a write in pieces, and says why the reference path has to if it does not.

Conditions on the array alone (its chain, layout and store) are checked at the first read or write and then remembered.
Conditions on the selection, the values and the settings are checked every time.
"""

from __future__ import annotations

from typing import NamedTuple

from gzarr.backend import Array, Compiled, Fields, PieceJob, Placement, Work
from gzarr.cpu.compiled.fetch import make_fetch
from gzarr.cpu.compiled.tables import Boxes
from gzarr.gpu.pipeline.launching import is_placeable
from gzarr.gpu.pipeline.placement import DevicePlan
from gzarr.gpu.pipeline.placing import box_columns
from gzarr.gpu.pipeline.read_job import DeviceRead, EncodedSizes, Source
from gzarr.gpu.pipeline.resources import Resources
from gzarr.gpu.pipeline.sizing import read_cost, wave_nchunks
from gzarr.gpu.pipeline.writable import Merge, Writable, make_writable
from gzarr.gpu.pipeline.write_job import MIN_NCHUNKS as MIN_WHOLE_NCHUNKS
from gzarr.gpu.pipeline.write_job import make_write
from gzarr.indexing.copies import Plan
from gzarr.indexing.plan import BoxPlan
from gzarr.layout.chunk_layout import Layout
from gzarr.storage.base import Store

#: The tables do not pay for fewer chunks.
MIN_NCHUNKS = 2


class Chunked(NamedTuple):
    """An array: where its chunks are, and how the device decodes and encodes them.

    Attributes
    ----------
    store, layout
        Where the chunks are.
    plan : DevicePlan or None
        Of all chunks; None if they differ in shape.
    merge : Merge
        Merges and encodes parts on the reference path.
    host : Compiled
        Decides which writes the host does in pieces.
    """

    store: Store
    layout: Layout
    plan: DevicePlan | None
    merge: Merge
    host: Compiled


class DeviceJobs:
    """Decides which reads and writes of one array the device does in pieces.

    Parameters
    ----------
    resources : Resources
        What pieces are carried out with.
    array : Chunked
        The array.
    """

    __slots__ = ("_array", "_read", "_resources", "_write")

    def __init__(self, resources: Resources, array: Chunked) -> None:
        self._resources, self._array = resources, array
        self._read: Source | str | None = None
        self._write: Writable | str | None = None

    def take_read(self, plan: Plan, nparts: int, out: Array, fields: Fields) -> PieceJob | str:
        """Return a read in pieces, or the reason why the reference path has to do it. nparts: of the plan."""
        if nparts < MIN_NCHUNKS:
            return "too few chunks to gain from tables"
        if not isinstance(plan, BoxPlan):
            return "points and copies are read by the reference path"
        source = self._read or self._decide()
        if isinstance(source, str):
            return source
        resources, decoding = self._resources, source.plan
        if not resources.device.owns(out) or fields is not None or not is_placeable(decoding, out, fields):
            return "results of this kind or dtype are made by the reference path"
        decoded_nbytes = nparts * (decoding.chunk.nbytes or 0)
        if decoding.host_decodes and resources.small_reads.prefers_host(nparts, decoded_nbytes, out.nbytes):
            return str(resources.small_reads)
        boxes = Boxes(plan)
        windows = boxes.windows(self._array.layout)
        if source.files is not None and (why := source.files.obstacle(nparts, windows.ends.size - 1)) is not None:
            return why
        size = wave_nchunks(nparts, read_cost(decoding, decoding.chunk.nbytes or 1), resources.lanes.limit)
        waits = self._array.store.concurrency > 1
        work = Work(nparts, out.nbytes // nparts, size, unlocked=True, waits=waits)
        return DeviceRead(resources, source, plan, windows, box_columns(plan), out, size, work)

    def take_write(self, plan: Plan, nparts: int, value: Array, fields: Fields, *, keep_empty: bool) -> PieceJob | str:
        """Return a write in pieces, or the reason why the reference path has to do it.

        nparts: of the plan. keep_empty: as in `Backend.merge_and_encode`.
        """
        if nparts < MIN_WHOLE_NCHUNKS:
            return "too few chunks to gain from tables"
        writable = self._write or self._decide_write()
        if isinstance(writable, str):
            return writable
        if not isinstance(plan, BoxPlan) or fields is not None:
            return "points and fields are written by the reference path"
        if getattr(value, "shape", None) != plan.shape or not hasattr(value, "dtype"):
            return "values of this kind or shape are read by the reference path"
        if not self._resources.encodes(writable.plan, value, nparts, fields):
            return self._array.host.take_write(plan, nparts, value, fields, keep_empty=keep_empty)
        return make_write(self._resources, writable, plan, value, keep_empty=keep_empty)

    def placement(self) -> tuple[Placement, ...]:
        """Say what reads and writes many chunks, and why."""
        note = self._resources.reader.note
        decisions = (
            ("bulk reads", self._read or self._decide(), f"; {note}" if note else ""),
            ("bulk writes", self._write or self._decide_write(), ""),
        )
        return tuple(
            Placement(
                step,
                self._resources.device.name,
                f"by the reference path: {found}" if isinstance(found, str) else f"by tables{more}",
            )
            for step, found, more in decisions
        )

    def _decide(self) -> Source | str:
        """Check the conditions on the array alone. Several threads may do so at the same time."""
        self._read = decision = _read_source(self._array)
        return decision

    def _decide_write(self) -> Writable | str:
        self._write = decision = make_writable(*self._array[:4])
        return decision


def _read_source(array: Chunked) -> Source | str:
    """How an array is read in pieces, or why it is not."""
    store, layout, plan, *_ = array
    if plan is None:
        return "chunks differ in shape"
    if plan.host:
        return "codecs run on the host"
    files = make_fetch(store, layout)
    if not isinstance(files, str):
        return Source(store, layout, plan, files, EncodedSizes())
    in_store = store.files is None and layout.objects is layout.grid
    return Source(store, layout, plan, None, EncodedSizes()) if in_store else files
