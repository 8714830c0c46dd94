"""Copies a value into the plain chunks of a wave: makes the tables of the gathering kernels and launches them.

This mirrors `gzarr.gpu.pipeline.placing` and `gzarr.gpu.pipeline.launching`. A `Source` says where the elements of a
value are. If an index list names an element of a chunk more than once, the tables hold the last value only, as in a
NumPy assignment, because threads have no order. The axes of the tables are in the order of the chunks' memory, so that
the kernel writes contiguously.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Array
from gzarr.gpu.codecs.batch import Wave
from gzarr.gpu.codecs.dtypes import swap_unit
from gzarr.gpu.codecs.transfers import copy_boxes, plain_shuffle, upload_tables
from gzarr.gpu.device.protocol import Table
from gzarr.gpu.kernels import box_threads, point_threads
from gzarr.gpu.kernels.parts import Boxes, Shuffles
from gzarr.gpu.pipeline.placement import DevicePlan
from gzarr.gpu.pipeline.placing import BoxTables, PointTables, box_tables, is_box, point_tables, spans_of_parts
from gzarr.indexing.plan import Part

#: What a source is indexed by: positions in the whole value, in the part of the value, or in the chunk.
Indexing = Literal["value", "part", "chunk"]


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Where the values of each part of a wave are on the device.

    Attributes
    ----------
    owner : object
        The device array that holds them.
    dtype : np.dtype[Any]
        Of the values.
    address : int
        Base of the offsets.
    starts : Table
        int64 (parts,), offset in bytes of the element with index 0 on every axis.
    strides : NDArray[np.int64]
        int64 (parts, axes), in bytes, of any sign. Points have one axis.
    indexing : Indexing
        What elements are indexed by.
    """

    owner: Any
    dtype: np.dtype[Any]
    address: int
    starts: Table
    strides: NDArray[np.int64]
    indexing: Indexing


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """Which elements of the chunks of a wave get new values, each once.

    Attributes
    ----------
    parts : sequence of Part
        The parts of the wave.
    order : tuple[int, ...]
        Array axes in the order of the chunks' memory.
    indexing : Indexing
        How `tables` index sources.
    tables : BoxTables or PointTables
        Of the kernels.
    counts : Table
        int64 (parts,), elements of each chunk that get a value.
    """

    parts: Sequence[Part]
    order: tuple[int, ...]
    indexing: Indexing
    tables: BoxTables | PointTables
    counts: Table


def target_of(plan: DevicePlan, parts: Sequence[Part], indexing: Indexing) -> Target:
    """Make the tables of a wave of at least one part. indexing: that of the source."""
    order = tuple(sorted(range(len(plan.strides)), key=lambda axis: -plan.strides[axis]))
    tables: BoxTables | PointTables
    if is_box(parts[0]):
        tables = _box_tables(parts, order, indexing)
        return Target(parts, order, indexing, tables, np.diff(tables.elem_start))
    tables = _point_tables(plan, parts, indexing)
    return Target(parts, order, indexing, tables, np.bincount(tables.part, minlength=len(parts)))


def gather(wave: Wave, plan: DevicePlan, source: Source, target: Target, rows: Array) -> None:
    """Copy values into chunks.

    rows: uint8 (parts, bytes) on the device, chunks in stored order. Elements of the chunks' dtype get their stored
        byte order; others, which are cast later, are native.
    """
    given = source.dtype
    wanted = plan.stored if given.newbyteorder("=") == plan.stored.newbyteorder("=") else given.newbyteorder("=")
    swap = 0 if given.isnative == wanted.isnative else max(swap_unit(given), swap_unit(wanted))
    if target.indexing != source.indexing:
        target = target_of(plan, target.parts, source.indexing)
    if isinstance(target.tables, BoxTables):
        _gather_box(wave, plan, source, (target.tables, target.order), (rows, swap))
    else:
        _gather_points(wave, source, target.tables, (rows, swap))


def _gather_box(
    wave: Wave, plan: DevicePlan, source: Source, target: tuple[BoxTables, tuple[int, ...]], into: tuple[Array, int]
) -> None:
    """Copy the parts by the fast kernels, where these can, else by gather_box."""
    tables, (rows, swap) = target[0], into
    order, itemsize = list(target[1]), source.dtype.itemsize
    n, steps = tables.nparts, np.array(plan.strides, np.int64)[order, None] * itemsize
    columns, strides = spans_of_parts(tables, range(len(order))), source.strides[:, order].T
    boxes = Boxes(
        source.address + source.starts,
        (columns.out_start * strides).sum(axis=0),
        (columns.in_start * steps).sum(axis=0) + wave.device.address(rows) + np.arange(n) * rows.shape[1],
        columns.counts,
        columns.out_step * strides,
        columns.in_step * steps,
        itemsize,
    )
    plain = plain_shuffle(n, 1)
    shuffles = Shuffles(plain.mode, plain.typesize, plain.blocksize, plain.blocksize)
    left = copy_boxes(wave, boxes, shuffles, (swap, np.zeros(itemsize, np.uint8)), columns.listed)
    if left.size:
        _launch_gather_box(wave, plan, source, (tables.only(left), order), into)


