"""Writes batches of chunks: merges them, compares them with the fill value and encodes them, on the device.

Theory of operation. Chunks that are only partly covered are decoded as for a read. One launch brings them into *rows*,
plain chunks in their stored order, and fills in missing ones. One launch copies the new values into the rows. One
launch finds the rows that equal the fill value; their flags are downloaded, and these rows are left out. The encoders
run, their results are packed unless they lie close together, and one copy downloads them into pinned memory, of which
the results are views. The host runs the codecs that the device lacks.

A NumPy value is uploaded batch by batch. The parts that a batch needs are packed into staging memory in the dtype of
the chunks, so NumPy casts them as in an assignment; broadcast axes are packed once. An array on the device is read in
place, whatever its strides. Its numbers are cast on the device if the result is the same on every machine; else they
are downloaded and cast on the host.

Rules: results of decoders and encoders are checked once, when the batch is done; the value is not read after that. A
batch that raises OverLimitError has changed nothing but its own memory.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Array, Fields
from gzarr.codecs.spec import ArrayRepr, fill_of
from gzarr.cpu.backend import as_numpy
from gzarr.errors import CodecError
from gzarr.gpu.codecs.batch import ALIGNMENT, BatchContext, Chunks, Encoded, has_dtype, swap_unit
from gzarr.gpu.codecs.floats import cast, why_not_cast
from gzarr.gpu.codecs.transfers import (
    ROOM,
    byte_ranges,
    copy_streams,
    new_places,
    new_rows,
    reversed_units,
    row_addresses,
)
from gzarr.gpu.device.pipeline_slots import PipelineSlot
from gzarr.gpu.device.protocol import Device, Table
from gzarr.gpu.kernels import row_threads
from gzarr.gpu.kernels.sources import UNIT_NBYTES
from gzarr.gpu.pipeline.batches import in_batches, positions
from gzarr.gpu.pipeline.copies import (
    BoxCopies,
    Memory,
    as_packed,
    box_copies,
    distinct,
    from_chunks,
    memory_of,
    table_of,
    take,
)
from gzarr.gpu.pipeline.launching import element_of, gather, launch_rows
from gzarr.gpu.pipeline.placement import DevicePlan, EncodePlan
from gzarr.gpu.pipeline.placing import decoded, of_packed, packed
from gzarr.indexing.plan import Part
from gzarr.indexing.tables import CopyTable
from gzarr.profiling.recorder import stage
from gzarr.storage.base import Buffer, host_view

#: Encoded chunks are downloaded as they lie if there are no more bytes than this behind each; others are packed first.
_MOST_BEHIND = ROOM + ALIGNMENT
#: Brings the values of some chunks to the device: (batch, range of the chunks) -> what is copied, and where it is.
Values: TypeAlias = Callable[[BatchContext, slice], tuple[BoxCopies, Memory]]


def values_of(device: Device, plan: DevicePlan, value: Any, parts: Sequence[Part], fields: Fields = None) -> Values:
    """What brings the values of parts to the device. A lazy value is read now.

    value: an array on the device or of NumPy, or anything lazy that is indexed like them, such as an array of gzarr.
    """
    dtype = element_of(plan.chunk.dtype, fields)[1].newbyteorder("=")

    def separate(context: BatchContext, memory: Memory, some: slice) -> tuple[BoxCopies, Memory]:
        return _gathered(plan, parts[some], memory), memory

    if device.owns(value):
        if not why_not_cast(value.dtype, dtype):
            memory = memory_of(device, value)
            return lambda context, some: (_gathered(plan, parts[some], memory), memory)
        return lambda context, some: separate(
            context, packed(context, _on_host(context, plan, value, parts[some]), dtype), some
        )
    if isinstance(value, np.ndarray):
        return lambda context, some: separate(context, packed(context, _views(value, parts[some]), dtype), some)
    pieces = [_adopted(device, value[part.out], dtype) for part in parts]
    dtypes = {piece.dtype for piece in pieces}
    if len(dtypes) == 1 and all(map(device.owns, pieces)) and not why_not_cast(pieces[0].dtype, dtype):
        return lambda context, some: separate(context, _of_arrays(device, pieces[some]), some)

    def downloaded(context: BatchContext, some: slice) -> tuple[BoxCopies, Memory]:
        there = [device.download(piece) if device.owns(piece) else np.asarray(piece) for piece in pieces[some]]
        return separate(context, packed(context, there, dtype), some)

    return downloaded


def values_of_table(device: Device, plan: DevicePlan, value: Array, table: CopyTable) -> Values:
    """What brings the values of a table to the device, which are on it already, and need not be cast on the host."""
    memory = memory_of(device, value)

    def values(context: BatchContext, some: slice) -> tuple[BoxCopies, Memory]:
        return box_copies(plan, distinct(take(table, some)), memory, plan.order), memory

    return values


def _gathered(plan: DevicePlan, parts: Sequence[Part], memory: Memory) -> BoxCopies:
    """What is copied into the chunks of parts, every element once. memory: of the whole value, or of each part."""
    table = table_of(plan, parts)
    if memory.rows:
        table = as_packed(table)._replace(slots=np.arange(len(parts)))
    return box_copies(plan, distinct(table), memory, plan.order)


def download_parts(
    pipeline_slot: PipelineSlot, plan: DevicePlan | None, value: Array, parts: Sequence[Part]
) -> list[NDArray[Any]]:
    """The parts of an array on the device, for the host to write. Raises: DeviceError."""
    pieces, chunk = list[NDArray[Any]](), ArrayRepr(value.dtype, value.shape) if plan is None else plan.chunk

    def download_some(some: slice) -> None:
        context = BatchContext(pipeline_slot.device, pipeline_slot=pipeline_slot)
        pieces.extend(_on_host(context, plan, value, parts[some]))
        context.drop()

    nbytes = 2 * value.nbytes // max(len(parts), 1)
    in_batches(pipeline_slot, len(parts), nbytes, download_some, lambda i: (parts[i].coords, chunk))
    return pieces


def _on_host(context: BatchContext, plan: DevicePlan | None, value: Array, parts: Sequence[Part]) -> list[NDArray[Any]]:
    """The parts of an array on the device, packed there and brought to the host in one copy if the device can."""
    ndim = len(parts[0].out) if isinstance(parts[0].out, tuple) else 1
    if plan is None or not has_dtype(value.dtype) or value.ndim > ndim:  # the last: a field whose elements are arrays
        return [context.device.download(value[part.out]) for part in parts]
    memory = memory_of(context.device, value)
    copies = box_copies(plan, table_of(plan, parts), memory)
    native, sizes = value.dtype.newbyteorder("="), copies.nelements
    there, addresses = new_places(context, sizes * native.itemsize)
    gather(context, plan, of_packed(copies), memory, addresses)
    dtype = plan.stored if plan.stored.newbyteorder("=") == native else native
    host = context.device.download(there, context.result(there.nbytes))
    ends, shapes = addresses + sizes * native.itemsize, copies.counts[np.argsort(copies.order)].T.tolist()
    cuts = map(slice, (addresses - addresses[0]).tolist(), (ends - addresses[0]).tolist())
    return [host[cut].view(dtype).reshape(shape) for cut, shape in zip(cuts, shapes, strict=True)]


def _of_arrays(device: Device, pieces: Sequence[Array]) -> Memory:
    """Parts that are separate arrays on the device, of one dtype."""
    addresses = np.array([device.address(piece) for piece in pieces], np.int64)
    strides = np.array([(0, *piece.strides) for piece in pieces], np.int64)
    return Memory(addresses, strides, pieces[0].dtype, rows=1)


def _views(value: np.ndarray[Any, Any], parts: Sequence[Part]) -> list[np.ndarray[Any, Any]]:
    """The parts of a NumPy value. Broadcast axes have length 1, and equal parts are one array."""
    repeated = [axis for axis in range(value.ndim) if value.strides[axis] == 0]
    if not repeated or not isinstance(parts[0].out, tuple):
        return [value[part.out] for part in parts]
    seen: dict[tuple[Any, ...], np.ndarray[Any, Any]] = {}
    views = []
    for part in parts:
        index = list(part.out)
        listed = sum(not isinstance(item, slice) for item in index) > 1
        for axis in repeated:
            index[axis] = np.zeros((1,) * value.ndim, np.int64) if listed else slice(0, 1)
        name = tuple(None if axis in repeated else id(item) for axis, item in enumerate(part.out))
        if name not in seen:
            seen[name] = value[tuple(index)]
        views.append(seen[name])
    return views


def _adopted(device: Device, piece: Any, dtype: np.dtype[Any]) -> Any:
    if device.owns(piece):
        return piece
    adopted = device.adopt(piece)
    return as_numpy(piece, dtype) if adopted is None or not device.owns(adopted) else adopted


class Packed(NamedTuple):
    """Encoded chunks in the host's memory.

    Attributes
    ----------
    numbers : Table
        int64 (n,): which chunks they are.
    host : NDArray[np.uint8]
        uint8, their bytes.
    starts, sizes : Table
        int64 (n,): where each begins, and how long it is.
    """

    numbers: Table
    host: NDArray[np.uint8]
    starts: Table
    sizes: Table


def encode_batch(
    pipeline_slot: PipelineSlot,
    plan: DevicePlan,
    old: Sequence[Buffer | None],
    values: tuple[Values, slice, Fields],
    *,
    keep_empty: bool,
) -> Packed:
    """Merge chunks and do the device's part of their encoding. Chunks that now hold the fill value are left out.

    old: the old contents of each. values: what gives the new values, the range of its chunks that these are, and the
    field that they are written to.
    Raises: CodecError with the index of the chunk, OverLimitError.
    """
    decoding, encoding = (BatchContext(pipeline_slot.device, pipeline_slot=pipeline_slot) for _ in range(2))
    present = [i for i, buffer in enumerate(old) if buffer is not None]
    written: Any = np.arange(len(old))
    bring, some, fields = values
    rows = copies = memory = None
    found = Packed(written[:0], np.empty(0, np.uint8), written[:0], written[:0])
    try:
        with stage("gather", timed=True):
            copies, memory = bring(encoding, some)
        with positions(present), stage("decode", timed=True):
            covered = copies.covered == plan.chunk.nelements if fields is None else np.zeros(len(old), np.bool_)
            rows = _old_rows(decoding if present else encoding, plan, old, covered)
        with stage("gather", timed=True):
            rows = _merged(encoding, plan, (copies, memory, fields), rows, whole=bool(covered.all()))
            if not keep_empty and plan.chunk.fill_value is not None:
                written = _find_written(encoding, plan, rows)
        with positions(written), stage("encode", timed=True):
            if written.size:
                found = Packed(written, *_downloaded(encoding, _encoded(encoding, plan, rows, written)))
        with positions(present), stage("check"):
            decoding.finish()
        with positions(written), stage("check"):
            encoding.finish()
    finally:
        rows = copies = memory = None  # the error's traceback would hold them
        decoding.drop()
        encoding.drop()
    return found


def buffers_of(plan: EncodePlan, encoded: Packed, n: int) -> list[Buffer | None]:
    """The new contents of n chunks, after the host's part of the encoding. Raises: CodecError(index)."""
    buffers: list[Buffer | None] = [None] * n
    for number, start, size in zip(*(column.tolist() for column in encoded[::2]), encoded.sizes.tolist(), strict=True):
        buffers[number] = _encoded_on_host(plan, encoded.host[start : start + size], number)
    return buffers


