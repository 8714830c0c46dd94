"""Windows of large chunks: the bytes a part touches, and how to index them.

Theory of operation. A chunk is in memory in the order of its *stored* axes. A box touches one run of it: the leading
axes on which it takes a single index are fixed, on the next axis it takes a range of rows, and everything behind that
axis counts as touched. A `Window` holds the bytes of the blocks that cover what is touched; those of a Blosc frame are
still encoded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.cpu.codecs.blosc_blocks import HEADER, Read, cut_frame, read_table
from gzarr.indexing.plan import Part

#: Smaller chunks are read and decoded whole: reading a table of blocks takes as long as decoding this much.
MIN_NBYTES = 1 << 18
#: Parts that touch more than this share of a chunk take it whole.
MAX_SHARE = 0.7
#: Up to one point for so many bytes of a chunk is looked at; more points are likely to touch all blocks.
NBYTES_PER_POINT = 1 << 17


class Window(NamedTuple):
    """Some of a chunk's bytes.

    Attributes
    ----------
    data : object
        The bytes, encoded or not.
    decoded_nbytes : int
        Their decoded size.
    encoded : bool
        Whether they are to be decoded.
    offset : int
        Where in the decoded bytes the window's array begins.
    shape : tuple[int, ...]
        Shape of that array, along the stored axes; empty for points.
    index : object
        Selects the part from the array, along the array's axes; for points, from its flat elements.
    """

    data: Any
    decoded_nbytes: int
    encoded: bool
    offset: int
    shape: tuple[int, ...]
    index: Any

    @property
    def nbytes(self) -> int:
        """How many bytes there are."""
        return len(self.data)


class Touched(NamedTuple):
    """The bytes of a chunk that a part touches: a box from ``low`` to ``high``, or the first bytes of points.

    Attributes
    ----------
    low, high : int
        First byte and one past the last.
    shape : tuple[int, ...]
        Shape of the box, along the stored axes.
    index : object
        Selects the part from the box, along the array's axes.
    points : NDArray[np.int64] or None
        First byte of every point; None for a box.
    """

    low: int
    high: int
    shape: tuple[int, ...]
    index: Any
    points: NDArray[np.int64] | None


def touched(part: Part, shape: Sequence[int], order: Sequence[int], itemsize: int) -> Touched | None:
    """Return the bytes that a part touches; None if a window of so many does not pay.

    Parameters
    ----------
    part : Part
        A part that is in the chunk.
    shape : sequence of int
        Shape of the chunk along its stored axes.
    order : sequence of int
        The array axis of every stored axis.
    itemsize : int
        Bytes of an element.
    """
    inside = part.inside
    if type(part.out) is not tuple:
        if not isinstance(inside, tuple):  # a mask
            return None
        if len(inside[0]) * NBYTES_PER_POINT > math.prod(shape) * itemsize:
            return None
        return _touched_by_points([inside[axis] for axis in order], shape, itemsize)
    lows, counts = [0] * len(shape), list(shape)
    stride = itemsize
    for n in shape:
        stride *= n
    total, low, size = stride, 0, stride
    for axis, n in enumerate(shape):
        first, last = _bounds(inside[order[axis]])
        stride //= n
        lows[axis], counts[axis] = first, last - first + 1
        low += first * stride
        size = counts[axis] * stride
        if counts[axis] > 1:
            break
    if size > total * MAX_SHARE:
        return None
    index: list[Any] = list(inside)
    for axis, first in enumerate(lows):
        index[order[axis]] = _shifted(inside[order[axis]], first)
    return Touched(low, low + size, tuple(counts), tuple(index), None)


def _touched_by_points(inside: Sequence[NDArray[np.int64]], shape: Sequence[int], itemsize: int) -> Touched:
    flat = np.zeros(inside[0].shape, np.int64)
    for index, n in zip(inside, shape, strict=True):
        flat = flat * n + index
    flat *= itemsize
    return Touched(int(flat.min()), int(flat.max()) + itemsize, (), None, flat)


def _bounds(index: Any) -> tuple[int, int]:
    if type(index) is slice:
        step = index.step or 1
        return index.start, index.start + (index.stop - 1 - index.start) // step * step
    return int(index.min()), int(index.max())


def _shifted(index: Any, first: int) -> Any:
    if not first:
        return index
    return slice(index.start - first, index.stop - first, index.step) if type(index) is slice else index - first


def cut_plain(read: Read, nbytes: int, wanted: Touched, expected: int, itemsize: int) -> Window | None:
    """The window of bytes that are stored as they are. Raises: ValueError if the chunk has another size."""
    if nbytes != expected:
        raise ValueError(f"expected {expected} bytes, got {nbytes}")
    if wanted.high - wanted.low > expected * MAX_SHARE:
        return None
    nbytes = wanted.high - wanted.low
    data = read(wanted.low, nbytes)
    if len(data) != nbytes:
        raise ValueError(f"truncated: {nbytes} bytes from {wanted.low} on were expected, {len(data)} are there")
    index = wanted.index if wanted.points is None else (wanted.points - wanted.low) // itemsize
    return Window(data, nbytes, encoded=False, offset=0, shape=wanted.shape, index=index)


def cut_blosc(read: Read, nbytes: int, wanted: Touched, expected: int, itemsize: int) -> Window | None:
    """The window of a Blosc frame. Raises: ValueError or CodecError if its header or table is damaged."""
    table = read_table(read, nbytes, expected)
    if table.plain:
        return cut_plain(
            lambda start, n: read(HEADER.size + start, n), nbytes - HEADER.size, wanted, expected, itemsize
        )
    size = table.blocksize
    if wanted.points is None:
        blocks = np.arange(wanted.low // size, (wanted.high - 1) // size + 1)
    elif itemsize > size:
        return None  # elements of several blocks: rare enough to be read whole
    else:
        # an element may begin in one block and end in the next
        blocks = np.unique(np.concatenate([wanted.points // size, (wanted.points + itemsize - 1) // size]))
    if blocks.size > table.starts.size * MAX_SHARE:
        return None
    frame, blocks = cut_frame(read, table, blocks)
    decoded = HEADER.unpack_from(frame)[4]
    if wanted.points is None:
        return Window(frame, decoded, True, wanted.low - int(blocks[0]) * size, wanted.shape, wanted.index)
    block = wanted.points // size
    at = wanted.points + (np.searchsorted(blocks, block) - block) * size
    if itemsize > 1 and (at % itemsize).any():
        return None  # blocks that do not hold whole elements: as rare
    return Window(frame, decoded, True, 0, (), at // itemsize)


#: Makes the window of a chunk of ``expected`` decoded bytes, or says that it is better taken whole.
Cut = Callable[[Read, int, Touched, int, int], Window | None]
