"""Tools for parsers, which read the headers of all encoded chunks in a staging buffer at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gzarr.errors import CodecError

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


def refuse(codec: str, bad: Mask, describe: Callable[[int], str]) -> None:
    """Raise CodecError for the first bad item, if any. ``describe`` gives the message for an item."""
    if bad.any():
        index = int(bad.argmax())
        raise CodecError(f"{codec}: {describe(index)}", index=index, codec=codec)
