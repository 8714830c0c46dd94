"""Which chunks of LZ4, Zstandard, zlib and gzip the device decodes: the usual ones, and none that the host must see."""

import gzip
import itertools
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numcodecs import GZip, Zlib, Zstd
from numcodecs.lz4 import compress as lz4_compress
from numcodecs.lz4 import decompress as lz4_decompress

from gzarr.cpu.codecs.compressors import DECODERS, lz4_decoder, zstd_decoder
from gzarr.cpu.codecs.frames import MAGIC
from gzarr.gpu.codecs import envelopes
from tests.gpu.staging_buffers import damaged, staging_buffer_of


def inflated(raw: bytes) -> bytes:
    """Bytes behind a Deflate stream are ignored, as a batched decoder does."""
    return zlib.decompressobj(-15).decompress(raw)


#: By codec: what is tested, the CPU's decoder, the decoder of bare streams, and the bytes around those.
FORMATS: dict[str, tuple[Any, Callable[[int], Any], Callable[[bytes, int], bytes], int, int]] = {
    "lz4": (envelopes.is_usual_lz4, lz4_decoder, lambda raw, n: lz4_decompress(struct.pack("<I", n) + raw), 4, 0),
    "zlib": (envelopes.is_usual_zlib, DECODERS["zlib"], lambda raw, n: inflated(raw), 2, 4),
    "gzip": (envelopes.is_usual_gzip, DECODERS["gzip"], lambda raw, n: inflated(raw), 10, 8),
    "zstd": (envelopes.is_usual_zstd, zstd_decoder, lambda raw, n: bytes(Zstd().decode(raw)), 0, 0),
}
ENCODERS: dict[str, list[Callable[[bytes], bytes]]] = {
    "lz4": [lambda data, a=a: lz4_compress(data, a) for a in (1, 8)],
    "zlib": [lambda data, level=level: Zlib(level).encode(data) for level in (0, 1, 6, 9)]
    + [lambda data, w=w: deflated(data, w) for w in (9, 12, 15)],
    "gzip": [lambda data, level=level: GZip(level).encode(data) for level in (0, 1, 9)] + [gzip.compress],
    "zstd": [
        lambda data, v=v, c=c: Zstd(v, c).encode(data) for v, c in itertools.product((-3, 1, 3, 12), (False, True))
    ],
}
CODECS = list(FORMATS)


def deflated(data: bytes, wbits: int) -> bytes:
    stream = zlib.compressobj(6, zlib.DEFLATED, wbits)
    return stream.compress(data) + stream.flush()


def contents(nbytes: int) -> list[bytes]:
    rng = np.random.default_rng(nbytes)
    steps = np.cumsum(rng.integers(0, 3, nbytes)).astype(np.uint8)
    return [bytes(nbytes), steps.tobytes(), rng.bytes(nbytes)]


def usual(codec: str, chunks: Sequence[bytes], nbytes: int, filler: int = 0xA5) -> list[bool]:
    """Which chunks are usual."""
    return FORMATS[codec][0](*staging_buffer_of(chunks, filler=filler), np.full(len(chunks), nbytes, np.int64)).tolist()


def check(codec: str, chunk: bytes, nbytes: int) -> None:
    """Nothing depends on what lies around a chunk; and a usual one decodes on the device to what the CPU decodes."""
    found = usual(codec, [chunk], nbytes, 0)
    assert found == usual(codec, [chunk], nbytes, 255)
    _, cpu, decode, header, trailer = FORMATS[codec]
    try:
        answer = bytes(cpu(nbytes)(chunk))
    except Exception:  # noqa: BLE001  the libraries' complaints are of many kinds
        return
    if found == [True]:
        assert decode(chunk[header : len(chunk) - trailer], nbytes) == answer


@pytest.mark.parametrize("codec", CODECS)
def test_what_encoders_write_is_usual(codec: str) -> None:
    _, _, decode, header, trailer = FORMATS[codec]
    for nbytes in (1, 2, 3, 255, 256, 257, 1000, 65_535, 65_791, 65_792, 65_793, 131_072, 131_073, 400_001):
        decoded = [data for data in contents(nbytes) for _ in ENCODERS[codec]]
        chunks = [bytes(encode(data)) for data in contents(nbytes) for encode in ENCODERS[codec]]
        assert all(usual(codec, chunks, nbytes))
        assert [decode(chunk[header : len(chunk) - trailer], nbytes) for chunk in chunks] == decoded
    assert usual(codec, [], 10) == []


