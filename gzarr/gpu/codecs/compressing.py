"""Compresses many byte ranges on the device with one call, and waits once for their statuses and sizes.

Each stream goes to a slot that is large enough for the worst case. When the sizes are known, headers and checksums are
laid out on the host and put in place by one launch of copy_streams. The payload never leaves the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Array
from gzarr.errors import CodecError
from gzarr.gpu.codecs.batch import ALIGNMENT, BatchContext
from gzarr.gpu.codecs.transfers import aligned, copy_streams, new_rows
from gzarr.gpu.device.nvcomp_tables import CODECS as NVCOMP
from gzarr.gpu.device.nvcomp_tables import compress_alignment, status_text
from gzarr.gpu.device.protocol import Table

#: Bytes left free behind encoded chunks: room for four checksums.
ROOM = 16

#: Byte ranges to copy: sources, targets, sizes.
Piece: TypeAlias = tuple[Table, Table, Table]


@dataclass(frozen=True, slots=True, eq=False)
class Slots:
    """Device memory for compressed streams.

    Attributes
    ----------
    rows : Array
        uint8 (n, stride), one row for each stream.
    addresses : Table
        Where the streams begin.
    front : int
        Where they begin in their rows.
    capacity : int
        Bytes that a stream may have.
    """

    rows: Array
    addresses: Table
    front: int
    capacity: int


def new_slots(context: BatchContext, encoder: str, n: int, nbytes: int, front: int = 0, behind: int = 0) -> Slots:
    """Slots for n streams of chunks of at most ``nbytes``. front, behind: free bytes before and behind each stream."""
    capacity = NVCOMP[encoder].compress_bound(nbytes)
    front = -(-front // ALIGNMENT) * ALIGNMENT
    stride = -(-(front + capacity + behind) // ALIGNMENT) * ALIGNMENT
    rows, addresses = new_rows(context, n, stride)
    return Slots(rows, addresses + front, front, capacity)


def compress(
    context: BatchContext,
    codec: str,
    encoder: str,
    items: Table,
    ranges: tuple[Table, Table],
    slots: Slots,
    typesize: int = 1,
    wanted: Callable[[], list[Array]] = list,
) -> tuple[Table, list[NDArray[Any]]]:
    """Compress byte ranges into slots. Waits for the device once.

    codec, items: for errors: the codec's name, and the chunk of the batch that each range belongs to.
    ranges: addresses and sizes. typesize: see `Device.compress`. wanted: gives device arrays to download as well.
    Returns: the sizes of the streams, and the arrays that were wanted.
    Raises: CodecError(index) for the first chunk that the encoder did not compress.
    """
    device = context.device
    source, nbytes = ranges
    source = aligned(context, source, nbytes, compress_alignment(encoder, typesize).input)
    outcome = device.compress(encoder, source, nbytes, slots.addresses, slots.capacity, typesize)
    context.held.append(outcome)
    statuses, written, *rest = device.download_all([outcome.statuses, outcome.sizes, *wanted()])
    sizes = written.astype(np.int64)
    bad = np.flatnonzero((statuses != 0) | (sizes < 1) | (sizes > slots.capacity))
    if bad.size:
        i = int(bad[items[bad].argmin()])
        why = status_text(int(statuses[i])) if statuses[i] else f"{sizes[i]} bytes, but {slots.capacity} is the most"
        raise CodecError(f"{codec}: the chunk could not be compressed: {why}", index=int(items[i]), codec=codec)
    return sizes, rest


def copy_pieces(context: BatchContext, pieces: Sequence[Piece]) -> None:
    """Copy byte ranges with one launch."""
    copy_streams(context, *(np.concatenate(column) for column in zip(*pieces, strict=True)))
