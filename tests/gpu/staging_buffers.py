"""Chunks laid into one staging buffer, as a reader leaves them, and damage done to them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


class StagingBuffer(NamedTuple):
    """Bytes, and where each chunk lies in them."""

    data: np.ndarray[Any, np.dtype[np.uint8]]
    offsets: np.ndarray[Any, np.dtype[np.int64]]
    sizes: np.ndarray[Any, np.dtype[np.int64]]

    def chunk(self, index: int) -> bytes:
        start = int(self.offsets[index])
        return self.data[start : start + int(self.sizes[index])].tobytes()


def staging_buffer_of(
    chunks: Sequence[bytes], *, filler: int = 0xA5, seed: int = 0, tight: bool = False
) -> StagingBuffer:
    """Lay chunks at odd places, in any order, the last of them up to the very end of the staging buffer."""
    rng = np.random.default_rng(seed)
    gaps = np.zeros(len(chunks), np.int64) if tight else rng.integers(0, 5, len(chunks))
    sizes = np.array([len(chunk) for chunk in chunks], np.int64)
    offsets = np.zeros(len(chunks), np.int64)
    order = np.arange(len(chunks)) if tight else rng.permutation(len(chunks))
    ends = np.cumsum(sizes[order] + gaps)
    offsets[order] = ends - sizes[order]
    data = np.full(int(ends[-1]) if len(chunks) else 0, filler, np.uint8)
    for chunk, offset in zip(chunks, offsets, strict=True):
        data[offset : offset + len(chunk)] = np.frombuffer(chunk, np.uint8)
    data.flags.writeable = False
    return StagingBuffer(data, offsets, sizes)


def damaged(chunk: bytes, rng: np.random.Generator, n: int) -> list[bytes]:
    """The chunk cut, with flipped bits, with bytes replaced near its start, and noise of its length."""
    out = []
    for number in range(n):
        if number % 4 == 0:
            out.append(chunk[: int(rng.integers(0, len(chunk) + 1))])
            continue
        array = np.frombuffer(chunk, np.uint8).copy()
        if len(array) and number % 4 == 1:
            array[rng.integers(0, len(array), 3)] ^= np.uint8(1) << rng.integers(0, 8, 3).astype(np.uint8)
        elif len(array) and number % 4 == 2:
            at = int(rng.integers(0, min(len(array), 40)))
            array[at : at + 4] = rng.choice(np.array([0, 1, 127, 128, 255], np.uint8), len(array[at : at + 4]))
        elif number % 4 == 3:
            keep = int(rng.integers(0, 24))
            array[keep:] = rng.integers(0, 256, len(array[keep:]))
        out.append(array.tobytes())
    return out
