"""LZ4 blocks with their decoded size in front, as numcodecs writes them. Source: LZ4 block format; numcodecs, LZ4."""

from __future__ import annotations

import numpy as np

from gzarr.cpu.codecs.compressors import LZ4_RATIO
from gzarr.gpu.codecs.entry import DeviceCodec
from gzarr.gpu.codecs.headers import Bytes, Sizes, StreamTable, check_ranges, read, refuse, refuse_sizes, stream_table
from gzarr.gpu.codecs.single_stream import Envelope, stream_decoder, stream_encoder

#: Bytes of the decoded size in front of a block.
_SIZE_NBYTES = 4


def parse_lz4(slab: Bytes, offsets: Sizes, sizes: Sizes, expected_nbytes: int) -> StreamTable:
    """Strip the size of four bytes from LZ4 blocks.

    Parameters
    ----------
    slab : Bytes
        uint8[...], C-contiguous, on the host.
    offsets : Sizes
        int64[n], where each chunk begins.
    sizes : Sizes
        int64[n], encoded sizes in bytes.
    expected_nbytes : int
        Decoded size of every chunk.

    Returns
    -------
    StreamTable
        The table. Chunks go to the host only if they decode to nothing.

    Raises
    ------
    CodecError
        With (index, "lz4"), if a chunk is too short or claims a wrong size.
    ValueError
        If a range is not in the slab.
    """
    check_ranges(slab, offsets, sizes)
    refuse("lz4", sizes < 4, lambda i: f"truncated: {sizes[i]} bytes are too few for the size, which takes 4")
    claimed = read(slab, "<u4", offsets).astype(np.int64)
    refuse_sizes("lz4", claimed, expected_nbytes)
    impossible = claimed > LZ4_RATIO * sizes
    refuse(
        "lz4", impossible, lambda i: f"{sizes[i]} encoded bytes claim {claimed[i]} decoded bytes, which is impossible"
    )
    return stream_table((offsets, sizes), (offsets + 4, sizes - 4), expected_nbytes, np.zeros(len(sizes), np.bool_))


def _envelope(nbytes: int) -> Envelope:
    return Envelope("lz4", nbytes.to_bytes(_SIZE_NBYTES, "little"))


LZ4 = DeviceCodec(
    stream_decoder("lz4", parse_lz4, header_nbytes=_SIZE_NBYTES),
    stream_encoder(_envelope),
    takes_streams=True,
)
CODECS = {"numcodecs.lz4": LZ4}
