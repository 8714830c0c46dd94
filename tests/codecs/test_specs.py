"""Specs: what they accept, what they refuse, and how they read."""

import importlib
import json
from dataclasses import FrozenInstanceError

import numcodecs
import numpy as np
import pytest

from gzarr.codecs import (
    ArrayRepr,
    BloscCodec,
    BytesCodec,
    BytesRepr,
    CastValueCodec,
    Crc32cCodec,
    GzipCodec,
    NumcodecsCodec,
    ScaleOffsetCodec,
    ShardingCodec,
    TransposeCodec,
    VLenUTF8Codec,
    ZstdCodec,
    parse_codec,
)
from gzarr.errors import MetadataError, UnknownCodecError

I4 = ArrayRepr(np.dtype("<i4"), (4, 6))


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("blosc", "BloscCodec"),
        ("bytes", "BytesCodec"),
        ("gzip", "GzipCodec"),
        ("zstd", "ZstdCodec"),
        ("sharding", "ShardingCodec"),
        ("transpose", "TransposeCodec"),
        ("crc32c", "Crc32cCodec"),
        ("vlen", "VLenUTF8Codec"),
        ("cast_value", "CastValueCodec"),
        ("scale_offset", "ScaleOffsetCodec"),
        ("numcodecs", "NumcodecsCodec"),
    ],
)
def test_specs_are_importable_from_their_module_and_from_the_package(module: str, name: str) -> None:
    package = importlib.import_module("gzarr.codecs")
    assert getattr(package, name) is getattr(importlib.import_module(f"gzarr.codecs.{module}"), name)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: BloscCodec(cname="gzip"), ["cname", "'gzip'", "lz4hc", "blosclz", "snappy", "zlib", "zstd"]),
        (lambda: BloscCodec(clevel=10), ["clevel", "between 0 and 9"]),
        (lambda: BloscCodec(clevel=True), ["clevel", "integer"]),
        (lambda: BloscCodec(clevel="5"), ["clevel", "integer"]),
        (lambda: BloscCodec(shuffle="bits"), ["shuffle", "'noshuffle', 'shuffle', 'bitshuffle'"]),
        (lambda: BloscCodec(shuffle=3), ["shuffle", "between -1 and 2"]),
        (lambda: BloscCodec(shuffle=False), ["shuffle"]),
        (lambda: BloscCodec(typesize=0), ["typesize", "at least 1"]),
        (lambda: BloscCodec(blocksize=-1), ["blocksize"]),
        (lambda: GzipCodec(level=10), ["gzip", "level", "between 0 and 9"]),
        (lambda: ZstdCodec(level=23), ["zstd", "level", "22"]),
        (lambda: ZstdCodec(checksum=1), ["checksum", "true or false"]),
        (lambda: BytesCodec("middle"), ["endian", "'little', 'big'"]),
        (lambda: TransposeCodec((0, 0)), ["order", "permutation"]),
        (lambda: TransposeCodec((1, 2)), ["order", "permutation"]),
        (lambda: TransposeCodec("A"), ["order"]),
        (lambda: TransposeCodec((0.0, 1)), ["order", "integer"]),
        (lambda: ShardingCodec((0, 2)), ["chunk_shape", "at least 1"]),
        (lambda: ShardingCodec("2"), ["chunk_shape"]),
        (lambda: ShardingCodec((2,), codecs="bytes"), ["codecs", "list"]),
        (lambda: ShardingCodec((2,), index_location="middle"), ["index_location", "'start', 'end'"]),
        (lambda: CastValueCodec("complex64"), ["data_type", "uint8"]),
        (lambda: CastValueCodec("int8", rounding="up"), ["rounding", "nearest-even"]),
        (lambda: CastValueCodec("int8", out_of_range="saturate"), ["out_of_range", "clamp"]),
        (lambda: CastValueCodec("float32", out_of_range="wrap"), ["wrap", "integers"]),
        (lambda: CastValueCodec("int8", scalar_map={"encode": [1]}), ["scalar_map", "pairs"]),
        (lambda: CastValueCodec("int8", scalar_map={"both": []}), ["both"]),
        (lambda: ScaleOffsetCodec(scale=0), ["scale", "zero"]),
        (lambda: ScaleOffsetCodec(offset=[1]), ["offset", "number"]),
        (lambda: NumcodecsCodec(""), ["id"]),
        (lambda: NumcodecsCodec("delta", {"dtype": object()}), ["numcodecs.delta", "JSON"]),
        (lambda: NumcodecsCodec("delta", "[1]"), ["numcodecs.delta", "object"]),
        (lambda: NumcodecsCodec("delta", {"id": "zlib"}), ["numcodecs.delta", "zlib"]),
    ],
)
def test_bad_arguments_are_refused_with_what_is_allowed(make, words: list[str]) -> None:
    with pytest.raises(MetadataError) as caught:
        make()
    for word in words:
        assert word in str(caught.value)


