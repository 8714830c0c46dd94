"""The kernels' reference in NumPy and plain Python: Blosc's shuffles, and the layout of a Blosc-1 frame."""

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numcodecs import Blosc, lz4, zstd

from gzarr.gpu.kernels import BIT_SHUFFLED, BYTE_SHUFFLED, PLAIN

Bytes = np.ndarray


class Shuffle(NamedTuple):
    """How the bytes of a chunk lie."""

    mode: int = PLAIN
    typesize: int = 1
    blocksize: int = 1


def shuffled(plain: Bytes, how: Shuffle) -> Bytes:
    """The bytes as Blosc's filters leave them."""
    return _by_block(plain, how, _shuffle_bytes, _shuffle_bits)


def unshuffled(data: Bytes, how: Shuffle) -> Bytes:
    """The bytes as they were before Blosc's filters."""
    return _by_block(data, how, _unshuffle_bytes, _unshuffle_bits)


def _by_block(
    data: Bytes, how: Shuffle, on_bytes: Callable[[Bytes, int], Bytes], on_bits: Callable[[Bytes, int], Bytes]
) -> Bytes:
    result = data.copy()
    if how.mode == PLAIN:
        return result
    for start in range(0, data.size, how.blocksize):
        block = result[start : start + how.blocksize]
        n_items = block.size // how.typesize
        body = block[: n_items * how.typesize]
        if how.mode == BYTE_SHUFFLED:
            body[:] = on_bytes(body.copy(), how.typesize)
        elif n_items % 8 == 0 and n_items:
            body[:] = on_bits(body.copy(), how.typesize)
    return result


def _shuffle_bytes(body: Bytes, typesize: int) -> Bytes:
    return body.reshape(-1, typesize).T.reshape(-1)


def _unshuffle_bytes(body: Bytes, typesize: int) -> Bytes:
    return body.reshape(typesize, -1).T.reshape(-1)


def _shuffle_bits(body: Bytes, typesize: int) -> Bytes:
    bits = np.unpackbits(body.reshape(-1, typesize, 1), axis=-1, bitorder="little")
    return np.packbits(bits.transpose(1, 2, 0), axis=-1, bitorder="little").reshape(-1)


def _unshuffle_bits(body: Bytes, typesize: int) -> Bytes:
    bits = np.unpackbits(body.reshape(typesize, 8, -1), axis=-1, bitorder="little")
    return np.packbits(bits.transpose(2, 0, 1), axis=-1, bitorder="little").reshape(-1)


def blosc_frame(values: np.ndarray, name: str, level: int, shuffle: int, blocksize: int) -> bytes:
    """The frame that numcodecs makes of an array; blocksize 0 lets it choose."""
    return bytes(Blosc(name, level, shuffle, blocksize).encode(values))


class Header(NamedTuple):
    """The 16 bytes that a Blosc-1 frame begins with."""

    version: int
    version_lz: int
    flags: int
    typesize: int
    nbytes: int
    blocksize: int
    cbytes: int

    @property
    def is_memcpy(self) -> bool:
        return bool(self.flags & 2)

    def block_sizes(self) -> list[int]:
        """Decoded bytes of each block; a stored frame counts as one block."""
        if self.is_memcpy:
            return [self.nbytes] if self.nbytes else []
        return [min(self.blocksize, self.nbytes - start) for start in range(0, self.nbytes, self.blocksize)]

    def n_splits(self, block_nbytes: int) -> int:
        """Streams of a block."""
        is_whole = block_nbytes == self.blocksize and not self.is_memcpy
        may_split = not self.flags & 16 and self.typesize <= 16 and block_nbytes // self.typesize >= 128
        return self.typesize if is_whole and may_split else 1

    def shuffle(self) -> Shuffle:
        """How the decoded streams lie."""
        if self.is_memcpy or not self.flags & 5:
            return Shuffle(PLAIN, 1, max(self.blocksize, 1))
        if self.flags & 1 and self.typesize > 1:
            return Shuffle(BYTE_SHUFFLED, self.typesize, self.blocksize)
        mode = BIT_SHUFFLED if self.flags & 4 else PLAIN
        return Shuffle(mode, self.typesize, self.blocksize)


def header_of(frame: bytes) -> Header:
    """Read a header. Raises: struct.error if the frame is shorter."""
    return Header(*struct.unpack_from("<BBBBIII", frame))


def streams_of(frame: bytes) -> Iterator[tuple[bytes, int]]:
    """The streams of a sound frame, in the order of its decoded bytes, each with its decoded size."""
    header = header_of(frame)
    if header.is_memcpy:
        yield frame[16:], header.nbytes
        return
    for block, size in enumerate(header.block_sizes()):
        (at,) = struct.unpack_from("<i", frame, 16 + 4 * block)
        for _ in range(splits := header.n_splits(size)):
            (csize,) = struct.unpack_from("<i", frame, at)
            yield frame[at + 4 : at + 4 + csize], size // splits
            at += 4 + csize


def _lz4_block(data: bytes, nbytes: int) -> bytes:
    return bytes(lz4.decompress(struct.pack("<I", nbytes) + data))


_DECOMPRESS: dict[int, Callable[[bytes, int], bytes]] = {
    1: _lz4_block,
    3: lambda data, nbytes: zlib.decompress(data),
    4: lambda data, nbytes: bytes(zstd.decompress(data)),
}


def decoded_streams(frame: bytes) -> Bytes:
    """The bytes of a sound frame, its streams decompressed but still shuffled."""
    decompress = _DECOMPRESS.get(header_of(frame).flags >> 5)
    pieces = []
    for data, nbytes in streams_of(frame):
        if len(data) != nbytes:
            assert decompress is not None
            data = decompress(data, nbytes)  # noqa: PLW2901
        assert len(data) == nbytes
        pieces.append(data)
    return np.frombuffer(b"".join(pieces), np.uint8)
