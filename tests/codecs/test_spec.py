"""Specs: what they accept, what they refuse, and how they read."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from gzarr import codecs
from gzarr.codecs.spec import CompressorSpec
from gzarr.errors import MetadataError


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: codecs.BloscCodec(cname="gzip"), ["cname", "'gzip'", "lz4hc", "blosclz", "snappy", "zlib", "zstd"]),
        (lambda: codecs.BloscCodec(clevel=10), ["clevel", "between 0 and 9"]),
        (lambda: codecs.BloscCodec(clevel=True), ["clevel", "integer"]),
        (lambda: codecs.BloscCodec(clevel="5"), ["clevel", "integer"]),
        (lambda: codecs.BloscCodec(shuffle="bits"), ["shuffle", "'noshuffle', 'shuffle', 'bitshuffle'"]),
        (lambda: codecs.BloscCodec(shuffle=3), ["shuffle", "between -1 and 2"]),
        (lambda: codecs.BloscCodec(shuffle=False), ["shuffle"]),
        (lambda: codecs.BloscCodec(typesize=0), ["typesize", "at least 1"]),
        (lambda: codecs.BloscCodec(blocksize=-1), ["blocksize"]),
        (lambda: codecs.GzipCodec(level=10), ["gzip", "level", "between 0 and 9"]),
        (lambda: codecs.ZstdCodec(level=23), ["zstd", "level", "22"]),
        (lambda: codecs.ZstdCodec(checksum=1), ["checksum", "true or false"]),
        (lambda: codecs.BytesCodec("middle"), ["endian", "'little', 'big'"]),
        (lambda: codecs.TransposeCodec((0, 0)), ["order", "permutation"]),
        (lambda: codecs.TransposeCodec((1, 2)), ["order", "permutation"]),
        (lambda: codecs.TransposeCodec("A"), ["order"]),
        (lambda: codecs.TransposeCodec((0.0, 1)), ["order", "integer"]),
        (lambda: codecs.ShardingCodec((0, 2)), ["chunk_shape", "at least 1"]),
        (lambda: codecs.ShardingCodec("2"), ["chunk_shape"]),
        (lambda: codecs.ShardingCodec((2,), codecs="bytes"), ["codecs", "list"]),
        (lambda: codecs.ShardingCodec((2,), index_location="middle"), ["index_location", "'start', 'end'"]),
        (lambda: codecs.CastValueCodec("complex64"), ["data_type", "uint8"]),
        (lambda: codecs.CastValueCodec("int8", rounding="up"), ["rounding", "nearest-even"]),
        (lambda: codecs.CastValueCodec("int8", out_of_range="saturate"), ["out_of_range", "clamp"]),
        (lambda: codecs.CastValueCodec("float32", out_of_range="wrap"), ["wrap", "integers"]),
        (lambda: codecs.CastValueCodec("int8", scalar_map={"encode": [1]}), ["scalar_map", "pairs"]),
        (lambda: codecs.CastValueCodec("int8", scalar_map={"both": []}), ["both"]),
        (lambda: codecs.ScaleOffsetCodec(scale=0), ["scale", "zero"]),
        (lambda: codecs.ScaleOffsetCodec(offset=[1]), ["offset", "number"]),
        (lambda: codecs.NumcodecsCodec(""), ["id"]),
        (lambda: codecs.NumcodecsCodec("delta", {"dtype": object()}), ["numcodecs.delta", "JSON"]),
        (lambda: codecs.NumcodecsCodec("delta", "[1]"), ["numcodecs.delta", "object"]),
        (lambda: codecs.NumcodecsCodec("delta", {"id": "zlib"}), ["numcodecs.delta", "zlib"]),
    ],
)
def test_bad_arguments_are_refused_with_what_is_allowed(make, words: list[str]) -> None:
    with pytest.raises(MetadataError) as caught:
        make()
    for word in words:
        assert word in str(caught.value)


def test_reprs_read_like_constructor_calls() -> None:
    for spec in (
        codecs.BloscCodec("lz4", shuffle=1, typesize=4),
        codecs.ShardingCodec((2, 2), codecs=[codecs.BytesCodec("big"), codecs.GzipCodec(1)]),
        codecs.CastValueCodec("uint8", scalar_map={"encode": [["NaN", 0]]}),
        codecs.NumcodecsCodec("delta", {"dtype": "<i4"}),
        codecs.Crc32cCodec(),
    ):
        assert eval(repr(spec), vars(codecs)) == spec
    assert repr(codecs.GzipCodec()) == "GzipCodec(level=5)"
    assert (
        repr(codecs.NumcodecsCodec("delta", {"dtype": "<i4"})) == "NumcodecsCodec(id='delta', config={'dtype': '<i4'})"
    )


# -- what comes out ------------------------------------------------------------------------------------------------


def test_fill_values_are_encoded_like_elements() -> None:
    _, cast = codecs.CastValueCodec("uint8", scalar_map={"encode": [["NaN", 255]]}).resolve(
        codecs.ArrayRepr(np.dtype("<f4"), (3,), np.float32("nan"))
    )
    assert (cast.dtype, cast.fill_value) == (np.dtype("u1"), 255)
    _, scaled = codecs.ScaleOffsetCodec(10, 2).resolve(codecs.ArrayRepr(np.dtype(">i2"), (3,), np.int16(13)))
    assert (scaled.dtype, scaled.fill_value) == (np.dtype(">i2"), 6)


@pytest.mark.parametrize(
    ("spec", "chunk"),
    [
        (codecs.CastValueCodec("uint8"), codecs.ArrayRepr(np.dtype("<f4"), (3,), np.float32("nan"))),
        (codecs.CastValueCodec("uint8"), codecs.ArrayRepr(np.dtype("<i4"), (3,), np.int32(-1))),
        (codecs.ScaleOffsetCodec(1), codecs.ArrayRepr(np.dtype("u1"), (3,), np.uint8(0))),
    ],
)
def test_a_fill_value_that_cannot_be_encoded_is_refused(spec, chunk) -> None:
    with pytest.raises(MetadataError, match="fill value"):
        spec.resolve(chunk)


@pytest.mark.parametrize(
    ("spec", "dtype", "words"),
    [
        (codecs.CastValueCodec("uint8"), "?", "cast from"),
        (codecs.CastValueCodec("uint8"), "<c8", "cast from"),
        (codecs.CastValueCodec("uint8", scalar_map={"decode": [[256, 1]]}), "<i4", "256"),
        (codecs.CastValueCodec("uint8", scalar_map={"decode": [[0, "NaN"]]}), "<i4", "NaN"),
        (codecs.ScaleOffsetCodec(), "?", "integers and floats"),
        (codecs.ScaleOffsetCodec(300), "u1", "300"),
        (codecs.ScaleOffsetCodec(0.5), "<i4", "0.5"),
        (codecs.ScaleOffsetCodec(0, "0x0000"), "<f2", "zero"),
        (codecs.ScaleOffsetCodec("0x00"), "<f2", "hexadecimal"),
        (codecs.NumcodecsCodec("packbits"), "u1", "booleans"),
        (codecs.NumcodecsCodec("zfpy"), "u1", "float64"),
        (codecs.NumcodecsCodec("pcodec"), "?", "uint16"),
        (codecs.NumcodecsCodec("delta", {"astype": "what"}), "<i4", "astype"),
    ],
)
def test_dtypes_that_a_codec_cannot_encode_are_refused(spec, dtype: str, words: str) -> None:
    with pytest.raises(MetadataError, match=words):
        spec.resolve(codecs.ArrayRepr(np.dtype(dtype), (3,)))


def test_scalars_of_numpy_are_stored_as_json() -> None:
    assert codecs.ScaleOffsetCodec(np.float32(0.5), np.int64(3)).configuration() == {"offset": 0.5, "scale": 3}
    assert codecs.ShardingCodec(np.int64(4)).configuration()["chunk_shape"] == [4]


@pytest.mark.parametrize("spec", [codecs.VLenUTF8Codec(), codecs.NumcodecsCodec("zfpy")])
def test_codecs_of_one_sort_of_array_refuse_others(spec) -> None:
    dtype = "<f4" if isinstance(spec, codecs.VLenUTF8Codec) else "<c8"
    with pytest.raises(MetadataError, match=dtype[1]):
        spec.resolve(codecs.ArrayRepr(np.dtype(dtype), (3,)))
    if isinstance(spec, codecs.NumcodecsCodec):
        with pytest.raises(MetadataError, match="1 to 4 dimensions"):
            spec.resolve(codecs.ArrayRepr(np.dtype("<f4"), ()))


def test_a_spec_has_its_json_from_its_fields() -> None:
    @dataclass(frozen=True, slots=True)
    class Tagged(CompressorSpec):
        key: int
        tags: list[str] = field(default_factory=list)

        name = "example.tagged"

    spec = Tagged.from_json({"key": 7})
    assert spec == Tagged(7, [])
    assert Tagged.from_json(spec.configuration()) == spec
    assert spec.to_json() == {"name": "example.tagged", "configuration": {"key": 7, "tags": []}}
    with pytest.raises(MetadataError, match="field 'key' is missing"):
        Tagged.from_json({})
    with pytest.raises(MetadataError, match="unknown configuration field 'lock'; known fields: 'key', 'tags'"):
        Tagged.from_json({"key": 7, "lock": 1})


@pytest.mark.parametrize(
    ("given", "kept"),
    [(0, "noshuffle"), (1, "shuffle"), (np.int64(2), "bitshuffle"), (-1, None), ("auto", None), (None, None)],
)
def test_blosc_takes_every_spelling_of_the_shuffle(given, kept) -> None:
    assert codecs.BloscCodec(shuffle=given).shuffle == kept


@pytest.mark.parametrize(("itemsize", "shuffle"), [(1, "bitshuffle"), (2, "shuffle"), (8, "shuffle")])
def test_blosc_takes_what_it_leaves_open_from_the_elements(itemsize: int, shuffle: str) -> None:
    spec, _ = codecs.BloscCodec().resolve(codecs.BytesRepr(80, itemsize))
    assert (spec.typesize, spec.shuffle) == (itemsize, shuffle)
    kept, _ = codecs.BloscCodec(shuffle="noshuffle", typesize=3).resolve(codecs.BytesRepr(80, itemsize))
    assert (kept.typesize, kept.shuffle) == (3, "noshuffle")
