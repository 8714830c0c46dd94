"""Turns tables into columns of numbers for the kernels: which elements of which chunk are where in other memory.

Theory of operation. Every read and write of the device is a `CopyTable`, whatever the selection was. Points are boxes
of one axis, that of a chunk's elements in the order of its memory, with index lists on both sides. The other memory is
a result, the blocks of a `CopyPlan`, or the values of a write. Columns have an entry for every copy, so whole tables
are turned by arithmetic.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Array
from gzarr.gpu.device.protocol import Device, Table
from gzarr.gpu.pipeline.placement import DevicePlan
from gzarr.indexing.copies import Slots
from gzarr.indexing.plan import Part, PointTable
from gzarr.indexing.selection import Indices
from gzarr.indexing.spans import COUNT, FULL, IN_LIST, IN_START, IN_STEP, N_COLUMNS, OUT_LIST, OUT_START, OUT_STEP
from gzarr.indexing.tables import CopyTable, table_of_parts


class Memory(NamedTuple):
    """The memory that copies go to, or come from.

    Attributes
    ----------
    addresses : Table
        int64 (blocks,); a single result is one block.
    strides : Table
        int64 (blocks, axes), in bytes. The first axis of the blocks of a `CopyPlan` are slots.
    dtype : np.dtype
        Of all blocks.
    rows : int
        Slots of a block; 0 for a single result.
    """

    addresses: Table
    strides: Table
    dtype: np.dtype[Any]
    rows: int = 0


def memory_of(device: Device, out: Array | Sequence[Array]) -> Memory:
    """Describe a result on the device, or the blocks of a `CopyPlan`."""
    blocks, rows = (out, len(out[0])) if isinstance(out, tuple) else ((out,), 0)
    addresses = np.array([device.address(block) for block in blocks], np.int64)
    strides = np.array([block.strides for block in blocks], np.int64).reshape(len(blocks), blocks[0].ndim)
    return Memory(addresses, strides, blocks[0].dtype, rows)


@dataclass(frozen=True, slots=True, eq=False)
class BoxCopies:
    """Boxes of chunks, an entry for each copy. Axes are those of the array, in the order of the target's memory.

    Attributes
    ----------
    nchunks : int
        Number of chunks.
    owner : Table
        int64 (n,), the chunk of each copy.
    start : Table
        int64 (n,), number of the first element in the chunk's memory.
    target : Table
        int64 (n,), address of the first element in the other memory.
    counts, inside, outside : Table
        int64 (axes, n): number of elements; from each to the next, elements in the chunk and bytes in the other memory.
    in_list, out_list : Table
        int64 (axes, n): where the index list of either side begins in `lists`; -1 for none.
    lists : Table
        The index lists.
    order : tuple[int, ...]
        The array's axes.
    """

    nchunks: int
    owner: Table
    start: Table
    target: Table
    counts: Table
    inside: Table
    outside: Table
    in_list: Table
    out_list: Table
    lists: Table
    order: tuple[int, ...]

    @property
    def nelements(self) -> Table:
        """Elements of each copy."""
        return np.asarray(self.counts.prod(axis=0, dtype=np.int64))

    @property
    def covered(self) -> Table:
        """Elements of each chunk that are copied."""
        return np.bincount(self.owner, self.nelements, self.nchunks).astype(np.int64)


def box_copies(plan: DevicePlan, table: CopyTable, memory: Memory, order: Sequence[int] | None = None) -> BoxCopies:
    """Turn a table into columns. order: of the axes; None for that of the other memory."""
    spans, slots = table.spans, table.slots
    block: Any = 0
    target = np.broadcast_to(memory.addresses, len(spans)) if slots is None else memory.addresses
    strides, inner = memory.strides, plan.strides
    if slots is not None:
        block, row = np.divmod(slots, memory.rows)
        target = target[block] + row * strides[block, 0]
        strides = strides[:, 1:]
    if spans.shape[1] == 1:
        inner, order = (1,), (0,)
        strides = strides if strides.size else np.zeros((len(strides), 1), np.int64)  # a single point has no axis
    if order is None:
        order = np.argsort(-np.abs(strides[0]), kind="stable").tolist()
    columns = spans[:, order].transpose(2, 1, 0)
    lists, in_list, out_list = _narrowed(table.lists, columns[[IN_LIST, OUT_LIST]], columns[COUNT])
    elements = np.array(inner, np.int64)[order, None]
    outside = strides[:, order][block].T if slots is not None else strides[0, order][:, None]
    n = np.arange(table.nchunks)
    return BoxCopies(
        nchunks=n.size,
        owner=n if table.firsts is None else n.repeat(np.diff(table.firsts)),
        start=(columns[IN_START] * elements).sum(axis=0),
        target=target + (columns[OUT_START] * outside).sum(axis=0),
        counts=columns[COUNT],
        inside=np.where(in_list < 0, columns[IN_STEP], 1) * elements,
        outside=np.where(out_list < 0, columns[OUT_STEP], 1) * outside,
        in_list=in_list,
        out_list=out_list,
        lists=lists,
        order=tuple(order),
    )


def _narrowed(lists: Table, begins: Table, counts: Table) -> tuple[Table, Table, Table]:
    """The index lists that copies use, and where those of either side begin in them; perhaps some more.

    The table of a batch has the lists of the whole read, which are not uploaded for each batch.
    """
    moved, some, n = begins.copy(), [lists[:0]], 0
    for at in zip(*np.nonzero((begins >= 0).any(axis=2)), strict=True):  # side and axis
        used = begins[at] >= 0
        low, high = begins[at][used].min(), (begins[at] + counts[at[1]])[used].max()
        some.append(lists[low:high])
        moved[at][used] += n - low
        n += high - low
    return (lists, *begins) if n >= lists.size else (np.concatenate(some), *moved)


def take(table: CopyTable, chunks: Any) -> CopyTable:
    """Some chunks of a table, by a slice or by their numbers, without their objects."""
    spans, slots, firsts = table.spans, table.slots, table.firsts
    if firsts is None:
        return CopyTable(spans[chunks], table.lists, None, None if slots is None else slots[chunks])
    begins, counts = firsts[:-1][chunks], np.diff(firsts)[chunks]
    ends = counts.cumsum()
    rows = np.repeat(begins - (ends - counts), counts) + np.arange(ends[-1] if ends.size else 0)
    firsts = np.append(0, ends)
    return CopyTable(spans[rows], table.lists, firsts, None if slots is None else slots[rows])


def as_packed(table: CopyTable) -> CopyTable:
    """A table of boxes whose other memory are these boxes alone, each in C order."""
    spans = table.spans.copy()
    spans[:, :, OUT_START : OUT_LIST + 1] = 0, 1, -1
    return table._replace(spans=spans)


def from_chunks(copies: BoxCopies, addresses: Table, dtype: np.dtype[Any]) -> tuple[BoxCopies, Memory]:
    """Copies from chunks of a dtype, which are like those that are copied to. addresses: of the former."""
    same = replace(
        copies,
        target=addresses[copies.owner] + copies.start * dtype.itemsize,
        outside=copies.inside * dtype.itemsize,
        out_list=copies.in_list,
    )
    return same, Memory(addresses, addresses[:, None], dtype)


def boxes_of(table: CopyTable | PointTable) -> CopyTable:
    """A table of boxes, or of points as boxes, whose places are numbers of elements."""
    if isinstance(table, CopyTable) or table.places is None:
        return cast(CopyTable, table)
    some = slice(*table.starts[[0, -1]].tolist())
    return _point_boxes(np.diff(table.starts), table.places[some], table.order[some])


def _point_boxes(counts: Indices, places: Indices, positions: Indices) -> CopyTable:
    """Points as boxes. counts: of each chunk. places, positions: in the chunks' memory, and in the list of all."""
    spans = np.zeros((counts.size, 1, N_COLUMNS), np.int64)
    spans[:, 0, COUNT], begins = counts, counts.cumsum() - counts
    spans[:, 0, IN_LIST], spans[:, 0, OUT_LIST] = begins, begins + places.size
    return CopyTable(spans, np.concatenate([places, positions]))


