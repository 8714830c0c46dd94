"""From a function of one chunk to a batch function whose failures name the item and the codec."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from gzarr.codecs.spec import Batch, Codec
from gzarr.errors import CodecError, MissingExtraError

#: Bytes between two codecs: bytes, bytearray, a memoryview of bytes, or one-dimensional uint8; ``len`` is the size.
Bytes = Any
#: A function of one chunk.
Function = Callable[[Any], Any]
#: A function of one chunk's bytes, which may be given the memory to decode into.
Decoder = Callable[..., Any]


def lift(codec: str, function: Function) -> Batch:
    """The batch function of a function of one chunk.

    Args:
        codec: name of the codec, for errors.
        function: takes a chunk and returns a chunk; whatever it raises says that the chunk is bad.

    Returns: a function that raises CodecError with the index of the first failing chunk.
    """

    def batch(items: Sequence[Any]) -> list[Any]:
        done: list[Any] = []
        append = done.append
        try:
            for item in items:
                append(function(item))
        except (MemoryError, MissingExtraError):
            raise
        except Exception as error:  # noqa: BLE001  any library's complaint about a chunk
            fail(codec, len(done), error)
        return done

    return batch


def lift_both(codec: str, decode: Function, encode: Function) -> Codec:
    """`lift` of both directions."""
    return Codec(lift(codec, decode), lift(codec, encode))


def fail(codec: str, index: int, error: Exception) -> NoReturn:
    """Say that a chunk of a batch is bad. Raises: CodecError with its index, from the error that told so."""
    if isinstance(error, CodecError):
        raise CodecError(str(error), index=index, codec=error.codec or codec) from error
    reason = str(error) or type(error).__name__
    raise CodecError(f"{codec}: {reason}", index=index, codec=codec) from error


def wrong_size(codec: str, expected: int, got: object) -> CodecError:
    """The error for a chunk that decodes, or claims to decode, to another size than it has."""
    return CodecError(f"{codec}: expected {expected} decoded bytes, got {got}", codec=codec)


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

    Raises: CodecError if the size does not fit.
    """
    array = value if isinstance(value, np.ndarray) else np.frombuffer(as_bytes(value) or b"", np.uint8)
    if dtype.hasobject or array.dtype.hasobject:
        return _reshape(codec, array.astype(dtype, copy=False), shape)
    if array.dtype != dtype:
        nbytes = dtype.itemsize
        for length in shape:
            nbytes *= length
        if array.nbytes != nbytes:
            raise wrong_size(codec, nbytes, array.nbytes)
        array = np.ascontiguousarray(array).reshape(-1).view(dtype) if nbytes else np.empty(shape, dtype)
    return _reshape(codec, array, shape)


def _reshape(codec: str, array: np.ndarray[Any, Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    if array.shape == shape:
        return array
    n = 1
    for length in shape:
        n *= length
    if array.size != n:
        raise CodecError(f"{codec}: expected {n} decoded elements, shape {shape}, got {array.size}", codec=codec)
    return array.reshape(shape)
