"""Headers of LZ4, Zstandard, zlib and gzip chunks in a slab, against numcodecs and the RFCs."""

from __future__ import annotations

import gzip
import itertools
import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numcodecs import GZip, Zlib, Zstd
from numcodecs.lz4 import compress as lz4_compress
from numcodecs.lz4 import decompress as lz4_decompress

from gzarr.cpu.codecs.compressors import gzip_decoder, lz4_decoder, zlib_decoder, zstd_decoder
from gzarr.errors import CodecError
from gzarr.gpu.codecs import frames
from gzarr.gpu.codecs.frames import StreamTable, parse_gzip, parse_lz4, parse_zlib, parse_zstd, read_zstd_headers
from tests.gpu.slabs import Slab, damaged, outcome, slab_of

Parse = Callable[..., StreamTable]

DECODERS: dict[str, tuple[Parse, Callable[[int], Any], Callable[[bytes, int], bytes]]] = {
    "lz4": (parse_lz4, lz4_decoder, lambda raw, n: lz4_decompress(struct.pack("<I", n) + raw)),
    "zlib": (parse_zlib, zlib_decoder, lambda raw, n: inflate(raw)),
    "gzip": (parse_gzip, gzip_decoder, lambda raw, n: inflate(raw)),
    "zstd": (parse_zstd, zstd_decoder, lambda raw, n: bytes(Zstd().decode(raw))),
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
LENGTHS = (1, 2, 3, 255, 256, 257, 1000, 65_535, 65_791, 65_792, 65_793, 131_072, 131_073, 400_001)


def inflate(raw: bytes) -> bytes:
    stream = zlib.decompressobj(-15)
    data = stream.decompress(raw)
    assert stream.eof
    assert not stream.unused_data
    return data


def deflated(data: bytes, wbits: int) -> bytes:
    stream = zlib.compressobj(6, zlib.DEFLATED, wbits)
    return stream.compress(data) + stream.flush()


def contents(nbytes: int) -> list[bytes]:
    rng = np.random.default_rng(nbytes)
    steps = np.cumsum(rng.integers(0, 3, nbytes)).astype(np.uint8)
    return [bytes(nbytes), steps.tobytes(), rng.bytes(nbytes)]


def check_ranges(slab: Slab, table: StreamTable, expected: int) -> None:
    """Every row lies in its chunk; rows for the host are the whole chunk."""
    assert table.source.dtype == table.nbytes.dtype == table.decoded_nbytes.dtype == np.int64
    assert len(table.source) == len(table.nbytes) == len(table.to_host) == len(slab.sizes)
    assert (table.decoded_nbytes == expected).all()
    assert (table.source >= slab.offsets).all()
    assert (table.nbytes >= 0).all()
    assert (table.source + table.nbytes <= slab.offsets + slab.sizes).all()
    assert (table.source[table.to_host] == slab.offsets[table.to_host]).all()
    assert (table.nbytes[table.to_host] == slab.sizes[table.to_host]).all()


def decode(codec: str, slab: Slab, table: StreamTable) -> list[bytes]:
    """Decode with nothing but the table."""
    rows = zip(table.source, table.nbytes, table.decoded_nbytes, strict=True)
    return [DECODERS[codec][2](slab.data[source : source + n].tobytes(), int(size)) for source, n, size in rows]


def run(codec: str, *chunks: bytes, expected: int) -> StreamTable:
    slab = slab_of(chunks)
    table = DECODERS[codec][0](*slab, expected)
    check_ranges(slab, table, expected)
    return table


def refusal(codec: str, bad: bytes, good: bytes, expected: int) -> str:
    """The message for a bad chunk between good ones, whose number must be told."""
    with pytest.raises(CodecError) as caught:
        run(codec, good, good, bad, good, expected=expected)
    assert (caught.value.index, caught.value.codec) == (2, codec)
    return str(caught.value)


@pytest.mark.parametrize("codec", list(DECODERS))
def test_streams_decode_to_what_was_encoded(codec: str) -> None:
    for nbytes in LENGTHS:
        decoded = [data for data in contents(nbytes) for _ in ENCODERS[codec]]
        slab = slab_of([encode(data) for data in contents(nbytes) for encode in ENCODERS[codec]])
        table = DECODERS[codec][0](*slab, nbytes)
        check_ranges(slab, table, nbytes)
        assert not table.to_host.any()
        assert decode(codec, slab, table) == decoded


@pytest.mark.parametrize("codec", list(DECODERS))
def test_chunks_of_nothing_are_left_to_the_host(codec: str) -> None:
    empty = struct.pack("<I", 0) if codec == "lz4" else ENCODERS[codec][0](b"")
    assert run(codec, empty, empty, expected=0).to_host.tolist() == [True, True]


@pytest.mark.parametrize("codec", list(DECODERS))
def test_no_chunks_give_an_empty_table(codec: str) -> None:
    table = run(codec, expected=10)
    assert [len(column) for column in (table.source, table.nbytes, table.decoded_nbytes, table.to_host)] == [0] * 4


@pytest.mark.parametrize("codec", list(DECODERS))
def test_every_truncation_of_a_header_is_refused(codec: str) -> None:
    good = ENCODERS[codec][0](bytes(300))
    headers = {"lz4": 4, "zlib": 8, "gzip": 20, "zstd": 7}
    for keep in range(headers[codec]):
        assert "truncated" in refusal(codec, good[:keep], good, 300)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("nbytes", [299, 301])
def test_another_size_is_refused(codec: str, nbytes: int) -> None:
    encode = ENCODERS[codec][0]
    message = refusal(codec, encode(bytes(nbytes)), encode(bytes(300)), 300)
    assert f"expected 300 decoded bytes, got {nbytes}" in message


@pytest.mark.parametrize("codec", list(DECODERS))
def test_ranges_outside_the_slab_are_refused(codec: str) -> None:
    data = np.zeros(10, np.uint8)
    for offset, size in ((-1, 5), (0, 11), (8, 3), (11, 0), (0, -1), (2**62, 2**62)):
        with pytest.raises(ValueError, match="do not lie in a slab of 10"):
            DECODERS[codec][0](data, np.array([0, offset]), np.array([10, size]), 4)
    with pytest.raises(ValueError, match="slab: expected"):
        DECODERS[codec][0](data[::2], np.array([0]), np.array([5]), 4)
    with pytest.raises(ValueError, match="expected int64"):
        DECODERS[codec][0](data, np.array([0]), np.array([5], np.int32), 4)


def test_an_impossible_lz4_ratio_is_refused() -> None:
    bad = struct.pack("<I", 100_000) + bytes(10)
    assert "impossible" in refusal("lz4", bad, lz4_compress(bytes(100_000), 1), 100_000)


# -- zlib and gzip -----------------------------------------------------------------------------------------------


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
    if flags & frames.FEXTRA:
        header += struct.pack("<H", len(extra)) + extra
    if flags & frames.FNAME:
        header += name + b"\0"
    if flags & frames.FCOMMENT:
        header += name[::-1] + b"!\0"
    if flags & frames.FHCRC:
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
    table = parse_gzip(*slab, len(data))
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
        "long name": gzip_member(data, frames.FNAME, b"n" * 300),
        "long comment": gzip_member(data, frames.FCOMMENT | frames.FNAME, b"n" * 255),
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
    for flag in (frames.FNAME, frames.FCOMMENT, frames.FNAME | frames.FCOMMENT | frames.FHCRC):
        unended = b"\x1f\x8b\x08" + bytes((flag,)) + bytes(6) + b"n" * 40
        assert "header does not end" in refusal("gzip", unended, good, 300)
    beyond = b"\x1f\x8b\x08" + bytes((frames.FEXTRA,)) + bytes(6) + b"\xff\xff" + bytes(40)
    assert "header does not end" in refusal("gzip", beyond, good, 300)


# -- Zstandard ---------------------------------------------------------------------------------------------------


def zstd_frame(
    blocks: list[bytes], descriptor: int, *, size: int = 0, window: int = 0x50, dictionary: bytes = b""
) -> bytes:
    """A frame of blocks that are given with their headers."""
    header = struct.pack("<IB", frames.MAGIC, descriptor)
    if not descriptor & frames.SINGLE_SEGMENT:
        header += bytes((window,))
    header += dictionary
    width = (1 if descriptor & frames.SINGLE_SEGMENT else 0, 2, 4, 8)[descriptor >> 6]
    if width:
        header += (size - (256 if width == 2 else 0)).to_bytes(width, "little")
    return header + b"".join(blocks)


def zstd_block(data: bytes, *, last: bool = True, kind: int = 0, size: int | None = None) -> bytes:
    return ((len(data) if size is None else size) << 3 | kind << 1 | last).to_bytes(3, "little") + data


def test_zstd_headers_are_read() -> None:
    rng = np.random.default_rng(3)
    rows, chunks = [], []
    for flag, single, checksum in itertools.product(range(4), (False, True), (False, True)):
        descriptor = flag << 6 | single << 5 | checksum << 2
        largest = (1 << 8 * (int(single), 2, 4, 8)[flag]) - 1
        window = int(rng.integers(0, 256))
        for size in {min(size, largest) + (256 if flag == 1 else 0) for size in (0, 1, 255, 65_535, 2**31, 2**61)}:
            known = bool(flag or single)
            base = 1 << 10 + (window >> 3)
            rows.append((
                size if known else -1,
                size if single else base + base // 8 * (window & 7),
                single,
                checksum,
            ))  # fmt: skip
            chunks.append(zstd_frame([], descriptor, size=size, window=window))
    slab = slab_of(chunks, seed=1)
    got = read_zstd_headers(*slab)
    columns = (got.content_nbytes, got.window_nbytes, got.single_segment, got.checksum)
    assert [tuple(row) for row in zip(*(column.tolist() for column in columns), strict=True)] == rows
    assert not got.dictionary.any()
    assert not got.odd.any()
    assert (got.start == slab.offsets + slab.sizes).all()


def test_a_content_size_beyond_all_chunks_is_refused() -> None:
    bad = zstd_frame([zstd_block(b"abc")], 0xE0, size=2**64 - 1)
    assert "expected 3 decoded bytes" in refusal("zstd", bad, Zstd().encode(b"abc"), 3)


def test_plain_zstd_frames_of_every_kind_of_block_are_taken() -> None:
    data = b"abc" + b"d" * 70 + b"ef"
    blocks = [
        zstd_block(b"", last=False),
        zstd_block(b"abc", last=False),
        zstd_block(b"d", last=False, kind=1, size=70),
        zstd_block(b"ef"),
    ]
    chunks = [zstd_frame(blocks, d, size=75, window=0x50) for d in (0x20, 0x80, 0xA0, 0xC0, 0xE0)]
    assert all(bytes(Zstd().decode(chunk)) == data for chunk in chunks)
    assert not run("zstd", *chunks, expected=75).to_host.any()


def test_odd_zstd_goes_to_the_host() -> None:
    data = bytes(range(200))
    whole = Zstd().encode(data)
    skipped = struct.pack("<II", 0x184D2A53, 5) + b"abcde"
    body = [zstd_block(data)]
    odd = {
        "no size": zstd_frame(body, 0),
        "two frames": Zstd().encode(data[:100]) + Zstd().encode(data[100:]),
        "an empty frame behind": whole + zstd_frame([zstd_block(b"")], 0x20),
        "a frame to be skipped before": skipped + whole,
        "a frame to be skipped behind": whole + skipped,
    }
    for what, chunk in odd.items():
        assert run("zstd", chunk, whole, expected=200).to_host.tolist() == [True, False], what
        assert bytes(zstd_decoder(200)(chunk)) == data
    unread = {
        "bytes behind": whole + b"x",
        "only a frame to be skipped": skipped,
        "less than that": struct.pack("<IB", 0x184D2A5F, 0),
        "a dictionary": zstd_frame(body, 0x21, size=200, dictionary=b"\x07"),
        "a dictionary of four bytes": zstd_frame(body, 0x23, size=200, dictionary=b"\x07\0\0\0"),
        "a reserved bit": zstd_frame(body, 0x28, size=200),
        "a huge window": zstd_frame(body, 0x80, size=200, window=0xFF),
        "a reserved block": zstd_frame([zstd_block(data, kind=3)], 0x20, size=200),
        "a block that is too large": zstd_frame([zstd_block(b"a", kind=1, size=2**17 + 1)], 0x20, size=200),
        "many blocks": zstd_frame([zstd_block(b"", last=False)] * 5000 + body, 0x20, size=200),
    }
    for what, chunk in unread.items():
        assert run("zstd", whole, chunk, expected=200).to_host.tolist() == [False, True], what


@pytest.mark.parametrize("checksum", [False, True])
def test_cut_zstd_frames_are_refused_wherever_they_are_cut(checksum: bool) -> None:
    rng = np.random.default_rng(1)
    whole = bytes(Zstd(3, checksum).encode(rng.integers(0, 9, 3000).astype(np.uint8).tobytes()))
    for keep in range(len(whole)):
        with pytest.raises(CodecError, match="truncated"):
            run("zstd", whole[:keep], expected=3000)


def test_what_is_no_zstd_frame_is_refused() -> None:
    good = Zstd().encode(bytes(300))
    assert "expected magic number 0xfd2fb528, got 0xfd2fb527" in refusal("zstd", b"\x27" + good[1:], good, 300)


# -- damage ------------------------------------------------------------------------------------------------------


def same(one: Any, other: Any) -> bool:
    """Whether two outcomes are the same error, or tables of the same rows."""
    if isinstance(one, tuple) or isinstance(other, tuple):
        return bool(one == other)
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in StreamTable.__slots__)


