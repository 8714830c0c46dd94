"""Tools for parsers, which read the headers of all encoded chunks in a slab at once.

A batched decoder wants addresses and sizes of bare streams. A parser strips the envelopes, refuses chunks that are
certainly damaged, and leaves valid but unusual ones to the host: on input that it does not expect, a decoder on a GPU
may read out of bounds. Rules for every parser:

- A position is compared with the end of its chunk before a byte is read there.
- Python loops run over the parts of *one* chunk (blocks of a frame, letters of a name), never over chunks.
- Some faults show in no header: damage inside a stream and, in gzip, an empty first member before one of the expected
  size. The size that the decoder reports reveals the latter, and checksums (verified on the device when a chunk is
  decoded) most of the former.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gzarr.errors import CodecError

Bytes: TypeAlias = npt.NDArray[np.uint8]
Sizes: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
#: Checksums that chunks hold: (numbers of the chunks that have one, their checksums).
Stored: TypeAlias = tuple[npt.NDArray[np.intp], npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class StreamTable:
    """Where the stream of each chunk is in a slab.

    Attributes
    ----------
    source : Sizes
        int64[n], position of the stream in the slab; of the whole chunk if the host decodes it.
    nbytes : Sizes
        int64[n], encoded size of the stream; of the whole chunk if the host decodes it.
    decoded_nbytes : Sizes
        int64[n], decoded size.
    to_host : Mask
        bool[n], chunks that the host decodes because their framing is unusual.
    """

    source: Sizes
    nbytes: Sizes
    decoded_nbytes: Sizes
    to_host: Mask


def read(slab: Bytes, dtype: str, positions: Sizes) -> npt.NDArray[Any]:
    """Read items of a dtype at any positions of the slab. The caller has compared the positions with the ends."""
    item = np.dtype(dtype)
    # one overlapping item per byte, so that only the wanted items are copied
    view: npt.NDArray[Any] = np.ndarray((max(len(slab) - item.itemsize + 1, 0),), item, slab, strides=(1,))
    return view[positions]


def refuse(codec: str, bad: Mask, describe: Callable[[int], str]) -> None:
    """Raise CodecError for the first bad item, if any. ``describe`` gives the message for an item."""
    if bad.any():
        index = int(bad.argmax())
        raise CodecError(f"{codec}: {describe(index)}", index=index, codec=codec)


def refuse_sizes(codec: str, claimed: Sizes, expected_nbytes: int) -> None:
    """Raise CodecError for the first item that claims a wrong decoded size."""
    refuse(codec, claimed != expected_nbytes, lambda i: f"expected {expected_nbytes} decoded bytes, got {claimed[i]}")


def check_ranges(slab: Bytes, offsets: Sizes, sizes: Sizes) -> None:
    """Raise ValueError unless the slab is flat bytes and every range is in it."""
    if slab.dtype != np.uint8 or slab.ndim != 1 or not slab.flags.c_contiguous:
        raise ValueError(f"slab: expected contiguous uint8 of one dimension, got {slab.dtype} of {slab.ndim}")
    if offsets.shape != sizes.shape or offsets.ndim != 1 or offsets.dtype != np.int64 or sizes.dtype != np.int64:
        got = f"{offsets.dtype}{offsets.shape} and {sizes.dtype}{sizes.shape}"
        raise ValueError(f"offsets and sizes: expected int64[n] both, got {got}")
    outside = (offsets < 0) | (sizes < 0) | (offsets > len(slab) - sizes)
    if outside.any():
        i = int(outside.argmax())
        raise ValueError(f"chunk {i}: {sizes[i]} bytes at {offsets[i]} are not in a slab of {len(slab)}")


def stream_table(
    chunks: tuple[Sizes, Sizes], streams: tuple[Sizes, Sizes], expected_nbytes: int, to_host: Mask
) -> StreamTable:
    """The table of parsed streams. The host gets whole chunks; it gets all of them if they decode to nothing."""
    to_host = to_host | (expected_nbytes == 0)
    (offsets, sizes), (source, nbytes) = chunks, streams
    return StreamTable(
        source=np.where(to_host, offsets, source),
        nbytes=np.where(to_host, sizes, nbytes),
        decoded_nbytes=np.full(len(sizes), expected_nbytes, np.int64),
        to_host=to_host,
    )
