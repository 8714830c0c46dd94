"""Reads and checks the headers of all Blosc frames of a batch at once. Source: c-blosc 1.21."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from gzarr.gpu.codecs.headers import Bytes, Mask, Sizes, read, refuse, refuse_sizes

Small: TypeAlias = npt.NDArray[np.uint8]

#: How a stream is decoded; `RAW` is stored, the others are blosc's numbers for compressors.
RAW, LZ4, SNAPPY, DEFLATE, ZSTD = range(5)
DECODERS = 5
BLOSCLZ = 0
#: How a frame is shuffled.
NO_SHUFFLE, BYTE_SHUFFLE, BIT_SHUFFLE = range(3)

HEADER_NBYTES = 16
VERSION = 2
#: Version of the compressors' formats, which is 1 for all of them.
VERSION_LZ = 1
FLAG_SHUFFLE, FLAG_MEMCPY, FLAG_BITSHUFFLE, FLAG_RESERVED, FLAG_WHOLE = 1, 2, 4, 8, 16
#: Larger elements are not split, nor are blocks of fewer elements (MAX_SPLITS, MIN_BUFFERSIZE of c-blosc).
MOST_SPLITS, LEAST_SPLIT = 16, 128
#: Frames of several smaller blocks go to the host: the blocks of c-blosc have 128 bytes, rounded down to elements.
LEAST_BLOCK = 64

HEADER = np.dtype(
    [
        ("version", "u1"),
        ("version_lz", "u1"),
        ("flags", "u1"),
        ("typesize", "u1"),
        ("nbytes", "<u4"),
        ("blocksize", "<u4"),
        ("cbytes", "<u4"),
    ]
)


class Frames(NamedTuple):
    """Headers as wide integers, the positions of the frames, and which frames the host decodes."""

    offset: Sizes
    flags: Sizes
    codec: Small
    typesize: Sizes
    nbytes: Sizes
    blocksize: Sizes
    cbytes: Sizes
    memcpy: Mask
    to_host: Mask


def read_headers(staging_buffer: Bytes, offsets: Sizes, sizes: Sizes, expected_nbytes: int) -> Frames:
    """Read and check headers. As in c-blosc, frames that decode to nothing are not checked further."""
    short = sizes < HEADER_NBYTES
    refuse("blosc", short, lambda i: f"truncated: {sizes[i]} bytes are too few for a blosc header of 16")
    header = read(staging_buffer, f"V{HEADER_NBYTES}", offsets).view(HEADER)
    wide = {name: header[name].astype(np.int64) for name in ("flags", "typesize", "nbytes", "blocksize", "cbytes")}
    cbytes, flags = wide["cbytes"], wide["flags"]
    refuse("blosc", cbytes > sizes, lambda i: f"truncated: expected {cbytes[i]} encoded bytes, got {sizes[i]}")
    refuse_sizes("blosc", wide["nbytes"], expected_nbytes)
    codec = (flags >> 5).astype(np.uint8)
    memcpy = flags & FLAG_MEMCPY != 0
    # a stored frame needs no compressor
    foreign = (header["version_lz"] != VERSION_LZ) | (codec == BLOSCLZ) | (codec > ZSTD)
    to_host = (header["version"] != VERSION) | (flags & FLAG_RESERVED != 0) | (~memcpy & foreign)
    tiny = ~memcpy & (wide["blocksize"] < LEAST_BLOCK) & (wide["blocksize"] < wide["nbytes"])
    frames = Frames(offset=offsets, codec=codec, memcpy=memcpy, to_host=to_host & (expected_nbytes > 0), **wide)
    if expected_nbytes:
        _check_headers(frames)
        frames.to_host[tiny] = True
    return frames


def _check_headers(frames: Frames) -> None:
    """Raise CodecError if a frame that is not left to the host has an invalid header."""
    here = ~frames.to_host
    cbytes, nbytes, blocksize, typesize = frames.cbytes, frames.nbytes, frames.blocksize, frames.typesize
    wrong = here & ((blocksize == 0) | (blocksize > nbytes))
    refuse("blosc", wrong, lambda i: f"expected blocks of 1 to {nbytes[i]} bytes, got {blocksize[i]}")
    refuse("blosc", here & (typesize == 0), lambda _: "expected elements of 1 to 255 bytes, got 0")
    stored = nbytes + HEADER_NBYTES
    wrong = here & frames.memcpy & (cbytes != stored)
    refuse("blosc", wrong, lambda i: f"stored whole: expected {stored[i]} encoded bytes, got {cbytes[i]}")
    least = HEADER_NBYTES + 4 * -(-nbytes // np.maximum(blocksize, 1))
    wrong = here & ~frames.memcpy & (cbytes < least)
    refuse("blosc", wrong, lambda i: f"expected header and block starts of {least[i]} bytes, got {cbytes[i]} in all")
