"""Takes all Blosc frames of a staging buffer apart, into the streams that batched decoders take.

Compiled code (`gpu/native/frames.c`) follows the headers. It takes frames of LZ4, Snappy, zlib and Zstandard in which
nothing is unusual. All others are left to the host, which knows every variant and says what is wrong: damaged frames,
other format versions, blosclz, streams with unusual framing, and frames of many tiny blocks.

Rules: the streams of a frame fill its decoded bytes exactly once, still shuffled. A position is compared with the end
of its frame before a byte is read there.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.cpu.compiled import library
from gzarr.errors import DeviceError
from gzarr.gpu.codecs.envelopes import Bytes, Mask, Sizes

#: How a stream is decoded; `RAW` is stored, the others are blosc's numbers for compressors.
RAW, LZ4, SNAPPY, DEFLATE, ZSTD = range(5)
DECODERS = 5

HEADER_NBYTES = 16
VERSION = 2
#: Version of the compressors' formats, which is 1 for all of them.
VERSION_LZ = 1
FLAG_SHUFFLE, FLAG_MEMCPY, FLAG_BITSHUFFLE, FLAG_WHOLE = 1, 2, 4, 16
#: Larger elements are not split, nor are blocks of fewer elements (MAX_SPLITS, MIN_BUFFERSIZE of c-blosc).
MOST_SPLITS, LEAST_SPLIT = 16, 128

_BYTES, _WORDS = ("version", "version_lz", "flags", "typesize"), ("nbytes", "blocksize", "cbytes")
HEADER = np.dtype([*((name, "u1") for name in _BYTES), *((name, "<u4") for name in _WORDS)])


#: What is known of a frame: struct Frame of `gpu/native/device.h`.
FRAME = np.dtype([("blocksize", "i8"), ("typesize", "i4"), ("shuffle", "u1"), ("to_host", "?")], align=True)


class BloscStreams(NamedTuple):
    """Streams of many frames, one row each, in the order of the frames.

    Attributes
    ----------
    frame : Sizes
        int64 (m,), the frame that the stream belongs to.
    source : Sizes
        int64 (m,), position in the staging buffer, behind zlib's header.
    csize : Sizes
        int64 (m,), encoded bytes, without zlib's envelope.
    dest : Sizes
        int64 (m,), position of the decoded bytes in the decoded chunk.
    nbytes : Sizes
        int64 (m,), decoded bytes.
    """

    frame: Sizes
    source: Sizes
    csize: Sizes
    dest: Sizes
    nbytes: Sizes

    def take(self, rows: Any) -> "BloscStreams":
        """The streams with given row numbers, or under a mask."""
        return BloscStreams(*(column[rows] for column in self))


class BloscTable(NamedTuple):
    """The streams of n frames, and how the decoded bytes are shuffled.

    Attributes
    ----------
    to_host : Mask
        bool (n,), whether the host decodes the frame, which then has no streams.
    shuffle : NDArray[np.uint8]
        uint8 (n,), `PLAIN`, `BYTE_SHUFFLED` or `BIT_SHUFFLED` for the decoded streams; stored frames and frames
        that the host decodes are plain.
    typesize : NDArray[np.int32]
        int32 (n,), bytes of the elements that were shuffled; 1 for plain frames.
    blocksize : Sizes
        int64 (n,), decoded bytes of a block, which is shuffled by itself; the last one may be shorter. All bytes for
        plain frames.
    groups : tuple[BloscStreams, ...]
        The streams by their decoders: `RAW` (stored, to be copied), `LZ4`, `SNAPPY`, `DEFLATE`, `ZSTD`.
    """

    to_host: Mask
    shuffle: NDArray[np.uint8]
    typesize: NDArray[np.int32]
    blocksize: Sizes
    groups: tuple[BloscStreams, ...]


def parse_frames(staging_buffer: Bytes, offsets: Sizes, sizes: Sizes, nbytes: int) -> BloscTable:
    """Take apart Blosc frames.

    Parameters
    ----------
    staging_buffer : Bytes
        uint8, C-contiguous, on the host.
    offsets, sizes : Sizes
        int64 (n,), the range of each frame in it.
    nbytes : int
        Decoded size of every frame, above 0.

    Returns
    -------
    BloscTable
        The table. Every range in it is in its frame, and in the decoded chunk.
    """
    n, parse = len(sizes), library.extension().parse_blosc
    frames, bounds = np.empty(n, FRAME), np.empty(DECODERS + 1, np.int64)
    args = staging_buffer, offsets, sizes, nbytes, frames.view(np.uint8), bounds
    parse(*args, np.empty((len(BloscStreams._fields), 0), np.int64))
    streams = np.empty((len(BloscStreams._fields), int(bounds[-1])), np.int64)
    if streams.size and not parse(*args, streams):
        raise DeviceError("the encoded chunks of a batch changed while they were taken apart")
    groups = tuple(BloscStreams(*group) for group in np.split(streams, bounds[1:-1], axis=1))
    return BloscTable(frames["to_host"], frames["shuffle"], frames["typesize"], frames["blocksize"], groups)
