"""Takes Blosc frames apart that are only on the device: a kernel walks their streams, the host reads the headers.

The result is the same table as that of `gzarr.gpu.codecs.blosc.parsing.parse_frames`, under the same rules. Only 16
bytes of each frame and a row for each stream are downloaded. A batch that has frames of another compressor than LZ4, or
frames for the host, is downloaded and taken apart there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gzarr.gpu.codecs.batch import BatchContext, Streams
from gzarr.gpu.codecs.blosc import headers, parsing
from gzarr.gpu.codecs.headers import Sizes
from gzarr.gpu.codecs.transfers import upload_tables
from gzarr.gpu.kernels import BLOSC_ERRORS, prefix_sums


def parse_blosc(context: BatchContext, batch: Streams, expected_nbytes: int) -> parsing.BloscTable:
    """Take the frames of a batch apart where they are. Raises: CodecError (index, "blosc") if one is damaged."""
    frames = None if batch.copy is not None else _headers(batch, expected_nbytes)
    if frames is None:
        return parsing.parse_frames(batch.host, batch.offsets, batch.sizes, expected_nbytes)
    blocks = parsing.count_blocks(frames, parsing.walked_rows(frames))
    streams = parsing.split_rows(frames, blocks)
    if len(blocks.frame):
        source, csize = _launch(context, batch, frames, blocks)
        streams = parsing.place_streams(streams, source, csize)
    return parsing.make_table(frames, parsing.join_whole(frames, streams), frames.to_host)


def _headers(batch: Streams, expected_nbytes: int) -> headers.Frames | None:
    """The headers of the frames; None if the host needs more than these."""
    n, size = len(batch), headers.HEADER_NBYTES
    if (batch.sizes < size).any():
        return None
    first = np.ascontiguousarray(batch.window(batch.offsets, size)).reshape(-1)
    frames = headers.read_headers(first, np.arange(n, dtype=np.int64) * size, batch.sizes, expected_nbytes)
    other = frames.codec[parsing.walked_rows(frames)] != headers.LZ4
    return None if other.any() or frames.to_host.any() else frames._replace(offset=batch.offsets)


def _launch(
    context: BatchContext, batch: Streams, frames: headers.Frames, blocks: parsing.Blocks
) -> tuple[Sizes, Sizes]:
    """Walk the streams with the kernel. Returns: the position of each in the staging buffer, and its encoded bytes."""
    device = context.device
    rows, first = np.unique(blocks.frame, return_index=True)
    block_start = np.append(first, len(blocks.frame)).astype(np.int64)
    ends = prefix_sums(blocks.splits)
    stream_start = ends[block_start]
    n = int(ends[-1])
    base = device.address(batch.staging_buffer)
    tables = upload_tables(
        context, (base + frames.offset[rows]).astype(np.uint64), frames.cbytes[rows], block_start, stream_start
    )
    results = context.empty(18 * n)  # addresses and sizes of 8 bytes, two flags
    at = device.address(results)
    device.launch("blosc_parse", len(blocks.frame), (rows.size, *tables, at, at + 8 * n, at + 16 * n, at + 17 * n))
    table = device.download(results)
    address, csize = table[: 8 * n].view(np.int64), table[8 * n : 16 * n].view(np.int64)
    _check(blocks, table[17 * n :], csize)
    return address - base, csize.copy()


def _check(blocks: parsing.Blocks, errors: Any, csize: Sizes) -> None:
    frame, number = (np.repeat(column, blocks.splits) for column in (blocks.frame, blocks.number))
    parsing.refuse_rows(frame, errors != 0, lambda i: f"block {number[i]}: the frame {BLOSC_ERRORS[int(errors[i])]}")
    # A compressor makes at least one byte.
    parsing.refuse_rows(frame, csize <= 0, lambda i: f"block {number[i]}: expected a stream of 1 byte or more, got 0")