def test_specs_cannot_be_changed() -> None:
    spec = GzipCodec()
    with pytest.raises(FrozenInstanceError):
        spec.level = 3
    assert not hasattr(spec, "__dict__")


@pytest.mark.parametrize(
    ("given", "kept"),
    [(0, "noshuffle"), (1, "shuffle"), (np.int64(2), "bitshuffle"), (-1, None), ("auto", None), (None, None)],
)
def test_blosc_takes_every_spelling_of_the_shuffle(given, kept) -> None:
    assert BloscCodec(shuffle=given).shuffle == kept


@pytest.mark.parametrize(("itemsize", "shuffle"), [(1, "bitshuffle"), (2, "shuffle"), (8, "shuffle")])
def test_blosc_takes_what_it_leaves_open_from_the_elements(itemsize: int, shuffle: str) -> None:
    spec, _ = BloscCodec().resolve(BytesRepr(80, itemsize))
    assert (spec.typesize, spec.shuffle) == (itemsize, shuffle)
    kept, _ = BloscCodec(shuffle="noshuffle", typesize=3).resolve(BytesRepr(80, itemsize))
    assert (kept.typesize, kept.shuffle) == (3, "noshuffle")


@pytest.mark.parametrize(
    ("endian", "dtype", "resolved"),
    [
        ("little", "<i4", "little"),
        ("big", "<i4", "big"),
        (None, "<i4", "little"),
        (None, ">i4", "big"),
        ("little", "u1", None),
        ("big", "?", None),
        ("little", "S5", None),
        (None, ">U3", "big"),
        (None, ">M8[s]", "big"),
        ("little", [("a", "u1"), ("b", "S2")], None),
        (None, [("a", "u1"), ("b", ">i2")], "big"),
        (None, [("a", "<i2"), ("b", ">i2")], None),
        ("big", [("a", "<i2"), ("b", [("c", "<f4", (2,))])], "big"),
    ],
)
def test_bytes_resolves_the_byte_order_of_the_dtype(endian, dtype, resolved) -> None:
    spec, encoded = BytesCodec(endian).resolve(ArrayRepr(np.dtype(dtype), (3,)))
    assert spec.endian == resolved
    assert encoded == BytesRepr(3 * np.dtype(dtype).itemsize, np.dtype(dtype).itemsize)


def test_bytes_refuses_objects_and_says_what_can_encode_them() -> None:
    with pytest.raises(MetadataError, match="VLenUTF8Codec"):
        BytesCodec().resolve(ArrayRepr(np.dtype("O"), (3,)))


@pytest.mark.parametrize(("order", "resolved"), [("C", (0, 1)), ("F", (1, 0)), ([1, 0], (1, 0))])
def test_transpose_resolves_to_a_permutation(order, resolved) -> None:
    spec, encoded = TransposeCodec(order).resolve(I4)
    assert spec.order == resolved
    assert encoded.shape == tuple(I4.shape[axis] for axis in resolved)
    with pytest.raises(MetadataError, match="dimensions"):
        TransposeCodec((0, 1, 2)).resolve(I4)


@pytest.mark.parametrize(
    ("document", "spec"),
    [
        ("crc32c", Crc32cCodec()),
        ("bytes", BytesCodec(None)),
        ({"name": "crc32c"}, Crc32cCodec()),
        ({"name": "crc32c", "configuration": {}}, Crc32cCodec()),
        ({"name": "crc32c", "configuration": None}, Crc32cCodec()),
        ({"name": "bytes", "configuration": {"endian": "big"}, "must_understand": True}, BytesCodec("big")),
        ({"name": "endian", "configuration": {"endian": "little"}}, BytesCodec("little")),
        ({"name": "gzip", "configuration": {"level": 1}}, GzipCodec(1)),
        ({"name": "zstd", "configuration": {"level": 3}}, ZstdCodec(3)),
        (
            {"name": "blosc", "configuration": {"cname": "lz4", "clevel": 1, "shuffle": "noshuffle", "blocksize": 0}},
            BloscCodec("lz4", 1, "noshuffle"),
        ),
        ({"name": "transpose", "configuration": {"order": "F"}}, TransposeCodec("F")),
        ({"name": "numcodecs.bz2", "configuration": {"level": 2}}, NumcodecsCodec("bz2", {"level": 2})),
        ({"name": "numcodecs.packbits"}, NumcodecsCodec("packbits")),
        ({"id": "blosc", "cname": "zstd", "clevel": 3, "shuffle": 2, "blocksize": 0}, BloscCodec("zstd", 3, 2)),
        ({"id": "zlib", "level": 4}, NumcodecsCodec("zlib", {"level": 4})),
        (numcodecs.Blosc("zstd", 3, 2), BloscCodec("zstd", 3, "bitshuffle")),
        (numcodecs.Zstd(7), ZstdCodec(7)),
        (numcodecs.GZip(7), GzipCodec(7)),
        (numcodecs.CRC32C(), NumcodecsCodec("crc32c")),
        (numcodecs.VLenUTF8(), VLenUTF8Codec()),
        (numcodecs.Delta("<i4", "<i2"), NumcodecsCodec("delta", {"dtype": "<i4", "astype": "<i2"})),
        (GzipCodec(3), GzipCodec(3)),
    ],
)
def test_every_way_to_name_a_codec_is_understood(document, spec) -> None:
    assert parse_codec(document) == spec


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
        parse_codec(document)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("extra", [{}, {"must_understand": False}, {"must_understand": True}])
