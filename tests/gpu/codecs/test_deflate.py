"""zlib streams and gzip members: their headers against the RFCs, and what the device puts around Deflate."""

from __future__ import annotations

import ctypes
import gzip
import itertools
import struct
import zlib
from typing import Any

import pytest

from gzarr import codecs
from gzarr.cpu.codecs.compressors import gzip_decoder
from gzarr.errors import CodecError
from gzarr.gpu.codecs import deflate
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.hostbuild import find_compiler
from tests.gpu.codecs.encoding import FailingDevice, chunks_of, encode, spec_of
from tests.gpu.codecs.envelopes import check_ranges, decode, refusal, run
from tests.gpu.slabs import slab_of

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")


def test_only_zlib_headers_pass() -> None:
    body = zlib.compress(b"abc" * 9)[2:]
    for first, second in itertools.product(range(256), repeat=2):
        header = bytes((first, second))
        valid = first % 16 == 8 and first >> 4 <= 7 and int.from_bytes(header, "big") % 31 == 0
        if valid:
            assert run("zlib", header + body, expected=27).to_host.tolist() == [bool(second & 0x20)]
        elif header[1] % 32 == first % 32 or int.from_bytes(header, "big") % 31 == 0:
            with pytest.raises(CodecError, match=f"got 0x{header.hex()}"):
                run("zlib", header + body, expected=27)


def test_zlib_with_a_preset_dictionary_goes_to_the_host() -> None:
    stream = zlib.compressobj(zdict=b"abc")
    odd = stream.compress(b"abcabc") + stream.flush()
    assert run("zlib", odd, zlib.compress(b"abcabc"), expected=6).to_host.tolist() == [True, False]


def gzip_member(data: bytes, flags: int, name: bytes = b"a name", extra: bytes = b"\x01\x02xy\0z") -> bytes:
    header = b"\x1f\x8b\x08" + bytes((flags,)) + bytes(4) + b"\x02\xff"
    if flags & deflate.FEXTRA:
        header += struct.pack("<H", len(extra)) + extra
    if flags & deflate.FNAME:
        header += name + b"\0"
    if flags & deflate.FCOMMENT:
        header += name[::-1] + b"!\0"
    if flags & deflate.FHCRC:
        header += struct.pack("<H", zlib.crc32(header) & 0xFFFF)
    return header + zlib.compress(data, wbits=-15) + struct.pack("<II", zlib.crc32(data), len(data))


def test_optional_gzip_fields_are_skipped() -> None:
    data = b"some bytes" * 30
    names = (b"", b"x", b"a longer name", b"n" * 254)
    extras = (b"", b"\0", bytes(300))
    cases = list(itertools.product(range(32), names, extras))
    chunks = [gzip_member(data, *case) for case in cases]
    assert all(gzip.decompress(chunk) == data for chunk in chunks)
    slab = slab_of(chunks)
    table = deflate.parse_gzip(*slab, len(data))
    check_ranges(slab, table, len(data))
    assert not table.to_host.any()
    assert decode("gzip", slab, table) == [data] * len(chunks)


def test_odd_gzip_goes_to_the_host() -> None:
    data = b"some bytes" * 30
    half = gzip.compress(data[:150])
    odd = {
        "two members": half + gzip.compress(data[150:]),
        "an empty member behind": gzip.compress(data) + gzip.compress(b""),
        "an empty member before": gzip.compress(b"") + gzip.compress(data),
        "a stored empty member before": gzip_stored_empty() + gzip.compress(data),
        "padding": gzip.compress(data) + bytes(512),
        "long name": gzip_member(data, deflate.FNAME, b"n" * 300),
        "long comment": gzip_member(data, deflate.FCOMMENT | deflate.FNAME, b"n" * 255),
    }
    for what, chunk in odd.items():
        assert run("gzip", chunk, gzip.compress(data), expected=300).to_host.tolist() == [True, False], what
        assert gzip_decoder(300)(chunk) == data
    reserved = gzip_member(data, 0x80)
    assert run("gzip", reserved, half, expected=300).to_host.tolist() == [True, True]


def gzip_stored_empty() -> bytes:
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + b"\x01\0\0\xff\xff" + bytes(8)


def test_damaged_gzip_headers_are_refused() -> None:
    good = gzip.compress(bytes(300))
    for at, name in ((0, "magic"), (1, "magic"), (2, "method")):
        bad = bytearray(good)
        bad[at] ^= 1
        assert "not gzip" in refusal("gzip", bytes(bad), good, 300), name
    for flag in (deflate.FNAME, deflate.FCOMMENT, deflate.FNAME | deflate.FCOMMENT | deflate.FHCRC):
        unended = b"\x1f\x8b\x08" + bytes((flag,)) + bytes(6) + b"n" * 40
        assert "header does not end" in refusal("gzip", unended, good, 300)
    beyond = b"\x1f\x8b\x08" + bytes((deflate.FEXTRA,)) + bytes(6) + b"\xff\xff" + bytes(40)
    assert "header does not end" in refusal("gzip", beyond, good, 300)


# -- encoding ----------------------------------------------------------------------------------------------------


@needs_compiler
def test_envelopes_hold_what_their_formats_say() -> None:
    chunks = chunks_of(5000)
    for data, chunk in zip(encode(EmulatedDevice(), [codecs.GzipCodec()], chunks), chunks, strict=True):
        assert data[:4] == b"\x1f\x8b\x08\0"
        assert data[-8:-4] == zlib.crc32(chunk).to_bytes(4, "little")
        assert data[-4:] == (5000).to_bytes(4, "little")
    for data, chunk in zip(encode(EmulatedDevice(), [spec_of("zlib")], chunks), chunks, strict=True):
        assert int.from_bytes(data[:2], "big") % 31 == 0
        assert data[-4:] == zlib.adler32(chunk).to_bytes(4, "big")


@needs_compiler
def test_gzip_members_of_another_form_are_refused() -> None:
    def name_a_file(found: Any) -> None:
        ctypes.memset(int(found.target[1]) + 3, 8, 1)

    with pytest.raises(CodecError, match=r"zlib: nvCOMP made a gzip member that is not understood") as caught:
        encode(FailingDevice(name_a_file), [spec_of("zlib")], chunks_of(100_000))
    assert caught.value.index == 1

    def empty(found: Any) -> None:
        found.sizes[2] = 18

    with pytest.raises(CodecError, match=r"zlib: nvCOMP made a gzip member that is not understood") as caught:
        encode(FailingDevice(empty), [spec_of("zlib")], chunks_of(100_000))
    assert caught.value.index == 2
