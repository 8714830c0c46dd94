"""Codecs of zarr-python are taken as they are, and resolve as there. `test_exchange` has the chunks that they make."""

import json

import numpy as np
import pytest

from gzarr.codecs import (
    ArrayRepr,
    BloscCodec,
    ShardingCodec,
    parse_codec,
)
from gzarr.codecs.chain import complete

zarr = pytest.importorskip("zarr", minversion="3.1")

# zarr-python warns that its numcodecs codecs are outside the specification, and that vlen codecs may change
pytestmark = [
    pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3"),
    pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning"),
    pytest.mark.filterwarnings("ignore:The codec `vlen"),
]


@pytest.mark.parametrize(
    "codec",
    [
        lambda: zarr.codecs.BloscCodec(cname="lz4", clevel=3, shuffle="shuffle", typesize=4),
        lambda: zarr.codecs.ZstdCodec(level=3, checksum=True),
        lambda: zarr.codecs.GzipCodec(level=3),
        lambda: zarr.codecs.BytesCodec(endian="big"),
        lambda: zarr.codecs.TransposeCodec(order=(1, 0)),
        zarr.codecs.Crc32cCodec,
        zarr.codecs.VLenUTF8Codec,
        lambda: zarr.codecs.numcodecs.Delta(dtype="<i4"),
        lambda: zarr.codecs.ShardingCodec(
            chunk_shape=(2, 2), codecs=[zarr.codecs.BytesCodec(), zarr.codecs.GzipCodec()]
        ),
    ],
)
def test_codec_objects_are_taken_as_they_are(codec) -> None:
    theirs = codec()
    want = json.loads(json.dumps(theirs.to_dict()))
    if want.get("configuration") == {}:
        del want["configuration"]  # they write an empty one for the vlen codecs only
    assert parse_codec(theirs).to_json() == want
    assert parse_codec(want).to_json() == want


def test_what_a_blosc_object_leaves_open_stays_open() -> None:
    assert parse_codec(zarr.codecs.BloscCodec(cname="lz4")) == BloscCodec("lz4")


@pytest.mark.parametrize("dtype", ["int8", "int32", "float64", "bool", "complex128", "datetime64[s]"])
def test_blosc_resolves_like_theirs(dtype: str) -> None:
    array = zarr.create_array({}, shape=(4,), chunks=(4,), dtype=dtype, compressors=[zarr.codecs.BloscCodec()])
    want = array.metadata.codecs[-1].to_dict()
    ours = complete([BloscCodec()], ArrayRepr(np.dtype(dtype), (4,)))
    assert ours[-1].to_json() == want
    assert [spec.to_json() for spec in ours] == [codec.to_dict() for codec in array.metadata.codecs]


def test_shard_metadata_is_written_like_theirs() -> None:
    array = zarr.create_array(
        {}, shape=(8, 8), chunks=(2, 4), shards=(8, 8), dtype="int16", compressors=[zarr.codecs.BloscCodec()]
    )
    (want,) = json.loads(json.dumps([codec.to_dict() for codec in array.metadata.codecs]))
    (ours,) = complete([ShardingCodec((2, 4), codecs=[BloscCodec()])], ArrayRepr(np.dtype("i2"), (8, 8)))
    assert ours.to_json() == want