@pytest.mark.parametrize("codec", CODECS)
def test_cut_headers_and_other_sizes_are_not(codec: str) -> None:
    good = bytes(ENCODERS[codec][0](bytes(300)))
    least = {"lz4": 5, "zlib": 8, "gzip": len(good), "zstd": len(good)}[codec]
    for keep in range(least):
        assert usual(codec, [good, good[:keep], good], 300) == [True, False, True]
        assert usual(codec, [good[:keep]], 300) == [False]
    if codec != "zlib":  # which does not hold it
        assert usual(codec, [good], 299) == usual(codec, [good], 301) == [False]


def test_lz4_of_an_impossible_ratio_is_not() -> None:
    good = lz4_compress(bytes(100_000), 1)
    assert usual("lz4", [struct.pack("<I", 100_000) + bytes(10), good], 100_000) == [False, True]


def test_only_zlib_headers_without_a_preset_dictionary_are_usual() -> None:
    body = zlib.compress(b"abc" * 9)[2:]
    headers = [bytes(pair) for pair in itertools.product(range(256), repeat=2)]
    valid = [first % 16 == 8 and first >> 4 <= 7 and (first << 8 | second) % 31 == 0 for first, second in headers]
    wanted = [is_valid and not header[1] & 0x20 for is_valid, header in zip(valid, headers, strict=True)]
    assert usual("zlib", [header + body for header in headers], 27) == wanted


def gzip_member(data: bytes, flags: int) -> bytes:
    header = b"\x1f\x8b\x08" + bytes((flags,)) + bytes(4) + b"\x02\xff"
    header += struct.pack("<H", 6) + b"\x01\x02xy\0z" if flags & 4 else b""
    header += b"a name\0" if flags & 8 else b""
    header += b"a comment\0" if flags & 16 else b""
    header += struct.pack("<H", zlib.crc32(header) & 0xFFFF) if flags & 2 else b""
    return header + zlib.compress(data, wbits=-15) + struct.pack("<II", zlib.crc32(data), len(data))


def test_unusual_gzip_is_the_host_s() -> None:
    data = b"some bytes" * 30
    half, empty = gzip.compress(data[:150]), b"\x1f\x8b\x08\0\0\0\0\0\0\xff\x01\0\0\xff\xff" + bytes(8)
    odd = {
        "two members": half + gzip.compress(data[150:]),
        "an empty member behind": gzip.compress(data) + gzip.compress(b""),
        "an empty member before": gzip.compress(b"") + gzip.compress(data),
        "a stored empty member before": empty + gzip.compress(data),
        "padding": gzip.compress(data) + bytes(512),
        **{f"flags {flags}": gzip_member(data, flags) for flags in range(1, 32)},
    }
    for what, chunk in odd.items():
        assert usual("gzip", [chunk, gzip.compress(data)], 300) == [False, True], what
        assert DECODERS["gzip"](300, None)(chunk) == data


def zstd_frame(
    blocks: list[bytes], descriptor: int, size: int = 0, window: int = 0x50, dictionary: bytes = b""
) -> bytes:
    """A frame of blocks that are given with their headers."""
    header = struct.pack("<IB", MAGIC, descriptor) + (b"" if descriptor & 0x20 else bytes((window,))) + dictionary
    width = (1 if descriptor & 0x20 else 0, 2, 4, 8)[descriptor >> 6]
    content_size = (size - 256 * (width == 2)).to_bytes(width, "little") if width else b""
    return header + content_size + b"".join(blocks)


def zstd_block(data: bytes, *, last: bool = True, kind: int = 0, size: int | None = None) -> bytes:
    return ((len(data) if size is None else size) << 3 | kind << 1 | last).to_bytes(3, "little") + data


