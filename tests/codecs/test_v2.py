"""Configurations and objects of Zarr v2's codecs, read as specs and written back."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numcodecs
import numcodecs.abc
import numcodecs.registry
import pytest

from gzarr import codecs
from gzarr.codecs.registry import SPECS, from_v2, to_numcodecs
from gzarr.codecs.spec import CompressorSpec
from gzarr.errors import MetadataError, UnknownCodecError


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        (
            '{"blocksize": 0, "clevel": 5, "cname": "lz4", "id": "blosc", "shuffle": 1}',
            codecs.BloscCodec("lz4", 5, "shuffle"),
        ),
        (
            '{"blocksize": 64, "clevel": 1, "cname": "zstd", "id": "blosc", "shuffle": -1}',
            codecs.BloscCodec("zstd", 1, None, None, 64),
        ),
        ('{"id": "zstd", "level": 1}', codecs.ZstdCodec(1)),
        ('{"checksum": true, "id": "zstd", "level": 1}', codecs.ZstdCodec(1, checksum=True)),
        ('{"id": "gzip", "level": 9}', codecs.GzipCodec(9)),
        ('{"id": "vlen-utf8"}', codecs.VLenUTF8Codec()),
        ('{"id": "vlen-bytes"}', codecs.VLenBytesCodec()),
        ('{"id": "zlib", "level": 9}', codecs.NumcodecsCodec("zlib", {"level": 9})),
        ('{"id": "crc32c"}', codecs.Crc32cCodec()),
        (
            '{"id": "nobody", "what": {"ever": [1, null]}}',
            codecs.NumcodecsCodec("nobody", {"what": {"ever": [1, None]}}),
        ),
        ('{"id": "gzip", "level": 9, "new": true}', codecs.NumcodecsCodec("gzip", {"level": 9, "new": True})),
    ],
)
def test_configurations_round_trip_byte_for_byte(text: str, spec: codecs.CodecSpec) -> None:
    assert from_v2(json.loads(text)) == spec
    assert json.dumps(spec.to_v2(), sort_keys=True) == text


@pytest.mark.parametrize(
    ("config", "spec"),
    [
        ({"id": "blosc"}, codecs.BloscCodec("lz4", 5, "shuffle")),
        ({"id": "zstd"}, codecs.ZstdCodec(0)),
        ({"id": "gzip"}, codecs.GzipCodec(1)),
    ],
)
def test_missing_fields_mean_what_numcodecs_takes_for_them(config: dict, spec: codecs.CodecSpec) -> None:
    assert from_v2(config) == spec
    assert numcodecs.get_codec(config) == to_numcodecs(spec)


@dataclass(frozen=True, slots=True)
class Squeeze(CompressorSpec):
    level: int = 3

    name = "example.squeeze"
    v2_id = "squeeze"
    v2_fields: ClassVar[Mapping[str, Any]] = {"level": 7}


def test_a_registered_spec_is_found_by_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SPECS, "squeeze", Squeeze)
    assert from_v2({"id": "squeeze"}) == Squeeze(7)
    assert from_v2(Squeeze(2).to_v2()) == codecs.parse_codec(to_numcodecs(Squeeze(2))) == Squeeze(2)
    with pytest.raises(MetadataError, match="unknown configuration field 'speed'"):
        from_v2({"id": "squeeze", "speed": 1})


def test_an_object_that_only_shows_a_configuration_runs_nothing() -> None:
    codec = to_numcodecs(Squeeze())
    assert (codec.codec_id, codec.get_config(), repr(codec)) == (
        "squeeze",
        {"id": "squeeze", "level": 3},
        "Squeeze(level=3)",
    )
    assert codec == to_numcodecs(Squeeze())
    for function in (codec.encode, codec.decode):
        with pytest.raises(UnknownCodecError, match="only arrays opened with gzarr"):
            function(b"")
