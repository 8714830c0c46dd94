"""Encoded chunks that lie about their size, or are damaged in ways that a library underneath would trust."""

import bz2
import gzip
import json
import lzma
import re
import struct
import zlib

import msgpack
import numcodecs
import numpy as np
import pytest

import gzarr
from gzarr.codecs import (
    ArrayRepr,
    BloscCodec,
    BytesCodec,
    BytesRepr,
    Crc32cCodec,
    GzipCodec,
    NumcodecsCodec,
    VLenBytesCodec,
    VLenUTF8Codec,
    ZstdCodec,
)
from gzarr.codecs.chain import prepare
from gzarr.cpu.codecs import frames
from gzarr.cpu.sharding import codecs_for
from gzarr.errors import CodecError
from tests.codecs.chains import codec_for, sample
from tests.support.memory import traced

DATA = sample("<i4", (250,)).tobytes()
BIG = 64 << 20
HUGE = bytes(BIG)


def refused(codec, data: bytes) -> str:
    """Message of the error, after checking that little memory was used to find it."""
    with traced() as peak:
        with pytest.raises(CodecError) as caught:
            codec.decode([data])
        # an LZMA dictionary takes 8 MiB whatever the chunk
        assert peak() < BIG // 4 + len(data) * 3
    return str(caught.value)


BOMBS = [
    (BloscCodec(), numcodecs.Blosc("zstd", 1).encode(HUGE), str(BIG)),
    (ZstdCodec(), numcodecs.Zstd(1).encode(HUGE), str(BIG)),
    (GzipCodec(), gzip.compress(HUGE, 1), "or more"),
    (NumcodecsCodec("gzip"), gzip.compress(HUGE, 1), "or more"),
    (NumcodecsCodec("zlib"), zlib.compress(HUGE, 1), "or more"),
    (NumcodecsCodec("bz2"), bz2.compress(HUGE, 1), "or more"),
    (NumcodecsCodec("lzma"), lzma.compress(HUGE, preset=0), "or more"),
    (NumcodecsCodec("lz4"), numcodecs.LZ4().encode(HUGE), str(BIG)),
    (NumcodecsCodec("zstd"), numcodecs.Zstd(1).encode(HUGE), str(BIG)),
    (NumcodecsCodec("blosc"), numcodecs.Blosc().encode(HUGE), str(BIG)),
]


@pytest.mark.parametrize(("spec", "bomb", "words"), BOMBS, ids=lambda value: getattr(value, "name", ""))
def test_bombs_are_refused_before_memory_is_given_to_them(spec, bomb: bytes, words: str) -> None:
    message = refused(codec_for(spec, BytesRepr(1000, 4)), bomb)
    assert "expected 1000" in message
    assert words in message


@pytest.mark.parametrize(("spec", "bomb", "words"), BOMBS, ids=lambda value: getattr(value, "name", ""))
def test_chunks_that_are_too_short_are_refused(spec, bomb: bytes, words: str) -> None:
    codec = codec_for(spec, BytesRepr(1000, 4))
    (short,) = codec.encode([DATA[:600]])
    with pytest.raises(CodecError, match=r"expected 1000 decoded bytes, got 600"):
        codec.decode([bytes(short)])


@pytest.mark.parametrize("field", [4, 8, 12])
def test_blosc_headers_are_checked_against_the_buffer(field: int) -> None:
    codec = codec_for(BloscCodec(), BytesRepr(1000, 4))
    good = bytes(codec.encode([DATA])[0])
    for value in (0, 1, 999, 1001, 2**31 - 1, 2**31, 2**32 - 1):
        bad = good[:field] + struct.pack("<I", value) + good[field + 4 :]
        try:
            (got,) = codec.decode([bad])
        except CodecError:
            continue
        assert len(got) == 1000
    with pytest.raises(CodecError, match=f"expected {len(good)} encoded bytes, got {len(good) - 1}"):
        codec.decode([good[:-1]])
    with pytest.raises(CodecError, match="blosc header"):
        codec.decode([good[:15]])


