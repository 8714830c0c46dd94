"""Blosc frames in a staging buffer: whoever decodes with nothing but the table must get what numcodecs gets."""

import itertools
import struct
import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numcodecs import Zstd
from numcodecs.blosc import Blosc
from numcodecs.blosc import decompress as blosc_decompress
from numcodecs.lz4 import compress as lz4_compress
from numcodecs.lz4 import decompress as lz4_decompress

from gzarr.cpu.codecs.compressors import blosc_decoder, blosc_encoder
from gzarr.gpu.codecs.blosc.parsing import DEFLATE, LZ4, RAW, SNAPPY, ZSTD, BloscStreams, BloscTable, parse_frames
from tests.gpu.staging_buffers import StagingBuffer, damaged, staging_buffer_of

CNAMES = ("blosclz", "lz4", "lz4hc", "zlib", "zstd")
TYPESIZES = (*range(1, 17), 17, 32, 255, 300)

# -- decoding by the table ---------------------------------------------------------------------------------------


def snappy_encode(data: bytes) -> bytes:
    """Literals, and copies of one byte where all bytes are equal."""
    out = bytearray()
    rest = len(data)
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    if len(data) > 1 and data == data[:1] * len(data):
        out += b"\0" + data[:1]
        for start in range(1, len(data), 64):
            out += struct.pack("<BH", min(64, len(data) - start) - 1 << 2 | 2, 1)
        return bytes(out)
    for start in range(0, len(data), 65_536):
        part = data[start : start + 65_536]
        out += struct.pack("<BH", 61 << 2, len(part) - 1) + part
    return bytes(out)


def snappy_decode(raw: bytes, nbytes: int) -> bytes:
    """What `snappy_encode` writes."""
    at = next(k for k, byte in enumerate(raw) if byte < 128) + 1
    out = bytearray()
    while at < len(raw):
        tag = raw[at]
        if tag & 3 == 0:
            length, skip = (tag >> 2) + 1, 1
            if length == 62:
                length, skip = struct.unpack_from("<H", raw, at + 1)[0] + 1, 3
            out += raw[at + skip : at + skip + length]
            at += skip + length
        else:
            assert tag & 3 == 2
            out += out[-1:] * ((tag >> 2) + 1)
            at += 3
    assert len(out) == nbytes
    return bytes(out)


def inflate(raw: bytes, nbytes: int) -> bytes:
    stream = zlib.decompressobj(-15)
    data = stream.decompress(raw)
    assert stream.eof
    return data


DECODE: dict[int, Callable[[bytes, int], bytes]] = {
    RAW: lambda raw, n: raw,
    LZ4: lambda raw, n: lz4_decompress(struct.pack("<I", n) + raw),
    SNAPPY: snappy_decode,
    DEFLATE: inflate,
    ZSTD: lambda raw, n: bytes(Zstd().decode(raw)),
}


def shuffle(block: np.ndarray[Any, Any], mode: int, typesize: int, back: bool = False) -> np.ndarray[Any, Any]:
    """One block, by the rules of the frame format. back: the inverse."""
    n = len(block) // typesize
    body, tail = block[: n * typesize], block[n * typesize :]
    if mode == 1:
        body = body.reshape((typesize, n) if back else (n, typesize)).T.reshape(-1)
    elif mode == 2 and n % 8 == 0 and n:
        bits = np.unpackbits(body, bitorder="little").reshape((8 * typesize, n) if back else (n, 8 * typesize))
        body = np.packbits(bits.T.reshape(-1), bitorder="little")
    return np.concatenate((body, tail))


def decode(staging_buffer: StagingBuffer, table: BloscTable, nbytes: int) -> list[bytes | None]:
    """Decode all frames with nothing but the table; None for those that go to the host."""
    out = [np.full(nbytes, 0xEE, np.uint8) for _ in table.to_host]
    for decoder, group in enumerate(table.groups):
        for frame, source, csize, dest, size in zip(*(column.tolist() for column in group), strict=True):
            part = DECODE[decoder](staging_buffer.data[source : source + csize].tobytes(), size)
            assert len(part) == size
            out[frame][dest : dest + size] = np.frombuffer(part, np.uint8)
    return [None if table.to_host[i] else plain(data, table, i) for i, data in enumerate(out)]


