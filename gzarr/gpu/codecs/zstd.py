"""Zstandard frames. The device encodes plain frames: nvCOMP writes no checksum. Source: RFC 8878."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gzarr.codecs.spec import Step
from gzarr.cpu.codecs.frames import DICTIONARY, MAGIC, SINGLE_SEGMENT, SKIPPABLE_MAGIC
from gzarr.cpu.compiled import library
from gzarr.gpu.codecs.entry import UNFIT, DeviceCodec, Encoder, decoded_nbytes, headers_on_host
from gzarr.gpu.codecs.headers import Bytes, Mask, Sizes, Stored, StreamTable, check_ranges, read, refuse, stream_table
from gzarr.gpu.codecs.single_stream import Checksum, Envelope, stream_decoder, stream_encoder
from gzarr.gpu.device.protocol import Device

#: Zstandard blocks hold at most 128 KiB (RFC 8878, 3.1.1.2.4).
ZSTD_BLOCK = 1 << 17
#: Blocks that are followed in one Zstandard frame: each costs some NumPy calls, whatever the number of frames.
MOST_ZSTD_BLOCKS = 4096
#: Frame header descriptor: reserved bit and checksum flag (RFC 8878, 3.1.1.1.1).
ZSTD_RESERVED, ZSTD_CHECKSUM = 0x08, 0x04
#: libzstd refuses larger windows unless told otherwise (ZSTD_WINDOWLOG_LIMIT_DEFAULT).
LARGEST_WINDOW = 1 << 27
#: Smallest chunk that the device encodes: by the bound that nvCOMP gives for its frames, those of fewer bytes lack
#: their content size, which some readers demand.
_LEAST_NBYTES = 256
_UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class ZstdHeaders:
    """Headers of Zstandard frames, one row a chunk. Rows that are not plain frames hold -1.

    Attributes
    ----------
    content_nbytes : Sizes
        int64[n], decoded size; -1 if the frame does not hold it.
    window_nbytes : Sizes
        int64[n], size of the decoder's window; the content size if the frame is a single segment.
    single_segment : Mask
        bool[n].
    checksum : Mask
        bool[n], whether four bytes of XXH64 follow the blocks.
    dictionary : Mask
        bool[n], whether the frame names a dictionary.
    odd : Mask
        bool[n], whether the frame is skippable or has a reserved bit set.
    start : Sizes
        int64[n], position of the first block header in the slab.
    """

    content_nbytes: Sizes
    window_nbytes: Sizes
    single_segment: Mask
    checksum: Mask
    dictionary: Mask
    odd: Mask
    start: Sizes


def _descriptors() -> tuple[Sizes, Sizes]:
    """For each frame header descriptor, the position of the content size in the frame, and its length."""
    position, length = np.zeros(256, np.int64), np.zeros(256, np.int64)
    for descriptor in range(256):
        single = bool(descriptor & SINGLE_SEGMENT)
        position[descriptor] = 5 + (not single) + (0, 1, 2, 4)[descriptor & DICTIONARY]
        length[descriptor] = (int(single), 2, 4, 8)[descriptor >> 6]
    return position, length


_SIZE_AT, _SIZE_NBYTES = _descriptors()


def parse_zstd(slab: Bytes, offsets: Sizes, sizes: Sizes, expected_nbytes: int) -> StreamTable:
    """Check Zstandard frames. The stream of a chunk is the chunk.

    A frame is followed block by block to its end, so truncated frames are refused and bytes behind a frame are noticed.
    The host gets frames without content size, several frames in a chunk, skippable frames, dictionaries, windows above
    128 MiB, blocks that the format forbids, and frames of more than 4096 blocks, which are not followed.

    Arguments and errors are those of `gzarr.gpu.codecs.lz4.parse_lz4`, with codec "zstd".
    """
    loop = library.loop() if slab.flags.c_contiguous else None
    if loop is not None and expected_nbytes and loop.is_plain_zstd(slab, offsets, sizes, expected_nbytes):
        return stream_table((offsets, sizes), (offsets, sizes), expected_nbytes, np.zeros(len(sizes), np.bool_))
    check_ranges(slab, offsets, sizes)
    to_host = check_zstd(slab, offsets, sizes, np.full(len(sizes), expected_nbytes, np.int64))
    return stream_table((offsets, sizes), (offsets, sizes), expected_nbytes, to_host)


def check_zstd(slab: Bytes, offsets: Sizes, sizes: Sizes, expected: Sizes) -> Mask:
    """Whether each stream, whose range is in the slab, is something else than one plain frame of its expected size.

    Raises: CodecError as `parse_zstd` does.
    """
    headers = read_zstd_headers(slab, offsets, sizes)
    claimed, ends = headers.content_nbytes, offsets + sizes
    # the window of a single segment is the chunk itself
    large = ~headers.single_segment & (headers.window_nbytes > LARGEST_WINDOW)
    to_host = headers.odd | headers.dictionary | (claimed < 0) | large
    plain = np.flatnonzero(~to_host)
    reached = np.full(len(sizes), _UNKNOWN, np.int64)
    reached[plain] = _zstd_ends(slab, headers.start[plain], ends[plain], headers.checksum[plain])
    cut = reached > ends
    refuse("zstd", cut, lambda i: f"truncated: the frame does not end within {sizes[i]} encoded bytes")
    # a frame that is too small may be the first of several
    wrong = ~to_host & ((claimed > expected) | ((claimed != expected) & (reached == ends)))
    refuse("zstd", wrong, lambda i: f"expected {expected[i]} decoded bytes, got {claimed[i]}")
    to_host |= reached != ends
    return to_host


def read_zstd_headers(slab: Bytes, offsets: Sizes, sizes: Sizes) -> ZstdHeaders:
    """Read the header of the first frame of each chunk, whose range is in the slab.

    Raises: CodecError if there is no frame, or no room for its header.
    """
    refuse("zstd", sizes < 5, lambda i: f"truncated: {sizes[i]} bytes are too few for a Zstandard frame header")
    magic = read(slab, "<u4", offsets)
    odd = magic & np.uint32(0xFFFFFFF0) == SKIPPABLE_MAGIC
    foreign = (magic != MAGIC) & ~odd
    refuse(
        "zstd",
        foreign,
        lambda i: f"not a Zstandard frame: expected magic number {MAGIC:#x}, got {int(magic[i]):#x}",
    )
    # a frame to be skipped has no such header: nothing is read for its row
    descriptor = np.where(odd, SINGLE_SEGMENT, slab[offsets + 4]).astype(np.int64)
    length = np.where(odd, 0, _SIZE_NBYTES[descriptor])
    header = _SIZE_AT[descriptor] + length
    cut = ~odd & (sizes < header)
    refuse("zstd", cut, lambda i: f"truncated: expected a frame header of {header[i]} bytes, got {sizes[i]} in all")
    content = _zstd_contents(slab, offsets + header - length, length)
    single = descriptor & SINGLE_SEGMENT != 0
    window = content.copy()
    rows = np.flatnonzero(~single)
    if len(rows):
        # exponent and mantissa (RFC 8878, 3.1.1.1.2)
        byte = slab[offsets[rows] + 5].astype(np.int64)
        window[rows] = (8 + (byte & 7)) << (7 + (byte >> 3))
    odd |= descriptor & ZSTD_RESERVED != 0
    return ZstdHeaders(
        content_nbytes=content,
        window_nbytes=window,
        single_segment=single,
        checksum=descriptor & ZSTD_CHECKSUM != 0,
        dictionary=descriptor & DICTIONARY != 0,
        odd=odd,
        start=offsets + header,
    )


def _zstd_contents(slab: Bytes, position: Sizes, length: Sizes) -> Sizes:
    content = np.full(len(length), _UNKNOWN, np.int64)
    # sizes of two bytes start at 256
    for nbytes, base in ((1, 0), (2, 256), (4, 0), (8, 0)):
        rows = np.flatnonzero(length == nbytes)
        if len(rows):
            size = read(slab, f"<u{nbytes}", position[rows])
            if nbytes == 8:
                # clipped to int64, but far above the size of any chunk
                size = np.minimum(size, np.uint64(2**62))
            content[rows] = size.astype(np.int64) + base
    return content


def _zstd_ends(slab: Bytes, position: Sizes, ends: Sizes, checksum: Mask) -> Sizes:
    """Where frames end, by their block headers: beyond ``ends`` if they are truncated, -1 if unknown."""
    reached = np.full(len(ends), _UNKNOWN, np.int64)
    rows = np.arange(len(ends))
    for _ in range(MOST_ZSTD_BLOCKS):
        if not len(rows):
            break
        cut = position + 3 > ends
        # three bytes, read with the one before them, which is there: a frame has a header
        header = read(slab, "<u4", np.minimum(position, ends - 3) - 1).astype(np.int64) >> 8
        kind, size = header >> 1 & 3, header >> 3
        # a block of kind 1 repeats one byte
        position = position + 3 + np.where(kind == 1, 1, size)
        last = (header & 1 != 0) & ~cut
        reached[rows[last]] = position[last] + 4 * checksum[last]
        reached[rows[cut]] = ends[cut] + 1
        go_on = ~(cut | last)
        forbidden = (kind == 3) | (size > ZSTD_BLOCK)
        if forbidden.any():
            reached[rows[forbidden & ~cut]] = _UNKNOWN
            go_on &= ~forbidden
        if not go_on.all():
            rows, position, ends, checksum = rows[go_on], position[go_on], ends[go_on], checksum[go_on]
    return reached


def stored_xxh64(slab: Bytes, offsets: Sizes, sizes: Sizes) -> Stored:
    """The low halves of XXH64 that frames end with, if they do; a parser has found them sound."""
    which = np.flatnonzero(slab[offsets + 4] & ZSTD_CHECKSUM)
    return which, read(slab, "<u4", (offsets + sizes)[which] - 4)


_plain_encoder = stream_encoder(lambda _: Envelope("zstd"))


def _encoder(step: Step, device: Device) -> Encoder | str:
    if step.spec.configuration().get("checksum"):
        return "nvCOMP writes no checksums into frames"
    if (decoded_nbytes(step) or 0) < _LEAST_NBYTES:
        return UNFIT
    return _plain_encoder(step, device)


ZSTD = DeviceCodec(
    stream_decoder("zstd", parse_zstd, checksum=Checksum("xxh64", stored_xxh64)),
    _encoder,
    takes_streams=True,
    scratch=4,
    detour=headers_on_host,
)
CODECS = {"numcodecs.zstd": ZSTD, "zstd": ZSTD}