def test_a_size_of_lz4_beyond_its_best_ratio_is_refused_even_if_the_size_is_unknown() -> None:
    codec = codec_for(NumcodecsCodec("lz4"), BytesRepr())
    assert bytes(codec.decode(codec.encode([DATA]))[0]) == DATA
    assert "impossible" in refused(codec, struct.pack("<I", 2**31 - 1) + bytes(20))


# -- Zstandard frames ----------------------------------------------------------------------------------------------


def without_size(frame: bytes) -> bytes:
    """The frame as a streaming encoder writes it: with a window and no content size."""
    descriptor = frame[4]
    assert descriptor & 0x23 == 0x20 or descriptor & 0x20 == 0
    position = frames.header_fields(descriptor)
    length = (1 if descriptor & 0x20 else 0, 2, 4, 8)[descriptor >> 6]
    window = bytes((17 << 3,))  # 2**27 bytes
    return frame[:4] + bytes((descriptor & 0x04,)) + window + frame[position + length :]


def zstd(data: bytes, level: int = 3, checksum: bool = False) -> bytes:
    return numcodecs.Zstd(level, checksum).encode(data)


SKIPPED = struct.pack("<II", 0x184D2A53, 5) + b"hello"


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 65535, 65536, 66000, 400_000])
@pytest.mark.parametrize("checksum", [False, True])
def test_frames_of_every_header_size_are_read(size: int, checksum: bool) -> None:
    data = (DATA * 400)[:size]
    frame = zstd(data, checksum=checksum)
    assert frames.content_size(frame) == size
    codec = codec_for(ZstdCodec(), BytesRepr(size))
    unknown = codec_for(ZstdCodec(), BytesRepr())
    for encoded in (frame, without_size(frame), SKIPPED + frame, frame + SKIPPED):
        assert bytes(codec.decode([encoded])[0]) == data
    assert bytes(unknown.decode([frame])[0]) == data
    assert frames.content_size(without_size(frame)) is None
    for encoded in (frame, without_size(frame)):
        for other in {0, size - 1, size + 1, size + 1000} - {-1, size}:
            with pytest.raises(CodecError):
                codec_for(ZstdCodec(), BytesRepr(other)).decode([encoded])


def test_several_frames_are_joined() -> None:
    one, two, three = DATA[:300], DATA[300:301], DATA[301:]
    codec = codec_for(ZstdCodec(), BytesRepr(1000))
    joined = [
        zstd(one) + zstd(two) + zstd(three),
        zstd(one) + SKIPPED + zstd(b"") + zstd(two, checksum=True) + zstd(three),
        zstd(one) + without_size(zstd(two)) + zstd(three),
        zstd(b"") + zstd(DATA),
    ]
    for data in joined:
        assert bytes(codec.decode([data])[0]) == DATA
    for data in (zstd(one) + zstd(two), zstd(DATA) + zstd(two), zstd(one) + zstd(HUGE)):
        assert "expected" in refused(codec, data) or "small" in refused(codec, data)
    assert "do not say their size" in refused(codec, without_size(zstd(one)) + without_size(zstd(two)))


def test_a_streamed_bomb_is_refused() -> None:
    refused(codec_for(ZstdCodec(), BytesRepr(1000)), without_size(zstd(HUGE)))


@pytest.mark.parametrize("cut", range(0, 40, 3))
def test_truncated_frames_are_refused_by_the_walk(cut: int) -> None:
    data = without_size(zstd(DATA, checksum=True))
    assert len(data) > 40
    refused(codec_for(ZstdCodec(), BytesRepr(1000)), data[:cut])


def test_a_checksum_in_the_frame_is_verified() -> None:
    frame = bytearray(zstd(DATA, checksum=True))
    frame[-1] ^= 1
    assert "hecksum" in refused(codec_for(ZstdCodec(), BytesRepr(1000)), bytes(frame))


# -- gzip and its kin ----------------------------------------------------------------------------------------------


