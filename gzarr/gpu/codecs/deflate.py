"""Deflate in its envelopes: zlib streams and gzip members.

nvCOMP's Deflate encoder takes up to 64 KiB. Its gzip encoder takes any size, so it compresses larger chunks, and the
envelope that it writes is dropped if another one is wanted.
Source: RFC 1950 (zlib), RFC 1952 (gzip).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gzarr.gpu.codecs.entry import DeviceCodec, headers_on_host
from gzarr.gpu.codecs.headers import Bytes, Mask, Sizes, Stored, StreamTable, check_ranges, read, refuse, stream_table
from gzarr.gpu.codecs.single_stream import Checksum, Cut, Envelope, stream_decoder, stream_encoder
from gzarr.gpu.codecs.transfers import ALIGNMENT
from gzarr.gpu.device.nvcomp_tables import CODECS as NVCOMP

#: Header of two bytes, one empty block of two, Adler-32: the shortest zlib stream.
ZLIB_HEADER, ZLIB_TRAILER, SHORTEST_DEFLATE = 2, 4, 2
#: Deflate, 32 KiB window, default level, header check (RFC 1950, 2.2).
ZLIB_HEAD = b"\x78\x9c"
#: Fixed header, CRC-32 and ISIZE of a gzip member (RFC 1952, 2.3).
GZIP_HEADER, GZIP_TRAILER = 10, 8
FHCRC, FEXTRA, FNAME, FCOMMENT, GZIP_RESERVED = 2, 4, 8, 16, 0xE0
#: What nvCOMP's gzip members begin with (RFC 1952, 2.3: the flags are 0).
_GZIP_START = b"\x1f\x8b\x08\0"
#: No time, no hint of the level, an unknown operating system (RFC 1952, 2.3).
_GZIP_HEAD = _GZIP_START + b"\0\0\0\0\0\xff"
#: Longest gzip file name or comment that is skipped; chunks with longer ones go to the host.
LONGEST_NAME = 256


def parse_zlib(slab: Bytes, offsets: Sizes, sizes: Sizes, expected_nbytes: int) -> StreamTable:
    """Strip header and Adler-32 from zlib streams, which leaves Deflate.

    A zlib stream does not hold its decoded size, so the decoder must report it; bytes behind a stream go unnoticed.
    Arguments and errors are those of `gzarr.gpu.codecs.lz4.parse_lz4`, with codec "zlib". Streams with a preset
    dictionary go to the host.
    """
    check_ranges(slab, offsets, sizes)
    dictionary = check_zlib(slab, offsets, sizes)
    stripped = offsets + ZLIB_HEADER, sizes - (ZLIB_HEADER + ZLIB_TRAILER)
    return stream_table((offsets, sizes), stripped, expected_nbytes, dictionary)


def check_zlib(slab: Bytes, offsets: Sizes, sizes: Sizes) -> Mask:
    """Whether each zlib stream, whose range is in the slab, asks for a preset dictionary.

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
    """Strip header, CRC-32 and ISIZE from gzip members, which leaves Deflate.

    Optional header fields are skipped; the header's own checksum is not verified. If the last four bytes of a chunk are
    not the expected size, it may have several members, or padding behind the last one, so it goes to the host, and so
    does a chunk whose first member is visibly empty. A single member of a wrong size looks the same: the host refuses
    it.

    Arguments and errors are those of `gzarr.gpu.codecs.lz4.parse_lz4`, with codec "gzip".
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
    return stream_table((offsets, sizes), (source, ends - source), expected_nbytes, to_host)


def _gzip_payload(slab: Bytes, position: Sizes, ends: Sizes, flags: Sizes) -> tuple[Sizes, Mask]:
    """Positions behind the optional fields (not before ``ends`` if a field has no end), and chunks with long names."""
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


def stored_adler32(slab: Bytes, offsets: Sizes, sizes: Sizes) -> Stored:
    """The Adler-32 that zlib streams end with; a parser has found them sound."""
    return np.arange(len(sizes)), read(slab, ">u4", offsets + sizes - 4)


def _stored_crc32(slab: Bytes, offsets: Sizes, sizes: Sizes) -> Stored:
    """The CRC-32 that gzip members have before their last four bytes."""
    return np.arange(len(sizes)), read(slab, "<u4", offsets + sizes - 8)


def deflate_envelope(nbytes: int) -> Envelope:
    """The envelope of bare Deflate: none."""
    if nbytes <= NVCOMP["deflate"].max_compress_nbytes:
        return Envelope("deflate")
    return Envelope("gzip", cut=Cut(_GZIP_START, GZIP_HEADER, GZIP_TRAILER))


def _gzip_envelope(nbytes: int) -> Envelope:
    if nbytes > NVCOMP["deflate"].max_compress_nbytes:
        return Envelope("gzip")
    return Envelope("deflate", _GZIP_HEAD, "crc32", tail=nbytes.to_bytes(4, "little"))


def _zlib_envelope(nbytes: int) -> Envelope:
    return replace(deflate_envelope(nbytes), head=ZLIB_HEAD, checksum="adler32", order=">u4")


_GZIP = DeviceCodec(
    stream_decoder("deflate", parse_gzip, checksum=Checksum("crc32", _stored_crc32)),
    stream_encoder(_gzip_envelope),
    takes_streams=True,
    phase=ALIGNMENT - GZIP_HEADER,
    detour=headers_on_host,
)
_ZLIB = DeviceCodec(
    stream_decoder("deflate", parse_zlib, checksum=Checksum("adler32", stored_adler32)),
    stream_encoder(_zlib_envelope),
    takes_streams=True,
    phase=ALIGNMENT - ZLIB_HEADER,
    detour=headers_on_host,
)
CODECS = {"gzip": _GZIP, "numcodecs.gzip": _GZIP, "numcodecs.zlib": _ZLIB}
