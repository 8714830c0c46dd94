"""Headers of compressed chunks that lie in one slab, read for all chunks at once: LZ4, Zstandard, zlib and gzip.

A batched decoder wants addresses and sizes of bare streams. The functions here strip the envelopes, refuse what is
certainly damaged, and set aside for the host what is sound but odd: a decoder on a GPU may read out of bounds on
input that it does not expect. Rules:

- No byte is read before its position was compared with the end of its chunk.
- Python loops run over the parts of *one* chunk (blocks of a frame, letters of a name), never over chunks.
- What no header shows stays unseen here: damage inside a stream and, in gzip, a second member whose size is the
  expected one behind a first that holds nothing. The size that the decoder reports tells of the last, and checksums
  (`checksums`, verified on the device when a chunk is decoded) of most of the rest.

Source: RFC 1950 (zlib), RFC 1952 (gzip), RFC 8878 (Zstandard), the LZ4 block format.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gzarr.cpu.codecs.compressors import LZ4_RATIO
from gzarr.cpu.codecs.frames import DICTIONARY, MAGIC, SINGLE_SEGMENT, SKIPPABLE_MAGIC
from gzarr.errors import CodecError

Bytes: TypeAlias = npt.NDArray[np.uint8]
Sizes: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

#: Header of two bytes, one empty block of two, Adler-32: the shortest zlib stream.
ZLIB_HEADER, ZLIB_TRAILER, SHORTEST_DEFLATE = 2, 4, 2
#: Fixed header, CRC-32 and ISIZE of a gzip member (RFC 1952, 2.3).
GZIP_HEADER, GZIP_TRAILER = 10, 8
FHCRC, FEXTRA, FNAME, FCOMMENT, GZIP_RESERVED = 2, 4, 8, 16, 0xE0
#: Letters of a gzip file name or comment that are looked at; chunks with longer ones go to the host.
LONGEST_NAME = 256
#: Zstandard blocks hold at most 128 KiB (RFC 8878, 3.1.1.2.4).
ZSTD_BLOCK = 1 << 17
#: Blocks that are followed in one Zstandard frame: each costs some NumPy calls, whatever the number of frames.
MOST_ZSTD_BLOCKS = 4096
#: Frame header descriptor: reserved bit and checksum flag (RFC 8878, 3.1.1.1.1).
ZSTD_RESERVED, ZSTD_CHECKSUM = 0x08, 0x04
#: libzstd refuses larger windows unless told otherwise (ZSTD_WINDOWLOG_LIMIT_DEFAULT).
LARGEST_WINDOW = 1 << 27
_UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class StreamTable:
    """Where one stream per chunk lies in a slab.

    Attributes:
        source: int64[n], position of the stream in the slab; of the whole chunk where it goes to the host.
        nbytes: int64[n], its encoded size; that of the whole chunk where it goes to the host.
        decoded_nbytes: int64[n], what it must decode to.
        to_host: bool[n], chunks that the host is to decode, because their framing is odd.
    """

    source: Sizes
    nbytes: Sizes
    decoded_nbytes: Sizes
    to_host: Mask


# -- LZ4 ---------------------------------------------------------------------------------------------------------


def parse_lz4(slab: Bytes, offsets: Sizes, sizes: Sizes, expected_nbytes: int) -> StreamTable:
    """Take the size, four bytes, off the LZ4 blocks that numcodecs writes.

    Args:
        slab: uint8[...], C-contiguous, on the host.
        offsets: int64[n], where each chunk begins.
        sizes: int64[n], encoded sizes in bytes.
        expected_nbytes: decoded size of every chunk.

    Returns: the table; chunks go to the host only if they decode to nothing.
    Raises: CodecError (index, "lz4") if a chunk is too short or claims another size; ValueError if a range does not
        lie in the slab.
    """
    check_ranges(slab, offsets, sizes)
    refuse("lz4", sizes < 4, lambda i: f"truncated: {sizes[i]} bytes are too few for the size, which takes 4")
    claimed = read(slab, "<u4", offsets).astype(np.int64)
    refuse_sizes("lz4", claimed, expected_nbytes)
    impossible = claimed > LZ4_RATIO * sizes
    refuse(
        "lz4", impossible, lambda i: f"{sizes[i]} encoded bytes claim {claimed[i]} decoded bytes, which is impossible"
    )
    return _table((offsets, sizes), (offsets + 4, sizes - 4), expected_nbytes, np.zeros(len(sizes), np.bool_))


# -- zlib and gzip -----------------------------------------------------------------------------------------------


def parse_zlib(slab: Bytes, offsets: Sizes, sizes: Sizes, expected_nbytes: int) -> StreamTable:
    """Take header and Adler-32 off zlib streams, which leaves Deflate.

    A zlib stream does not say its decoded size: the decoder must report it. Bytes behind a stream cannot be seen.
    Arguments and errors are those of `parse_lz4`, with codec "zlib". Streams with a preset dictionary go to the host.
    """
    check_ranges(slab, offsets, sizes)
    dictionary = check_zlib(slab, offsets, sizes)
    stripped = offsets + ZLIB_HEADER, sizes - (ZLIB_HEADER + ZLIB_TRAILER)
    return _table((offsets, sizes), stripped, expected_nbytes, dictionary)


def check_zlib(slab: Bytes, offsets: Sizes, sizes: Sizes) -> Mask:
    """Whether each zlib stream, whose range lies in the slab, asks for a preset dictionary.

    Raises: CodecError if a stream is too short or does not begin with a zlib header.
    """
    short = sizes < ZLIB_HEADER + SHORTEST_DEFLATE + ZLIB_TRAILER
    refuse("zlib", short, lambda i: f"truncated: expected at least 8 encoded bytes, got {sizes[i]}")
    header = read(slab, ">u2", offsets).astype(np.int64)
    # CM, the low half of the first byte, is 8 for Deflate; CINFO above it at most 7; FCHECK makes a multiple of 31
    wrong = (header >> 8 & 15 != 8) | (header >> 12 > 7) | (header % 31 != 0)
    refuse("zlib", wrong, lambda i: f"not a zlib stream: expected a header such as 0x789c, got {header[i]:#06x}")
    dictionary: Mask = header & 0x20 != 0
    return dictionary


def parse_gzip(slab: Bytes, offsets: Sizes, sizes: Sizes, expected_nbytes: int) -> StreamTable:
    """Take header, CRC-32 and ISIZE off gzip members, which leaves Deflate.

    Optional header fields are skipped, the header's own checksum unverified. The last four bytes of a chunk must be
    the expected size; where they are not, several members may follow each other or padding the last, so the chunk
    goes to the host, and so does one whose first member is visibly empty. A chunk of one member that has another
    size than expected cannot be told from these: the host refuses it.

    Arguments and errors are those of `parse_lz4`, with codec "gzip".
    """
    check_ranges(slab, offsets, sizes)
    least = GZIP_HEADER + SHORTEST_DEFLATE + GZIP_TRAILER
    refuse("gzip", sizes < least, lambda i: f"truncated: expected at least {least} encoded bytes, got {sizes[i]}")
    start = read(slab, ">u4", offsets)
    refuse("gzip", start >> 8 != 0x1F8B08, lambda i: f"not gzip: expected 1f 8b 08 at the start, got {start[i]:08x}")
    flags = (start & 0xFF).astype(np.int64)
    ends = offsets + sizes - GZIP_TRAILER
    source, to_host = _gzip_payload(slab, offsets + GZIP_HEADER, ends, flags)
    overlong = ~to_host & (source + SHORTEST_DEFLATE > ends)
    refuse("gzip", overlong, lambda i: f"truncated: the header does not end within {sizes[i]} encoded bytes")
    to_host |= (flags & GZIP_RESERVED != 0) | (read(slab, "<u4", ends + 4) != expected_nbytes & 0xFFFFFFFF)
    # an empty block that is the last one, of fixed codes or stored (RFC 1951, 3.2)
    to_host |= read(slab, "<u2", np.minimum(source, ends - 2)) == 0x0003
    to_host |= read(slab, "<u4", np.minimum(source, ends)) & 0xFFFFFF == 0x000001
    return _table((offsets, sizes), (source, ends - source), expected_nbytes, to_host)


def _gzip_payload(slab: Bytes, position: Sizes, ends: Sizes, flags: Sizes) -> tuple[Sizes, Mask]:
    """Positions behind the optional fields, not before ``ends`` if one has no end, and members with too long names."""
    to_host = np.zeros(len(flags), np.bool_)
    rows = np.flatnonzero(flags & FEXTRA)
    if len(rows):
        # at least the trailer lies behind the fixed header
        position[rows] += 2 + read(slab, "<u2", position[rows]).astype(np.int64)
    for flag in (FNAME, FCOMMENT):
        rows = np.flatnonzero(flags & flag)
        for _ in range(LONGEST_NAME):
            rows = rows[position[rows] < ends[rows]]
            if not len(rows):
                break
            letters = slab[position[rows]]
            position[rows] += 1
            rows = rows[letters != 0]
        to_host[rows] = True
    position[flags & FHCRC != 0] += 2
    return position, to_host


# -- Zstandard ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ZstdHeaders:
    """What the headers of Zstandard frames say, one row a chunk. Rows that are not plain frames hold -1.

    Attributes:
        content_nbytes: int64[n], decoded size, -1 if the frame does not say it.
        window_nbytes: int64[n], memory that the decoder must look back into; the content size of a single segment.
        single_segment: bool[n].
        checksum: bool[n], whether four bytes of XXH64 follow the blocks.
        dictionary: bool[n], whether a dictionary is named.
        odd: bool[n], the frame is to be skipped, or has a reserved bit set.
        start: int64[n], position of the first block header in the slab.
    """

    content_nbytes: Sizes
    window_nbytes: Sizes
    single_segment: Mask
    checksum: Mask
    dictionary: Mask
    odd: Mask
    start: Sizes


def _descriptors() -> tuple[Sizes, Sizes]:
    """For each frame header descriptor: where the content size begins in the frame, and its length."""
    position, length = np.zeros(256, np.int64), np.zeros(256, np.int64)
    for descriptor in range(256):
        single = bool(descriptor & SINGLE_SEGMENT)
        position[descriptor] = 5 + (not single) + (0, 1, 2, 4)[descriptor & DICTIONARY]
        length[descriptor] = (int(single), 2, 4, 8)[descriptor >> 6]
    return position, length


_SIZE_AT, _SIZE_NBYTES = _descriptors()


def parse_zstd(slab: Bytes, offsets: Sizes, sizes: Sizes, expected_nbytes: int) -> StreamTable:
    """Check Zstandard frames; the stream of a chunk is the chunk.

    A frame is followed block by block to its end, so cut ones are refused and bytes behind one are seen. To the host
    go: no content size, several frames, frames to be skipped, dictionaries, windows above 128 MiB, blocks that the
    format forbids, and frames of more than 4096 blocks, which are not followed.

    Arguments and errors are those of `parse_lz4`, with codec "zstd".
    """
    check_ranges(slab, offsets, sizes)
    to_host = check_zstd(slab, offsets, sizes, np.full(len(sizes), expected_nbytes, np.int64))
    return _table((offsets, sizes), (offsets, sizes), expected_nbytes, to_host)


def check_zstd(slab: Bytes, offsets: Sizes, sizes: Sizes, expected: Sizes) -> Mask:
    """Whether each stream, whose range lies in the slab, is anything but one plain frame of its expected size.

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
    """Read the header of the first frame of each chunk, whose range lies in the slab.

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
                # far above any chunk is as good as above int64
                size = np.minimum(size, np.uint64(2**62))
            content[rows] = size.astype(np.int64) + base
    return content


def _zstd_ends(slab: Bytes, position: Sizes, ends: Sizes, checksum: Mask) -> Sizes:
    """Where frames end, found by walking their block headers; beyond ``ends`` if they are cut, -1 if unknown."""
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


# -- checksums ---------------------------------------------------------------------------------------------------


def checksums(kind: str, slab: Bytes, offsets: Sizes, sizes: Sizes) -> tuple[npt.NDArray[np.intp], npt.NDArray[Any]]:
    """The checksums of decoded data that chunks hold, which a parser has found sound and no host is to decode.

    kind: "adler32" of zlib streams, "crc32" of gzip members, "xxh64" of Zstandard frames.
    Returns: (numbers of the chunks that have one, their checksums as uint32).
    """
    which = np.arange(len(sizes))
    if kind == "xxh64":
        which = np.flatnonzero(slab[offsets + 4] & ZSTD_CHECKSUM)
    ends = (offsets + sizes)[which]
    at, order = (8, "<u4") if kind == "crc32" else (4, ">u4" if kind == "adler32" else "<u4")
    return which, read(slab, order, ends - at).astype(np.uint32)


# -- what all share ----------------------------------------------------------------------------------------------


def read(slab: Bytes, dtype: str, positions: Sizes) -> npt.NDArray[Any]:
    """Items of a dtype that begin at any byte of the slab; the caller has compared positions with ends."""
    item = np.dtype(dtype)
    # one overlapping item per byte: nothing is copied but what is asked for
    view: npt.NDArray[Any] = np.ndarray((max(len(slab) - item.itemsize + 1, 0),), item, slab, strides=(1,))
    return view[positions]


def refuse(codec: str, bad: Mask, describe: Callable[[int], str]) -> None:
    """Raise CodecError for the first bad item, if there is one; ``describe`` says what is wrong with an item."""
    if bad.any():
        index = int(bad.argmax())
        raise CodecError(f"{codec}: {describe(index)}", index=index, codec=codec)


def refuse_sizes(codec: str, claimed: Sizes, expected_nbytes: int) -> None:
    """Raise CodecError for the first item that claims another decoded size than it must have."""
    refuse(codec, claimed != expected_nbytes, lambda i: f"expected {expected_nbytes} decoded bytes, got {claimed[i]}")


def check_ranges(slab: Bytes, offsets: Sizes, sizes: Sizes) -> None:
    """Raise ValueError unless the slab is flat bytes and every range lies in it."""
    if slab.dtype != np.uint8 or slab.ndim != 1 or not slab.flags.c_contiguous:
        raise ValueError(f"slab: expected contiguous uint8 of one dimension, got {slab.dtype} of {slab.ndim}")
    if offsets.shape != sizes.shape or offsets.ndim != 1 or offsets.dtype != np.int64 or sizes.dtype != np.int64:
        got = f"{offsets.dtype}{offsets.shape} and {sizes.dtype}{sizes.shape}"
        raise ValueError(f"offsets and sizes: expected int64[n] both, got {got}")
    outside = (offsets < 0) | (sizes < 0) | (offsets > len(slab) - sizes)
    if outside.any():
        i = int(outside.argmax())
        raise ValueError(f"chunk {i}: {sizes[i]} bytes at {offsets[i]} do not lie in a slab of {len(slab)}")


def _table(
    chunks: tuple[Sizes, Sizes], streams: tuple[Sizes, Sizes], expected_nbytes: int, to_host: Mask
) -> StreamTable:
    """Give whole chunks to the host, and all if there is nothing to decode, which a batched decoder need not see."""
    to_host = to_host | (expected_nbytes == 0)
    (offsets, sizes), (source, nbytes) = chunks, streams
    return StreamTable(
        source=np.where(to_host, offsets, source),
        nbytes=np.where(to_host, sizes, nbytes),
        decoded_nbytes=np.full(len(sizes), expected_nbytes, np.int64),
        to_host=to_host,
    )