def test_gzip_members_are_joined_and_what_follows_them_is_checked() -> None:
    codec = codec_for(GzipCodec(), BytesRepr(1000))
    members = gzip.compress(DATA[:300]) + gzip.compress(b"") + gzip.compress(DATA[300:])
    assert codec.decode([members])[0] == DATA
    assert codec.decode([members + bytes(9)])[0] == DATA
    assert "follow" in refused(codec, members + b"junk")
    assert "or more" in refused(codec, members + gzip.compress(HUGE, 1))
    assert "got 300" in refused(codec, gzip.compress(DATA[:300]))
    assert codec_for(GzipCodec(), BytesRepr()).decode([members])[0] == DATA


@pytest.mark.parametrize(("id", "compress"), [("bz2", bz2.compress), ("lzma", lzma.compress)])
def test_streams_of_bz2_and_xz_are_joined(id: str, compress) -> None:
    codec = codec_for(NumcodecsCodec(id), BytesRepr(1000))
    assert codec.decode([compress(DATA[:300]) + compress(DATA[300:])])[0] == DATA
    assert "truncated" in refused(codec, compress(DATA)[:-3])


def test_gzip_checks_its_checksum_and_writes_no_time() -> None:
    codec = codec_for(GzipCodec(), BytesRepr(1000))
    (data,) = codec.encode([DATA])
    assert data[4:8] == bytes(4)
    assert gzip.decompress(data) == DATA
    refused(codec, data[:-6] + b"\0\0" + data[-4:])


# -- crc32c --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "checksum"),
    [
        # RFC 3720, appendix B.4
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
        (b"123456789", 0xE3069283),
        (b"", 0),
    ],
)
@pytest.mark.parametrize("spec", [Crc32cCodec(), NumcodecsCodec("crc32c")], ids=["own", "numcodecs"])
def test_crc32c_matches_published_vectors(spec, data: bytes, checksum: int) -> None:
    codec = codec_for(spec, BytesRepr(len(data)))
    assert bytes(codec.encode([data])[0]) == data + struct.pack("<I", checksum)
    assert bytes(codec.decode([data + struct.pack("<I", checksum)])[0]) == data


# -- objects -------------------------------------------------------------------------------------------------------

OBJECTS = ArrayRepr(np.dtype("O"), (2, 2))


@pytest.mark.parametrize("spec", [VLenUTF8Codec(), VLenBytesCodec(), NumcodecsCodec("vlen-array", {"dtype": "<i2"})])
def test_counts_and_lengths_outside_the_buffer_are_refused(spec) -> None:
    codec = codec_for(spec, OBJECTS)
    for count in (0, 3, 5, 2**31 - 1, 2**31, 2**32 - 1):
        assert "expected 4 items" in refused(codec, struct.pack("<I", count) + bytes(16))
    for lengths in ([2**32 - 1], [2**31], [2**31 - 1], [2**32 - 16], [0, 0, 0, 5], [4, 2**32 - 8]):
        body = b"".join(struct.pack("<I", length) + b"ab" * (min(length, 4) // 2) for length in lengths)
        refused(codec, struct.pack("<I", 4) + body)
    for size in range(19):
        refused(codec, struct.pack("<5I", 4, 0, 0, 0, 0)[:size])


def test_text_that_is_not_utf8_is_refused() -> None:
    codec = codec_for(VLenUTF8Codec(), ArrayRepr(np.dtype("O"), (1,)))
    refused(codec, struct.pack("<II", 1, 2) + b"\xff\xfe")


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        3,
        ["a", "b", "c", "d", "|O"],
        ["a", "b", "c", "d", "|O", 4],
        ["a", "b", "c", "|O", [2, 2]],
        [["a", "b"], ["c"], "|O", [2, 2]],
        [["a", "b"], ["c", "d"], ["e", "f"], "|O", [3, 2]],
        [["a", "b"], ["c", "d"], "|O", [2, 2**40]],
        [["a", "b"], "cd", "|O", [2, 2]],
        ["|O", [2**40]],
    ],
)
def test_documents_that_do_not_fit_the_chunk_are_refused(document) -> None:
    refused(codec_for(NumcodecsCodec("json2"), OBJECTS), json.dumps(document).encode())
    refused(codec_for(NumcodecsCodec("msgpack2"), OBJECTS), msgpack.packb(document))


