"""Launches the placement kernels, which copy decoded chunks, and fill values of missing ones, to the result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Array, Fields
from gzarr.codecs.spec import fill_of
from gzarr.errors import DeviceError
from gzarr.gpu.codecs.batch import Chunks, Shuffle, Wave
from gzarr.gpu.codecs.dtypes import has_dtype, swap_unit
from gzarr.gpu.codecs.floats import cast, why_not_cast
from gzarr.gpu.codecs.transfers import (
    copy_boxes,
    plain_shuffle,
    reversed_units,
    rows_as_chunks,
    unshuffled,
    upload_tables,
)
from gzarr.gpu.device.protocol import Device
from gzarr.gpu.kernels import box_threads, point_threads, prefix_sums
from gzarr.gpu.kernels.parts import Boxes, Shuffles
from gzarr.gpu.pipeline.placement import DevicePlan
from gzarr.gpu.pipeline.placing import (
    BoxColumns,
    BoxTables,
    PointTables,
    Targets,
    box_tables,
    find_targets,
    spans_of_parts,
)
from gzarr.indexing.plan import Part

#: Numbers of parts; a slice for all.
Present: TypeAlias = Sequence[int] | NDArray[np.int64] | slice
#: Decoded chunks, and the parts that they belong to; the others are missing.
Decoded: TypeAlias = tuple[Chunks | None, Present]


class Copies(NamedTuple):
    """Boxes of chunks, each with a place of its own.

    Attributes
    ----------
    owner : NDArray[np.int64]
        int64 (n,), which chunk of the wave each is of.
    inside, counts : NDArray[np.int64]
        int64 (axes, n), first element in the chunk, and number of elements.
    target : NDArray[np.int64]
        int64 (n,), address of the first element.
    strides : NDArray[np.int64]
        int64 (axes, n), bytes from one element to the next in the target.
    """

    owner: NDArray[np.int64]
    inside: NDArray[np.int64]
    counts: NDArray[np.int64]
    target: NDArray[np.int64]
    strides: NDArray[np.int64]


def is_placeable(plan: DevicePlan, out: Array, fields: Fields) -> bool:
    """Whether the placement kernels can do a read: of numbers, or of one field of numbers in its own dtype.

    The host does casts for which the device would not give the same bits.
    """
    if fields is None:
        return not why_not_cast(plan.chunk.dtype, out.dtype)
    if isinstance(fields, list) or plan.chunk.dtype.fields is None:
        return False
    element = plan.chunk.dtype.fields[fields][0]
    return has_dtype(element) and bool(out.dtype == element.newbyteorder("="))


def launch_placement(
    wave: Wave,
    plan: DevicePlan,
    decoded: Decoded,
    tables: BoxTables | PointTables,
    out: Array,
    fields: Fields,
) -> None:
    """Copy parts of decoded chunks, and the fill value for missing ones, to the result."""
    chunks, tail, fill = _elements(wave, plan, decoded[0], out.dtype, fields)
    sources, info = _sources(chunks, decoded[1], tables.nparts)
    if isinstance(tables, BoxTables):
        _launch_box(wave, tables, plan.strides, (wave.device.address(out), out.strides), (sources, info, tail, fill))
    else:
        _launch_points(wave, tables, out, (sources, info, tail, fill))


def launch_copies(wave: Wave, plan: DevicePlan, decoded: Decoded, copies: Copies, dtype: np.dtype[Any]) -> None:
    """Make copies of decoded chunks, and of the fill value for missing ones. dtype: of the targets."""
    chunks, tail, fill = _elements(wave, plan, decoded[0], dtype, None)
    itemsize, _, copied, swap = tail
    owner, inside, counts, target, outside = copies
    sources, info = _sources(chunks, decoded[1], int(owner[-1]) + 1)
    shuffles = Shuffles(*(column[owner] for column in info))
    strides = np.broadcast_to(np.array(plan.strides, np.int64)[:, None] * itemsize, inside.shape)
    source = sources.view(np.int64)[owner]
    boxes = Boxes(source, (inside * strides).sum(axis=0), target, counts, strides, outside, copied)
    left = copy_boxes(wave, boxes, shuffles, (swap, fill), np.zeros(owner.size, np.bool_))
    for some in _alike(outside, left):
        # The target of each is an element of an axis of its own, that of the lowest address the first one.
        base = int(target[some].min())
        column = np.zeros(some.size, np.int64)
        spans = [(column, column, target[some] - base, column, column + 1)]
        spans += [(inside[a, some], column + 1, column, column + 1, counts[a, some]) for a in range(len(counts))]
        tables = _listed_tables(spans)
        places = base, (1, *outside[:, some[0]].tolist())
        common = sources[owner[some]], tuple(column[some] for column in shuffles), tail, fill
        _place_box(wave, tables, (0, *plan.strides), places, common)


def without_placed(decoded: Decoded, n: int) -> tuple[Decoded, Any, int]:
    """Leave out what decoders put into the result. n: number of parts.

    Returns: what is left, the numbers of its parts or a slice for all, and how many bytes are not left.
    """
    chunks, present = decoded
    if chunks is None or chunks.placed is None:
        return decoded, slice(None), 0
    here, left = np.zeros(n, np.bool_), np.ones(n, np.bool_)
    here[present], left[present] = True, ~chunks.placed
    nbytes = int(np.count_nonzero(chunks.placed)) * chunks.nbytes
    rest = None if chunks.placed.all() else chunks.take(~chunks.placed)
    return (rest, np.flatnonzero(here[left])), left, nbytes


def direct_targets(device: Device, plan: DevicePlan, columns: BoxColumns, out: Array) -> Targets | None:
    """Where in the result the decoder of streams can put chunks, as they are contiguous there; None if nowhere."""
    if not plan.ends_in_streams or out.dtype != plan.stored:
        return None
    strides = [stride * plan.stored.itemsize for stride in plan.strides]
    return find_targets(columns, (plan.chunk.shape, strides), (device.address(out), out.strides))


class DirectParts(NamedTuple):
    """Parts of which chunks may be decoded straight into the result.

    Attributes
    ----------
    columns : BoxColumns
        Their spans.
    spans : NDArray[np.int32]
        int32 (parts, ndim), which of these each part has on every axis.
    targets : Targets
        Where chunks are contiguous in the result.
    """

    columns: BoxColumns
    spans: NDArray[np.int32]
    targets: Targets


def direct_parts(device: Device, plan: DevicePlan, tables: BoxTables | PointTables, out: Array) -> DirectParts | None:
    """The parts of a wave, if some of its chunks are contiguous in the result; else None."""
    if not plan.ends_in_streams or not plan.strides or not isinstance(tables, BoxTables):
        return None
    columns = BoxColumns(tuple(np.split(tables.spans, tables.axis_base[1:])), tables.pool)
    targets = direct_targets(device, plan, columns, out)
    return None if targets is None else DirectParts(columns, tables.part_span, targets)


def place_boxes(
    wave: Wave,
    plan: DevicePlan,
    decoded: Decoded,
    parts: tuple[BoxColumns, NDArray[np.int32]],
    out: Array,
) -> int:
    """Launch the placement of what decoders did not put into the result. Returns: bytes of the parts in the result.

    parts: their spans, and which of these each part has on every axis.
    """
    columns, spans = parts
    decoded, left, nbytes = without_placed(decoded, len(spans))
    spans = spans[left]
    if not len(spans):
        return nbytes
    tables = columns.tables(spans)
    launch_placement(wave, plan, decoded, tables, out, None)
    return nbytes + int(tables.elem_start[-1]) * int(out.dtype.itemsize)


def launch_rows(
    wave: Wave, plan: DevicePlan, chunks: Chunks | None, present: Sequence[int], target: tuple[Array, Sequence[int]]
) -> None:
    """Copy whole decoded chunks into rows, as plain bytes in their stored order.

    present: the rows that the chunks belong to. target: the rows, uint8 (n, bytes), and which of them to write; rows
        without a chunk get the fill value.
    """
    rows, which = target
    stored, n = plan.stored, plan.chunk.nelements
    # Each chunk is one run of elements, and so are all rows together.
    whole = slice(0, n, 1)
    parts = [Part((i,), (whole,), (slice(i * n, (i + 1) * n, 1),), full=True) for i in which]
    place = {row: number for number, row in enumerate(which)}
    sources, info = _sources(chunks, [place[i] for i in present], len(which))
    fill = np.array(fill_of(plan.chunk)).astype(stored)
    common = sources, info, (stored.itemsize, 0, stored.itemsize, 0), fill
    _launch_box(wave, box_tables(parts, 1), (1,), (wave.device.address(rows), (stored.itemsize,)), common)


def _elements(
    wave: Wave, plan: DevicePlan, chunks: Chunks | None, wanted: np.dtype[Any], fields: Fields
) -> tuple[Chunks | None, tuple[int, int, int, int], NDArray[Any]]:
    """What is copied: chunks, cast to a dtype; bytes of an element, offset in it, bytes copied, and swap; the fill."""
    source = plan.stored
    offset, element = (0, source) if fields is None else _field(source, fields)
    native = element.newbyteorder("=")
    fill = np.array(fill_of(plan.chunk, fields)).astype(native)
    itemsize, swap = source.itemsize, swap_unit(element)
    if wanted != native:
        chunks = None if chunks is None else _cast(wave, plan, chunks, native, wanted)
        native, swap, itemsize = wanted, 0, wanted.itemsize
        with np.errstate(all="ignore"):  # as in chunks that are there
            fill = fill.astype(native)
    return chunks, (itemsize, offset, native.itemsize, swap), fill


def _alike(strides: NDArray[np.int64], which: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
    """Some copies by the strides of their targets, which are those of a few blocks."""
    while which.size:
        same = (strides[:, which] == strides[:, which[:1]]).all(axis=0)
        yield which[same]
        which = which[~same]


def _listed_tables(spans: Sequence[tuple[NDArray[np.int64], ...]]) -> BoxTables:
    """Tables of parts that have no span in common. spans: of each axis, the first five columns of `BoxTables.spans`."""
    n = spans[0][0].size
    rows = np.full((len(spans) * n, 7), -1, np.int64)
    rows[:, :5] = np.concatenate([np.stack(columns, axis=1) for columns in spans])
    counts = np.prod([columns[4] for columns in spans], axis=0)
    part_span = np.repeat(np.arange(n, dtype=np.int32)[:, None], len(spans), axis=1)
    return BoxTables(rows, np.arange(len(spans)) * n, part_span, prefix_sums(counts), np.zeros(1, np.int64))


def _sources(chunks: Chunks | None, present: Present, n: int) -> tuple[NDArray[np.uint64], tuple[NDArray[Any], ...]]:
    """The kernels' tables of chunks: addresses (0 if missing), and (mode, typesize, blocksize, bytes)."""
    sources = np.zeros(n, np.uint64)
    shuffle = plain_shuffle(n, 1)
    nbytes = np.ones(n, np.int64)
    if chunks is not None:
        sources[present] = chunks.addresses.astype(np.uint64)
        nbytes[present] = chunks.nbytes
        shuffle = _spread(chunks.shuffle or plain_shuffle(len(chunks), chunks.nbytes), present, n)
    return sources, (shuffle.mode, shuffle.typesize, shuffle.blocksize, nbytes)


