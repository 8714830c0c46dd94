"""Configurations and objects of Zarr v2's codecs, read as specs and written back."""

import json
import lzma

import numcodecs
import numcodecs.abc
import numcodecs.registry
import numpy as np
import pytest

from gzarr.codecs import (
    BloscCodec,
    CodecSpec,
    Crc32cCodec,
    GzipCodec,
    NumcodecsCodec,
    VLenBytesCodec,
    VLenUTF8Codec,
    ZstdCodec,
    parse_codec,
)
from gzarr.codecs.v2 import from_numcodecs, from_v2, to_numcodecs, to_v2


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        (
            '{"blocksize": 0, "clevel": 5, "cname": "lz4", "id": "blosc", "shuffle": 1}',
            BloscCodec("lz4", 5, "shuffle"),
        ),
        (
            '{"blocksize": 64, "clevel": 1, "cname": "zstd", "id": "blosc", "shuffle": -1}',
            BloscCodec("zstd", 1, None, None, 64),
        ),
        ('{"id": "zstd", "level": 1}', ZstdCodec(1)),
        ('{"checksum": true, "id": "zstd", "level": 1}', ZstdCodec(1, checksum=True)),
        ('{"id": "gzip", "level": 9}', GzipCodec(9)),
        ('{"id": "vlen-utf8"}', VLenUTF8Codec()),
        ('{"id": "vlen-bytes"}', VLenBytesCodec()),
        ('{"id": "zlib", "level": 9}', NumcodecsCodec("zlib", {"level": 9})),
        ('{"id": "crc32c"}', NumcodecsCodec("crc32c")),
        ('{"id": "nobody", "what": {"ever": [1, null]}}', NumcodecsCodec("nobody", {"what": {"ever": [1, None]}})),
        ('{"id": "gzip", "level": 9, "new": true}', NumcodecsCodec("gzip", {"level": 9, "new": True})),
    ],
)
def test_configurations_round_trip_byte_for_byte(text: str, spec: CodecSpec) -> None:
    assert from_v2(json.loads(text)) == spec
    assert json.dumps(to_v2(spec), sort_keys=True) == text


@pytest.mark.parametrize(
    ("config", "spec"),
    [
        ({"id": "blosc"}, BloscCodec("lz4", 5, "shuffle")),
        ({"id": "zstd"}, ZstdCodec(0)),
        ({"id": "gzip"}, GzipCodec(1)),
    ],
)
def test_missing_fields_mean_what_numcodecs_takes_for_them(config: dict, spec: CodecSpec) -> None:
    assert from_v2(config) == spec
    assert numcodecs.get_codec(config) == to_numcodecs(spec)


@pytest.mark.parametrize(
    "codec",
    [
        numcodecs.Blosc("zstd", 3, numcodecs.Blosc.BITSHUFFLE),
        numcodecs.Zstd(1),
        numcodecs.GZip(2),
        numcodecs.Delta("<i4", "<i2"),
        numcodecs.FixedScaleOffset(np.float64(1.5), np.int64(10), "f8", "u1"),
        numcodecs.LZMA(filters=[{"id": lzma.FILTER_DELTA, "dist": 4}, {"id": lzma.FILTER_LZMA2, "preset": 1}]),
        numcodecs.Categorize(["a", "b"], "O"),
        numcodecs.JSON(),
        numcodecs.VLenUTF8(),
    ],
    ids=repr,
)
def test_objects_round_trip(codec) -> None:
    spec = from_numcodecs(codec)
    again = parse_codec(json.loads(json.dumps(spec.to_json())))
    assert repr(to_numcodecs(again)) == repr(codec)


def test_numcodecs_objects_read_as_zarr_users_know_them() -> None:
    assert repr(to_numcodecs(BloscCodec("zstd", 3, "bitshuffle", 8))) == (
        "Blosc(cname='zstd', clevel=3, shuffle=BITSHUFFLE, blocksize=0)"
    )
    assert repr(to_numcodecs(ZstdCodec(1))) == "Zstd(level=1)"
    assert to_v2(Crc32cCodec()) == {"id": "crc32c"}