def test_deep_documents_are_refused() -> None:
    refused(codec_for(NumcodecsCodec("json2"), OBJECTS), b"[" * 100_000)
    refused(codec_for(NumcodecsCodec("msgpack2"), OBJECTS), b"\x91" * 100_000)


def test_pickles_are_neither_decoded_nor_encoded() -> None:
    codec = codec_for(NumcodecsCodec("pickle", {"protocol": 5}), OBJECTS)
    with pytest.raises(CodecError, match="can run any code"):
        codec.decode([numcodecs.Pickle().encode(np.array([1], object))])
    with pytest.raises(CodecError, match="can run any code"):
        codec.encode([np.empty((2, 2), object)])


# -- numbers -------------------------------------------------------------------------------------------------------


def test_zfp_streams_of_another_shape_are_refused_and_short_ones_read_nothing_beyond() -> None:
    codec = codec_for(NumcodecsCodec("zfpy"), ArrayRepr(np.dtype("<f4"), (40, 50)))
    other = codec_for(NumcodecsCodec("zfpy"), ArrayRepr(np.dtype("<f4"), (50, 40)))
    (data,) = codec.encode([np.random.default_rng(0).normal(size=(40, 50)).astype("f4")])
    with pytest.raises(CodecError, match=r"expected shape \(50, 40\).*got \(40, 50\)"):
        other.decode([data])
    for size in range(20, len(data), 97):
        assert codec.decode([data[:size]])[0].shape == (40, 50)
    damaged = bytearray(data)
    damaged[10:12] = [damaged[10] & 15 | 0xF0, 0x7F]  # says that every block takes 2,048 bits
    with pytest.raises(CodecError, match="130 blocks of 2048 bits"):
        codec.decode([bytes(damaged)])
    long = codec_for(NumcodecsCodec("zfpy", {"mode": 2, "rate": 100.0}), ArrayRepr(np.dtype("<f4"), (40, 50)))
    assert (long.decode(long.encode([np.ones((40, 50), "f4")]))[0] == 1).all()


def test_pcodec_chunks_of_another_length_are_refused() -> None:
    codec = codec_for(NumcodecsCodec("pcodec"), ArrayRepr(np.dtype("<i4"), (40,)))
    for n in (0, 39, 41, 100_000):
        data = numcodecs.PCodec().encode(np.arange(n, dtype="<i4"))
        with pytest.raises(CodecError, match="expected 40 decoded elements"):
            codec.decode([data])


@pytest.mark.parametrize("spec", [NumcodecsCodec("packbits"), NumcodecsCodec("delta")])
def test_filters_check_the_size_of_what_they_decode(spec) -> None:
    dtype = "?" if spec.id == "packbits" else "<i4"
    codec = codec_for(spec, ArrayRepr(np.dtype(dtype), (16,)))
    (good,) = codec.encode([sample(dtype, (16,))])
    bad = good.copy()[:-1]
    with pytest.raises(CodecError):
        codec.decode([bad])
    if dtype == "?":
        bad = good.copy()
        bad[0] = 3
        with pytest.raises(CodecError, match="expected 16"):
            codec.decode([bad])


# -- several compressors in a chain --------------------------------------------------------------------------------


