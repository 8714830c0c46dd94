"""zarr-python's enumerations stand for strings."""

import pytest

from gzarr import codecs


def test_members_are_the_strings_in_fields_and_json() -> None:
    blosc = codecs.BloscCodec(cname=codecs.BloscCname.lz4, shuffle=codecs.BloscShuffle.bitshuffle)
    assert blosc == codecs.BloscCodec(cname="lz4", shuffle="bitshuffle")
    assert type(blosc.cname) is type(blosc.shuffle) is str
    assert repr(codecs.BytesCodec(codecs.Endian.big)) == "BytesCodec(endian='big')"
    sharding = codecs.ShardingCodec((2,), index_location=codecs.ShardingCodecIndexLocation.start)
    assert type(sharding.configuration()["index_location"]) is str


def test_members_are_found_as_zarr_python_finds_them() -> None:
    assert codecs.BloscShuffle("shuffle") is codecs.BloscShuffle["shuffle"] is codecs.BloscShuffle.from_int(1)
    assert codecs.BloscCname.zstd.value == "zstd"
    with pytest.raises(ValueError, match="-1"):
        codecs.BloscShuffle.from_int(-1)