def table_of(plan: DevicePlan, parts: Sequence[Part], rows: int = 0) -> CopyTable:
    """Turn parts of the reference path into a table. rows: slots of a block."""
    table = table_of_parts(parts, rows)
    if table is not None:
        return table
    places, positions = [], []
    for part in parts:
        inside = part.inside if isinstance(part.inside, tuple) else np.nonzero(part.inside)  # a mask
        terms = (index * stride for index, stride in zip(inside, plan.strides, strict=True))
        places.append(sum(terms, np.zeros(1, np.int64)))
        positions.append(np.arange(part.out.start, part.out.stop) if type(part.out) is slice else part.out.reshape(-1))
    return _point_boxes(np.array(list(map(len, places))), np.concatenate(places), np.concatenate(positions))


def copies_of(device: Device, plan: DevicePlan, parts: Sequence[Part], out: Array | Slots) -> BoxCopies:
    """Turn parts of the reference path into columns. out: what they go to."""
    rows, memory = (len(out.blocks[0]), out.blocks) if isinstance(out, Slots) else (0, out)
    return box_copies(plan, table_of(plan, parts, rows), memory_of(device, memory))


def distinct(table: CopyTable) -> CopyTable:
    """The same table with every element of a chunk once: the last of several copies, as NumPy assigns."""
    listed = np.flatnonzero((table.spans[:, :, IN_LIST] >= 0).any(axis=0))
    if not listed.size:
        return table
    spans, lists, end = table.spans.copy(), [table.lists], table.lists.size
    for axis in listed.tolist():
        kinds, which = np.unique(spans[:, axis, COUNT:FULL], axis=0, return_inverse=True)
        ends = np.bincount(which.reshape(-1)).cumsum()[:-1]
        rows_of = np.split(np.argsort(which.reshape(-1)), ends)
        for rows, (count, _, _, at, start, step, out) in zip(rows_of, kinds.tolist(), strict=True):
            inside = table.lists[at : at + count]
            last = last_of_each(inside) if at >= 0 else None
            if last is None:
                continue
            outs = start + step * last if out < 0 else table.lists[out + last]
            spans[rows, axis, COUNT:FULL] = last.size, 0, 0, end, 0, 0, end + last.size
            lists += inside[last], outs
            end += 2 * last.size
    return table._replace(spans=spans, lists=np.concatenate(lists))


def last_of_each(numbers: Indices) -> NDArray[np.intp] | None:
    """Last positions of the distinct numbers, in order; None if all numbers are distinct."""
    if bool(np.all(numbers[1:] > numbers[:-1])):
        return None
    found, from_the_end = np.unique(numbers[::-1], return_index=True)
    return None if found.size == numbers.size else np.sort(numbers.size - 1 - from_the_end)
