"""CPU functions of the block format of N5.

A block is a header (big-endian: mode, number of axes, extents with the fastest axis first, and in mode 1 the number of
elements), then the big-endian elements, compressed. Blocks at the upper edges may be smaller than the others; they are
filled up with zeros.

Source: https://github.com/saalfeldlab/n5#file-system-specification
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numcodecs.lz4 import decompress as lz4_decompress

from gzarr.codecs.n5 import N5Codec
from gzarr.codecs.spec import BytesRepr, Codec, Factory, Step
from gzarr.codecs.v2 import from_v2
from gzarr.cpu.codecs.compressors import blosc_codec, gzip_codec, zstd_codec
from gzarr.cpu.codecs.numcodecs import numcodecs_codec
from gzarr.errors import CodecError

_OWN: dict[str, Factory] = {"blosc": blosc_codec, "gzip": gzip_codec, "zstd": zstd_codec}

#: Frames of Java's LZ4 library: magic, token, packed and plain size, checksum (lz4-java, LZ4BlockOutputStream).
_LZ4_MAGIC = b"LZ4Block"
_LZ4_FRAME = struct.Struct("<8sBiii")
_LZ4_STORED = 0x10


def n5_codec(step: Step) -> Codec:
    """Blocks of N5."""
    spec: Any = step.spec
    blocks = _Blocks(spec)

    def decode(items: Sequence[Any]) -> list[Any]:
        return [_named(index, blocks.decode, item) for index, item in enumerate(items)]

    def encode(items: Sequence[Any]) -> list[Any]:
        return [_named(index, blocks.encode, item) for index, item in enumerate(items)]

    return Codec(decode, encode)


def _named(index: int, function: Any, item: Any) -> Any:
    try:
        return function(bytes(memoryview(item).cast("B")))
    except CodecError as error:
        error.index, error.codec = index, "n5_wrapper"
        raise
    except (ValueError, RuntimeError, struct.error) as error:
        raise CodecError(f"the N5 block is damaged: {error}", index=index, codec="n5_wrapper") from error


class _Blocks:
    """What the blocks of one data set have in common."""

    def __init__(self, spec: N5Codec) -> None:
        self._dtype = np.dtype(spec.dtype)
        self._stored = self._dtype.newbyteorder(">")
        self._shape = spec.chunk_shape
        self._config = spec.compressor
        self._compressors: dict[int, Codec] = {}

    def _compressor(self, nbytes: int) -> Codec:
        """The functions of the compressor for blocks of a decoded size: whole ones, and those at edges."""
        found = self._compressors.get(nbytes)
        if found is None:
            inner, _ = from_v2(self._config or {}).resolve(BytesRepr(nbytes, self._dtype.itemsize))
            factory = _OWN.get(inner.name, numcodecs_codec)
            found = factory(Step(inner, BytesRepr(nbytes, self._dtype.itemsize), BytesRepr()))
            self._compressors[nbytes] = found
        return found

    def decode(self, data: bytes) -> bytes:
        shape, begin = _header(data)
        if len(shape) != len(self._shape) or any(n > most for n, most in zip(shape, self._shape, strict=True)):
            raise ValueError(f"its header says shape {shape}, and blocks of the data set have {self._shape}")
        nbytes = math.prod(shape) * self._dtype.itemsize
        payload = data[begin:]
        if self._config is not None and payload[: len(_LZ4_MAGIC)] == _LZ4_MAGIC and self._config.get("id") == "lz4":
            payload = _from_java_lz4(payload)
        elif self._config is not None:
            payload = self._compressor(nbytes).decode((payload,))[0]
        elements = np.frombuffer(payload, self._stored)
        if elements.size != math.prod(shape):
            raise ValueError(f"expected {math.prod(shape)} elements, got {elements.size}")
        if shape == self._shape:
            return elements.astype(self._dtype).tobytes()
        whole = np.zeros(self._shape, self._dtype)
        whole[tuple(map(slice, shape))] = elements.reshape(shape)
        return whole.tobytes()

    def encode(self, data: bytes) -> bytes:
        header = struct.pack(f">HH{len(self._shape)}I", 0, len(self._shape), *reversed(self._shape))
        payload = np.frombuffer(data, self._dtype).astype(self._stored).tobytes()
        if self._config is not None:
            payload = bytes(self._compressor(len(payload)).encode((payload,))[0])
        return header + payload


def _header(data: bytes) -> tuple[tuple[int, ...], int]:
    """(shape of the block in the order of the array's axes, where its elements begin)."""
    mode, ndim = struct.unpack_from(">HH", data)
    if mode not in (0, 1):
        raise ValueError(f"its mode is {mode}; gzarr reads modes 0 and 1, which hold numbers")
    shape = struct.unpack_from(f">{ndim}I", data, 4)
    return tuple(reversed(shape)), 4 + 4 * ndim + 4 * mode


def _from_java_lz4(data: bytes) -> bytes:
    """Decode the frames of lz4-java; their checksums are not looked at."""
    decoded, at = [], 0
    while at < len(data):
        magic, token, packed, plain, _ = _LZ4_FRAME.unpack_from(data, at)
        at += _LZ4_FRAME.size
        if magic != _LZ4_MAGIC or packed < 0 or plain < 0 or plain > 255 * packed + 64 or at + packed > len(data):
            raise ValueError("an LZ4 frame is damaged")
        block = data[at : at + packed]
        at += packed
        if plain:  # a frame of nothing ends the stream
            # numcodecs has the decoded size before the block.
            stored = token & 0xF0 == _LZ4_STORED
            decoded.append(block if stored else bytes(lz4_decompress(struct.pack("<i", plain) + block)))
    return b"".join(decoded)