def plain(data: np.ndarray[Any, Any], table: BloscTable, i: int) -> bytes:
    size, mode, typesize = int(table.blocksize[i]), int(table.shuffle[i]), int(table.typesize[i])
    blocks = [shuffle(data[start : start + size], mode, typesize, back=True) for start in range(0, len(data), size)]
    return b"".join(block.tobytes() for block in blocks)


def streams_of(table: BloscTable) -> BloscStreams:
    """The streams of all decoders."""
    return BloscStreams(*map(np.concatenate, zip(*table.groups, strict=True)))


def check_table(staging_buffer: StagingBuffer, table: BloscTable, expected: int) -> None:
    """Columns agree, every range lies in its frame and in the chunk, and streams fill each taken frame once."""
    n, streams = len(staging_buffer.sizes), streams_of(table)
    assert {len(column) for column in table[:-1]} == {n}
    assert all((np.diff(group.frame) >= 0).all() for group in table.groups)
    assert ((table.typesize >= 1) & (table.blocksize >= 1) & (table.shuffle <= 2)).all()
    start, end = staging_buffer.offsets[streams.frame], (staging_buffer.offsets + staging_buffer.sizes)[streams.frame]
    assert (streams.source >= start + 5).all()
    assert ((streams.csize > 0) & (streams.source + streams.csize <= end)).all()
    assert ((streams.nbytes > 0) & (streams.dest >= 0) & (streams.dest + streams.nbytes <= expected)).all()
    assert (table.groups[RAW].csize == table.groups[RAW].nbytes).all()
    assert not table.to_host[streams.frame].any()
    order = np.lexsort((streams.dest, streams.frame))
    frame, dest, ends = (column[order] for column in (streams.frame, streams.dest, streams.dest + streams.nbytes))
    follows = np.concatenate(([False], frame[1:] == frame[:-1]))[: len(frame)]
    assert (dest[~follows] == 0).all()
    assert (dest[follows] == ends[:-1][follows[1:]]).all()
    filled = np.bincount(streams.frame, streams.nbytes, minlength=n)
    assert (filled[~table.to_host] == expected).all()
    assert (table.shuffle[table.to_host] == 0).all()


def parsed(chunks: Sequence[bytes], expected: int, seed: int = 0) -> tuple[StagingBuffer, BloscTable]:
    staging_buffer = staging_buffer_of(chunks, seed=seed)
    table = parse_frames(*staging_buffer, expected)
    check_table(staging_buffer, table, expected)
    return staging_buffer, table


