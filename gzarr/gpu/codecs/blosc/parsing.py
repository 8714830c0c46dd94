"""Takes all Blosc frames of a staging buffer apart, into the streams that batched decoders take.

A frame is a header of 16 bytes, a table of block starts, and blocks in any order. A block is one stream, or one stream
for each byte of an element (a *split*). Each stream follows its size; a stream as long as its decoded bytes is stored,
not compressed. The header fixes the number of streams; only their sizes must be walked, at most 16 in a block. Rules:

- A frame is accepted, refused (`CodecError`) or left to the host. The host gets other format versions, blosclz, unknown
  compressors, streams with unusual framing, and frames of many tiny blocks, which would make large tables.
- The streams of an accepted frame fill its decoded bytes exactly once, still shuffled.
- A position is compared with the end of its frame before a byte is read there; bytes behind a frame are ignored.
- Python loops run over the splits of a block, never over blocks, streams or frames.
- Compiled code (`cpu/loop/frames.c`) takes apart batches of LZ4 and Zstandard frames in which nothing is unusual, to
the
  same tables. What is here is the reference, and alone finds out what is wrong.

Source: header and checks of c-blosc 1.21.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gzarr.cpu.compiled import library
from gzarr.errors import CodecError
from gzarr.gpu.codecs.blosc.headers import (
    BIT_SHUFFLE,
    BYTE_SHUFFLE,
    DECODERS,
    DEFLATE,
    FLAG_BITSHUFFLE,
    FLAG_SHUFFLE,
    FLAG_WHOLE,
    HEADER_NBYTES,
    LEAST_SPLIT,
    MOST_SPLITS,
    NO_SHUFFLE,
    RAW,
    SNAPPY,
    ZSTD,
    Frames,
    Small,
    read_headers,
)
from gzarr.gpu.codecs.envelopes import ZLIB_HEADER, ZLIB_TRAILER, is_usual_zlib, is_usual_zstd
from gzarr.gpu.codecs.headers import Bytes, Mask, Sizes, check_ranges, read, refuse


@dataclass(frozen=True, slots=True)
class BloscStreams:
    """Streams of many frames, one row each, grouped by decoder and, within a group, in the order of the frames.

    Attributes
    ----------
    frame : Sizes
        int64[m], the frame that the stream belongs to.
    decoder : Small
        uint8[m], `RAW` (stored, to be copied), `LZ4`, `SNAPPY`, `DEFLATE` (without zlib's envelope) or `ZSTD`.
    source : Sizes
        int64[m], position in the staging buffer.
    csize : Sizes
        int64[m], encoded bytes.
    dest : Sizes
        int64[m], position of the decoded bytes in the decoded chunk.
    nbytes : Sizes
        int64[m], decoded bytes.
    """

    frame: Sizes
    decoder: Small
    source: Sizes
    csize: Sizes
    dest: Sizes
    nbytes: Sizes

    @property
    def raw(self) -> Mask:
        """bool[m], whether a stream is stored."""
        raw: Mask = self.decoder == RAW
        return raw

    def take(self, rows: Any) -> BloscStreams:
        """The streams with given row numbers, or under a mask."""
        columns = (self.frame, self.decoder, self.source, self.csize, self.dest, self.nbytes)
        return BloscStreams(*(column[rows] for column in columns))


@dataclass(frozen=True, slots=True)
class BloscTable:
    """The streams of n frames, and how the decoded bytes are shuffled.

    Attributes
    ----------
    codec : Small
        uint8[n], blosc's number: 0 blosclz, 1 lz4 and lz4hc, 2 snappy, 3 zlib, 4 zstd, up to 7 unknown.
    shuffle : Small
        uint8[n], `NO_SHUFFLE`, `BYTE_SHUFFLE` or `BIT_SHUFFLE` for the decoded streams; stored frames and frames
        that the host decodes are plain.
    typesize : npt.NDArray[np.int32]
        int32[n], bytes of the elements that were shuffled; 1 for plain frames.
    blocksize : Sizes
        int64[n], decoded bytes of a block, which is shuffled by itself; the last one may be shorter. All bytes for
        plain frames. At least 1.
    nbytes : Sizes
        int64[n], decoded bytes.
    cbytes : Sizes
        int64[n], encoded bytes, from the header.
    memcpy : Mask
        bool[n], whether the frame is stored whole.
    to_host : Mask
        bool[n], whether the host decodes the frame, which then has no streams.
    streams : BloscStreams
        Of all other frames.
    bounds : Sizes
        int64[6]; the streams of decoder d are the rows ``bounds[d]`` to ``bounds[d + 1]``.
    """

    codec: Small
    shuffle: Small
    typesize: npt.NDArray[np.int32]
    blocksize: Sizes
    nbytes: Sizes
    cbytes: Sizes
    memcpy: Mask
    to_host: Mask
    streams: BloscStreams
    bounds: Sizes

    def group(self, decoder: int) -> slice:
        """The rows of the streams of one decoder."""
        return slice(int(self.bounds[decoder]), int(self.bounds[decoder + 1]))


class Blocks(NamedTuple):
    """Blocks of frames: frame, number in the frame, decoded bytes, splits, and position of the first stream's size."""

    frame: Sizes
    number: Sizes
    nbytes: Sizes
    splits: Sizes
    position: Sizes


def parse_frames(staging_buffer: Bytes, offsets: Sizes, sizes: Sizes, expected_nbytes: int) -> BloscTable:
    """Take apart Blosc frames.

    Parameters
    ----------
    staging_buffer : Bytes
        uint8[...], C-contiguous, on the host.
    offsets : Sizes
        int64[n], where each frame begins.
    sizes : Sizes
        int64[n], encoded sizes in bytes; bytes behind a frame are ignored.
    expected_nbytes : int
        Decoded size of every frame.

    Returns
    -------
    BloscTable
        The table. Every range in it is in its frame, and in the decoded chunk.

    Raises
    ------
    CodecError
        With (index, "blosc"), if a frame is damaged.
    ValueError
        If a range is not in the staging buffer.
    """
    table = _parse_by_loop(staging_buffer, offsets, sizes, expected_nbytes)
    if table is not None:
        return table
    check_ranges(staging_buffer, offsets, sizes)
    frames = read_headers(staging_buffer, offsets, sizes, expected_nbytes)
    blocks = _find_starts(staging_buffer, frames, count_blocks(frames, walked_rows(frames)))
    streams, to_host = _open_envelopes(
        staging_buffer, join_whole(frames, _walk(staging_buffer, frames, blocks)), frames.to_host
    )
    return make_table(frames, streams, to_host)


def _parse_by_loop(staging_buffer: Bytes, offsets: Sizes, sizes: Sizes, expected_nbytes: int) -> BloscTable | None:
    """Let compiled code take frames apart; None if it is not there, or if a frame is damaged or unusual."""
    loop, n = library.loop(), len(sizes)
    if loop is None:
        return None
    codec, memcpy, shuffle = (np.empty(n, np.uint8) for _ in range(3))
    typesize, blocksize, cbytes = np.empty(n, np.int32), np.empty(n, np.int64), np.empty(n, np.int64)
    bounds, streams = np.empty(DECODERS + 1, np.int64), np.empty((5, 0), np.int64)
    args = staging_buffer, offsets, sizes, expected_nbytes, codec, memcpy, shuffle, typesize, blocksize, cbytes, bounds
    if not loop.parse_blosc(*args, streams):
        return None
    streams = np.empty((5, int(bounds[-1])), np.int64)
    loop.parse_blosc(*args, streams)
    frame, source, csize, dest, nbytes = streams
    decoder = np.repeat(np.arange(DECODERS, dtype=np.uint8), np.diff(bounds))
    return BloscTable(
        codec=codec,
        shuffle=shuffle,
        typesize=typesize,
        blocksize=blocksize,
        nbytes=np.full(n, expected_nbytes, np.int64),
        cbytes=cbytes,
        memcpy=memcpy.view(np.bool_),
        to_host=np.zeros(n, np.bool_),
        streams=BloscStreams(frame, decoder, source, csize, dest, nbytes),
        bounds=bounds,
    )


def make_table(frames: Frames, streams: BloscStreams, to_host: Mask) -> BloscTable:
    """The table of frames and their streams."""
    streams, bounds = _grouped(streams)
    plain = frames.memcpy | to_host | (frames.nbytes == 0)
    return BloscTable(
        codec=frames.codec,
        shuffle=_shuffles(frames, plain),
        typesize=np.where(plain, 1, frames.typesize).astype(np.int32),
        blocksize=np.where(plain, np.maximum(frames.nbytes, 1), frames.blocksize),
        nbytes=frames.nbytes,
        cbytes=frames.cbytes,
        memcpy=frames.memcpy,
        to_host=to_host,
        streams=streams,
        bounds=bounds,
    )


def _shuffles(frames: Frames, plain: Mask) -> Small:
    """How decoded streams are shuffled. Elements of one byte have no byte shuffle, but may have a bit shuffle."""
    by_bytes = (frames.flags & FLAG_SHUFFLE != 0) & (frames.typesize > 1)
    by_bits = frames.flags & FLAG_BITSHUFFLE != 0
    shuffle = np.where(by_bytes, BYTE_SHUFFLE, np.where(by_bits, BIT_SHUFFLE, NO_SHUFFLE)).astype(np.uint8)
    shuffle[plain] = NO_SHUFFLE
    return shuffle


# -- blocks and streams ------------------------------------------------------------------------------------------


def walked_rows(frames: Frames) -> Sizes:
    """Row numbers of the frames whose blocks are walked."""
    return np.flatnonzero(~frames.memcpy & ~frames.to_host & (frames.nbytes > 0))


def count_blocks(frames: Frames, rows: Sizes) -> Blocks:
    """The blocks of frames with given row numbers, and their splits. Their positions are filled in later."""
    counts = -(-frames.nbytes[rows] // frames.blocksize[rows])
    frame = np.repeat(rows, counts)
    number = np.arange(len(frame)) - np.repeat(np.cumsum(counts) - counts, counts)
    blocksize, typesize = frames.blocksize[frame], frames.typesize[frame]
    nbytes = np.minimum(blocksize, frames.nbytes[frame] - number * blocksize)
    split = (frames.flags[frame] & FLAG_WHOLE == 0) & (typesize <= MOST_SPLITS)
    split &= (nbytes == blocksize) & (nbytes // typesize >= LEAST_SPLIT)
    splits = np.where(split, typesize, 1)
    refuse_rows(
        frame,
        nbytes % splits != 0,
        lambda i: f"block {number[i]}: expected a multiple of {splits[i]} bytes, got {nbytes[i]}",
    )
    return Blocks(frame, number, nbytes, splits, np.zeros_like(frame))


def _find_starts(staging_buffer: Bytes, frames: Frames, blocks: Blocks) -> Blocks:
    frame, number = blocks.frame, blocks.number
    start = read(staging_buffer, "<i4", frames.offset[frame] + HEADER_NBYTES + 4 * number).astype(np.int64)
    last = frames.cbytes[frame] - 4
    refuse_rows(
        frame,
        (start <= 0) | (start > last),
        lambda i: f"block {number[i]}: expected a start of 1 to {last[i]}, got {start[i]}",
    )
    return blocks._replace(position=frames.offset[frame] + start)


def split_rows(frames: Frames, blocks: Blocks) -> BloscStreams:
    """The streams of blocks, without source and encoded size, which are filled in later."""
    first = np.cumsum(blocks.splits) - blocks.splits
    block = np.repeat(np.arange(len(first)), blocks.splits)
    split = np.arange(len(block)) - first[block]
    frame, nbytes = blocks.frame[block], (blocks.nbytes // blocks.splits)[block]
    dest = blocks.number[block] * frames.blocksize[frame] + split * nbytes
    unknown = np.zeros_like(dest)
    return BloscStreams(frame, frames.codec[frame], unknown, unknown, dest, nbytes)


def _walk(staging_buffer: Bytes, frames: Frames, blocks: Blocks) -> BloscStreams:
    """Follow the streams of every block from size to size."""
    streams = split_rows(frames, blocks)
    first = np.cumsum(blocks.splits) - blocks.splits
    source, csize = np.empty_like(streams.source), np.empty_like(streams.csize)
    position, end = blocks.position.copy(), (frames.offset + frames.cbytes)[blocks.frame]
    rows = np.arange(len(first))
    for k in range(int(blocks.splits.max(initial=0))):
        if k:
            rows = rows[blocks.splits[rows] > k]
        slots = first[rows] + k
        source[slots] = position[rows] + 4
        csize[slots] = _read_csizes(staging_buffer, blocks, rows, position[rows], end[rows])
        position[rows] = source[slots] + csize[slots]
    return place_streams(streams, source, csize)


def place_streams(streams: BloscStreams, source: Sizes, csize: Sizes) -> BloscStreams:
    """The streams with their positions and sizes. Streams as long as their decoded bytes are stored."""
    decoder = np.where(csize == streams.nbytes, RAW, streams.decoder).astype(np.uint8)
    return replace(streams, decoder=decoder, source=source, csize=csize)


def _read_csizes(staging_buffer: Bytes, blocks: Blocks, rows: Sizes, position: Sizes, end: Sizes) -> Sizes:
    frame, number = blocks.frame[rows], blocks.number[rows]
    room = end - position - 4
    refuse_rows(frame, room < 0, lambda i: f"block {number[i]}: truncated: no room for the size of a stream")
    csize = read(staging_buffer, "<i4", position).astype(np.int64)
    # a compressor makes at least one byte
    refuse_rows(
        frame,
        (csize <= 0) | (csize > room),
        lambda i: f"block {number[i]}: expected a stream of 1 to {room[i]} bytes, got {csize[i]}",
    )
    return csize


def join_whole(frames: Frames, streams: BloscStreams) -> BloscStreams:
    """The streams of walked frames and of stored frames, which are one stream each."""
    return _join(_whole_frames(frames), streams)


def _whole_frames(frames: Frames) -> BloscStreams:
    """The stored frames as streams."""
    rows = np.flatnonzero(frames.memcpy & ~frames.to_host & (frames.nbytes > 0))
    nbytes = frames.nbytes[rows]
    decoder = np.full(len(rows), RAW, np.uint8)
    return BloscStreams(rows, decoder, frames.offset[rows] + HEADER_NBYTES, nbytes, np.zeros_like(rows), nbytes)


def refuse_rows(frame: Sizes, bad: Mask, describe: Callable[[int], str]) -> None:
    """Raise CodecError with the frame of the first bad block or stream."""
    try:
        refuse("blosc", bad, describe)
    except CodecError as error:
        raise _of_frame(error, frame) from error


def _of_frame(error: CodecError, frame: Sizes) -> CodecError:
    """An error of one row as an error of the frame that the row belongs to."""
    message = str(error) if error.codec == "blosc" else f"blosc: {error}"
    return CodecError(message, index=int(frame[error.index]), codec="blosc")


# -- compressors' own framing ------------------------------------------------------------------------------------


def _open_envelopes(staging_buffer: Bytes, streams: BloscStreams, to_host: Mask) -> tuple[BloscStreams, Mask]:
    """Check the headers of streams, strip those of zlib, and drop frames that have an unusual stream."""
    odd = np.zeros(len(streams.frame), np.bool_)
    for decoder, check in ((SNAPPY, _check_snappy), (DEFLATE, is_usual_zlib), (ZSTD, is_usual_zstd)):
        rows = np.flatnonzero(streams.decoder == decoder)
        if not len(rows):
            continue
        try:
            odd[rows] = ~check(staging_buffer, streams.source[rows], streams.csize[rows], streams.nbytes[rows])
        except CodecError as error:
            raise _of_frame(error, streams.frame[rows]) from error
    zlib = streams.decoder == DEFLATE
    if zlib.any():
        source = streams.source + ZLIB_HEADER * zlib
        streams = replace(streams, source=source, csize=streams.csize - (ZLIB_HEADER + ZLIB_TRAILER) * zlib)
    if odd.any():
        to_host = to_host.copy()
        to_host[streams.frame[odd]] = True
        streams = streams.take(~to_host[streams.frame])
    return streams, to_host


def _check_snappy(staging_buffer: Bytes, offsets: Sizes, sizes: Sizes, expected: Sizes) -> Mask:
    """Raise CodecError if a stream claims a wrong size, in 7 bits a byte. Returns: that all streams are usual."""
    claimed, more = np.zeros_like(offsets), np.ones(len(offsets), np.bool_)
    for k in range(5):  # sizes have up to 32 bits
        more &= sizes > k
        byte = np.where(more, staging_buffer[offsets + np.minimum(k, sizes - 1)], 0).astype(np.int64)
        claimed |= (byte & 127) << (7 * k)
        more &= byte > 127
    wrong = claimed != expected
    refuse("snappy", wrong, lambda i: f"expected {expected[i]} decoded bytes, got {claimed[i]}")
    return np.ones(len(offsets), np.bool_)


def _join(one: BloscStreams, other: BloscStreams) -> BloscStreams:
    if not len(one.frame):
        return other
    return BloscStreams(
        frame=np.concatenate((one.frame, other.frame)),
        decoder=np.concatenate((one.decoder, other.decoder)),
        source=np.concatenate((one.source, other.source)),
        csize=np.concatenate((one.csize, other.csize)),
        dest=np.concatenate((one.dest, other.dest)),
        nbytes=np.concatenate((one.nbytes, other.nbytes)),
    )


def _grouped(streams: BloscStreams) -> tuple[BloscStreams, Sizes]:
    """The streams in the order of their decoders, and where each decoder's begin."""
    counts = np.bincount(streams.decoder, minlength=DECODERS)
    bounds = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)))
    if np.count_nonzero(counts) > 1:
        # a stable sort of single bytes is a radix sort
        streams = streams.take(np.argsort(streams.decoder, kind="stable"))
    return streams, bounds
