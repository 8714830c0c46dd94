"""Headers of LZ4, Zstandard, zlib and gzip chunks in a slab: what holds for all of them."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numcodecs.lz4 import compress as lz4_compress

from tests.gpu.codecs.envelopes import (
    DECODERS,
    ENCODERS,
    LENGTHS,
    check_damage,
    check_ranges,
    contents,
    decode,
    refusal,
    run,
)
from tests.gpu.slabs import damaged, slab_of


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
        with pytest.raises(ValueError, match="are not in a slab of 10"):
            DECODERS[codec][0](data, np.array([0, offset]), np.array([10, size]), 4)
    with pytest.raises(ValueError, match="slab: expected"):
        DECODERS[codec][0](data[::2], np.array([0]), np.array([5]), 4)
    with pytest.raises(ValueError, match="expected int64"):
        DECODERS[codec][0](data, np.array([0]), np.array([5], np.int32), 4)


def test_an_impossible_lz4_ratio_is_refused() -> None:
    bad = struct.pack("<I", 100_000) + bytes(10)
    assert "impossible" in refusal("lz4", bad, lz4_compress(bytes(100_000), 1), 100_000)


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