def content(kind: int, nbytes: int, typesize: int) -> bytes:
    rng = np.random.default_rng(nbytes * 400 + typesize)
    if kind == 0:
        return bytes(nbytes)
    if kind == 1:
        return rng.bytes(nbytes)
    if kind == 2:
        # smooth values whose low bytes are noise: some streams of a block are stored, others not
        smooth = np.cumsum(rng.integers(-3, 4, nbytes // 4 + 1)).astype("<i4") + rng.integers(0, 256)
        return smooth.tobytes()[:nbytes]
    step = rng.bytes(max(typesize, 1))
    return (step * (nbytes // len(step) + 1))[:nbytes]


def encode(data: bytes, cname: str, level: int, mode: int, blocksize: int, typesize: int) -> bytes:
    return bytes(blosc_encoder(Blosc(cname, level, mode, blocksize), typesize)(data))


# -- what c-blosc writes -----------------------------------------------------------------------------------------


def matrix() -> dict[int, list[tuple[bytes, bytes, str]]]:
    """Decoded size -> frames of that size: encoded, decoded, compressor."""
    batches: dict[int, list[tuple[bytes, bytes, str]]] = defaultdict(list)
    number = 0
    for cname, mode, level, typesize in itertools.product(CNAMES, (0, 1, 2), (0, 1, 5, 9), TYPESIZES):
        lengths = (1, typesize - 1, 37 * typesize, 40 * typesize, 128 * typesize, 3001, 20_000)
        for nbytes in {length for length in lengths if length > 0}:
            number += 1
            kind, blocksize = number % 4, (0, 0, 128, 256, 1000, 4096)[number % 6]
            data = content(kind, nbytes, typesize)
            batches[nbytes].append((encode(data, cname, level, mode, blocksize, typesize), data, cname))
    return batches


@pytest.mark.parametrize(
    ("cname", "mode", "typesize"), [("lz4", 1, 4), ("lz4hc", 2, 8), ("lz4", 1, 16), ("zstd", 1, 2)]
)
def test_frames_of_several_blocks_that_are_split(cname: str, mode: int, typesize: int) -> None:
    nbytes = 2_500_000 + typesize * 3 + 1
    rows = [content(2, nbytes, typesize), content(3, nbytes, typesize)]
    staging_buffer, table = parsed([encode(data, cname, 1, mode, 0, typesize) for data in rows], nbytes)
    assert decode(staging_buffer, table, nbytes) == rows
    assert (table.blocksize < nbytes).all()
    assert (np.bincount(streams_of(table).frame) > 2).all()


def test_no_frames_give_an_empty_table() -> None:
    staging_buffer, table = parsed([], 100)
    assert decode(staging_buffer, table, 100) == []


# -- frames made by hand -----------------------------------------------------------------------------------------

ENCODE: dict[int, Callable[[bytes], bytes]] = {
    LZ4: lambda data: lz4_compress(data, 1)[4:],
    SNAPPY: snappy_encode,
    DEFLATE: lambda data: zlib.compress(data, 1),
    ZSTD: lambda data: bytes(Zstd(1).encode(data)),
}


def make_frame(
    data: bytes,
    *,
    codec: int = LZ4,
    mode: int = 1,
    typesize: int = 4,
    blocksize: int = 1024,
    whole: bool = False,
    order: np.random.Generator | None = None,
    compress: Callable[[bytes], bytes] | None = None,
) -> bytes:
    """A frame of any block size; blocks lie in the given or a random order."""
    array = np.frombuffer(data, np.uint8)
    starts = range(0, len(data), blocksize)
    bodies = []
    for start in starts:
        block = shuffle(array[start : start + blocksize], mode if typesize > 1 or mode == 2 else 0, typesize)
        split = not whole and typesize <= 16 and len(block) == blocksize and blocksize // typesize >= 128
        bodies.append(
            b"".join(packed(part, compress or ENCODE[codec]) for part in np.split(block, typesize if split else 1))
        )
    flags = (0, 1, 4)[mode] | (16 if whole else 0) | codec << 5
    table, position = [0] * len(bodies), 16 + 4 * len(bodies)
    numbers = list(range(len(bodies)) if order is None else order.permutation(len(bodies)))
    for number in numbers:
        table[number] = position
        position += len(bodies[number])
    header = struct.pack("<4B3I", 2, 1, flags, typesize, len(data), blocksize, position)
    return header + struct.pack(f"<{len(table)}i", *table) + b"".join(bodies[number] for number in numbers)


def packed(part: np.ndarray[Any, Any], compress: Callable[[bytes], bytes]) -> bytes:
    raw = part.tobytes()
    encoded = compress(raw)
    if len(encoded) >= len(raw):
        encoded = raw
    return struct.pack("<i", len(encoded)) + encoded


@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from([LZ4, SNAPPY, DEFLATE, ZSTD]),
            st.integers(0, 2),
            st.sampled_from([1, 2, 3, 4, 7, 8, 16, 17, 100, 255]),
            st.integers(1, 40),
            st.booleans(),
            st.integers(0, 3),
        ),
        min_size=1,
        max_size=6,
    ),
    nbytes=st.integers(64, 9000),
    seed=st.integers(0, 99),
)
def test_frames_of_any_layout(rows: list[tuple[int, int, int, int, bool, int]], nbytes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    chunks, decoded = [], []
    for codec, mode, typesize, blocks, whole, kind in rows:
        items = max(nbytes // blocks // typesize, -(-64 // typesize))
        data = content(kind, nbytes, typesize)
        blocksize = min(items * typesize, nbytes)
        if blocksize % typesize:
            whole = True  # noqa: PLW2901  a split block has whole elements
        chunks.append(
            make_frame(
                data, codec=codec, mode=mode, typesize=typesize, blocksize=blocksize, whole=whole, order=rng
            )
        )  # fmt: skip
        decoded.append(data)
        if codec != SNAPPY:
            assert blosc_decompress(chunks[-1]) == data
    staging_buffer, table = parsed(chunks, nbytes, seed=seed)
    assert decode(staging_buffer, table, nbytes) == decoded
    assert not table.to_host.any()


@pytest.mark.parametrize(
    ("typesize", "items"), [(4, 127), (4, 128), (4, 129), (16, 127), (16, 128), (17, 127), (17, 128)]
)
def test_blocks_are_split_as_c_blosc_splits_them(typesize: int, items: int) -> None:
    data = content(3, 3 * items * typesize, typesize)
    frame = make_frame(data, typesize=typesize, blocksize=items * typesize)
    assert blosc_decompress(frame) == data
    staging_buffer, table = parsed([frame], len(data))
    assert decode(staging_buffer, table, len(data)) == [data]
    assert len(streams_of(table).frame) == (3 * typesize if typesize <= 16 and items >= 128 else 3)


def test_bits_of_single_bytes_are_shuffled_even_if_bytes_are_said_to_be() -> None:
    data = content(2, 4096, 1)
    frame = make_frame(data, typesize=1, mode=2)
    both = changed(frame, 2, "B", frame[2] | 1)
    assert blosc_decompress(both) == data
    staging_buffer, table = parsed([both, changed(frame, 2, "B", frame[2] & ~4)], 4096)
    assert decode(staging_buffer, table, 4096)[0] == data
    assert table.shuffle.tolist() == [2, 0]


def test_streams_are_grouped_by_decoder_and_keep_the_order_of_frames() -> None:
    rng = np.random.default_rng(5)
    data = content(2, 8192, 4)
    codecs = rng.choice([LZ4, SNAPPY, DEFLATE, ZSTD], 50)
    _, table = parsed([make_frame(data, codec=int(codec)) for codec in codecs], 8192)
    assert all(group.frame.size for group in table.groups)
    for decoder, group in enumerate(table.groups[1:], start=1):
        assert (codecs[group.frame] == decoder).all()


# -- what the host decodes ---------------------------------------------------------------------------------------


def changed(frame: bytes, at: int, layout: str, value: int) -> bytes:
    array = bytearray(frame)
    struct.pack_into(layout, array, at, value)
    return bytes(array)


def test_frames_that_go_to_the_host() -> None:
    data = content(2, 4096, 4)
    good = make_frame(data)
    unsized = b"\x28\xb5\x2f\xfd\x00\x50"
    odd = {
        "blosclz": encode(bytes(4096), "blosclz", 5, 1, 0, 4),
        "version 1": changed(good, 0, "B", 1),
        "version 3": changed(good, 0, "B", 3),
        "version of the compressor": changed(good, 1, "B", 2),
        "reserved flag": changed(good, 2, "B", good[2] | 8),
        "unknown compressor": changed(good, 2, "B", good[2] & 31 | 5 << 5),
        "tiny blocks": make_frame(data, blocksize=32),
        "zstd without size": make_frame(
            bytes(4096), codec=ZSTD, whole=True, compress=lambda d: unsized + b"\x03\x20\0" + d[:1]
        ),
        "zlib with a dictionary": make_frame(bytes(4096), codec=DEFLATE, compress=lambda d: b"\x78\x20" + bytes(40)),
        "no zlib": make_frame(bytes(4096), codec=DEFLATE, compress=lambda d: b"\x78\x9d" + bytes(20)),
        "zlib that is too short": make_frame(bytes(4096), codec=DEFLATE, compress=lambda d: b"\x78\x9c\x03\0\0\0\0"),
        "no zstd": make_frame(bytes(4096), codec=ZSTD, compress=lambda d: bytes(20)),
        "zstd that is cut": make_frame(bytes(4096), codec=ZSTD, compress=lambda d: bytes(Zstd().encode(d))[:-1]),
        "zstd of another size": make_frame(bytes(4096), codec=ZSTD, compress=lambda d: bytes(Zstd().encode(d[:-1]))),
    }
    for what, frame in odd.items():
        staging_buffer, table = parsed([good, frame, good], 4096)
        assert table.to_host.tolist() == [False, True, False], what
        assert decode(staging_buffer, table, 4096) == [data, None, data]
    for what in ("blosclz", "tiny blocks", "zstd without size"):
        assert len(blosc_decompress(odd[what])) == 4096, what


@pytest.mark.parametrize("flags", [0x02, 0x03, 0x06, 0x23, 0x83, 0xE2])
@pytest.mark.parametrize("version_lz", [1, 7])
def test_stored_frames_are_copied_whatever_their_other_flags(flags: int, version_lz: int) -> None:
    data = content(1, 1000, 4)
    frame = struct.pack("<4B3I", 2, version_lz, flags, 4, 1000, 64, 1016) + data
    assert blosc_decompress(frame) == data
    staging_buffer, table = parsed([frame], 1000)
    assert decode(staging_buffer, table, 1000) == [data]
    assert table.groups[RAW].frame.size == 1


# -- damage ------------------------------------------------------------------------------------------------------


DATA = content(3, 4096, 4)
GOOD = make_frame(DATA)
FIRST = struct.unpack_from("<i", GOOD, 16)[0]
STORED = struct.pack("<4B3I", 2, 1, 0x22, 4, 4096, 1024, 4113) + DATA


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        GOOD[:15],
        GOOD[:16],
        GOOD[:-1],
        GOOD + b"x",
        make_frame(DATA[:-1]),
        changed(GOOD, 4, "<I", 0),
        changed(GOOD, 3, "B", 0),
        *(changed(GOOD, 8, "<I", blocksize) for blocksize in (0, 4097, 2**32 - 1)),
        changed(GOOD, 12, "<I", 31),
        changed(GOOD, 2, "B", GOOD[2] | 2),
        STORED + b"x",
        *(changed(GOOD, 20, "<i", start) for start in (0, -5)),
        changed(GOOD, 28, "<i", len(GOOD) - 3),
        *(changed(GOOD, FIRST, "<i", size) for size in (0, -1, len(GOOD) - FIRST - 3, len(GOOD) - FIRST - 5)),
        # c-blosc leaves the rest of a split block of no whole elements as it finds its memory
        changed(make_frame(DATA, blocksize=1024), 8, "<I", 1025),
        *(
            make_frame(bytes(4096), codec=SNAPPY, compress=compress)
            for compress in (lambda d: snappy_encode(d + d[:1]), lambda d: b"\x80" * 6, lambda d: b"\x80")
        ),
    ],
)
def test_damaged_frames_go_to_the_host(bad: bytes) -> None:
    staging_buffer, table = parsed([GOOD, bad, GOOD], 4096)
    assert table.to_host.tolist() == [False, True, False]
    assert decode(staging_buffer, table, 4096) == [DATA, None, DATA]


def test_ranges_outside_the_staging_buffer_go_to_the_host() -> None:
    data, offsets, sizes = staging_buffer_of([GOOD, GOOD], tight=True)
    for offset, size in ((-1, 0), (1, 0), (0, 1), (0, -(1 << 62)), (1 << 62, 0)):
        table = parse_frames(data, offsets + np.array([0, offset]), sizes + np.array([0, size]), 4096)
        assert table.to_host.tolist() == [False, True]


def check_damage(chunk: bytes, expected: int) -> str:
    """A table in bounds, whatever lies around the frame, which gives what the CPU gives, if it has an answer."""
    tables = []
    for filler in (0, 255):
        data = np.full(len(chunk) + 1, filler, np.uint8)
        data[1:] = np.frombuffer(chunk, np.uint8)
        staging_buffer = StagingBuffer(data, np.array([1]), np.array([len(chunk)]))
        table = parse_frames(*staging_buffer, expected)
        check_table(staging_buffer, table, expected)
        tables.append([*table[:-1], *streams_of(table)])
    assert all(map(np.array_equal, *tables))
    if table.to_host[0]:
        return "host"
    try:
        answer = bytes(blosc_decoder(expected)(chunk))
    except (ValueError, RuntimeError):
        return "found later"
    assert decode(staging_buffer, table, expected) == [answer]
    return "decoded"


def test_damage_gives_a_table_in_bounds() -> None:
    rng = np.random.default_rng(12)
    seen: set[str] = set()
    for codec, mode, typesize, kind in itertools.product((LZ4, DEFLATE, ZSTD), (0, 1, 2), (1, 4, 16, 20), (0, 2)):
        for nbytes, blocksize in ((700, 640), (5000, 2560)):
            frame = make_frame(
                content(kind, nbytes, typesize), codec=codec, mode=mode, typesize=typesize, blocksize=blocksize
            )
            seen |= {check_damage(bad, nbytes) for bad in damaged(frame, rng, 24)}
    assert seen == {"host", "found later", "decoded"}


@given(
    header=st.tuples(
        st.sampled_from([1, 2, 2, 2]),
        st.sampled_from([1, 1, 1, 2]),
        st.integers(0, 255),
        st.sampled_from([0, 1, 2, 4, 16, 17, 255]),
        st.sampled_from([0, 1, 63, 64, 127, 128, 129, 256, 300]),
    ),
    claimed=st.one_of(st.none(), st.integers(0, 600)),
    starts=st.lists(st.integers(-1, 60), max_size=6),
    behind=st.binary(max_size=80),
)
def test_any_bytes_behind_a_header_give_a_table_in_bounds(
    header: tuple[int, int, int, int, int], claimed: int | None, starts: list[int], behind: bytes
) -> None:
    body = struct.pack(f"<{len(starts)}i", *starts) + behind
    *start, blocksize = header
    chunk = struct.pack("<4B3I", *start, 300, blocksize, 16 + len(body) if claimed is None else claimed) + body
    check_damage(chunk, 300)


@given(st.binary(max_size=64), st.integers(1, 300))
def test_any_bytes_give_a_table_in_bounds(chunk: bytes, expected: int) -> None:
    check_damage(chunk, expected)


@pytest.mark.parametrize(("blocksize", "to_host"), [(64, False), (63, True), (1, True)])
def test_tables_stay_small_whatever_frames_claim(blocksize: int, to_host: bool) -> None:
    # every block is the same stored bytes
    nbytes = 1 << 16
    n = -(-nbytes // blocksize)
    end = 16 + 4 * n
    starts = np.full(n, end, "<i4").tobytes()
    body = struct.pack("<i", blocksize) + bytes(64)
    frame = struct.pack("<4B3I", 2, 1, 0x30, 1, nbytes, blocksize, end + len(body)) + starts + body
    _, table = parsed([frame], nbytes)
    assert table.to_host.tolist() == [to_host]
    assert len(streams_of(table).frame) == (0 if to_host else nbytes // 64)
