"""Zstandard frames: their headers and blocks, followed as libzstd follows them."""

from __future__ import annotations

import itertools
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numcodecs import Zstd

from gzarr.cpu.codecs.compressors import zstd_decoder
from gzarr.errors import CodecError
from gzarr.gpu.codecs import zstd
from gzarr.gpu.codecs.zstd import read_zstd_headers
from tests.gpu.codecs.envelopes import check_damage, refusal, run
from tests.gpu.slabs import slab_of


def zstd_frame(
    blocks: list[bytes], descriptor: int, *, size: int = 0, window: int = 0x50, dictionary: bytes = b""
) -> bytes:
    """A frame of blocks that are given with their headers."""
    header = struct.pack("<IB", zstd.MAGIC, descriptor)
    if not descriptor & zstd.SINGLE_SEGMENT:
        header += bytes((window,))
    header += dictionary
    width = (1 if descriptor & zstd.SINGLE_SEGMENT else 0, 2, 4, 8)[descriptor >> 6]
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