def test_zstd_frames_of_every_kind_of_block_and_size_are_usual() -> None:
    blocks = [
        zstd_block(b"", last=False),
        zstd_block(b"abc", last=False),
        zstd_block(b"d", last=False, kind=1, size=300),
        zstd_block(b"ef"),
    ]
    chunks = [zstd_frame(blocks, d, 305) for d in (0x60, 0x40, 0x80, 0xA0, 0xC0, 0xE0)]
    assert all(bytes(Zstd().decode(chunk)) == b"abc" + b"d" * 300 + b"ef" for chunk in chunks)
    assert all(usual("zstd", chunks, 305))


def test_unusual_zstd_is_the_host_s() -> None:
    data = bytes(range(200))
    whole, body = bytes(Zstd().encode(data)), [zstd_block(data)]
    skipped = struct.pack("<II", 0x184D2A53, 5) + b"abcde"
    decoded = {
        "no size": zstd_frame(body, 0),
        "two frames": Zstd().encode(data[:100]) + Zstd().encode(data[100:]),
        "an empty frame behind": whole + zstd_frame([zstd_block(b"")], 0x20),
        "a frame to be skipped before": skipped + whole,
        "a frame to be skipped behind": whole + skipped,
    }
    refused = {
        "bytes behind": whole + b"x",
        "only a frame to be skipped": skipped,
        "less than that": struct.pack("<IB", 0x184D2A5F, 0),
        "a dictionary": zstd_frame(body, 0x21, 200, dictionary=b"\x07"),
        "a dictionary of four bytes": zstd_frame(body, 0x23, 200, dictionary=b"\x07\0\0\0"),
        "a reserved bit": zstd_frame(body, 0x28, 200),
        "a huge window": zstd_frame(body, 0x80, 200, window=0xFF),
        "a reserved block": zstd_frame([zstd_block(data, kind=3)], 0x20, 200),
        "a block that is too large": zstd_frame([zstd_block(b"a", kind=1, size=2**17 + 1)], 0x20, 200),
        "many blocks": zstd_frame([zstd_block(b"", last=False)] * 5000 + body, 0x20, 200),
        "a size beyond all chunks": zstd_frame(body, 0xE0, 2**64 - 1),
        "another magic number": b"\x27" + whole[1:],
    }
    for what, chunk in (decoded | refused).items():
        assert usual("zstd", [whole, chunk, whole], 200) == [True, False, True], what
    assert all(bytes(zstd_decoder(200)(chunk)) == data for chunk in decoded.values())


@pytest.mark.parametrize("codec", CODECS)
def test_damage_is_the_host_s_or_decodes_as_there(codec: str) -> None:
    rng = np.random.default_rng(11)
    for nbytes in (1, 40, 700, 3000):
        for data in contents(nbytes):
            for encode in ENCODERS[codec]:
                for chunk in damaged(bytes(encode(data)), rng, 16):
                    check(codec, chunk, nbytes)


@given(codec=st.sampled_from(CODECS), magic=st.booleans(), tail=st.binary(max_size=60), expected=st.integers(1, 400))
def test_any_bytes_are_the_host_s_or_decode_as_there(codec: str, magic: bool, tail: bytes, expected: int) -> None:
    starts = {
        "lz4": struct.pack("<I", expected),
        "zlib": b"\x78\x9c",
        "gzip": b"\x1f\x8b\x08",
        "zstd": b"\x28\xb5\x2f\xfd",
    }
    check(codec, starts[codec] * magic + tail, expected)


@given(
    blocks=st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=8), st.booleans()), max_size=5),
    descriptor=st.sampled_from([0x20, 0x24, 0, 0x60, 0x80, 0xC4]),
    behind=st.binary(max_size=9),
)
def test_zstd_frames_are_followed_as_the_cpu_follows_them(
    blocks: list[tuple[int, bytes, bool]], descriptor: int, behind: bytes
) -> None:
    size = sum(len(data) for _, data, _ in blocks)
    body = [
        zstd_block(data[:1] if kind == 1 else data, last=last, kind=kind, size=len(data)) for kind, data, last in blocks
    ]
    check("zstd", zstd_frame(body, descriptor, size + (256 if descriptor == 0x60 else 0)) + behind, size)
