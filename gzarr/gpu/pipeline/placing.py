"""Decodes the chunks of a batch, first the host's steps, if any, then those of the device, and places them by table."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gzarr.backend import Array, Fields
from gzarr.errors import DeviceError
from gzarr.gpu.codecs.batch import ALIGNMENT, BatchContext, Chunks, upload_streams
from gzarr.gpu.codecs.transfers import upload_rows
from gzarr.gpu.device.pipeline_slots import PipelineSlot
from gzarr.gpu.pipeline.batches import Resources, in_batches, positions, read_memory
from gzarr.gpu.pipeline.copies import BoxCopies, Memory, copies_of, memory_of
from gzarr.gpu.pipeline.launching import place, place_plain
from gzarr.gpu.pipeline.placement import DevicePlan
from gzarr.indexing.copies import Slots
from gzarr.indexing.plan import Part
from gzarr.profiling.recorder import stage
from gzarr.storage.base import Buffer


def decoded(context: BatchContext, plan: DevicePlan, buffers: Sequence[Any]) -> Chunks:
    """Decode chunks that exist. buffers: for each, its bytes on the host.

    Raises: CodecError with the index of a damaged chunk; `BatchContext.finish` raises it for what decoders report.
    """
    there = _decoded_on_host(context, plan, buffers) if plan.host else upload_streams(context, buffers, plan.phase)
    return decode_streams(context, plan, there)


def decode_streams(context: BatchContext, plan: DevicePlan, batch: Any) -> Chunks:
    """Do the device's part of a chain. batch: `Streams` or, if the host has a part, perhaps `Chunks`.

    Raises: as `decoded`.
    """
    for decode in plan.device:
        batch = decode(context, batch)
    if not isinstance(batch, Chunks):
        raise DeviceError("a chain of codecs on the device did not end in chunks")
    return batch


def _decoded_on_host(context: BatchContext, plan: DevicePlan, buffers: Sequence[Any]) -> Any:
    """Do the host's part of a chain, and upload its result."""
    items = buffers
    for codec in reversed(plan.host):
        items = codec.decode(items)
    if isinstance(items[0], np.ndarray) and (not plan.device or items[0].ndim != 1 or items[0].dtype != np.uint8):
        return upload_rows(context, items, plan.encoded)
    return upload_streams(context, items)


#: Decodes the chunks of a batch that are there.
Decode = Callable[[BatchContext], Chunks | None]


def place_batch(
    pipeline_slot: PipelineSlot, plan: DevicePlan, into: tuple[BoxCopies, Memory, Fields], present: Any, decode: Decode
) -> int:
    """Decode chunks and place them. Returns: bytes of all copies. Raises: CodecError, OverLimitError.

    into: the copies, where they go, and the field that is taken. present: the numbers of the chunks that are there, or
    a slice for all.
    """
    copies, memory, fields = into
    context = BatchContext(pipeline_slot.device, pipeline_slot=pipeline_slot)
    chunks = None
    try:
        with stage("decode", timed=True):
            chunks = decode(context)
        with stage("place", timed=True):
            nbytes = place(context, plan, (chunks, present), copies, memory, fields)
        with stage("check"):
            context.finish()
    finally:
        chunks = None  # else an error's traceback would hold them
        context.drop()
    return nbytes


def place_parts(
    resources: Resources,
    pipeline_slot: PipelineSlot,
    plan: DevicePlan,
    buffers: Sequence[Any],
    wanted: tuple[Sequence[Part], Array | Slots, Fields],
) -> None:
    """Decode chunks that the reference path has loaded, and place their parts. Raises: CodecError(index)."""
    parts, out, fields = wanted
    memory = memory_of(resources.device, out.blocks if isinstance(out, Slots) else out)

    def place_some(some: slice) -> None:
        present = [i for i, buffer in enumerate(buffers[some]) if buffer is not None]
        there = [buffers[some.start + i] for i in present]
        into = copies_of(resources.device, plan, parts[some], out), memory, fields
        with positions(present):
            place_batch(
                pipeline_slot, plan, into, present, lambda context: decoded(context, plan, there) if there else None
            )

    cost = read_memory(plan, plan.chunk.nbytes or 1)
    in_batches(pipeline_slot, len(parts), cost, place_some, lambda i: (parts[i].coords, plan.chunk))


