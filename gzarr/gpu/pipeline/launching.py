"""Launches the kernels that copy between chunks and other memory, by columns (`gzarr.gpu.pipeline.copies`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Array, Fields
from gzarr.codecs.spec import fill_of
from gzarr.errors import DeviceError
from gzarr.gpu.codecs.batch import BatchContext, Chunks, Shuffle
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
from gzarr.gpu.device.protocol import Table
from gzarr.gpu.kernels import PLAIN, box_threads, point_threads, prefix_sums
from gzarr.gpu.kernels.parts import Boxes, Shuffles
from gzarr.gpu.pipeline.copies import BoxCopies, Copies, Memory, PointCopies
from gzarr.gpu.pipeline.placement import DevicePlan

#: Decoded chunks, and the chunks of the table that they are, by their numbers or a slice; the others are missing.
Decoded: TypeAlias = tuple[Chunks | None, Sequence[int] | NDArray[np.int64] | slice]
#: Bytes of the numbers whose order is reversed, or 0; and what missing chunks are full of.
Values: TypeAlias = tuple[int, NDArray[Any]]


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


def place(
    context: BatchContext, plan: DevicePlan, decoded: Decoded, copies: Copies, memory: Memory, fields: Fields = None
) -> int:
    """Launch the copies of decoded chunks, and of the fill value for missing ones, that decoders have not put in place.

    Returns: bytes of all copies.
    """
    (chunks, present), copies, nbytes = _without_placed(decoded, copies)
    if not copies.nchunks:
        return nbytes
    chunks, element, fill = _elements(context, plan, chunks, memory.dtype, fields)
    return nbytes + _place(context, _sources(chunks, present, copies.nchunks), copies, memory, (element, fill))


def place_plain(context: BatchContext, addresses: Table, copies: Copies, memory: Memory) -> None:
    """Launch the copies of plain memory, by addresses of what belongs to each chunk, of the dtype of the result."""
    itemsize = memory.dtype.itemsize
    fill = np.zeros(1, memory.dtype)
    sources = addresses, _shuffles(None, slice(0), copies.nchunks)
    _place(context, sources, copies, memory, ((itemsize, 0, itemsize, 0), fill))


def _place(
    context: BatchContext,
    chunks: tuple[Table, Shuffles],
    copies: Copies,
    memory: Memory,
    values: tuple[tuple[int, int, int, int], NDArray[Any]],
) -> int:
    """Launch copies. Returns: their bytes. chunks: addresses, and how they are shuffled. values: see `_elements`."""
    (sources, shuffles), ((itemsize, offset, copied, swap), fill) = chunks, values
    if isinstance(copies, PointCopies):
        into = int(memory.addresses[0]), memory.of_points(copies) - memory.addresses[0]
        points = copies.owner, copies.element * itemsize + offset
        _launch_points(context, points, into, chunks, (copied, (swap, fill)))
        return copies.owner.size * copied
    owner = copies.owner
    boxes = Boxes(
        source=sources[owner],
        start=copies.start * itemsize + offset,
        target=copies.target,
        counts=copies.counts,
        source_strides=copies.inside * itemsize,
        target_strides=copies.outside,
        nbytes=copied,
        source_lists=copies.in_list,
        target_lists=copies.out_list,
    )
    _launch_boxes(context, boxes, shuffles.take(owner), (swap, fill), copies.lists)
    return int(copies.nelements.sum()) * copied


def gather(context: BatchContext, plan: DevicePlan, copies: Copies, memory: Memory, rows: Array) -> None:
    """Copy values into chunks.

    memory: of the values. rows: uint8 (chunks, bytes) on the device, chunks in stored order. Elements of the chunks'
        dtype get their stored byte order; others, which are cast later, are native.
    """
    given = memory.dtype
    wanted = plan.stored if given.newbyteorder("=") == plan.stored.newbyteorder("=") else given.newbyteorder("=")
    swap = 0 if given.isnative == wanted.isnative else max(swap_unit(given), swap_unit(wanted))
    address, nbytes, itemsize = context.device.address(rows), rows.shape[1], given.itemsize
    values = swap, np.zeros(itemsize, np.uint8)
    if isinstance(copies, PointCopies):
        base = memory.addresses[:1]
        into = address, copies.owner * np.int64(nbytes) + copies.element * itemsize
        owner, source = np.zeros_like(copies.owner), (base, _shuffles(None, slice(0), 1))
        _launch_points(context, (owner, memory.of_points(copies) - base), into, source, (itemsize, values))
        return
    boxes = Boxes(
        source=copies.target,
        start=np.zeros_like(copies.target),
        target=address + copies.owner * nbytes + copies.start * itemsize,
        counts=copies.counts,
        source_strides=copies.outside,
        target_strides=copies.inside * itemsize,
        nbytes=itemsize,
        source_lists=copies.out_list,
        target_lists=copies.in_list,
    )
    _launch_boxes(context, boxes, _shuffles(None, slice(0), copies.owner.size), values, copies.lists)


def launch_rows(
    context: BatchContext,
    plan: DevicePlan,
    chunks: Chunks | None,
    present: Sequence[int],
    target: tuple[Array, Sequence[int]],
) -> None:
    """Copy whole decoded chunks into rows, as plain bytes in their stored order.

    present: the rows that the chunks belong to. target: the rows, uint8 (n, bytes), and which of them to write; rows
        without a chunk get the fill value.
    """
    rows, which = target
    size, n = plan.stored.itemsize, len(which)
    place = {row: number for number, row in enumerate(which)}
    sources, shuffles = _sources(chunks, [place[i] for i in present], n)
    # Each chunk is one run of elements.
    counts, strides = (np.full((1, n), number, np.int64) for number in (plan.chunk.nelements, size))
    addresses = context.device.address(rows) + np.array(which, np.int64) * rows.shape[1]
    boxes = Boxes(sources, np.zeros(n, np.int64), addresses, counts, strides, strides, size)
    _launch_boxes(context, boxes, shuffles, (0, np.array(fill_of(plan.chunk)).astype(plan.stored)), _NO_LISTS)


_NO_LISTS = np.empty(0, np.int64)


def _without_placed(decoded: Decoded, copies: Copies) -> tuple[Decoded, Copies, int]:
    """Leave out the chunks that decoders put into the result. Returns: what is left, and bytes that are not left."""
    chunks, present = decoded
    if chunks is None or chunks.placed is None or not isinstance(copies, BoxCopies):
        return decoded, copies, 0
    here, left = np.zeros(copies.nchunks, np.bool_), np.ones(copies.nchunks, np.bool_)
    here[present], left[present] = True, ~chunks.placed
    nbytes = int(np.count_nonzero(chunks.placed)) * chunks.nbytes
    rest = None if chunks.placed.all() else chunks.take(~chunks.placed)
    return (rest, np.flatnonzero(here[left])), copies.of_chunks(left), nbytes


def _elements(
    context: BatchContext, plan: DevicePlan, chunks: Chunks | None, wanted: np.dtype[Any], fields: Fields
) -> tuple[Chunks | None, tuple[int, int, int, int], NDArray[Any]]:
    """What is copied: chunks, cast to a dtype; bytes of an element, offset in it, bytes copied, and swap; the fill."""
    source = plan.stored
    offset, element = (0, source) if fields is None else _field(source, fields)
    native = element.newbyteorder("=")
    fill = np.array(fill_of(plan.chunk, fields)).astype(native)
    itemsize, swap = source.itemsize, swap_unit(element)
    if wanted != native:
        chunks = None if chunks is None else _cast(context, plan, chunks, native, wanted)
        native, swap, itemsize = wanted, 0, wanted.itemsize
        with np.errstate(all="ignore"):  # as in chunks that are there
            fill = fill.astype(native)
    return chunks, (itemsize, offset, native.itemsize, swap), fill


def _sources(chunks: Chunks | None, present: Any, n: int) -> tuple[Table, Shuffles]:
    """Addresses of n chunks, 0 for those that are missing, and how they are shuffled."""
    sources = np.zeros(n, np.int64)
    if chunks is not None:
        sources[present] = chunks.addresses
    return sources, _shuffles(chunks, present, n)


def _shuffles(chunks: Chunks | None, present: Any, n: int) -> Shuffles:
    """How n chunks are shuffled, of which those present are given."""
    plain = plain_shuffle(n, 1)
    shuffles = Shuffles(plain.mode, plain.typesize, plain.blocksize, np.ones(n, np.int64))
    if chunks is not None:
        shuffle = chunks.shuffle or plain_shuffle(len(chunks), chunks.nbytes)
        own = shuffle.mode, shuffle.typesize, shuffle.blocksize, chunks.nbytes
        for column, values in zip(shuffles, own, strict=True):
            np.asarray(column)[present] = values
    return shuffles


def _launch_boxes(context: BatchContext, boxes: Boxes, shuffles: Shuffles, values: Values, lists: Table) -> None:
    """Copy boxes by the fast kernels, where these can, else by place_box, from chunks that are unshuffled first."""
    left = copy_boxes(context, boxes, shuffles, values)
    boxes, shuffles = boxes.take(left), shuffles.take(left)
    plain = _unshuffled(context, boxes.source, shuffles)
    if plain is not boxes.source:
        boxes, shuffles = (
            replace(boxes, source=plain),
            _shuffles(None, slice(0), left.size)._replace(nbytes=shuffles.nbytes),
        )
        left = copy_boxes(context, boxes, shuffles, values)
        boxes, shuffles = boxes.take(left), shuffles.take(left)
    if not left.size:
        return
    swap, fill = values
    none = np.full(boxes.counts.shape, -1, np.int64)
    named = [none if column is None else column for column in (boxes.source_lists, boxes.target_lists)]
    elements = prefix_sums(boxes.counts.prod(axis=0, dtype=np.int64))
    columns = boxes.source, boxes.start, boxes.target, boxes.counts, boxes.source_strides, boxes.target_strides
    fill_bytes = np.frombuffer(fill.tobytes(), np.uint8)
    *tables, fill_at, nbytes = upload_tables(context, *columns, *named, lists, elements, fill_bytes, shuffles.nbytes)
    args = (left.size, len(boxes.counts), *tables, boxes.nbytes, swap, fill_at, nbytes)
    context.device.launch("place_box", box_threads(int(elements[-1]), boxes.nbytes), args)


def _unshuffled(context: BatchContext, sources: Table, shuffles: Shuffles) -> Table:
    """Addresses of chunks, or of plain copies of those that are shuffled, each of which is made once."""
    odd = np.flatnonzero((sources != 0) & (shuffles.mode != PLAIN))
    if not odd.size:
        return sources
    addresses, first, number = np.unique(sources[odd], return_index=True, return_inverse=True)
    how = shuffles.take(odd[first])
    plain = unshuffled(context, Chunks(None, addresses, int(how.nbytes[0]), None, Shuffle(*how[:3])))
    sources = sources.copy()
    sources[odd] = plain.addresses[number]
    return sources


def _launch_points(
    context: BatchContext,
    points: tuple[NDArray[np.int32], Table],
    into: tuple[int, Table],
    source: tuple[Table, Shuffles],
    values: tuple[int, Values],
) -> None:
    """Copy single elements.

    points: the chunk of each, and its bytes in there. into: an address, and the offset of each. source: addresses of
    chunks, and how they are shuffled. values: bytes of an element, and the rest.
    """
    (owner, position), (address, offsets), (nbytes, (swap, fill)) = points, into, values
    fill_bytes = np.frombuffer(fill.tobytes(), np.uint8)
    sources = _unshuffled(context, *source)
    tables = owner, position, offsets, sources, fill_bytes, source[1].nbytes
    owner_at, from_at, into_at, source_at, fill_at, nbytes_at = upload_tables(context, *tables)
    args = (owner.size, owner_at, from_at, into_at, source_at, address, nbytes, swap, fill_at, nbytes_at)
    context.device.launch("place_points", point_threads(owner.size, nbytes), args)


def _field(dtype: np.dtype[Any], field: Any) -> tuple[int, np.dtype[Any]]:
    """Offset and dtype of a field of a structured dtype."""
    if dtype.fields is None:
        raise DeviceError(f"dtype {dtype} has no field {field!r}")
    element, offset = dtype.fields[field][:2]
    return int(offset), element


def _cast(
    context: BatchContext, plan: DevicePlan, chunks: Chunks, native: np.dtype[Any], wanted: np.dtype[Any]
) -> Chunks:
    """Cast the numbers of chunks to another dtype."""
    rows: Array = unshuffled(context, chunks).rows
    if swap_unit(plan.stored):
        rows = reversed_units(context, rows, swap_unit(plan.stored))
    rows = cast(context, rows, native, wanted.newbyteorder("="))
    if swap_unit(wanted):
        rows = reversed_units(context, rows, swap_unit(wanted))
    return rows_as_chunks(context, rows)
