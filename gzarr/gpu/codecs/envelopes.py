"""What surrounds the streams of compressors: which chunks have the usual envelope, and the checksums in it.

A batched decoder wants the addresses and sizes of bare streams. On a chunk that it does not expect, it may read out of
bounds or report success for damage, so only the usual chunks go to the device. All others, damaged ones too, are
decoded by the host, which knows every variant of a format and says what is wrong. The headers of all chunks of a batch
are read at once.

Some faults show in no header: damage inside a stream and, in gzip, an empty first member before one of the expected
size. The size that the decoder reports reveals the latter, and checksums most of the former.

Source: LZ4 block format; RFC 1950 (zlib), RFC 1952 (gzip), RFC 8878 (Zstandard); numcodecs, LZ4.
"""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gzarr.cpu.codecs.compressors import LZ4_RATIO
from gzarr.cpu.codecs.frames import CHECKSUM
from gzarr.cpu.compiled import library

Bytes: TypeAlias = npt.NDArray[np.uint8]
Sizes: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
#: Checksums that chunks hold: (numbers of the chunks that have one, their checksums).
Stored: TypeAlias = tuple[npt.NDArray[np.intp], npt.NDArray[Any]]


def read(staging_buffer: Bytes, dtype: str, positions: Sizes) -> npt.NDArray[Any]:
    """Read items of a dtype at positions of the staging buffer, which the caller has compared with its ends."""
    item = np.dtype(dtype)
    # one overlapping item per byte, so that only the wanted items are copied
    view: npt.NDArray[Any] = np.ndarray(
        (max(len(staging_buffer) - item.itemsize + 1, 0),), item, staging_buffer, strides=(1,)
    )
    return view[positions]


def peek(staging_buffer: Bytes, dtype: str, positions: Sizes) -> npt.NDArray[Any]:
    """Read items of a dtype at any positions. Items that are not in the staging buffer hold anything."""
    last = len(staging_buffer) - np.dtype(dtype).itemsize
    return np.zeros(positions.shape, dtype) if last < 0 else read(staging_buffer, dtype, np.clip(positions, 0, last))


#: Bytes of the decoded size in front of an LZ4 block.
LZ4_HEADER = 4
ZLIB_HEADER, ZLIB_TRAILER = 2, 4
#: Deflate, 32 KiB window, default level, header check (RFC 1950, 2.2).
ZLIB_HEAD = b"\x78\x9c"
#: Fixed header, CRC-32 and ISIZE of a gzip member (RFC 1952, 2.3).
GZIP_HEADER, GZIP_TRAILER = 10, 8
#: The usual beginning of gzip members, nvCOMP's too: no optional fields (RFC 1952, 2.3).
GZIP_START = b"\x1f\x8b\x08\0"
#: An empty block of two bytes is the shortest Deflate stream.
_SHORTEST_DEFLATE = 2


def is_usual_lz4(staging_buffer: Bytes, offsets: Sizes, sizes: Sizes, expected: Sizes) -> Mask:
    """Whether the size in front of each LZ4 block is the expected one, and the block can be of that size.

    staging buffer: uint8, C-contiguous, on the host. offsets, sizes: the range of each chunk in it. expected: decoded
    sizes.
    """
    claimed = peek(staging_buffer, "<u4", offsets)
    usual: Mask = (sizes > LZ4_HEADER) & (claimed == expected) & (claimed <= LZ4_RATIO * sizes)
    return usual


def is_usual_zlib(staging_buffer: Bytes, offsets: Sizes, sizes: Sizes, expected: Sizes) -> Mask:
    """Whether each chunk begins with a zlib header, without a preset dictionary. Arguments: see `is_usual_lz4`.

    A zlib stream does not hold its decoded size, so the decoder must report it; bytes behind a stream go unnoticed.
    """
    header = peek(staging_buffer, ">u2", offsets).astype(np.int64)
    # CM, the low half of the first byte, is 8 for Deflate; CINFO above it at most 7; FCHECK makes a multiple of 31.
    right = (header >> 8 & 15 == 8) & (header >> 12 <= 7) & (header % 31 == 0) & (header & 0x20 == 0)
    usual: Mask = right & (sizes >= ZLIB_HEADER + _SHORTEST_DEFLATE + ZLIB_TRAILER)
    return usual


def is_usual_gzip(staging_buffer: Bytes, offsets: Sizes, sizes: Sizes, expected: Sizes) -> Mask:
    """Whether each chunk begins with a gzip header without optional fields. Arguments: see `is_usual_lz4`.

    If its last four bytes are not the expected size, it may have several members, or padding behind the last one. If
    its first member is visibly empty, it has another one.
    """
    ends = offsets + sizes - GZIP_TRAILER
    stream = offsets + GZIP_HEADER
    usual: Mask = sizes >= GZIP_HEADER + _SHORTEST_DEFLATE + GZIP_TRAILER
    usual &= peek(staging_buffer, ">u4", offsets) == int.from_bytes(GZIP_START, "big")
    usual &= peek(staging_buffer, "<u4", ends + 4) == (expected & 0xFFFFFFFF)
    # An empty block that is the last one, of fixed codes or stored (RFC 1951, 3.2).
    usual &= peek(staging_buffer, "<u2", stream) != 0x0003
    usual &= peek(staging_buffer, "<u4", stream) & 0xFFFFFF != 0x000001
    return usual


def is_usual_zstd(staging_buffer: Bytes, offsets: Sizes, sizes: Sizes, expected: Sizes) -> Mask:
    """Whether each chunk is one whole Zstandard frame that claims the expected size. Arguments: see `is_usual_lz4`.

    Compiled code follows a frame block by block to its end. Unusual are frames without content size, several frames in
    a chunk, skippable frames, dictionaries, windows above 128 MiB, and frames of more than 4096 blocks.
    """
    usual = np.empty(len(sizes), np.bool_)
    library.extension().plain_zstd(staging_buffer, offsets, sizes, expected, usual.view(np.uint8))
    return usual


def stored_adler32(staging_buffer: Bytes, offsets: Sizes, sizes: Sizes) -> Stored:
    """The Adler-32 that usual zlib streams end with."""
    return np.arange(len(sizes)), read(staging_buffer, ">u4", offsets + sizes - 4)


def stored_crc32(staging_buffer: Bytes, offsets: Sizes, sizes: Sizes) -> Stored:
    """The CRC-32 that usual gzip members have before their last four bytes."""
    return np.arange(len(sizes)), read(staging_buffer, "<u4", offsets + sizes - 8)


def stored_xxh64(staging_buffer: Bytes, offsets: Sizes, sizes: Sizes) -> Stored:
    """The low halves of XXH64 that usual Zstandard frames end with, if they do."""
    which = np.flatnonzero(staging_buffer[offsets + 4] & CHECKSUM)
    return which, read(staging_buffer, "<u4", (offsets + sizes)[which] - 4)