def rle_frame(nbytes: int) -> bytes:
    """A Zstandard frame without a size that repeats a byte: 128 KiB in every 4 bytes."""
    block = (1 << 17 << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    blocks = bytearray(block * (nbytes >> 17))
    blocks[-4] |= 1  # the last one
    return struct.pack("<I", 0xFD2FB528) + bytes((0, 17 << 3)) + blocks


CHAIN_BOMBS = [
    *((spec, bomb) for spec, bomb, _ in BOMBS),
    (ZstdCodec(), rle_frame(BIG)),
    (ZstdCodec(), without_size(zstd(HUGE, 1))),
    (ZstdCodec(), zstd(bytes(100_000)) * (BIG // 100_000)),
    (NumcodecsCodec("nvcomp_batch", {"algorithm": "zstd"}), zstd(HUGE, 1)),
]
NAMES = [f"{spec.name}-{number}" for number, (spec, _) in enumerate(CHAIN_BOMBS)]


def chained(*specs):
    """The codecs of a chain for chunks of 16 kB, and what each decodes, in encoding order."""
    steps = prepare([BytesCodec(), *specs], ArrayRepr(np.dtype("<f8"), (2048,)))
    return codecs_for(steps)


@pytest.mark.parametrize(("spec", "bomb"), CHAIN_BOMBS, ids=NAMES)
def test_bombs_in_a_chain_are_refused(spec, bomb: bytes) -> None:
    for before in ([GzipCodec()], [ZstdCodec(), Crc32cCodec()], [NumcodecsCodec("shuffle"), NumcodecsCodec("lz4")]):
        message = refused(chained(*before, spec)[-1], bomb)
        assert re.search(r"expected at most \d+ decoded bytes.* got at least \d{5,}", message), message
        assert spec.name.removeprefix("numcodecs.").removesuffix("nvcomp_batch") in message


@pytest.mark.parametrize("device", ["cpu", "emulated"])
@pytest.mark.parametrize(("spec", "bomb"), CHAIN_BOMBS, ids=NAMES)
def test_arrays_with_a_bomb_in_a_chain(spec, bomb: bytes, device: str) -> None:
    store: dict[str, bytes] = {}
    kept = gzarr.create_array(store, shape=2048, chunks=2048, dtype="f8", compressors=[GzipCodec(), spec])
    kept[:] = np.random.default_rng(1).random(2048)
    z = gzarr.open(store, device=device)
    assert z[...].tobytes() == kept[...].tobytes()
    store["c/0"] = bomb
    with pytest.raises(gzarr.ChunkError, match=r"expected at most \d+ decoded bytes") as caught:
        z[...]
    assert (caught.value.codec, caught.value.key) == (spec.name, "c/0")


@pytest.mark.parametrize("outer", [spec for spec, _, _ in BOMBS], ids=lambda spec: spec.name)
@pytest.mark.parametrize("inner", [spec for spec, _, _ in BOMBS], ids=lambda spec: spec.name)
def test_chains_decode_what_does_not_compress(outer, inner) -> None:
    for nbytes in (0, 1, 100, 100_000):
        data = np.random.default_rng(nbytes).bytes(nbytes)
        steps = prepare([BytesCodec(), inner, NumcodecsCodec("base64"), outer], ArrayRepr(np.dtype("u1"), (nbytes,)))
        items = [data]
        codecs = codecs_for(steps)[1:]
        for codec in codecs:
            items = codec.encode(items)
        for codec in reversed(codecs):
            items = codec.decode(items)
        assert bytes(items[0]) == data


def test_frames_without_a_size_in_many_small_blocks_are_decoded() -> None:
    data = np.random.default_rng(2).bytes(300)
    raw = b"".join((100 << 3 | (at == 200)).to_bytes(3, "little") + data[at : at + 100] for at in (0, 100, 200))
    frame = struct.pack("<I", 0xFD2FB528) + bytes((0, 0)) + raw
    assert bytes(chained(GzipCodec(), ZstdCodec())[-1].decode([frame])[0]) == data


def test_texts_of_numbers_have_no_bound() -> None:
    serializer = NumcodecsCodec("json2", {"indent": 100})
    z = gzarr.create_array(shape=10, dtype="i1", serializer=serializer, compressors=[ZstdCodec(), GzipCodec()])
    z[:] = range(10)
    assert z[:].tolist() == list(range(10))