def _launch_gather_box(
    wave: Wave, plan: DevicePlan, source: Source, target: tuple[BoxTables, list[int]], into: tuple[Array, int]
) -> None:
    (tables, order), (rows, swap), itemsize = target, into, source.dtype.itemsize
    columns = [np.ascontiguousarray(tables.spans[:, i]) for i in range(7)]
    strides = np.array(plan.strides, np.int64)[order]
    start_at, stride_at, span_at, base_at, *rest = upload_tables(
        wave,
        source.starts,
        np.ascontiguousarray(source.strides[:, order], np.int64),
        tables.part_span,
        tables.axis_base,
        *columns,
        tables.pool,
        tables.elem_start,
        strides,
    )
    args = (rows.shape[0], len(order), source.address, start_at, stride_at, span_at, base_at, *rest)
    args += (wave.device.address(rows), rows.shape[1], itemsize, swap)
    wave.device.launch("gather_box", box_threads(int(tables.elem_start[-1]), itemsize), args)


def _gather_points(wave: Wave, source: Source, tables: PointTables, into: tuple[Array, int]) -> None:
    rows, swap = into
    itemsize = source.dtype.itemsize
    where = source.starts[tables.part] + tables.position * source.strides[tables.part, 0]
    part_at, element_at, from_at = upload_tables(wave, tables.part, tables.element, where)
    into_at, nbytes = wave.device.address(rows), rows.shape[1]
    args = (tables.part.size, part_at, element_at, from_at, source.address, into_at, nbytes, itemsize, swap)
    wave.device.launch("gather_points", point_threads(tables.part.size, itemsize), args)


def _box_tables(parts: Sequence[Part], order: tuple[int, ...], indexing: Indexing) -> BoxTables:
    """The tables of a wave, with each element of a chunk once. Their "out" indexes the source."""
    seen: dict[tuple[int, int], tuple[Any, Any]] = {}
    made = []
    for part in parts:
        pairs = []
        for axis in order:
            inside, out = part.inside[axis], part.out[axis]
            name = id(inside), id(out)
            if name not in seen:
                seen[name] = _distinct(inside, out, indexing)
            pairs.append(seen[name])
        made.append(Part(part.coords, tuple(p[0] for p in pairs), tuple(p[1] for p in pairs), part.full))
    return box_tables(made, len(order))


def _distinct(inside: Any, out: Any, indexing: Indexing) -> tuple[Any, Any]:
    """Indices of one axis in the chunk and in the source, with the last one of several values for an element."""
    last = None if isinstance(inside, slice) else _last_of_each(inside.reshape(-1))
    if indexing == "chunk":
        out = inside
    elif indexing == "part":
        out = slice(0, _length(inside), 1)
    return (inside, out) if last is None else (_listed(inside)[last], _listed(out)[last])


def _last_of_each(numbers: NDArray[np.int64]) -> NDArray[np.intp] | None:
    """Last positions of the distinct numbers, in order; None if all numbers are distinct."""
    if bool(np.all(numbers[1:] > numbers[:-1])):
        return None
    distinct, from_the_end = np.unique(numbers[::-1], return_index=True)
    return None if distinct.size == numbers.size else np.sort(numbers.size - 1 - from_the_end)


def _length(index: Any) -> int:
    return len(range(index.start, index.stop, index.step or 1)) if isinstance(index, slice) else int(index.size)


def _listed(index: Any) -> NDArray[np.int64]:
    if isinstance(index, slice):
        return np.arange(index.start, index.stop, index.step or 1)
    return np.asarray(index, np.int64).reshape(-1)


def _point_tables(plan: DevicePlan, parts: Sequence[Part], indexing: Indexing) -> PointTables:
    """The tables of a wave, with each element of a chunk once. Their positions index the source."""
    tables = point_tables(parts, plan.strides)
    position = tables.position
    if indexing == "part":
        starts = np.flatnonzero(np.diff(tables.part, prepend=-1))
        position = np.arange(tables.part.size) - starts[tables.part]
    elif indexing == "chunk":
        position = tables.element
    last = _last_of_each(tables.part * np.int64(max(plan.chunk.nelements, 1)) + tables.element)
    if last is None:
        return PointTables(len(parts), tables.part, tables.element, position)
    return PointTables(len(parts), tables.part[last], tables.element[last], position[last])
