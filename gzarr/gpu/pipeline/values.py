"""Brings values to where the gathering kernels read them: in place on the device, or uploaded.

A NumPy value is uploaded wave by wave. The parts that a wave needs are packed into staging memory in the dtype of the
chunks, so NumPy casts them as in an assignment; broadcast axes are packed once. An array on the device is read in
place, whatever its strides. Its numbers are cast on the device if the result is the same on every machine; else they
are downloaded and cast on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from gzarr.backend import Array
from gzarr.cpu.backend import as_numpy
from gzarr.gpu.codecs.batch import Wave
from gzarr.gpu.codecs.floats import why_not_cast
from gzarr.gpu.codecs.transfers import ALIGNMENT
from gzarr.gpu.device.lanes import Lane
from gzarr.gpu.device.protocol import Device
from gzarr.gpu.pipeline.gathering import Source
from gzarr.indexing.plan import Part

#: Brings the values of some parts to the device: (wave, range of the parts) -> where they are.
Values: TypeAlias = Callable[[Wave, slice], Source]


def values_of(device: Device, value: Any, parts: Sequence[Part], dtype: np.dtype[Any]) -> Values:
    """What brings the values of parts to the device. A lazy value is read now.

    value: an array on the device or of NumPy, or anything lazy that is indexed like them, such as an array of gzarr.
    dtype: of the chunks.
    """
    if device.owns(value):
        if not why_not_cast(value.dtype, dtype):
            return lambda wave, some: _in_place(wave, value, parts[some])
        return lambda wave, some: _packed(wave, [_downloaded(wave, value[p.out]) for p in parts[some]], dtype)
    if isinstance(value, np.ndarray):
        return lambda wave, some: _packed(wave, _views(value, parts[some]), dtype)
    pieces = [_adopted(device, value[part.out], dtype) for part in parts]
    dtypes = {piece.dtype for piece in pieces}
    if len(dtypes) == 1 and all(map(device.owns, pieces)) and not why_not_cast(pieces[0].dtype, dtype):
        return lambda wave, some: _separate(wave, pieces[some])
    return lambda wave, some: _packed(wave, [_downloaded(wave, piece) for piece in pieces[some]], dtype)


class OnHost:
    """An array on the device whose parts are NumPy arrays, for the host to write.

    Parts are downloaded in the order of the lane's stream.
    """

    def __init__(self, lane: Lane, value: Array) -> None:
        self._lane = lane
        self._value = value
        self.shape, self.dtype = value.shape, value.dtype

    def __getitem__(self, index: Any) -> np.ndarray[Any, Any]:
        """One part. Raises: OverLimitError if a copy of it does not fit into the lane."""
        mark = self._lane.memory.mark()
        piece: np.ndarray[Any, Any] = self._lane.device.download(self._value[index])
        self._lane.memory.rewind(mark)
        return piece


def _in_place(wave: Wave, value: Array, parts: Sequence[Part]) -> Source:
    n = len(parts)
    strides = np.broadcast_to(np.array(value.strides, np.int64), (n, value.ndim))
    return Source(value, value.dtype, wave.device.address(value), np.zeros(n, np.int64), strides, "value")


def _separate(wave: Wave, pieces: Sequence[Array]) -> Source:
    """Parts that are separate arrays on the device, of one dtype."""
    starts = np.array([wave.device.address(piece) for piece in pieces], np.int64)
    strides = np.array([piece.strides for piece in pieces], np.int64).reshape(len(pieces), pieces[0].ndim)
    return Source(pieces, pieces[0].dtype, 0, starts, strides, "part")


def _packed(wave: Wave, pieces: Sequence[np.ndarray[Any, Any]], dtype: np.dtype[Any]) -> Source:
    """Parts on the host: cast, packed, and uploaded in one copy. Parts that are the same array are packed once."""
    native = dtype.newbyteorder("=")
    starts, strides = [], []
    places: dict[int, int] = {}
    total = 0
    for piece in pieces:
        if id(piece) not in places:
            places[id(piece)] = total
            total += -(-piece.size * native.itemsize // ALIGNMENT) * ALIGNMENT
        starts.append(places[id(piece)])
        packed = np.cumprod([native.itemsize, *piece.shape[:0:-1]])[::-1] if piece.ndim else ()
        strides.append([0 if n == 1 else step for n, step in zip(piece.shape, packed, strict=True)])
    staging = wave.device.staging(max(total, 1))
    for piece in pieces:
        start = places.pop(id(piece), None)
        if start is not None:
            nbytes = piece.size * native.itemsize
            staging[start : start + nbytes].view(native).reshape(piece.shape)[...] = piece
    slab = wave.upload(staging)
    table = np.array(strides, np.int64).reshape(len(pieces), pieces[0].ndim)
    return Source(slab, native, wave.device.address(slab), np.array(starts, np.int64), table, "part")


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


def _downloaded(wave: Wave, piece: Any) -> np.ndarray[Any, Any]:
    if wave.device.owns(piece):
        downloaded: np.ndarray[Any, Any] = wave.device.download(piece)
        return downloaded
    return np.asarray(piece)


def _adopted(device: Device, piece: Any, dtype: np.dtype[Any]) -> Any:
    if device.owns(piece):
        return piece
    adopted = device.adopt(piece)
    return as_numpy(piece, dtype) if adopted is None or not device.owns(adopted) else adopted
