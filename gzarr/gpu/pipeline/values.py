"""Brings values to where the gathering kernels read them: in place on the device, or uploaded.

A NumPy value is uploaded batch by batch. The parts that a batch needs are packed into staging memory in the dtype of
the chunks, so NumPy casts them as in an assignment; broadcast axes are packed once. An array on the device is read in
place, whatever its strides. Its numbers are cast on the device if the result is the same on every machine; else they
are downloaded and cast on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from gzarr.backend import Array
from gzarr.cpu.backend import as_numpy
from gzarr.gpu.codecs.batch import BatchContext
from gzarr.gpu.codecs.floats import why_not_cast
from gzarr.gpu.device.pipeline_slots import PipelineSlot
from gzarr.gpu.device.protocol import Device
from gzarr.gpu.pipeline.copies import (
    BoxCopies,
    Memory,
    as_packed,
    box_copies,
    distinct,
    memory_of,
    point_copies,
    take,
)
from gzarr.gpu.pipeline.placement import DevicePlan
from gzarr.gpu.pipeline.placing import packed
from gzarr.indexing.plan import Part
from gzarr.indexing.tables import CopyTable, table_of_parts

#: Brings the values of some chunks to the device: (batch, range of the chunks) -> what is copied, and where it is.
Values: TypeAlias = Callable[[BatchContext, slice], tuple[BoxCopies, Memory]]


def values_of(device: Device, plan: DevicePlan, value: Any, parts: Sequence[Part]) -> Values:
    """What brings the values of parts to the device. A lazy value is read now.

    value: an array on the device or of NumPy, or anything lazy that is indexed like them, such as an array of gzarr.
    """
    dtype = plan.chunk.dtype.newbyteorder("=")

    def separate(context: BatchContext, memory: Memory, some: slice) -> tuple[BoxCopies, Memory]:
        return _gathered(plan, parts[some], memory), memory

    if device.owns(value):
        if not why_not_cast(value.dtype, dtype):
            memory = memory_of(device, value)
            return lambda context, some: (_gathered(plan, parts[some], memory), memory)
        pieces: Sequence[Any] = [value[part.out] for part in parts]
    elif isinstance(value, np.ndarray):
        return lambda context, some: separate(context, packed(context, _views(value, parts[some]), dtype), some)
    else:
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
    table = table_of_parts(parts)
    if table is None:
        return point_copies(plan, parts, memory, once=True)
    if memory.rows:
        table = as_packed(table)._replace(slots=np.arange(len(parts)))
    return box_copies(plan, distinct(table), memory, plan.order)


class OnHost:
    """An array on the device whose parts are NumPy arrays, for the host to write.

    Parts are downloaded in the order of the pipeline slot's stream.
    """

    def __init__(self, pipeline_slot: PipelineSlot, value: Array) -> None:
        self._pipeline_slot = pipeline_slot
        self._value = value
        self.shape, self.dtype = value.shape, value.dtype

    def __getitem__(self, index: Any) -> np.ndarray[Any, Any]:
        """One part. Raises: OverLimitError if a copy of it does not fit into the pipeline slot."""
        mark = self._pipeline_slot.memory.mark()
        piece: np.ndarray[Any, Any] = self._pipeline_slot.device.download(self._value[index])
        self._pipeline_slot.memory.rewind(mark)
        return piece


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
