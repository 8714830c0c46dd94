"""Turns tables into columns of numbers for the kernels: which elements of which chunk are where in other memory.

Theory of operation. Every read and write of the device is a `CopyTable`, or a list of points for each chunk, whatever
the selection was. The other memory is a result, the blocks of a `CopyPlan`, or the values of a write. Columns
have an entry for every copy, so whole tables are turned by arithmetic.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Array
from gzarr.gpu.device.protocol import Device, Table
from gzarr.gpu.pipeline.placement import DevicePlan
from gzarr.indexing.copies import Slots
from gzarr.indexing.plan import Part
from gzarr.indexing.selection import Indices
from gzarr.indexing.spans import COUNT, FULL, IN_LIST, IN_START, IN_STEP, OUT_LIST, OUT_START, OUT_STEP
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
    strides = memory.strides
    if slots is not None:
        block, row = np.divmod(slots, memory.rows)
        target = target[block] + row * strides[block, 0]
        strides = strides[:, 1:]
    if order is None:
        order = np.argsort(-np.abs(strides[0]), kind="stable").tolist()
    columns = spans[:, order].transpose(2, 1, 0)
    lists, in_list, out_list = _narrowed(table.lists, columns[[IN_LIST, OUT_LIST]], columns[COUNT])
    elements = np.array(plan.strides, np.int64)[order, None]
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


def point_copies(plan: DevicePlan, parts: Sequence[Part], memory: Memory, *, once: bool = False) -> BoxCopies:
    """Parts of a list of points as columns: boxes of one axis with index lists on both sides.

    once: take every element of a chunk once, for the last of several points, as NumPy assigns.
    """
    elements, positions = [], []
    for part in parts:
        inside = part.inside if isinstance(part.inside, tuple) else np.nonzero(part.inside)  # a mask
        element = np.zeros(inside[0].size if inside else 1, np.int64)
        for index, stride in zip(inside, plan.strides, strict=True):
            element += index * stride
        position: Table = np.arange(element.size)
        if not memory.rows:  # else each part has a block of its own
            position = np.arange(part.out.start, part.out.stop) if isinstance(part.out, slice) else part.out.reshape(-1)
        last = last_of_each(element) if once else None
        elements.append(element if last is None else element[last])
        positions.append(position if last is None else position[last])
    n, counts = len(parts), np.array([element.size for element in elements])
    begins = (counts.cumsum() - counts)[None]
    strides = memory.strides[:, -1] if memory.strides.size else np.zeros(1, np.int64)  # a single point has no axis
    return BoxCopies(
        nchunks=n,
        owner=np.arange(n),
        start=np.zeros(n, np.int64),
        target=np.broadcast_to(memory.addresses, n),
        counts=counts[None],
        inside=np.ones((1, n), np.int64),
        outside=np.broadcast_to(strides, (1, n)),
        in_list=begins,
        out_list=begins + counts.sum(),
        lists=np.concatenate([*elements, *positions]),
        order=(0,),
    )


def copies_of(device: Device, plan: DevicePlan, parts: Sequence[Part], out: Array | Slots) -> BoxCopies:
    """Turn parts of the reference path into columns. out: what they go to."""
    rows, memory = (len(out.blocks[0]), out.blocks) if isinstance(out, Slots) else (0, out)
    table, there = table_of_parts(parts, rows), memory_of(device, memory)
    return point_copies(plan, parts, there) if table is None else box_copies(plan, table, there)


def distinct(table: CopyTable) -> CopyTable:
    """The same table with every element of a chunk once: the last of several copies, as NumPy assigns."""
    listed = np.flatnonzero((table.spans[:, :, IN_LIST] >= 0).any(axis=0))
    if not listed.size:
        return table
    spans, lists, end = table.spans.copy(), [table.lists], table.lists.size
    for axis in listed.tolist():
        kinds, which = np.unique(spans[:, axis, COUNT:FULL], axis=0, return_inverse=True)
        for number, (count, _, _, at, start, step, out) in enumerate(kinds.tolist()):
            inside = table.lists[at : at + count]
            last = last_of_each(inside) if at >= 0 else None
            if last is None:
                continue
            outs = start + step * last if out < 0 else table.lists[out + last]
            spans[which.reshape(-1) == number, axis, COUNT:FULL] = last.size, 0, 0, end, 0, 0, end + last.size
            lists += inside[last], outs
            end += 2 * last.size
    return table._replace(spans=spans, lists=np.concatenate(lists))


def last_of_each(numbers: Indices) -> NDArray[np.intp] | None:
    """Last positions of the distinct numbers, in order; None if all numbers are distinct."""
    if bool(np.all(numbers[1:] > numbers[:-1])):
        return None
    found, from_the_end = np.unique(numbers[::-1], return_index=True)
    return None if found.size == numbers.size else np.sort(numbers.size - 1 - from_the_end)