def test_an_unknown_codec_is_an_error_whatever_must_understand_says(extra: dict) -> None:
    with pytest.raises(UnknownCodecError, match=r"'lzw'.*gzarr.register_codec"):
        parse_codec({"name": "lzw"} | extra)


def test_reprs_read_like_constructor_calls() -> None:
    for spec in (
        BloscCodec("lz4", shuffle=1, typesize=4),
        ShardingCodec((2, 2), codecs=[BytesCodec("big"), GzipCodec(1)]),
        CastValueCodec("uint8", scalar_map={"encode": [["NaN", 0]]}),
        NumcodecsCodec("delta", {"dtype": "<i4"}),
        Crc32cCodec(),
    ):
        assert eval(repr(spec)) == spec
    assert repr(GzipCodec()) == "GzipCodec(level=5)"
    assert repr(NumcodecsCodec("delta", {"dtype": "<i4"})) == "NumcodecsCodec(id='delta', config={'dtype': '<i4'})"


# -- sharding ----------------------------------------------------------------------------------------------------


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


def test_nested_sharding_round_trips() -> None:
    spec, _ = ShardingCodec((4, 3), codecs=[ShardingCodec((2, 1), index_location="start")]).resolve(I4)
    assert parse_codec(json.loads(json.dumps(spec.to_json()))) == spec


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


# -- what comes out ------------------------------------------------------------------------------------------------


def test_fill_values_are_encoded_like_elements() -> None:
    _, cast = CastValueCodec("uint8", scalar_map={"encode": [["NaN", 255]]}).resolve(
        ArrayRepr(np.dtype("<f4"), (3,), np.float32("nan"))
    )
    assert (cast.dtype, cast.fill_value) == (np.dtype("u1"), 255)
    _, scaled = ScaleOffsetCodec(10, 2).resolve(ArrayRepr(np.dtype(">i2"), (3,), np.int16(13)))
    assert (scaled.dtype, scaled.fill_value) == (np.dtype(">i2"), 6)


@pytest.mark.parametrize(
    ("spec", "chunk"),
    [
        (CastValueCodec("uint8"), ArrayRepr(np.dtype("<f4"), (3,), np.float32("nan"))),
        (CastValueCodec("uint8"), ArrayRepr(np.dtype("<i4"), (3,), np.int32(-1))),
        (ScaleOffsetCodec(1), ArrayRepr(np.dtype("u1"), (3,), np.uint8(0))),
    ],
)
def test_a_fill_value_that_cannot_be_encoded_is_refused(spec, chunk) -> None:
    with pytest.raises(MetadataError, match="fill value"):
        spec.resolve(chunk)


@pytest.mark.parametrize(
    ("spec", "dtype", "words"),
    [
        (CastValueCodec("uint8"), "?", "cast from"),
        (CastValueCodec("uint8"), "<c8", "cast from"),
        (CastValueCodec("uint8", scalar_map={"decode": [[256, 1]]}), "<i4", "256"),
        (CastValueCodec("uint8", scalar_map={"decode": [[0, "NaN"]]}), "<i4", "NaN"),
        (ScaleOffsetCodec(), "?", "integers and floats"),
        (ScaleOffsetCodec(300), "u1", "300"),
        (ScaleOffsetCodec(0.5), "<i4", "0.5"),
        (ScaleOffsetCodec(0, "0x0000"), "<f2", "zero"),
        (ScaleOffsetCodec("0x00"), "<f2", "hexadecimal"),
        (NumcodecsCodec("packbits"), "u1", "booleans"),
        (NumcodecsCodec("zfpy"), "u1", "float64"),
        (NumcodecsCodec("pcodec"), "?", "uint16"),
        (NumcodecsCodec("delta", {"astype": "what"}), "<i4", "astype"),
    ],
)
def test_dtypes_that_a_codec_cannot_encode_are_refused(spec, dtype: str, words: str) -> None:
    with pytest.raises(MetadataError, match=words):
        spec.resolve(ArrayRepr(np.dtype(dtype), (3,)))


