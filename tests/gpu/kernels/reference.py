"""The kernels' reference in NumPy and plain Python: Blosc's shuffles, and the layout of a Blosc-1 frame."""

from __future__ import annotations

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

    def counts(self) -> tuple[int, int]:
        """(blocks, streams)."""
        sizes = self.block_sizes()
        return len(sizes), sum(self.n_splits(n) for n in sizes)

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


class Stream(NamedTuple):
    """One row of blosc_parse's result; offset is from the beginning of the frame."""

    offset: int
    csize: int
    raw: bool
    error: int


def parse(frame: bytes, counts: tuple[int, int]) -> list[Stream]:
    """The streams of a frame in which the host counted so many blocks and streams."""
    error = _header_error(frame)
    if error == 0 and header_of(frame).counts() != counts:
        error = 3
    if error:
        return [Stream(0, 0, raw=False, error=error)] * (counts[1] if counts[0] else 0)
    header = header_of(frame)
    if header.is_memcpy:
        return [Stream(16, header.nbytes, raw=True, error=0)] if header.nbytes else []
    return [stream for block, size in enumerate(header.block_sizes()) for stream in _walk(frame, header, block, size)]


def _header_error(frame: bytes) -> int:
    if len(frame) < 16:
        return 1
    header = header_of(frame)
    if header.version != 2 or header.version_lz != 1 or header.flags & 8 or not header.typesize:
        return 2
    if header.nbytes >= 1 << 31:
        return 2
    if not 16 <= header.cbytes <= len(frame):
        return 1
    if header.nbytes == 0:
        return 0
    if header.is_memcpy:
        return 0 if header.cbytes == header.nbytes + 16 else 2
    if not 0 < header.blocksize < 1 << 31:
        return 2
    return 1 if -(-header.nbytes // header.blocksize) > (header.cbytes - 16) // 4 else 0


def _walk(frame: bytes, header: Header, block: int, size: int) -> Iterator[Stream]:
    splits = header.n_splits(size)
    (at,) = struct.unpack_from("<i", frame, 16 + 4 * block)
    error = 0 if 0 <= at <= header.cbytes - 4 else 4
    for _ in range(splits):
        if not error and at > header.cbytes - 4:
            error = 5
        if not error:
            (csize,) = struct.unpack_from("<i", frame, at)
            at += 4
            error = 0 if 0 <= csize <= header.cbytes - at else 5
        if error:
            yield Stream(0, 0, raw=False, error=error)
        else:
            yield Stream(at, csize, raw=csize == size // splits, error=0)
            at += csize


def _lz4_block(data: bytes, nbytes: int) -> bytes:
    return bytes(lz4.decompress(struct.pack("<I", nbytes) + data))


_DECOMPRESS: dict[int, Callable[[bytes, int], bytes]] = {
    1: _lz4_block,
    3: lambda data, nbytes: zlib.decompress(data),
    4: lambda data, nbytes: bytes(zstd.decompress(data)),
}


def decoded_streams(frame: bytes) -> Bytes:
    """The bytes of a sound frame, its streams decompressed but still shuffled."""
    header = header_of(frame)
    rows = parse(frame, header.counts())
    sizes = [n // header.n_splits(n) for n in header.block_sizes() for _ in range(header.n_splits(n))]
    decompress = _DECOMPRESS.get(header.flags >> 5)
    pieces = []
    for row, nbytes in zip(rows, sizes, strict=True):
        assert row.error == 0
        data = frame[row.offset : row.offset + row.csize]
        if not row.raw:
            assert decompress is not None
            data = decompress(data, nbytes)
        assert len(data) == nbytes
        pieces.append(data)
    return np.frombuffer(b"".join(pieces), np.uint8)
