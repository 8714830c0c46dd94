"""Chunks that are truncated, changed, too long or of the wrong size: an error that says where, and nothing is lost."""

import numcodecs
import numpy as np
import pytest

import gzarr
from gzarr import codecs
from gzarr.errors import ChunkError

DATA = np.random.default_rng(7).integers(0, 1000, (8, 12)).astype("i4")

#: Name -> keywords of the array, name of the codec that a truncated chunk is blamed on, whether every change is seen.
CHAINS = {
    "v2-blosc": ({"zarr_format": 2}, "blosc", False),
    "v2-zstd": ({"zarr_format": 2, "compressor": numcodecs.Zstd(1)}, "zstd", False),
    "v2-gzip": ({"zarr_format": 2, "compressor": numcodecs.GZip(1)}, "gzip", True),
    "v2-zlib": ({"zarr_format": 2, "compressor": numcodecs.Zlib(1)}, "numcodecs.zlib", True),
    "v2-bz2": ({"zarr_format": 2, "compressor": numcodecs.BZ2(1)}, "numcodecs.bz2", True),
    "v2-lzma": ({"zarr_format": 2, "compressor": numcodecs.LZMA(preset=1)}, "numcodecs.lzma", True),
    "v2-lz4": ({"zarr_format": 2, "compressor": numcodecs.LZ4()}, "numcodecs.lz4", False),
    "v2-raw": ({"zarr_format": 2, "compressor": None}, "bytes", False),
    "v2-delta": ({"zarr_format": 2, "filters": [numcodecs.Delta("i4")], "compressor": None}, "", False),
    "v2-crc32": ({"zarr_format": 2, "compressor": numcodecs.CRC32()}, "numcodecs.crc32", True),
    "v2-fortran": ({"zarr_format": 2, "order": "F", "compressor": numcodecs.GZip(1)}, "gzip", True),
    "v3-zstd": ({}, "zstd", False),
    "v3-zstd-checksum": ({"compressors": codecs.ZstdCodec(1, checksum=True)}, "zstd", True),
    "v3-blosc": ({"compressors": codecs.BloscCodec()}, "blosc", False),
    "v3-gzip": ({"compressors": codecs.GzipCodec(1)}, "gzip", True),
    "v3-crc32c": ({"compressors": codecs.Crc32cCodec()}, "crc32c", True),
    "v3-zstd-crc32c": ({"compressors": [codecs.ZstdCodec(1), codecs.Crc32cCodec()]}, "crc32c", True),
    "v3-big-endian": ({"serializer": codecs.BytesCodec("big"), "compressors": None}, "bytes", False),
    "v3-transpose": ({"filters": [codecs.TransposeCodec((1, 0))], "compressors": codecs.Crc32cCodec()}, "crc32c", True),
    "v3-lz4": ({"compressors": codecs.NumcodecsCodec("lz4", {"acceleration": 1})}, "numcodecs.lz4", False),
}


@pytest.fixture(params=CHAINS)
def chain(request):
    return CHAINS[request.param]


def make(keywords, data=DATA, chunks=(3, 5)):
    """An array at "a" in memory, and the key of its chunk (1, 1)."""
    z = gzarr.array(data, chunks=chunks, store={}, path="a", **keywords)
    return z, "a/1.1" if z.zarr_format == 2 else "a/c/1/1"


def expect_error(z, key, codec):
    """Reading the chunk must fail and say where, reading another must not, and writing a part must leave it alone."""
    before = dict(z.store)
    with pytest.raises(ChunkError) as caught:
        z[3:6, 5:10]
    error = caught.value
    assert (error.key, error.chunk_coords) == (key, (1, 1))
    assert error.path == f"{z.store}/a"
    assert f"array '{z.store}/a', key {key!r}, chunk (1, 1)" in str(error)
    if codec:
        assert error.codec == codec
        assert f"codec {codec!r}" in str(error)
    with pytest.raises(ChunkError):
        z[:]
    with pytest.raises(ChunkError):
        z[3, 5] = -1
    with pytest.raises(ChunkError):
        z.vindex[[0, 3], [0, 5]]
    assert dict(z.store) == before
    assert np.array_equal(z[:3], DATA[:3])
    assert np.array_equal(z[6:], DATA[6:])
    z[3:6, 5:10] = DATA[3:6, 5:10]
    assert np.array_equal(z[:], DATA)


