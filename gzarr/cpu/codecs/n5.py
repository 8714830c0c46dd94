"""CPU functions of the block format of N5.

A block is a header (big-endian: mode, number of axes, extents with the fastest axis first, and in mode 1 the number of
elements), followed by the big-endian elements, compressed. Blocks at the upper edges may be smaller than the others;
zeros fill them up.

Source: https://github.com/saalfeldlab/n5#file-system-specification
"""

import math
import struct
from typing import Any

import numpy as np
from numcodecs.lz4 import decompress as lz4_decompress

from gzarr.codecs.n5 import N5Codec
from gzarr.codecs.registry import from_v2
from gzarr.codecs.spec import BytesRepr, Codec, Step
from gzarr.cpu.codecs.compressors import CODECS as COMPRESSORS
from gzarr.cpu.codecs.numcodecs import numcodecs_codec
from gzarr.cpu.codecs.per_chunk import Bytes, per_chunk

#: Frames of Java's LZ4 library: magic, token, packed and plain size, checksum (lz4-java, LZ4BlockOutputStream).
_LZ4_MAGIC = b"LZ4Block"
_LZ4_FRAME = struct.Struct("<8sBiii")
_LZ4_STORED = 0x10


def n5_codec(step: Step) -> Codec:
    """Blocks of N5."""
    spec: Any = step.spec
    blocks = _Blocks(spec)
    return per_chunk(spec.name, blocks.decode, blocks.encode)


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
        if nbytes not in self._compressors:
            decoded = BytesRepr(nbytes, self._dtype.itemsize)
            inner, encoded = from_v2(self._config or {}).resolve(decoded)
            factory = COMPRESSORS.get(inner.name, numcodecs_codec)
            self._compressors[nbytes] = factory(Step(inner, decoded, encoded))
        return self._compressors[nbytes]

    def decode(self, block: Bytes) -> bytes:
        data = bytes(memoryview(block).cast("B"))
        shape, begin = _header(data)
        if len(shape) != len(self._shape) or any(n > most for n, most in zip(shape, self._shape, strict=True)):
            raise ValueError(f"the header of a block has shape {shape}, the data set has blocks of {self._shape}")
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

    def encode(self, data: Bytes) -> bytes:
        header = struct.pack(f">HH{len(self._shape)}I", 0, len(self._shape), *reversed(self._shape))
        payload = np.frombuffer(memoryview(data).cast("B"), self._dtype).astype(self._stored).tobytes()
        if self._config is not None:
            payload = bytes(self._compressor(len(payload)).encode((payload,))[0])
        return header + payload


def _header(data: bytes) -> tuple[tuple[int, ...], int]:
    """Shape of the block in the order of the array's axes, and offset of its elements."""
    try:
        mode, ndim = struct.unpack_from(">HH", data)
        shape = struct.unpack_from(f">{ndim}I", data, 4)
    except struct.error as error:
        raise ValueError(f"truncated: {len(data)} bytes are too few for the header of a block") from error
    if mode not in (0, 1):
        raise ValueError(f"a block has mode {mode}; gzarr reads modes 0 and 1, which hold numbers")
    return tuple(reversed(shape)), 4 + 4 * ndim + 4 * mode


def _from_java_lz4(data: bytes) -> bytes:
    """Decode the frames of lz4-java, without a check of their checksums."""
    decoded, at = [], 0
    while at < len(data):
        if at + _LZ4_FRAME.size > len(data):
            raise ValueError("truncated: an LZ4 frame ends within its header")
        magic, token, packed, plain, _ = _LZ4_FRAME.unpack_from(data, at)
        at += _LZ4_FRAME.size
        if magic != _LZ4_MAGIC or packed < 0 or plain < 0 or plain > 255 * packed + 64 or at + packed > len(data):
            raise ValueError("an LZ4 frame is damaged")
        block = data[at : at + packed]
        at += packed
        if plain:  # an empty frame ends the stream
            # numcodecs expects the decoded size before the block.
            stored = token & 0xF0 == _LZ4_STORED
            decoded.append(block if stored else bytes(lz4_decompress(struct.pack("<i", plain) + block)))
    return b"".join(decoded)


CODECS = {"n5_wrapper": n5_codec}
