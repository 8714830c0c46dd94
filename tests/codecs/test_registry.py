"""Codecs by every name and document that users and files give."""

import numcodecs
import pytest

from gzarr import codecs
from gzarr.errors import MetadataError, UnknownCodecError


@pytest.mark.parametrize(
    ("document", "spec"),
    [
        ("crc32c", codecs.Crc32cCodec()),
        ("bytes", codecs.BytesCodec(None)),
        ({"name": "crc32c"}, codecs.Crc32cCodec()),
        ({"name": "crc32c", "configuration": {}}, codecs.Crc32cCodec()),
        ({"name": "crc32c", "configuration": None}, codecs.Crc32cCodec()),
        ({"name": "bytes", "configuration": {"endian": "big"}, "must_understand": True}, codecs.BytesCodec("big")),
        ({"name": "endian", "configuration": {"endian": "little"}}, codecs.BytesCodec("little")),
        ({"name": "gzip", "configuration": {"level": 1}}, codecs.GzipCodec(1)),
        ({"name": "zstd", "configuration": {"level": 3}}, codecs.ZstdCodec(3)),
        (
            {"name": "blosc", "configuration": {"cname": "lz4", "clevel": 1, "shuffle": "noshuffle", "blocksize": 0}},
            codecs.BloscCodec("lz4", 1, "noshuffle"),
        ),
        ({"name": "transpose", "configuration": {"order": "F"}}, codecs.TransposeCodec("F")),
        ({"name": "numcodecs.bz2", "configuration": {"level": 2}}, codecs.NumcodecsCodec("bz2", {"level": 2})),
        ({"name": "numcodecs.packbits"}, codecs.NumcodecsCodec("packbits")),
        ({"id": "blosc", "cname": "zstd", "clevel": 3, "shuffle": 2, "blocksize": 0}, codecs.BloscCodec("zstd", 3, 2)),
        ({"id": "zlib", "level": 4}, codecs.NumcodecsCodec("zlib", {"level": 4})),
        (numcodecs.Blosc("zstd", 3, 2), codecs.BloscCodec("zstd", 3, "bitshuffle")),
        (numcodecs.Zstd(7), codecs.ZstdCodec(7)),
        (numcodecs.GZip(7), codecs.GzipCodec(7)),
        (numcodecs.Adler32(), codecs.NumcodecsCodec("adler32")),
        (numcodecs.VLenUTF8(), codecs.VLenUTF8Codec()),
        (numcodecs.Delta("<i4", "<i2"), codecs.NumcodecsCodec("delta", {"dtype": "<i4", "astype": "<i2"})),
        (codecs.GzipCodec(3), codecs.GzipCodec(3)),
    ],
)
def test_every_way_to_name_a_codec_is_understood(document, spec) -> None:
    assert codecs.parse_codec(document) == spec


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"name": "gzip", "configuration": {"level": 1, "speed": 2}}, ["gzip", "speed", "level"]),
        ({"name": "gzip", "configuration": {"level": "1"}}, ["gzip", "level"]),
        ({"name": "gzip", "configuration": [1]}, ["gzip", "configuration"]),
        ({"name": "gzip", "level": 1}, ["gzip", "level"]),
        ({"name": "transpose"}, ["transpose", "order", "missing"]),
        ({"name": "cast_value"}, ["cast_value", "data_type", "missing"]),
        ({"name": "sharding_indexed"}, ["sharding_indexed", "chunk_shape", "missing"]),
        ({"name": 3}, ["name"]),
        ({"configuration": {}}, ["name"]),
        ({"id": 3}, ["id"]),
        (3, ["not a codec"]),
        (None, ["not a codec"]),
    ],
)
def test_malformed_documents_are_refused_by_field(document, words: list[str]) -> None:
    with pytest.raises(MetadataError) as caught:
        codecs.parse_codec(document)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("extra", [{}, {"must_understand": False}, {"must_understand": True}])
def test_an_unknown_codec_is_an_error_whatever_must_understand_says(extra: dict) -> None:
    with pytest.raises(UnknownCodecError, match=r"'lzw'.*gzarr.register_codec"):
        codecs.parse_codec({"name": "lzw"} | extra)