@pytest.mark.parametrize(
    ("spec", "dtype", "encoded"),
    [
        (NumcodecsCodec("delta", {"astype": "<i2"}), "<i4", ArrayRepr(np.dtype("<i2"), (4, 6))),
        (NumcodecsCodec("delta"), ">i4", ArrayRepr(np.dtype(">i4"), (4, 6), 7)),
        (NumcodecsCodec("astype", {"encode_dtype": "<f8"}), "<i4", ArrayRepr(np.dtype("<f8"), (4, 6))),
        (NumcodecsCodec("categorize", {"labels": ["a"]}), "O", ArrayRepr(np.dtype("u1"), (4, 6))),
        (NumcodecsCodec("packbits"), "?", ArrayRepr(np.dtype("u1"), (4,))),
        (NumcodecsCodec("vlen-array", {"dtype": "<i4"}), "O", BytesRepr()),
        (NumcodecsCodec("somebodys"), "<i4", BytesRepr()),
    ],
)
def test_numcodecs_announce_what_comes_out(spec, dtype: str, encoded) -> None:
    assert spec.resolve(ArrayRepr(np.dtype(dtype), (4, 6), 7))[1] == encoded


def test_numcodecs_fill_in_what_zarr_python_fills_in() -> None:
    chunk = ArrayRepr(np.dtype(">f4"), (4,))
    for id, field in (
        ("delta", "dtype"),
        ("quantize", "dtype"),
        ("fixedscaleoffset", "dtype"),
        ("astype", "decode_dtype"),
    ):
        given = {"encode_dtype": "<f8"} if id == "astype" else {}
        assert NumcodecsCodec(id, given).resolve(chunk)[0].configuration() == given | {field: ">f4"}
    spec, encoded = NumcodecsCodec("shuffle").resolve(BytesRepr(16, 4))
    assert spec.configuration() == {"elementsize": 4}
    assert encoded == BytesRepr(16)
    assert NumcodecsCodec("shuffle", {"elementsize": 2}).resolve(BytesRepr(16, 4))[0].configuration() == {
        "elementsize": 2
    }


def test_numcodecs_compare_by_content_and_write_in_the_order_given() -> None:
    one, two = NumcodecsCodec("x", {"b": 1, "a": [2]}), NumcodecsCodec("x", '{"a": [2], "b": 1}')
    assert one == two
    assert hash(one) == hash(two)
    assert list(one.configuration()) == ["b", "a"]
    assert one != NumcodecsCodec("x", {"b": 1})
    assert one != NumcodecsCodec("y", {"b": 1, "a": [2]})


def test_hexadecimal_scalars_are_bit_patterns() -> None:
    spec = ScaleOffsetCodec("0x3fc00000", "2")
    assert spec.scalars(np.dtype("<f4")) == (np.float32(1.5), np.float32(2))


@pytest.mark.parametrize(
    "data_type", ["uint8", np.uint8, np.dtype("u1"), {"name": "uint8"}, {"name": "uint8", "configuration": {}}]
)
def test_cast_value_takes_every_spelling_of_a_data_type(data_type) -> None:
    assert CastValueCodec(data_type).configuration() == {"data_type": "uint8"}


@pytest.mark.parametrize(
    "data_type", [3.5, {"name": "uint8", "configuration": {"a": 1}}, {"id": "uint8"}, "S3", np.bool_]
)
def test_cast_value_refuses_what_is_no_number_type(data_type) -> None:
    with pytest.raises(MetadataError, match="cast_value"):
        CastValueCodec(data_type)


def test_scalars_of_numpy_are_stored_as_json() -> None:
    assert ScaleOffsetCodec(np.float32(0.5), np.int64(3)).configuration() == {"offset": 0.5, "scale": 3}
    assert ShardingCodec(np.int64(4)).configuration()["chunk_shape"] == [4]


@pytest.mark.parametrize("spec", [VLenUTF8Codec(), NumcodecsCodec("zfpy")])
def test_codecs_of_one_sort_of_array_refuse_others(spec) -> None:
    dtype = "<f4" if isinstance(spec, VLenUTF8Codec) else "<c8"
    with pytest.raises(MetadataError, match=dtype[1]):
        spec.resolve(ArrayRepr(np.dtype(dtype), (3,)))
    if isinstance(spec, NumcodecsCodec):
        with pytest.raises(MetadataError, match="1 to 4 dimensions"):
            spec.resolve(ArrayRepr(np.dtype("<f4"), ()))
