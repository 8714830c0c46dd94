"""Writes waves of chunks: merges them, compares them with the fill value and encodes them, on the device.

Theory of operation. Chunks that are only partly covered are decoded as for a read. One launch brings them into *rows*,
plain chunks in their stored order, and fills in missing ones. One launch copies the new values into the rows. One
launch finds the rows that equal the fill value; their flags are downloaded, and these rows are dropped. The encoders
run, their results are packed, and one copy downloads them into pinned memory, of which the results are views. The host
runs the codecs that the device lacks.

Rules: results of decoders and encoders are checked once, when the wave is done; the value is not read after that. A
wave that raises OverLimitError has changed nothing but its own memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Array
from gzarr.codecs.spec import ArrayRepr, fill_of
from gzarr.errors import CodecError
from gzarr.gpu.codecs.batch import Chunks, Encoded, Wave
from gzarr.gpu.codecs.dtypes import swap_unit
from gzarr.gpu.codecs.floats import cast
from gzarr.gpu.codecs.transfers import ALIGNMENT, copy_streams, new_rows, reversed_units
from gzarr.gpu.device.lanes import Lane
from gzarr.gpu.device.protocol import Table
from gzarr.gpu.kernels import row_threads
from gzarr.gpu.kernels.sources import UNIT_NBYTES
from gzarr.gpu.pipeline.gathering import Source, Target, gather, target_of
from gzarr.gpu.pipeline.launching import launch_rows
from gzarr.gpu.pipeline.placement import DevicePlan, EncodePlan
from gzarr.gpu.pipeline.placing import BoxTables
from gzarr.gpu.pipeline.read import decoded
from gzarr.gpu.pipeline.values import Values
from gzarr.gpu.pipeline.waves import positions
from gzarr.indexing.plan import Part
from gzarr.profiling.recorder import stage
from gzarr.storage.base import Buffer, host_view


def merge_and_encode_wave(
    lane: Lane,
    plan: DevicePlan,
    old: Sequence[Buffer | None],
    parts: Sequence[Part],
    values: tuple[Values, slice],
    *,
    keep_empty: bool,
) -> list[Buffer | None]:
    """New contents of chunks, encoded; None for those that now hold the fill value. See `Backend.merge_and_encode`.

    values: what gives the new values, and the range of its parts that these are.
    Raises: CodecError with the index of the chunk, OverLimitError.
    """
    decoding, encoding = Wave(lane.device, lane=lane), Wave(lane.device, lane=lane)
    present = [i for i, buffer in enumerate(old) if buffer is not None]
    written: Sequence[int] = range(len(parts))
    source: Any = None
    rows: Any = None
    try:
        source = values[0](encoding, values[1])
        target = target_of(plan, parts, source.indexing)
        with positions(present), stage("decode", timed=True):
            rows = _old_rows(decoding, plan, old, target)
        with stage("gather", timed=True):
            rows = merged_rows(encoding, plan, source, target, rows)
            if not keep_empty and plan.chunk.fill_value is not None:
                written = find_written(encoding, plan, rows).tolist()
        with positions(written), stage("encode", timed=True):
            data = _encoded(encoding, plan, rows, written) if written else []
        with positions(present), stage("check"):
            decoding.finish()
        with positions(written), stage("check"):
            encoding.finish()
    finally:
        rows = source = None  # the error's traceback would hold them
        decoding.drop()
        encoding.drop()
    encoded: list[Buffer | None] = [None] * len(parts)
    for i, item in zip(written, data, strict=True):
        encoded[i] = item
    return encoded


def _old_rows(wave: Wave, plan: DevicePlan, old: Sequence[Buffer | None], target: Target) -> Array:
    """Rows with what will not be written over: old contents, or the fill value. Other rows are not initialized."""
    n, nbytes = len(old), plan.chunk.nbytes or 0
    present = [i for i, buffer in enumerate(old) if buffer is not None]
    chunks = decoded(wave, plan, [old[i] for i in present]) if present else None
    if chunks is not None and len(present) == n and chunks.rows is not None and chunks.shuffle is None:
        return chunks.rows
    rows, _ = new_rows(wave, n, nbytes)
    covered = target.counts == plan.chunk.nelements
    which = [i for i in range(n) if old[i] is not None or not covered[i]]
    if which:
        launch_rows(wave, plan, chunks, present, (rows, which))
    return rows


def merged_rows(wave: Wave, plan: DevicePlan, source: Source, target: Target, rows: Array) -> Array:
    """Rows with the new values in them, cast if these are of another dtype."""
    native = plan.stored.newbyteorder("=")
    given = source.dtype.newbyteorder("=")
    if given != native:
        source, whole = _cast(wave, plan, source, target)
        if whole is not None:
            return whole
    gather(wave, plan, source, target, rows)
    return rows


def _cast(wave: Wave, plan: DevicePlan, source: Source, target: Target) -> tuple[Source, Array | None]:
    """Cast values to the chunks' dtype, in rows of their own.

    Returns: the cast values as a source, and as rows if they cover the chunks.
    """
    native, given = plan.stored.newbyteorder("="), source.dtype.newbyteorder("=")
    n, elements = target.counts.size, plan.chunk.nelements
    raw, _ = new_rows(wave, n, elements * given.itemsize)
    gather(wave, plan, source, target, raw)
    rows = cast(wave, raw, given, native)
    if bool(np.all(target.counts == elements)):
        unit = swap_unit(plan.stored)
        return source, reversed_units(wave, rows, unit) if unit else rows
    starts = np.arange(n, dtype=np.int64) * rows.shape[1]
    axes = np.array(plan.strides if isinstance(target.tables, BoxTables) else (1,), np.int64) * native.itemsize
    strides = np.broadcast_to(axes, (n, axes.size))
    return Source(rows, native, wave.device.address(rows), starts, strides, "chunk"), None


def find_written(wave: Wave, plan: DevicePlan, rows: Array) -> NDArray[np.int64]:
    """The rows that do not equal the fill value, bit for bit. Waits."""
    fill = np.frombuffer(np.array(fill_of(plan.chunk)).astype(plan.stored).tobytes(), np.uint8)
    n, nbytes = rows.shape
    staging = wave.device.staging(UNIT_NBYTES + n)
    staging[:UNIT_NBYTES] = np.tile(fill, UNIT_NBYTES // fill.size)
    staging[UNIT_NBYTES:] = 0
    table = wave.upload(staging)
    address = wave.device.address(table)
    args = (n, nbytes, wave.device.address(rows), address, address + UNIT_NBYTES)
    wave.device.launch("find_written", row_threads(n, nbytes), args)
    return np.flatnonzero(wave.device.download(table[UNIT_NBYTES:]))


def _encoded(wave: Wave, plan: DevicePlan, rows: Array, which: Sequence[int]) -> list[Buffer]:
    """Some of the rows, encoded, in host memory. Raises: CodecError with the index among them."""
    host, starts, sizes = downloaded(wave, encoded_rows(wave, plan, rows, np.array(which, np.int64)))
    places = enumerate(zip(starts.tolist(), sizes.tolist(), strict=True))
    return [_encoded_on_host(plan.encoding, host[start : start + size], i) for i, (start, size) in places]


def encoded_rows(wave: Wave, plan: DevicePlan, rows: Array, which: NDArray[np.int64]) -> Chunks | Encoded:
    """Some of the rows, after the device's part of the encoding. Raises: CodecError with the index among them."""
    batch: Chunks | Encoded = _chunks(wave, rows, which)
    for encode in plan.encoding.device:
        batch = encode(wave, batch)
    return batch