@pytest.mark.parametrize("kept", [0, 1, 0.5, -1], ids=["empty", "one byte", "half", "all but one byte"])
def test_truncated(chain, kept):
    keywords, codec, _ = chain
    z, key = make(keywords)
    whole = z.store[key]
    z.store[key] = whole[: len(whole) // 2 if kept == 0.5 else kept]
    expect_error(z, key, codec)


@pytest.mark.parametrize("extra", [b"\xff", b"\xff" * 1000], ids=len)
def test_too_long(chain, extra):
    keywords, _, _ = chain
    z, key = make(keywords)
    z.store[key] += extra
    expect_error(z, key, "")


def test_padded_with_zeros(chain):
    """What gzip, bzip2 and xz take for padding may be accepted, but it must not change a number."""
    keywords, _, _ = chain
    z, key = make(keywords)
    z.store[key] += b"\0"
    try:
        assert np.array_equal(z[3:6, 5:10], DATA[3:6, 5:10])
    except ChunkError as error:
        assert error.key == key  # noqa: PT017


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_every_byte_changed(chain, mask):
    """A change is seen by every codec that has a checksum; without one the worst that may happen is other numbers."""
    keywords, _, is_checked = chain
    z, key = make(keywords)
    whole = z.store[key]
    for position in range(len(whole)):
        changed = bytearray(whole)
        changed[position] ^= mask
        z.store[key] = bytes(changed)
        try:
            found = z[3:6, 5:10]
        except ChunkError as error:
            assert error.chunk_coords == (1, 1)  # noqa: PT017
            continue
        assert found.shape == (3, 5)
        # Some headers have bytes that do not matter, such as the time in gzip's.
        assert not is_checked or np.array_equal(found, DATA[3:6, 5:10])


@pytest.mark.parametrize("nbytes", [0, 1, 59, 61, 120, 6000])
def test_a_chunk_that_decodes_to_the_wrong_size(chain, nbytes):
    keywords, _, _ = chain
    compressors = keywords.get("compressors", keywords.get("compressor", "auto"))
    like = {"zarr_format": keywords.get("zarr_format", 3), "compressors": compressors}
    other = gzarr.array(np.ones(max(nbytes, 1), "u1"), store={}, chunks=max(nbytes, 1), **like)
    z, key = make(keywords)
    z.store[key] = other.store["0" if z.zarr_format == 2 else "c/0"] if nbytes else b""
    expect_error(z, key, "")


def test_text_and_bytes():
    for dtype, words in ((str, ["some", "words", "", "ü"] * 3), (bytes, [b"some", b"", b"\xff", b"x"] * 3)):
        for zarr_format in (2, 3):
            z = gzarr.array(words, dtype=dtype, chunks=4, store={}, compressors=None, zarr_format=zarr_format)
            key = "1" if zarr_format == 2 else "c/1"
            whole = z.store[key]
            for bad in (b"", whole[:3], whole[:-1], b"\xff" * len(whole), b"\5" + whole[1:]):
                z.store[key] = bad
                with pytest.raises(ChunkError, match=rf"key '{key}', chunk \(1,\), codec 'vlen"):
                    z[:]
                with pytest.raises(ChunkError):
                    z[5] = words[0]
                assert z.store[key] == bad
                assert z[:4].tolist() == words[:4]


def test_objects():
    z = gzarr.array(
        np.array([{"a": 1}, [1], None, "x"], object), chunks=2, object_codec=numcodecs.JSON(), zarr_format=2,
        dtype=object, compressor=None, store={},
    )  # fmt: skip
    for bad in (b"", b"{", b"[]", b"[1, 2]", b"\xff\xfe"):
        z.store["1"] = bad
        with pytest.raises(ChunkError, match=r"key '1', chunk \(1,\), codec 'numcodecs\.json2'"):
            z[:]
        assert z[0] == {"a": 1}


@pytest.mark.parametrize("selection", [np.s_[4, 6], np.s_[::2, ::3], np.s_[::-1, 4:7]], ids=str)
def test_every_way_of_reading_meets_the_damage(selection):
    z, key = make({"compressors": codecs.Crc32cCodec()})
    z.store[key] = z.store[key][:-1] + b"\0"
    z.store[key] = bytes(reversed(z.store[key]))
    with pytest.raises(ChunkError, match="crc32c"):
        z[selection]
    for read in (
        lambda: z.oindex[[4], [6]],
        lambda: z.vindex[[4], [6]],
        lambda: z.blocks[1, 1],
        lambda: z.get_mask_selection(DATA >= 0),
        lambda: np.asarray(z),
        lambda: list(z),
        lambda: z.astype("f8")[:],
        lambda: gzarr.load(z.store, path="a"),
        lambda: gzarr.array(z),
        lambda: z.resize(4, 12),
    ):
        with pytest.raises(ChunkError, match=r"chunk \(1, 1\), codec 'crc32c'"):
            read()
    assert z.shape == (8, 12)
    assert gzarr.open(z.store, path="a").shape == (8, 12)


def test_a_crc32c_error_gives_both_checksums():
    z, key = make({"compressors": codecs.Crc32cCodec()})
    chunk = bytearray(z.store[key])
    chunk[0] ^= 1
    z.store[key] = bytes(chunk)
    with pytest.raises(ChunkError, match=r"0x[0-9a-f]{8}.*0x[0-9a-f]{8}"):
        z[:]
