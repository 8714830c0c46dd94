"""The spec of shards: the codecs within, what they resolve to, and what cannot be a shard."""

import json

import numcodecs
import numpy as np
import pytest

from gzarr.codecs import (
    ArrayRepr,
    BloscCodec,
    BytesCodec,
    BytesRepr,
    Crc32cCodec,
    GzipCodec,
    NumcodecsCodec,
    ShardingCodec,
    parse_codec,
)
from gzarr.errors import MetadataError

I4 = ArrayRepr(np.dtype("<i4"), (4, 6))


def test_sharding_accepts_codecs_in_every_form() -> None:
    spec = ShardingCodec(
        chunk_shape=[2, 3],
        codecs=[BytesCodec("big"), {"name": "gzip", "configuration": {"level": 1}}, numcodecs.BZ2(2)],
    )
    assert spec.chunk_shape == (2, 3)
    assert spec.codecs == (BytesCodec("big"), GzipCodec(1), NumcodecsCodec("bz2", {"level": 2}))
    assert hash(spec) == hash(parse_codec(json.loads(json.dumps(spec.to_json()))))


def test_sharding_resolves_both_inner_chains() -> None:
    spec, encoded = ShardingCodec((2, 3), codecs=[BloscCodec()], index_codecs=[Crc32cCodec()]).resolve(I4)
    assert spec.codecs == (BytesCodec("little"), BloscCodec(shuffle="shuffle", typesize=4))
    assert spec.index_codecs == (BytesCodec("little"), Crc32cCodec())
    assert encoded == BytesRepr()
    assert spec.index_repr(I4.shape).shape == (2, 2, 2)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (ShardingCodec((3, 3)), "does not divide"),
        (ShardingCodec((2,)), "dimensions"),
        (ShardingCodec((2, 3), index_codecs=[GzipCodec()]), "not fixed"),
        (ShardingCodec((2, 3), codecs=[ShardingCodec((3, 3))]), "does not divide"),
    ],
)
def test_sharding_refuses_what_cannot_be_a_shard(spec: ShardingCodec, words: str) -> None:
    with pytest.raises(MetadataError, match=words):
        spec.resolve(I4)