def _chunks(wave: Wave, rows: Array, which: NDArray[np.int64]) -> Chunks:
    """Some of the rows, as contiguous chunks."""
    nbytes = rows.shape[1]
    addresses = wave.device.address(rows) + which * nbytes
    if len(which) < rows.shape[0]:
        together, places = new_rows(wave, len(which), nbytes)
        copy_streams(wave, addresses, places, np.full(len(which), nbytes, np.int64))
        rows, addresses = together, places
    return Chunks(rows, addresses, nbytes, rows)


def downloaded(wave: Wave, batch: Chunks | Encoded) -> tuple[NDArray[np.uint8], Table, Table]:
    """Download encoded chunks in one copy. Returns: pinned memory, and where in it each begins and how long it is."""
    sizes = batch.sizes if isinstance(batch, Encoded) else np.full(len(batch), batch.nbytes, np.int64)
    if isinstance(batch, Chunks) and batch.rows is not None:
        slab, starts = batch.rows.reshape(-1), np.arange(len(batch), dtype=np.int64) * batch.nbytes
    else:
        ends = np.cumsum(-(-sizes // ALIGNMENT) * ALIGNMENT)
        starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
        slab = wave.empty(int(ends[-1]))
        copy_streams(wave, batch.addresses, wave.device.address(slab) + starts, sizes)
    return wave.device.download(slab, wave.result(slab.nbytes)), starts, sizes


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
