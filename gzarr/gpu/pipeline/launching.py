"""Launches the kernels that copy between chunks and other memory, by columns (`gzarr.gpu.pipeline.copies`)."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Array, Fields
from gzarr.codecs.spec import fill_of
from gzarr.gpu.codecs.batch import BatchContext, Chunks, has_dtype, swap_unit
from gzarr.gpu.codecs.floats import cast, why_not_cast
from gzarr.gpu.codecs.transfers import copy_boxes, reversed_units, rows_as_chunks, unshuffled
from gzarr.gpu.device.protocol import Table
from gzarr.gpu.kernels.parts import Boxes, Shuffles, plain_shuffles, runs
from gzarr.gpu.pipeline.copies import BoxCopies, Memory
from gzarr.gpu.pipeline.placement import DevicePlan

#: Decoded chunks, and the chunks of the table that they are, by their numbers or a slice; the others are missing.
Decoded: TypeAlias = tuple[Chunks | None, Sequence[int] | NDArray[np.int64] | slice]


def is_placeable(plan: DevicePlan, out: Array, fields: Fields) -> bool:
    """Whether the placement kernels can do a read: of numbers, or of one field of numbers in its own dtype.

    The host does casts for which the device would not give the same bits.
    """
    if fields is None:
        return not why_not_cast(plan.chunk.dtype, out.dtype)
    return has_element(plan, fields) and bool(out.dtype == element_of(plan.chunk.dtype, fields)[1].newbyteorder("="))


def has_element(plan: DevicePlan, fields: Fields) -> bool:
    """Whether elements of chunks, or one field of theirs, are numbers that the device has."""
    return not isinstance(fields, list) and has_dtype(element_of(plan.chunk.dtype, fields)[1])


def element_of(dtype: np.dtype[Any], fields: Any) -> tuple[int, np.dtype[Any]]:
    """Offset and dtype of what is copied of each element: all of it, or a field of a structured dtype."""
    if fields is None or dtype.fields is None:
        return 0, dtype
    element, offset = dtype.fields[fields][:2]
    return int(offset), element


def place(
    context: BatchContext, plan: DevicePlan, decoded: Decoded, copies: BoxCopies, memory: Memory, fields: Fields = None
) -> int:
    """Launch the copies of decoded chunks, and of the fill value for missing ones. Returns: bytes of all copies."""
    chunks, present = decoded
    chunks, element, fill = _elements(context, plan, chunks, memory.dtype, fields)
    return _place(context, _sources(chunks, present, copies.nchunks), copies, (element, fill))


def place_plain(context: BatchContext, addresses: Table, copies: BoxCopies, memory: Memory) -> None:
    """Launch the copies of plain memory, by addresses of what belongs to each chunk, of the dtype of the result."""
    itemsize = memory.dtype.itemsize
    values = (itemsize, 0, itemsize, 0), np.zeros(1, memory.dtype)
    _place(context, (addresses, plain_shuffles(copies.nchunks)), copies, values)


def _place(
    context: BatchContext,
    chunks: tuple[Table, Shuffles],
    copies: BoxCopies,
    values: tuple[tuple[int, int, int, int], NDArray[Any]],
) -> int:
    """Launch copies. Returns: their bytes. chunks: addresses, and how they are shuffled. values: see `_elements`."""
    (sources, shuffles), ((itemsize, offset, copied, swap), fill), owner = chunks, values, copies.owner
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
        lists=copies.lists,
    )
    copy_boxes(context, boxes, shuffles.take(owner), (swap, fill))
    return int(copies.nelements.sum()) * copied


def gather(
    context: BatchContext, plan: DevicePlan, copies: BoxCopies, memory: Memory, addresses: Table, fields: Fields = None
) -> None:
    """Copy values into chunks, or into one field of their elements.

    memory: of the values. addresses: int64 (chunks,), of chunks in stored order. Elements of the chunks' dtype get
        their stored byte order; others, which are cast later, are native.
    """
    given, (offset, element) = memory.dtype, element_of(plan.stored, fields)
    wanted = element if given.newbyteorder("=") == element.newbyteorder("=") else given.newbyteorder("=")
    swap = 0 if given.isnative == wanted.isnative else max(swap_unit(given), swap_unit(wanted))
    itemsize = given.itemsize if fields is None else plan.stored.itemsize
    boxes = Boxes(
        source=copies.target,
        start=np.zeros_like(copies.target),
        target=addresses[copies.owner] + offset + copies.start * itemsize,
        counts=copies.counts,
        source_strides=copies.outside,
        target_strides=copies.inside * itemsize,
        nbytes=given.itemsize,
        source_lists=copies.out_list,
        target_lists=copies.in_list,
        lists=copies.lists,
    )
    copy_boxes(context, boxes, plain_shuffles(copies.owner.size), (swap, np.zeros(given.itemsize, np.uint8)))


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
    addresses = context.device.address(rows) + np.array(which, np.int64) * rows.shape[1]
    fill = np.array(fill_of(plan.chunk)).astype(plan.stored)
    copy_boxes(context, runs(sources, addresses, plan.chunk.nelements, size), shuffles, (0, fill))


def _elements(
    context: BatchContext, plan: DevicePlan, chunks: Chunks | None, wanted: np.dtype[Any], fields: Fields
) -> tuple[Chunks | None, tuple[int, int, int, int], NDArray[Any]]:
    """What is copied: chunks, cast to a dtype; bytes of an element, offset in it, bytes copied, and swap; the fill."""
    source = plan.stored
    offset, element = element_of(source, fields)
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
    sources, shuffles = np.zeros(n, np.int64), plain_shuffles(n)
    if chunks is not None:
        sources[present] = chunks.addresses
    if chunks is not None and chunks.shuffle is not None:
        for column, values in zip(shuffles, chunks.shuffle, strict=True):
            np.asarray(column)[present] = values
    return sources, shuffles


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