def _old_rows(
    context: BatchContext, plan: DevicePlan, old: Sequence[Buffer | None], covered: NDArray[np.bool_]
) -> Array:
    """Rows with what will not be written over: old contents, or the fill value. Other rows are not initialized."""
    n, nbytes = len(old), plan.chunk.nbytes or 0
    present = [i for i, buffer in enumerate(old) if buffer is not None]
    chunks = decoded(context, plan, [old[i] for i in present]) if present else None
    if chunks is not None and len(present) == n and chunks.rows is not None and chunks.shuffle is None:
        return chunks.rows
    rows, _ = new_rows(context, n, nbytes)
    merged = ~covered
    merged[present] = True
    which = np.flatnonzero(merged).tolist()
    if which:
        launch_rows(context, plan, chunks, present, (rows, which))
    return rows


def _merged(
    context: BatchContext, plan: DevicePlan, values: tuple[BoxCopies, Memory, Fields], rows: Array, *, whole: bool
) -> Array:
    """Rows with the new values in them, cast if these are of another dtype. whole: whether nothing else is in them."""
    copies, memory, fields = values
    native, given = element_of(plan.stored, fields)[1].newbyteorder("="), memory.dtype.newbyteorder("=")
    if given != native:
        raw, addresses = new_rows(context, copies.nchunks, plan.chunk.nelements * given.itemsize)
        gather(context, plan, copies, memory, addresses)
        made = cast(context, raw, given, native)
        if whole:
            unit = swap_unit(plan.stored)
            return reversed_units(context, made, unit) if unit else made
        copies, memory = from_chunks(copies, row_addresses(context, made), native)
    gather(context, plan, copies, memory, row_addresses(context, rows), fields)
    return rows


