"""The spec of shards: the codecs within, what they resolve to, and what cannot be a shard."""

import json

import numcodecs
import numpy as np
import pytest

from gzarr import codecs
from gzarr.errors import MetadataError

I4 = codecs.ArrayRepr(np.dtype("<i4"), (4, 6))


def test_sharding_accepts_codecs_in_every_form() -> None:
    spec = codecs.ShardingCodec(
        chunk_shape=[2, 3],
        codecs=[codecs.BytesCodec("big"), {"name": "gzip", "configuration": {"level": 1}}, numcodecs.BZ2(2)],
    )
    assert spec.chunk_shape == (2, 3)
    assert spec.codecs == (codecs.BytesCodec("big"), codecs.GzipCodec(1), codecs.NumcodecsCodec("bz2", {"level": 2}))
    assert hash(spec) == hash(codecs.parse_codec(json.loads(json.dumps(spec.to_json()))))


def test_sharding_resolves_both_inner_chains() -> None:
    spec, encoded = codecs.ShardingCodec(
        (2, 3), codecs=[codecs.BloscCodec()], index_codecs=[codecs.Crc32cCodec()]
    ).resolve(I4)
    assert spec.codecs == (codecs.BytesCodec("little"), codecs.BloscCodec(shuffle="shuffle", typesize=4))
    assert spec.index_codecs == (codecs.BytesCodec("little"), codecs.Crc32cCodec())
    assert encoded == codecs.BytesRepr()
    assert spec.index_repr(I4.shape).shape == (2, 2, 2)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (codecs.ShardingCodec((3, 3)), "does not divide"),
        (codecs.ShardingCodec((2,)), "dimensions"),
        (codecs.ShardingCodec((2, 3), index_codecs=[codecs.GzipCodec()]), "not fixed"),
        (codecs.ShardingCodec((2, 3), codecs=[codecs.ShardingCodec((3, 3))]), "does not divide"),
    ],
)
def test_sharding_refuses_what_cannot_be_a_shard(spec: codecs.ShardingCodec, words: str) -> None:
    with pytest.raises(MetadataError, match=words):
        spec.resolve(I4)
