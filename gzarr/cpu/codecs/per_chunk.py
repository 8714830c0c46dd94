"""Turns a function of one chunk into a batch function whose errors name the item and the codec."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gzarr.codecs.spec import Batch, Codec
from gzarr.errors import CodecError, MissingExtraError

#: Bytes between two codecs: bytes, bytearray, a memoryview of bytes, or one-dimensional uint8; ``len`` is the size.
Bytes = Any
#: A function of one chunk.
Function = Callable[[Any], Any]


def per_chunk(codec: str, decode: Function, encode: Function) -> Codec:
    """A codec that decodes and encodes chunk by chunk.

    Whatever the two functions raise says that the chunk is bad; the codec raises CodecError with the index of the first
    bad chunk. ``codec`` is the name in errors.
    """
    return Codec(_batch(codec, decode), _batch(codec, encode))


def _batch(codec: str, function: Function) -> Batch:

    def batch(items: Sequence[Any]) -> list[Any]:
        done: list[Any] = []
        append = done.append
        try:
            for item in items:
                append(function(item))
        except (MemoryError, MissingExtraError):
            raise
        except CodecError as error:
            raise CodecError(str(error), index=len(done), codec=error.codec or codec) from error
        except Exception as error:
            reason = str(error) or type(error).__name__
            raise CodecError(f"{codec}: {reason}", index=len(done), codec=codec) from error
        return done

    return batch


def wrong_size(codec: str, expected: int, got: object) -> CodecError:
    """The error for a chunk that decodes, or claims to decode, to the wrong size."""
    return CodecError(f"{codec}: expected {expected} decoded bytes, got {got}", codec=codec)


def check_most(codec: str, most: int | None, nbytes: int) -> None:
    """Refuse a chunk that decodes to more bytes than the next codec can use. Raises CodecError."""
    if most is not None and nbytes > most:
        raise CodecError(
            f"{codec}: expected at most {most} decoded bytes, for no codec before it makes more of a chunk, "
            f"got at least {nbytes}"
        )


def as_bytes(value: Any) -> Bytes:
    """What a codec returned, as bytes without a copy where its memory is contiguous."""
    if type(value) is bytes or type(value) is bytearray:
        return value
    if not isinstance(value, np.ndarray):
        view = memoryview(value)
        return view.cast("B") if view.nbytes and view.c_contiguous else view.tobytes()
    if value.dtype.hasobject:
        raise TypeError("an array of objects has no bytes; an object codec must come first")
    flat = np.ascontiguousarray(value).reshape(-1)
    return flat.view(np.uint8) if flat.nbytes else b""


def reinterpret(codec: str, value: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """What a codec returned, as an array of a dtype and shape: bytes are viewed, objects and text converted.

    Raises CodecError if the size does not fit.
    """
    array = value if isinstance(value, np.ndarray) else np.frombuffer(as_bytes(value) or b"", np.uint8)
    if dtype.hasobject or array.dtype.hasobject:
        return _reshape(codec, array.astype(dtype, copy=False), shape)
    if array.dtype != dtype:
        nbytes = math.prod(shape) * dtype.itemsize
        if array.nbytes != nbytes:
            raise wrong_size(codec, nbytes, array.nbytes)
        array = np.ascontiguousarray(array).reshape(-1).view(dtype) if nbytes else np.empty(shape, dtype)
    return _reshape(codec, array, shape)


def _reshape(codec: str, array: np.ndarray[Any, Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    if array.shape == shape:
        return array
    n = math.prod(shape)
    if array.size != n:
        raise CodecError(f"{codec}: expected {n} decoded elements, shape {shape}, got {array.size}", codec=codec)
    return array.reshape(shape)
