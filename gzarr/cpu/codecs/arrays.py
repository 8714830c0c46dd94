"""CPU functions of the codecs on arrays: bytes, transpose, cast_value, scale_offset."""

import sys
from typing import Any

import numpy as np

from gzarr.codecs.scale_offset import scale, unscale
from gzarr.codecs.spec import ArrayRepr, Codec, Step, need_array
from gzarr.cpu.codecs.per_chunk import Bytes, per_chunk, wrong_size
from gzarr.dtypes.scalars import lacks_unit
from gzarr.errors import CodecError

Array = np.ndarray[Any, np.dtype[Any]]

#: ``np.dtype.isbuiltin`` of types that other packages define (ml_dtypes).
_USER_DEFINED = 2


def is_unswappable(dtype: np.dtype[Any]) -> bool:
    """Whether NumPy does not swap the bytes of a dtype when it casts."""
    return dtype.isbuiltin == _USER_DEFINED or lacks_unit(dtype)


def bytes_codec(step: Step) -> Codec:
    """Views bytes as an array, without a copy and in the stored byte order, and an array as bytes."""
    chunk = need_array(step.spec.name, step.decoded)
    spec: Any = step.spec
    if is_unswappable(chunk.dtype) and spec.endian not in (None, sys.byteorder):
        return _swapped(chunk)
    dtype, shape, nbytes = chunk.dtype, chunk.shape, chunk.nbytes or 0
    if spec.endian is not None and not is_unswappable(chunk.dtype):
        dtype = dtype.newbyteorder(spec.endian)
    ndarray = np.ndarray

    def decode(data: Bytes) -> Array:
        if len(data) != nbytes:
            raise wrong_size("bytes", nbytes, len(data))
        return ndarray(shape, dtype, data)

    def encode(array: Array) -> Bytes:
        if array.shape != shape:
            raise CodecError(f"bytes: expected a chunk of shape {shape}, got {array.shape}")
        if not nbytes:
            return b""
        return np.ascontiguousarray(array, dtype).reshape(-1).view(np.uint8)

    return per_chunk("bytes", decode, encode)


def _swapped(chunk: ArrayRepr) -> Codec:
    """The bytes codec for a type whose bytes NumPy does not swap, in the byte order that is not the machine's."""
    raw = np.dtype(f"u{chunk.dtype.itemsize}")

    def decode(data: Bytes) -> Array:
        if len(data) != chunk.nbytes:
            raise wrong_size("bytes", chunk.nbytes or 0, len(data))
        return np.ndarray(chunk.shape, raw, data).byteswap().view(chunk.dtype)

    def encode(array: Array) -> Bytes:
        if not chunk.nbytes:
            return b""
        return np.ascontiguousarray(array, chunk.dtype).reshape(-1).view(raw).byteswap().view(np.uint8)

    return per_chunk("bytes", decode, encode)


def transpose_codec(step: Step) -> Codec:
    """Views with permuted dimensions."""
    spec: Any = step.spec
    order = spec.order
    inverse = tuple(int(axis) for axis in np.argsort(order))
    return per_chunk("transpose", lambda array: array.transpose(inverse), lambda array: array.transpose(order))


def cast_value_codec(step: Step) -> Codec:
    """Casts by value with the rounding and range rules of the spec."""
    spec: Any = step.spec
    decoded = need_array(spec.name, step.decoded).dtype.newbyteorder("=")
    encoded = np.dtype(spec.data_type)
    return per_chunk(
        "cast_value",
        lambda array: spec.cast("decode", array, decoded),
        lambda array: spec.cast("encode", array, encoded),
    )


def scale_offset_codec(step: Step) -> Codec:
    """Scales in the dtype of the array."""
    spec: Any = step.spec
    native = need_array(spec.name, step.decoded).dtype.newbyteorder("=")
    offset, factor = spec.scalars(native)
    return per_chunk(
        "scale_offset",
        lambda array: unscale(array.astype(native, copy=False), offset, factor),
        lambda array: scale(array.astype(native, copy=False), offset, factor),
    )


CODECS = {
    "bytes": bytes_codec,
    "cast_value": cast_value_codec,
    "scale_offset": scale_offset_codec,
    "transpose": transpose_codec,
}