def _launch_box(
    wave: Wave,
    tables: BoxTables,
    chunk_strides: Sequence[int],
    out: tuple[int, Sequence[int]],
    common: tuple[Any, ...],
) -> None:
    """Copy the parts by the fast kernels, where these can, else by place_box. out: address, and strides in bytes."""
    sources, info, (itemsize, offset, copied, swap), fill = common
    order = sorted(range(len(out[1])), key=lambda axis: -abs(out[1][axis]))
    columns = spans_of_parts(tables, order)
    inside = np.array([chunk_strides[axis] * itemsize for axis in order], np.int64)[:, None]
    outside = np.array([out[1][axis] for axis in order], np.int64)[:, None]
    boxes = Boxes(
        sources.view(np.int64),
        (columns.in_start * inside).sum(axis=0) + offset,
        (columns.out_start * outside).sum(axis=0) + out[0],
        columns.counts,
        columns.in_step * inside,
        columns.out_step * outside,
        copied,
    )
    left = copy_boxes(wave, boxes, Shuffles(*info), (swap, fill), columns.listed)
    if left.size:
        _place_box(wave, tables.only(left), chunk_strides, out, common)


def _place_box(
    wave: Wave,
    tables: BoxTables,
    chunk_strides: Sequence[int],
    out: tuple[int, Sequence[int]],
    common: tuple[Any, ...],
) -> None:
    """Launch place_box."""
    sources, info, (itemsize, offset, copied, swap), fill = common
    ndim = len(chunk_strides)
    columns = [np.ascontiguousarray(tables.spans[:, i]) for i in range(7)]
    strides = np.array(chunk_strides, np.int64), np.array(out[1], np.int64)
    places = upload_tables(
        wave,
        sources,
        tables.part_span,
        tables.axis_base,
        *columns,
        tables.pool,
        tables.elem_start.astype(np.int64),
        *strides,
        np.frombuffer(fill.tobytes(), np.uint8),
        *info,
    )
    source_at, span_at, base_at, *rest = places
    columns_at, (pool_at, elem_at, chunk_stride_at, out_stride_at, fill_at), info_at = rest[:7], rest[7:12], rest[12:]
    args = (tables.nparts, ndim, source_at, span_at, base_at, *columns_at, pool_at, elem_at, chunk_stride_at)
    args += (out[0], out_stride_at, itemsize, offset, copied, swap, fill_at, *info_at)
    wave.device.launch("place_box", box_threads(int(tables.elem_start[-1]), copied), args)


