"""Gathers and encodes whole chunks on the device by tables: from rows of spans to bytes in the host's memory.

Values are on the device, or on the host: then the compiled loop gathers them into chunks that are uploaded, unless they
are broadcast, and so small that the device repeats them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Array
from gzarr.cpu.compiled.put import MAX_NBYTES, Gather, make_gather
from gzarr.cpu.compiled.source import PLAIN_ARRAYS, swapped
from gzarr.cpu.compiled.tables import Boxes, Windows
from gzarr.errors import DeviceError
from gzarr.gpu.codecs.batch import Wave
from gzarr.gpu.codecs.floats import why_not_cast
from gzarr.gpu.codecs.transfers import new_rows
from gzarr.gpu.device.lanes import Lane
from gzarr.gpu.pipeline.gathering import Source, Target
from gzarr.gpu.pipeline.placement import DevicePlan
from gzarr.gpu.pipeline.placing import BoxColumns
from gzarr.gpu.pipeline.resources import Resources
from gzarr.gpu.pipeline.waves import in_waves
from gzarr.gpu.pipeline.write import downloaded, encoded_rows, find_written, merged_rows
from gzarr.indexing.plan import BoxPlan
from gzarr.indexing.selection import Indices
from gzarr.profiling.recorder import stage

#: How often a value must be repeated on broadcast axes to be repeated by the device.
_MIN_REPEATED = 64


class Values(NamedTuple):
    """Where the values come from.

    Attributes
    ----------
    array : Array
        An array on the device; or on the host, without its broadcast axes, to be uploaded with every wave.
    strides : tuple[int, ...]
        Of the value, in bytes: 0 on broadcast axes.
    gather : Gather or None
        How the loop gathers an array on the host into chunks, which are uploaded then.
    """

    array: Array
    strides: tuple[int, ...]
    gather: Gather | None = None


class Packed(NamedTuple):
    """Encoded chunks in the host's memory.

    Attributes
    ----------
    numbers : Indices
        int64 (n,): which of the piece they are.
    host : NDArray[np.uint8]
        uint8, their bytes.
    starts, sizes : Indices
        int64 (n,): where each begins, and how long it is.
    """

    numbers: Indices
    host: NDArray[np.uint8]
    starts: Indices
    sizes: Indices

    @property
    def addresses(self) -> Indices:
        """int64 (n,): where each begins in memory."""
        addresses: Indices = self.host.__array_interface__["data"][0] + self.starts
        return addresses


@dataclass(frozen=True, slots=True, eq=False)
class ChunkEncoder:
    """Encodes whole chunks of a write.

    Attributes
    ----------
    resources
        What this is done with.
    plan : DevicePlan
        How chunks are encoded.
    box : BoxPlan
        The plan of the write.
    columns : BoxColumns
        Its spans as tables.
    values : Values
        The values.
    drops : bool
        Whether chunks equal to the fill value are not stored.
    fitting : int
        How many chunks should fit into a lane.
    """

    resources: Resources
    plan: DevicePlan
    box: BoxPlan
    columns: BoxColumns
    values: Values
    drops: bool
    fitting: int

    def encode(self, spans: NDArray[np.int32]) -> list[Packed]:
        """Encode chunks; those that are not among the result are not stored. Raises: CodecError, DeviceError."""
        encoded: list[Packed] = []
        with self.resources.lanes.borrow_to_write() as lane:

            def wave(some: slice) -> None:
                found = self._encode_wave(lane, np.ascontiguousarray(spans[some]))
                if found is not None:
                    encoded.append(found._replace(numbers=found.numbers + some.start))

            def too_large(number: int) -> DeviceError:
                return self.resources.too_large(self.box.part(spans[number].tolist()).coords, self.plan.chunk)

            in_waves(lane, len(spans), self.fitting, wave, too_large)
        return encoded

    def _encode_wave(self, lane: Lane, spans: NDArray[np.int32]) -> Packed | None:
        """Encode chunks of a wave; None if all of them equal the fill value. Raises: CodecError, OverLimitError."""
        wave, found = Wave(lane.device, lane=lane), None
        rows: Any = None
        try:
            with stage("gather", timed=True):
                rows = self._rows(wave, lane, spans)
                which = find_written(wave, self.plan, rows) if self.drops else np.arange(len(spans))
            with stage("encode", timed=True):
                if which.size:
                    found = Packed(which, *downloaded(wave, encoded_rows(wave, self.plan, rows, which)))
            with stage("check"):
                wave.finish()
        finally:
            rows = None  # the error's traceback would hold them
            wave.drop()
        return found

    def _rows(self, wave: Wave, lane: Lane, part_spans: NDArray[np.int32]) -> Array:
        """The values as decoded chunks on the device: uint8 (n, bytes)."""
        n, nbytes, (array, given, gather) = len(part_spans), self.plan.chunk.nbytes or 0, self.values
        if gather is not None:
            staging = lane.slab(n * nbytes)
            gather.into(staging, part_spans)
            return wave.upload(staging).reshape(n, nbytes)
        if not lane.device.owns(array):
            array = wave.upload(array)
        strides = np.broadcast_to(np.array(given, np.int64), (n, len(given)))
        source = Source(array, array.dtype, wave.device.address(array), np.zeros(n, np.int64), strides, "value")
        order = tuple(sorted(range(len(given)), key=lambda axis: -self.plan.strides[axis]))
        columns = BoxColumns(tuple([self.columns.axes[axis] for axis in order]), self.columns.pool)
        tables = columns.tables(np.ascontiguousarray(part_spans[:, order]))
        target = Target((), order, "value", tables, np.full(n, self.plan.chunk.nelements))
        rows, _ = new_rows(wave, n, nbytes)
        return merged_rows(wave, self.plan, source, target, rows)


def find_values(resources: Resources, plan: DevicePlan, parts: tuple[Boxes, Windows], value: Any) -> Values | str:
    """Where the values of a write come from, or why the reference path has to read them. parts: the plan's."""
    if resources.device.owns(value):
        why = why_not_cast(value.dtype, plan.chunk.dtype)
        return why or Values(value, value.strides)
    if type(value) not in PLAIN_ARRAYS or value.dtype.hasobject:
        return "values of this kind are read by the reference path"
    broadcast = [axis for axis, step in enumerate(value.strides) if step == 0]
    if broadcast and value.nbytes >= _MIN_REPEATED * (single := _without(value, broadcast)).nbytes:
        native = plan.stored.newbyteorder("=")
        array = np.asarray(single, native, order="C")
        steps = np.cumprod([native.itemsize, *array.shape[:0:-1]])[::-1].tolist()
        return Values(array, tuple([0 if axis in broadcast else step for axis, step in enumerate(steps)]))
    swap = swapped(plan.stored, value.dtype)
    if swap is None or (plan.chunk.nbytes or 0) > MAX_NBYTES:
        return f"values of dtype {value.dtype} are cast by the reference path"
    strides = [n * value.itemsize for n in plan.strides]
    gather = make_gather(*parts, value, (plan.chunk.shape, strides), swap)
    return Values(value, value.strides, gather)


def _without(value: NDArray[Any], broadcast: Sequence[int]) -> NDArray[Any]:
    """A value with a single element on some axes."""
    return value[tuple([slice(0, 1) if axis in broadcast else slice(None) for axis in range(value.ndim)])]
