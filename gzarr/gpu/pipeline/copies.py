"""Turns tables into columns of numbers for the kernels: which elements of which chunk are where in other memory.

Theory of operation. Every read and write of the device is a `CopyTable` of boxes, or `PointCopies` of single elements,
whatever the selection was. The other memory is a result, the blocks of a `CopyPlan`, or the values of a write. Columns
have an entry for every copy, so whole tables are turned by arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Array
from gzarr.gpu.device.protocol import Device, Table
from gzarr.gpu.pipeline.placement import DevicePlan
from gzarr.indexing.copies import Slots
from gzarr.indexing.plan import Part
from gzarr.indexing.selection import Indices
from gzarr.indexing.spans import (
    COUNT,
    FULL,
    IN_LIST,
    IN_START,
    IN_STEP,
    OUT_LIST,
    OUT_START,
    OUT_STEP,
)
from gzarr.indexing.tables import CopyTable, table_of_parts

#: Device memory for the descriptor of a copy, and what is taken to make it.
COPY_NBYTES = 256


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

    def of_points(self, points: PointCopies) -> Table:
        """Addresses of points, in one flat block, or in a block for each chunk."""
        if self.rows:
            return np.asarray(self.addresses[points.owner] + points.position * self.strides[points.owner, 1])
        stride = int(self.strides[0, 0]) if self.strides.size else 0  # a single point has no axis
        return np.asarray(self.addresses[0] + points.position * stride)


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

    def of_chunks(self, which: NDArray[np.bool_]) -> BoxCopies:
        """The copies of some of the chunks, which are numbered anew."""
        rows = which[self.owner]
        numbers = which.cumsum() - 1
        columns = (getattr(self, name)[..., rows] for name in _PER_COPY)
        return replace(
            self,
            nchunks=int(np.count_nonzero(which)),
            owner=numbers[self.owner[rows]],
            **dict(zip(_PER_COPY, columns, strict=True)),
        )


_PER_COPY = ("start", "target", "counts", "inside", "outside", "in_list", "out_list")


class PointCopies(NamedTuple):
    """Single elements of chunks.

    Attributes
    ----------
    nchunks : int
        Number of chunks.
    owner : NDArray[np.int32]
        int32, the chunk of each.
    element : Table
        int64, its number in the chunk's memory.
    position : Table
        int64, its number in the result, or in the value.
    """

    nchunks: int
    owner: NDArray[np.int32]
    element: Table
    position: Table

    @property
    def covered(self) -> Table:
        """Elements of each chunk that are copied."""
        return np.bincount(self.owner, minlength=self.nchunks)


#: What of a batch is copied.
Copies: TypeAlias = BoxCopies | PointCopies


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
    in_list, out_list = columns[IN_LIST], columns[OUT_LIST]
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
        lists=table.lists,
        order=tuple(order),
    )


def direct_targets(plan: DevicePlan, copies: Copies, dtype: np.dtype[Any]) -> Table | None:
    """Where the decoder of streams can put chunks, as their decoded bytes are wanted there; 0 elsewhere.

    None if it can nowhere. dtype: of the result.
    """
    if not isinstance(copies, BoxCopies) or not plan.ends_in_streams or dtype != plan.stored:
        return None
    single = np.bincount(copies.owner, minlength=copies.nchunks) == 1
    whole = single[copies.owner] & (copies.nelements == plan.chunk.nelements)
    # All elements of a chunk are copied, so boxes are as large as it is. Axes of one element may have any stride.
    fits = (copies.inside * dtype.itemsize == copies.outside) & (copies.inside > 0)
    whole &= (fits | (copies.counts == 1)).all(axis=0)
    whole &= (np.maximum(copies.in_list, copies.out_list) < 0).all(axis=0)
    if not whole.any():
        return None
    targets = np.zeros(copies.nchunks, np.int64)
    targets[copies.owner[whole]] = copies.target[whole]
    return targets


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


def from_chunks(copies: Copies, addresses: Table, dtype: np.dtype[Any]) -> tuple[Copies, Memory]:
    """Copies from chunks of a dtype, which are like those that are copied to. addresses: of the former."""
    if isinstance(copies, PointCopies):
        strides = np.broadcast_to(np.array([0, dtype.itemsize], np.int64), (addresses.size, 2))
        return copies._replace(position=copies.element), Memory(addresses, strides, dtype, rows=1)
    same = replace(
        copies,
        target=addresses[copies.owner] + copies.start * dtype.itemsize,
        outside=copies.inside * dtype.itemsize,
        out_list=copies.in_list,
    )
    return same, Memory(addresses, addresses[:, None], dtype)


def points_of(parts: Sequence[Part], strides: Sequence[int]) -> PointCopies:
    """Return parts of a list of points as columns. strides: of a decoded chunk, in elements, for every array axis."""
    element, position, owner = [], [], []
    for number, part in enumerate(parts):
        inside = part.inside if isinstance(part.inside, tuple) else np.nonzero(part.inside)  # a mask
        n = inside[0].size if inside else 1
        at = np.zeros(n, np.int64)
        for index, stride in zip(inside, strides, strict=True):
            at += index * stride
        element.append(at)
        out = part.out
        position.append(np.arange(out.start, out.stop) if isinstance(out, slice) else out.reshape(-1))
        owner.append(np.full(n, number, np.int32))
    positions = np.concatenate(position).astype(np.int64)
    return PointCopies(len(parts), np.concatenate(owner), np.concatenate(element), positions)


def copies_of(device: Device, plan: DevicePlan, parts: Sequence[Part], out: Array | Slots) -> Copies:
    """Turn parts of the reference path into columns. out: what they go to."""
    rows, memory = (len(out.blocks[0]), out.blocks) if isinstance(out, Slots) else (0, out)
    table = table_of_parts(parts, rows)
    if table is None:
        return points_of(parts, plan.strides)
    return box_copies(plan, table, memory_of(device, memory))


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


def distinct_points(copies: PointCopies, nelements: int) -> PointCopies:
    """The same points with every element of a chunk once. nelements: of a chunk."""
    last = last_of_each(copies.owner * np.int64(max(nelements, 1)) + copies.element)
    if last is None:
        return copies
    return PointCopies(copies.nchunks, copies.owner[last], copies.element[last], copies.position[last])


def last_of_each(numbers: Indices) -> NDArray[np.intp] | None:
    """Last positions of the distinct numbers, in order; None if all numbers are distinct."""
    if bool(np.all(numbers[1:] > numbers[:-1])):
        return None
    found, from_the_end = np.unique(numbers[::-1], return_index=True)
    return None if found.size == numbers.size else np.sort(numbers.size - 1 - from_the_end)
