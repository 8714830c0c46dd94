"""zarr-python's enumerations stand for strings."""

import pytest

from gzarr.codecs import (
    BloscCname,
    BloscCodec,
    BloscShuffle,
    BytesCodec,
    Endian,
    ShardingCodec,
    ShardingCodecIndexLocation,
)


def test_members_are_the_strings_in_fields_and_json() -> None:
    blosc = BloscCodec(cname=BloscCname.lz4, shuffle=BloscShuffle.bitshuffle)
    assert blosc == BloscCodec(cname="lz4", shuffle="bitshuffle")
    assert type(blosc.cname) is type(blosc.shuffle) is str
    assert repr(BytesCodec(Endian.big)) == "BytesCodec(endian='big')"
    sharding = ShardingCodec((2,), index_location=ShardingCodecIndexLocation.start)
    assert type(sharding.configuration()["index_location"]) is str


def test_members_are_found_as_zarr_python_finds_them() -> None:
    assert BloscShuffle("shuffle") is BloscShuffle["shuffle"] is BloscShuffle.from_int(1)
    assert BloscCname.zstd.value == "zstd"
    with pytest.raises(ValueError, match="-1"):
        BloscShuffle.from_int(-1)