def check_damage(codec: str, chunk: bytes, expected: int) -> None:
    """An error or a table in bounds, whatever lies around the chunk; never an error where the CPU has an answer."""
    parse, cpu = DECODERS[codec][:2]
    got = outcome(parse, chunk, expected, 0)
    assert same(got, outcome(parse, chunk, expected, 255))
    try:
        answer = bytes(cpu(expected)(chunk))
    except Exception:  # noqa: BLE001  the libraries' complaints are of many kinds
        answer = None
    if isinstance(got, tuple):
        assert got[:2] == (0, codec)
        assert answer is None, "the CPU decodes what is refused here"
        return
    slab = Slab(np.frombuffer(b"\0" + chunk, np.uint8), np.array([1]), np.array([len(chunk)]))
    check_ranges(slab, got, expected)
    if answer is not None and not got.to_host[0]:
        assert decode_leniently(codec, slab, got) == answer


def decode_leniently(codec: str, slab: Slab, table: StreamTable) -> bytes:
    """As `decode`, but bytes behind a Deflate stream are ignored, as a batched decoder does."""
    if codec in ("zlib", "gzip"):
        start = int(table.source[0])
        return zlib.decompressobj(-15).decompress(slab.data[start : start + int(table.nbytes[0])].tobytes())
    return decode(codec, slab, table)[0]


@pytest.mark.parametrize("codec", list(DECODERS))
def test_damage_gives_an_error_or_a_table_in_bounds(codec: str) -> None:
    rng = np.random.default_rng(11)
    for nbytes in (1, 40, 700, 3000):
        for data in contents(nbytes):
            for encode in ENCODERS[codec]:
                for chunk in damaged(bytes(encode(data)), rng, 16):
                    check_damage(codec, chunk, nbytes)


@given(
    codec=st.sampled_from(list(DECODERS)),
    magic=st.booleans(),
    tail=st.binary(max_size=60),
    expected=st.integers(0, 400),
)
def test_any_bytes_give_an_error_or_a_table_in_bounds(codec: str, magic: bool, tail: bytes, expected: int) -> None:
    start = {
        "lz4": struct.pack("<I", expected),
        "zlib": b"\x78\x9c",
        "gzip": b"\x1f\x8b\x08",
        "zstd": b"\x28\xb5\x2f\xfd",
    }
    check_damage(codec, start[codec] * magic + tail, expected)


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
    check_damage("zstd", zstd_frame(body, descriptor, size=size + (256 if descriptor == 0x60 else 0)) + behind, size)
