"""Decodes chunks in waves, and places them in one result or in slots; small results come from the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from gzarr.backend import Array, Fields
from gzarr.codecs.spec import ArrayRepr
from gzarr.errors import DeviceError
from gzarr.gpu.codecs.batch import Chunks, Wave
from gzarr.gpu.device.lanes import Lane
from gzarr.gpu.device.memory import OverLimitError
from gzarr.gpu.device.pinned import MAX_TABLE_NBYTES
from gzarr.gpu.device.protocol import Device, Table
from gzarr.gpu.pipeline.launching import direct_parts, launch_placement, place_boxes
from gzarr.gpu.pipeline.placement import DevicePlan
from gzarr.gpu.pipeline.placing import tables_of
from gzarr.gpu.pipeline.read import decoded
from gzarr.gpu.pipeline.resources import Resources
from gzarr.gpu.pipeline.sizing import later_nbytes, read_cost
from gzarr.gpu.pipeline.waves import in_waves, positions
from gzarr.gpu.reading.host import is_on_host
from gzarr.indexing.plan import Part
from gzarr.profiling.recorder import stage
from gzarr.storage.base import Buffer


class Placing(NamedTuple):
    """How the chunks of a wave are placed.

    Attributes
    ----------
    targets : Table or None
        The addresses to which chunks that are there are decoded, 0 for none; None if there are none.
    later : int
        Device memory that placing takes, besides a little for each chunk.
    place : callable
        Launches the placement of the wave's decoded chunks.
    """

    targets: Table | None
    later: int
    place: Callable[[Wave, Chunks | None], None]


#: Prepares the placement of a wave: takes it, and which of its chunks are there.
Prepare: TypeAlias = Callable[[slice, Sequence[int]], Placing]


def placing_in(device: Device, plan: DevicePlan, parts: Sequence[Part], out: Array, fields: Fields) -> Prepare:
    """What places the parts of a wave in one result."""

    def prepare(some: slice, present: Sequence[int]) -> Placing:
        tables = tables_of(parts[some], plan.strides)
        direct = direct_parts(device, plan, tables, out) if fields is None else None

        def place(wave: Wave, chunks: Chunks | None) -> None:
            if direct is None:
                launch_placement(wave, plan, (chunks, present), tables, out, fields)
            else:
                place_boxes(wave, plan, (chunks, present), direct[:2], out)

        return Placing(None if direct is None else direct.targets.of(direct.spans[present]), 0, place)

    return prepare


def place_on_device(
    resources: Resources,
    lane: Lane,
    plan: DevicePlan,
    buffers: Sequence[Any],
    parts: Sequence[Part],
    prepare: Prepare,
) -> None:
    """Decode and place chunks in waves. prepare: takes a wave, and which of its chunks are there."""

    def wave(some: slice) -> None:
        _place_wave(resources.device, lane, plan, buffers[some], lambda present: prepare(some, present))

    def too_large(number: int) -> DeviceError:
        return resources.too_large(parts[number].coords, plan.chunk)

    fitting = max(resources.lanes.limit // read_cost(plan, plan.chunk.nbytes or 1).memory, 1)
    in_waves(lane, len(parts), fitting, wave, too_large, plan.reading)


def _place_wave(
    device: Device, lane: Lane, plan: DevicePlan, buffers: Sequence[Any], prepare: Callable[[Sequence[int]], Placing]
) -> None:
    present = [i for i, buffer in enumerate(buffers) if buffer is not None]
    targets, later, place = prepare(present)
    wave = Wave(device, lane=lane, later=later_nbytes(plan, len(buffers)) + later, targets=targets)
    chunks = None
    try:
        with positions(present):
            with stage("decode", timed=True):
                chunks = decoded(wave, plan, [buffers[i] for i in present]) if present else None
            with stage("place", timed=True):
                place(wave, chunks)
            with stage("check"):
                wave.finish()
    finally:
        chunks = None  # else the error's traceback would hold them
        wave.drop()


def is_small(resources: Resources, plan: DevicePlan, buffers: Sequence[Buffer | None], out: Array) -> bool:
    """Whether decoding on the host and uploading once should be faster."""
    if not plan.host_decodes or out.nbytes > resources.small_reads.nbytes or not all(map(is_on_host, buffers)):
        return False
    present = sum(buffer is not None for buffer in buffers)
    return resources.small_reads.prefers_host(present, present * (plan.chunk.nbytes or 0), out.nbytes)


def place_from_host(resources: Resources, lane: Lane, decoded: Array, parts: Sequence[Part], out: Array) -> None:
    """Upload the parts of a result that the host has decoded, in few copies, which the host does not wait for."""
    pieces = [np.asarray(decoded[part.out], order="C") for part in parts]
    nbytes = sum(piece.nbytes for piece in pieces)
    lane.is_copying = True
    if len(pieces) < 2 or nbytes > min(resources.small_reads.nbytes, resources.lanes.limit // 2):
        mark, staged = lane.staging.mark(), 0
        for part, piece in zip(parts, pieces, strict=True):
            _upload_piece(resources, lane, part, piece, out)
            staged += piece.nbytes
            if staged > MAX_TABLE_NBYTES:
                resources.device.synchronize()
                lane.staging.rewind(mark)
                staged = 0
        return
    packed = resources.device.upload(np.concatenate([piece.reshape(-1) for piece in pieces]))
    start = 0
    for part, piece in zip(parts, pieces, strict=True):
        out[part.out] = packed[start : start + piece.size].reshape(piece.shape)
        start += piece.size


def _upload_piece(resources: Resources, lane: Lane, part: Part, piece: Array, out: Array) -> None:
    """Upload the part of one decoded chunk. Raises: DeviceError if it does not fit into the lane."""
    mark = lane.memory.mark()
    try:
        out[part.out] = resources.device.upload(piece)
    except OverLimitError:
        resources.device.synchronize()
        lane.memory.rewind(mark)
        lane.memory.compact()
        try:
            out[part.out] = resources.device.upload(piece)
        except OverLimitError as error:
            chunk = ArrayRepr(piece.dtype, piece.shape)
            raise resources.too_large(part.coords, chunk) from error
    lane.memory.rewind(mark)