def _find_written(context: BatchContext, plan: DevicePlan, rows: Array) -> NDArray[np.int64]:
    """The rows that do not equal the fill value, bit for bit. Waits."""
    fill = np.frombuffer(np.array(fill_of(plan.chunk)).astype(plan.stored).tobytes(), np.uint8)
    (n, nbytes), period = rows.shape, math.lcm(fill.size, UNIT_NBYTES)
    staging = context.device.staging(period + n)
    staging[:period] = np.tile(fill, period // fill.size)
    staging[period:] = 0
    table = context.upload(staging)
    address = context.device.address(table)
    args = (n, nbytes, context.device.address(rows), period // UNIT_NBYTES, address, address + period)
    context.device.launch("find_written", row_threads(n, nbytes), args)
    return np.flatnonzero(context.device.download(table[period:]))


def _encoded(context: BatchContext, plan: DevicePlan, rows: Array, which: NDArray[np.int64]) -> Chunks | Encoded:
    """Some of the rows, after the device's part of the encoding. Raises: CodecError with the index among them."""
    batch: Chunks | Encoded = _chunks(context, rows, which)
    for encode in plan.encoding.device:
        batch = encode(context, batch)
    return batch


def _chunks(context: BatchContext, rows: Array, which: NDArray[np.int64]) -> Chunks:
    """Some of the rows, as chunks where they are."""
    n, nbytes = rows.shape
    addresses = context.device.address(rows) + which * nbytes
    return Chunks(rows, addresses, nbytes, rows if len(which) == n else None)


def _downloaded(context: BatchContext, batch: Chunks | Encoded) -> tuple[NDArray[np.uint8], Table, Table]:
    """Download encoded chunks in one copy. Returns: pinned memory, and where in it each begins and how long it is."""
    _, sizes = byte_ranges(batch)
    staging_buffer, places = batch.owner, batch.addresses
    if staging_buffer is None or staging_buffer.nbytes > sizes.sum() + _MOST_BEHIND * sizes.size:
        staging_buffer, places = new_places(context, sizes)
        copy_streams(context, batch.addresses, places, sizes)
    staging_buffer, starts = staging_buffer.reshape(-1), places - context.device.address(staging_buffer)
    return context.device.download(staging_buffer, context.result(staging_buffer.nbytes)), starts, sizes


def _encoded_on_host(plan: EncodePlan, data: NDArray[np.uint8], index: int) -> Buffer:
    """Do the host's part of a chain for one chunk. Raises: CodecError(index)."""
    if not plan.host:
        return host_view(data)
    item: Any = data
    if isinstance(plan.handed, ArrayRepr):
        native = plan.handed.dtype.newbyteorder("=")
        item = data.view(native).reshape(plan.handed.shape).astype(plan.handed.dtype, copy=False)
    try:
        for codec in plan.host:
            (item,) = codec.encode((item,))
    except CodecError as error:
        error.index = index
        raise
    encoded: Buffer = item
    return encoded