def is_small(resources: Resources, plan: DevicePlan, buffers: Sequence[Buffer | None], out: Array) -> bool:
    """Whether decoding on the host and uploading once should be faster."""
    if not plan.host_decodes or out.nbytes > resources.small_reads.nbytes:
        return False
    present = sum(buffer is not None for buffer in buffers)
    return resources.small_reads.prefers_host(present, present * (plan.chunk.nbytes or 0), out.nbytes)


def place_from_host(
    resources: Resources, pipeline_slot: PipelineSlot, plan: DevicePlan, decoded: Any, parts: Sequence[Part], out: Any
) -> None:
    """Upload the parts of a result that the host has decoded, in one copy."""
    if not parts:
        return
    places = [(decoded, out, part.out) for part in parts]
    if isinstance(out, Slots):
        copies = [copy.out for part in parts for copy in part.out]
        places = [(decoded.blocks[n], out.blocks[n], (slice(row, row + 1), *at)) for n, row, *at in copies]
    naxes = len(parts[0].out) if isinstance(parts[0].out, tuple) else 1
    if isinstance(out, Slots) or out.ndim > naxes:  # or a field whose elements are arrays
        for here, there, at in places:
            there[at] = resources.device.upload(np.ascontiguousarray(here[at]))
        resources.device.synchronize()
        return
    memory = memory_of(resources.device, out)

    def place_some(some: slice) -> None:
        context = BatchContext(pipeline_slot.device, pipeline_slot=pipeline_slot)
        source = packed(context, [np.asarray(decoded[part.out]) for part in parts[some]], out.dtype)
        place_plain(
            context, source.addresses, of_packed(copies_of(pipeline_slot.device, plan, parts[some], out)), memory
        )
        context.drop()

    cost = 2 * out.nbytes // len(parts)
    in_batches(pipeline_slot, len(parts), cost, place_some, lambda i: (parts[i].coords, plan.chunk))


def packed(context: BatchContext, pieces: Sequence[Array], dtype: np.dtype[Any]) -> Memory:
    """Cast arrays on the host, each of which belongs to a chunk, and upload them in one copy.

    An array that occurs several times is uploaded once. Axes of length 1 may stand for longer ones.
    """
    starts, strides = [], []
    places: dict[int, int] = {}
    total = 0
    for piece in pieces:
        if id(piece) not in places:
            places[id(piece)] = total
            total += -(-piece.size * dtype.itemsize // ALIGNMENT) * ALIGNMENT
        starts.append(places[id(piece)])
        steps = np.cumprod([dtype.itemsize, *piece.shape[:0:-1]])[::-1] if piece.ndim else ()
        strides.append([0, *(0 if n == 1 else step for n, step in zip(piece.shape, steps, strict=True))])
    staging = context.device.staging(max(total, 1))
    for piece in pieces:
        start = places.pop(id(piece), None)
        if start is not None:
            nbytes = piece.size * dtype.itemsize
            staging[start : start + nbytes].view(dtype).reshape(piece.shape)[...] = piece
    there = context.upload(staging)
    return Memory(
        context.device.address(there) + np.array(starts, np.int64), np.array(strides, np.int64), dtype, rows=1
    )


def of_packed(copies: BoxCopies) -> BoxCopies:
    """The same copies of arrays that hold what is copied alone, each in C order of the array's axes."""
    steps = np.ones_like(copies.counts)
    order = np.argsort(copies.order).tolist()
    counts = copies.counts[order]
    steps[:-1] = counts[:0:-1].cumprod(axis=0)[::-1]
    return replace(
        copies,
        start=np.zeros_like(copies.start),
        inside=steps[list(copies.order)],
        in_list=np.full_like(copies.in_list, -1),
    )