def _launch_points(wave: Wave, tables: PointTables, out: Array, common: tuple[Any, ...]) -> None:
    sources, info, (itemsize, offset, copied, swap), fill = common
    positions = tables.position * out.strides[0]
    fill_bytes = np.frombuffer(fill.tobytes(), np.uint8)
    places = upload_tables(wave, tables.part, tables.element, positions, sources, fill_bytes, *info)
    part_at, element_at, out_at, source_at, fill_at, *info_at = places
    args = (tables.part.size, part_at, element_at, out_at, source_at, wave.device.address(out))
    args += (itemsize, offset, copied, swap, fill_at, *info_at)
    wave.device.launch("place_points", point_threads(tables.part.size, copied), args)


def _field(dtype: np.dtype[Any], field: Any) -> tuple[int, np.dtype[Any]]:
    """Offset and dtype of a field of a structured dtype."""
    if dtype.fields is None:
        raise DeviceError(f"dtype {dtype} has no field {field!r}")
    element, offset = dtype.fields[field][:2]
    return int(offset), element


def _cast(wave: Wave, plan: DevicePlan, chunks: Chunks, native: np.dtype[Any], wanted: np.dtype[Any]) -> Chunks:
    """Cast the numbers of chunks to another dtype."""
    rows: Array = unshuffled(wave, chunks).rows
    if swap_unit(plan.stored):
        rows = reversed_units(wave, rows, swap_unit(plan.stored))
    rows = cast(wave, rows, native, wanted.newbyteorder("="))
    if swap_unit(wanted):
        rows = reversed_units(wave, rows, swap_unit(wanted))
    return rows_as_chunks(wave, rows)


def _spread(shuffle: Shuffle, present: Present, n: int) -> Shuffle:
    """The `Shuffle` of n parts, of which only those present have a chunk."""
    spread = plain_shuffle(n, 1)
    spread.mode[present] = shuffle.mode
    spread.typesize[present] = shuffle.typesize
    spread.blocksize[present] = shuffle.blocksize
    return spread
