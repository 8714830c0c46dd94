"""Decodes Zstandard frames, after a check of the size that they claim.

numcodecs gives every frame the memory it claims, and a frame without a claim as much as it needs. Here, a frame is
checked against the size that the chunk must have. Most chunks are one frame of known size. The other functions serve
encoders that stream (no size in the header) or write several frames.

Source: RFC 8878, section 3.1.
"""

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from numcodecs.zstd import decompress

from gzarr.cpu.codecs.per_chunk import Bytes, wrong_size

#: Of Blosc frames: two versions, flags, type size; decoded size, size of a block, encoded size.
BLOSC_HEADER = struct.Struct("<4B3I")

MAGIC = 0xFD2FB528
#: Sixteen magic numbers from here on start frames that are to be skipped.
SKIPPABLE_MAGIC = 0x184D2A50
#: Header field that says sizes of up to 2**64 - 1: content size flag 3 (RFC 8878, 3.1.1.1.1.1).
SIZE_FLAG_8_BYTES = 3 << 6
#: Kinds of blocks, of which one repeats a byte, and the most bytes that a block decodes to.
REPEATED, COMPRESSED, MAX_BLOCK_NBYTES = 1, 2, 1 << 17
SINGLE_SEGMENT, CHECKSUM, DICTIONARY = 0x20, 0x04, 0x03

_PREFIX = struct.Struct("<IB").unpack_from


def _size_readers() -> list[tuple[int, Any, int] | None]:
    """For each frame header descriptor: position of the content size, its reader, and what to add; None without one."""
    readers: list[tuple[int, Any, int] | None] = []
    for descriptor in range(256):
        flag = descriptor >> 6
        position = header_fields(descriptor)
        code = ("<B" if descriptor & SINGLE_SEGMENT else None, "<H", "<I", "<Q")[flag]
        # sizes of two bytes start at 256
        reader = None if code is None else (position, struct.Struct(code).unpack_from, 256 if flag == 1 else 0)
        readers.append(reader)
    return readers


def header_fields(descriptor: int) -> int:
    """Position of the content size in a frame, after magic, descriptor, window and dictionary."""
    return 5 + (0 if descriptor & SINGLE_SEGMENT else 1) + (0, 1, 2, 4)[descriptor & DICTIONARY]


_SIZE_READERS = _size_readers()


def content_size(data: Bytes, start: int = 0) -> int | None:
    """Decoded size that the frame at ``start`` claims; None if it claims none. Raises ValueError if it is no frame."""
    try:
        magic, descriptor = _PREFIX(data, start)
        if magic != MAGIC:
            raise ValueError(f"not a Zstandard frame: expected magic number {MAGIC:#x}, got {magic:#x}")
        reader = _SIZE_READERS[descriptor]
        if reader is None:
            return None
        position, unpack, base = reader
        (size,) = unpack(data, start + position)
    except struct.error as error:
        raise ValueError(f"truncated: {len(data) - start} bytes are too few for a Zstandard frame header") from error
    return int(size + base)


def decode_frames(expected: int, data: Bytes) -> Bytes:
    """Decode frames that together must have the expected size.

    Raises CodecError if the frames claim another size, ValueError or RuntimeError if they are damaged.
    """
    out = np.empty(expected, np.uint8)
    if content_size_or_none(data) == expected and expected:
        # a second frame would not fit the output, which numcodecs checks before it decodes
        return decompress(data, out)
    return _decode_each(memoryview(data), out)


def content_size_or_none(data: Bytes) -> int | None:
    """`content_size`, or None for a skippable frame."""
    if (
        len(data) >= 4
        and data[3] == SKIPPABLE_MAGIC >> 24
        and struct.unpack_from("<I", data)[0] & ~15 == SKIPPABLE_MAGIC
    ):
        return None
    return content_size(data)


def _decode_each(data: memoryview, out: Bytes) -> Bytes:
    expected = len(out)
    frames = list(_frames(data))
    known = sum(size or 0 for _, size in frames)
    unknown = sum(size is None for _, size in frames)
    if known > expected or (not unknown and known != expected):
        raise wrong_size("zstd", expected, known)
    if unknown > 1:
        raise ValueError(f"{unknown} of {len(frames)} Zstandard frames do not say their size; at most one may omit it")
    position = 0
    for frame, claimed in frames:
        size = expected - known if claimed is None else claimed
        if claimed is None and not size:
            _check_empty(frame, expected)
        elif size:
            decompress(_with_size(frame, size) if claimed is None else frame, out[position : position + size])
        position += size
    return out


def _check_empty(frame: memoryview, expected: int) -> None:
    """Raise unless a frame without a size is one empty last block."""
    position = header_fields(frame[4])
    if bytes(frame[position : position + 3]) != b"\1\0\0":
        raise wrong_size("zstd", expected, "more")


def size_bounds(data: Bytes) -> tuple[int, int]:
    """Bytes that frames decode to at least and at most, without decoding. Raises ValueError if they are damaged.

    Compressed blocks of frames that claim no size say only that they hold at most 128 KiB.
    """
    certain = possible = 0
    for frame, claimed in _frames(memoryview(data)):
        if claimed is not None:
            certain += claimed
            continue
        for kind, size, _ in blocks(frame, header_fields(frame[4])):
            certain += 0 if kind == COMPRESSED else size
            possible += MAX_BLOCK_NBYTES if kind == COMPRESSED else 0
    return certain, certain + possible


def blocks(data: memoryview, position: int) -> Iterator[tuple[int, int, int]]:
    """Kind, size and end of every block from a position on. Raises ValueError if the frame ends before its last one."""
    last = False
    while not last:
        if position + 3 > len(data):
            raise ValueError("truncated: a Zstandard frame ends before its last block")
        header = int.from_bytes(data[position : position + 3], "little")
        last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        position += 3 + (1 if kind == REPEATED else size)
        yield kind, size, position


def _frames(data: memoryview) -> Iterator[tuple[memoryview, int | None]]:
    """Every frame except skippable ones, with the size that it claims, found by walking the block headers."""
    start = 0
    while start < len(data):
        if len(data) - start >= 8 and struct.unpack_from("<I", data, start)[0] & ~15 == SKIPPABLE_MAGIC:
            start += 8 + struct.unpack_from("<I", data, start + 4)[0]
            continue
        size = content_size(data, start)
        end = _frame_end(data, start)
        yield data[start:end], size
        start = end


def _frame_end(data: memoryview, start: int) -> int:
    descriptor = data[start + 4]
    reader = _SIZE_READERS[descriptor]
    position = start + header_fields(descriptor) + (0 if reader is None else size_field(descriptor))
    for _, _, end_of_block in blocks(data, position):
        position = end_of_block
    end = position + (4 if descriptor & CHECKSUM else 0)
    if end > len(data):
        raise ValueError(f"truncated: a Zstandard frame has {end - start} bytes, {len(data) - start} are stored")
    return end


def size_field(descriptor: int) -> int:
    """Length of the content size field in bytes."""
    return (1 if descriptor & SINGLE_SEGMENT else 0, 2, 4, 8)[descriptor >> 6]


def _with_size(frame: memoryview, size: int) -> bytes:
    """The frame with its size written into the header, so that libzstd decodes no more than that."""
    descriptor = frame[4]
    position = header_fields(descriptor)
    changed = SIZE_FLAG_8_BYTES | descriptor & (CHECKSUM | DICTIONARY)
    return b"".join((frame[:4], bytes((changed,)), frame[5:position], struct.pack("<Q", size), frame[position:]))
