"""The header of Blosc's frames, and the numbers in it. Source: c-blosc 1.21."""

from __future__ import annotations

import numpy as np

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
