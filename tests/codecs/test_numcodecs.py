"""The numcodecs registry: Zarr v2 configurations, objects, third parties, and what is missing."""

import json
import sys
import zlib

import numcodecs
import numcodecs.abc
import numcodecs.registry
import numpy as np
import pytest

import gzarr
from gzarr import codecs
from gzarr.codecs.registry import _FACTORIES, _SPECS, from_v2
from gzarr.cpu.codecs import factory_for
from gzarr.cpu.codecs.per_chunk import per_chunk
from gzarr.errors import CodecError, MetadataError, MissingExtraError, UnknownCodecError
from tests.codecs.chains import chain_for, codec_for, objects, round_trip, sample


@pytest.fixture
def registries():
    """Puts every registry back as it was."""
    kept = [(d, dict(d)) for d in (_SPECS, _FACTORIES["cpu"], _FACTORIES["gpu"], numcodecs.registry.codec_registry)]
    yield
    for registry, content in kept:
        registry.clear()
        registry.update(content)


# -- bytes that numcodecs writes and reads -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["<i4", ">f8", "u1", "<M8[s]", "S300", [("a", "<i2"), ("b", "u1")]])
@pytest.mark.parametrize("shuffle", [-1, 0, 1, 2])
def test_blosc_of_zarr_v2_is_byte_for_byte_that_of_numcodecs(dtype, shuffle: int) -> None:
    array = sample(dtype, (40, 5))
    codec = numcodecs.Blosc("lz4", 5, shuffle)
    chain = chain_for([codecs.parse_codec(codec)], array, serializer=codecs.BytesCodec(None))
    assert chain.encode([array]) == [codec.encode(array)]


def test_the_element_size_of_blosc_is_that_of_the_spec() -> None:
    for typesize, written in ((1, 1), (2, 2), (8, 8), (3, 1), (255, 1), (256, 1)):
        codec = codec_for(codecs.BloscCodec(typesize=typesize), codecs.BytesRepr(1000, 4))
        assert codec.encode([bytes(1000)])[0][3] == written  # 3 and 255 do not divide 1000
    codec = codec_for(codecs.BloscCodec(typesize=255), codecs.BytesRepr(510, 4))
    assert codec.encode([bytes(510)])[0][3] == 255


# -- objects -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", ["json2", "msgpack2"])
@pytest.mark.parametrize("shape", [(6,), (2, 3), (1, 6), (3, 1, 2)])
def test_python_objects_of_any_structure(id: str, shape: tuple[int, ...]) -> None:
    # lists of one length tempt NumPy to make them dimensions
    array = objects(42, "foo", [1, 2], [3, 4], {"a": 1, "b": 2.2}, None).reshape(shape)
    again = round_trip(codecs.NumcodecsCodec(id), array)
    assert again.shape == shape
    assert again.tolist() == array.tolist()


def test_categories_not_in_the_list_become_empty() -> None:
    spec = codecs.NumcodecsCodec("categorize", {"labels": ["male", "female"], "dtype": "|O", "astype": "|u1"})
    assert round_trip(spec, objects("female", "other", "male")).tolist() == ["female", "", "male"]
    text = codecs.NumcodecsCodec("categorize", {"labels": ["male", "female"], "dtype": "<U6"})
    assert round_trip(text, np.array(["male", "female"])).tolist() == ["male", "female"]


# -- third parties -------------------------------------------------------------------------------------------------


class Tiles(numcodecs.abc.Codec):
    """Like an image codec: needs the dtype and the shape, and returns an array."""

    codec_id = "test_tiles"

    def __init__(self, level=1):
        self.level = level

    def encode(self, buf):
        assert isinstance(buf, np.ndarray)
        head = json.dumps([buf.dtype.str, buf.shape]).encode()
        return bytearray(len(head).to_bytes(4, "little") + head + zlib.compress(buf.tobytes(), self.level))

    def decode(self, buf, out=None):
        raw = bytes(buf)
        n = int.from_bytes(raw[:4], "little")
        dtype, shape = json.loads(raw[4 : 4 + n])
        return np.frombuffer(zlib.decompress(raw[4 + n :]), dtype).reshape(shape)


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("dtype", ["u1", ">i2", "<f4"])
def test_a_registered_codec_gets_the_array_with_its_dtype_and_shape(dtype: str) -> None:
    numcodecs.register_codec(Tiles)
    array = sample(dtype, (1, 5, 6, 3))
    spec = codecs.parse_codec(Tiles(level=3))
    assert spec == codecs.NumcodecsCodec("test_tiles", {"level": 3})
    chain = chain_for([spec], array, serializer=codecs.BytesCodec(None))
    assert [step.spec for step in chain.steps] == [spec]
    (data,) = chain.encode([array])
    assert Tiles().decode(data).shape == array.shape
    (got,) = chain.decode([bytes(data)])
    assert (got.dtype, got.shape) == (array.dtype, array.shape)
    assert np.array_equal(got, array)
    with pytest.raises(CodecError, match="expected"):
        chain.decode([Tiles().encode(array[:, :4])])


@pytest.mark.parametrize(
    ("id", "words"),
    [
        ("imagecodecs_nothing", r"'imagecodecs_nothing'.*installed imagecodecs does not have it.*gzarr\[images\]"),
        ("nobody", r"'nobody'.*numcodecs\.register_codec or gzarr\.register_codec"),
    ],
)
def test_a_codec_that_nobody_registered_is_named_when_it_is_needed(id: str, words: str) -> None:
    spec = from_v2({"id": id, "level": 3})
    assert spec.to_v2() == {"id": id, "level": 3}
    with pytest.raises(UnknownCodecError, match=words):
        chain_for([spec], sample("u1", (4,)))


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize(("id", "extra"), [("zfpy", "zfp"), ("pcodec", "pcodec"), ("msgpack2", "msgpack")])
def test_a_missing_extra_is_named(id: str, extra: str) -> None:
    del numcodecs.registry.codec_registry[id]
    with pytest.raises(MissingExtraError, match=rf"gzarr\[{extra}\]"):
        chain_for([codecs.NumcodecsCodec(id)], sample("<f4", (4,)))


@pytest.mark.usefixtures("registries")
def test_an_image_codec_without_its_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    numcodecs.registry.codec_registry.pop("imagecodecs_jpegxl", None)
    monkeypatch.setitem(sys.modules, "imagecodecs", None)
    monkeypatch.setitem(sys.modules, "imagecodecs.numcodecs", None)
    with pytest.raises(MissingExtraError, match=r"'imagecodecs_jpegxl'.*gzarr\[images\]"):
        chain_for([codecs.NumcodecsCodec("imagecodecs_jpegxl")], sample("u1", (4, 4)))


def test_a_configuration_that_numcodecs_refuses_is_a_metadata_error() -> None:
    with pytest.raises(MetadataError, match=r"'zlib'.*speed"):
        chain_for([codecs.NumcodecsCodec("zlib", {"speed": 1})], sample("<f4", (4,)))


class Xor(codecs.CodecSpec):
    """The smallest spec that a third party could write."""

    kind = "bytes_bytes"
    name = "test_xor"

    @classmethod
    def from_json(cls, configuration):
        return cls()

    def configuration(self):
        return {}

    def resolve(self, decoded):
        return self, decoded


def xor_codec(step):
    def flip(data):
        return bytes(byte ^ 255 for byte in bytes(data))

    return per_chunk("test_xor", flip, flip)


@pytest.mark.usefixtures("registries")
def test_third_parties_register_a_spec_and_its_functions() -> None:
    with pytest.raises(UnknownCodecError, match="test_xor"):
        codecs.parse_codec("test_xor")
    assert codecs.register_codec(Xor) is Xor
    spec = codecs.parse_codec({"name": "test_xor"})
    with pytest.raises(UnknownCodecError, match=r"'test_xor'.*on the CPU"):
        factory_for(spec)
    codecs.register_codec(Xor, cpu=xor_codec)
    array = sample("u1", (4,))
    chain = chain_for([spec], array)
    assert bytes(chain.encode([array])[0]) == (array ^ 255).tobytes()
    assert np.array_equal(chain.decode(chain.encode([array]))[0], array)


def test_only_codec_classes_with_a_name_can_be_registered() -> None:
    with pytest.raises(MetadataError, match="neither"):
        codecs.register_codec(int)
    with pytest.raises(MetadataError, match="name"):
        codecs.register_codec(codecs.NumcodecsCodec)


# -- byte orders ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "int4"])
@pytest.mark.parametrize("endian", ["little", "big", None])
def test_types_of_ml_dtypes_are_stored_in_either_byte_order(name: str, endian) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = np.dtype(getattr(ml_dtypes, name))
    array = np.arange(-4, 4).astype(dtype).reshape(2, 4)
    chain = chain_for([codecs.BytesCodec(endian)], array)
    (data,) = chain.encode([array])
    raw = array.view(f"u{dtype.itemsize}")
    assert bytes(data) == (raw.byteswap() if endian == "big" else raw).tobytes()
    (got,) = chain.decode([bytes(data)])
    assert got.dtype == dtype
    assert np.array_equal(got, array)


def test_structured_dtypes_of_mixed_byte_order_are_kept_as_they_are() -> None:
    array = np.array([(1, 2), (3, 4)], [("a", "<i4"), ("b", ">i4")])
    kept = chain_for([codecs.BytesCodec(None)], array)
    assert bytes(kept.encode([array])[0]) == array.tobytes()
    big = chain_for([codecs.BytesCodec("big")], array)
    (data,) = big.encode([array])
    assert np.frombuffer(bytes(data), ">i4").tolist() == [1, 2, 3, 4]
    assert big.decode([data])[0].tolist() == array.tolist()


def test_bytes_are_viewed_and_not_copied() -> None:
    array = sample("<i4", (4, 6))
    codec = codec_for(codecs.BytesCodec(), codecs.ArrayRepr(array.dtype, array.shape))
    (data,) = codec.encode([array])
    assert np.shares_memory(data, array)
    assert np.shares_memory(codec.decode([data])[0], array)


@pytest.mark.parametrize(
    ("spec", "dtype", "encoded"),
    [
        (codecs.NumcodecsCodec("delta", {"astype": "<i2"}), "<i4", codecs.ArrayRepr(np.dtype("<i2"), (4, 6))),
        (codecs.NumcodecsCodec("delta"), ">i4", codecs.ArrayRepr(np.dtype(">i4"), (4, 6), 7)),
        (codecs.NumcodecsCodec("astype", {"encode_dtype": "<f8"}), "<i4", codecs.ArrayRepr(np.dtype("<f8"), (4, 6))),
        (codecs.NumcodecsCodec("categorize", {"labels": ["a"]}), "O", codecs.ArrayRepr(np.dtype("u1"), (4, 6))),
        (codecs.NumcodecsCodec("packbits"), "?", codecs.ArrayRepr(np.dtype("u1"), (4,))),
        (codecs.NumcodecsCodec("vlen-array", {"dtype": "<i4"}), "O", codecs.BytesRepr()),
        (codecs.NumcodecsCodec("somebodys"), "<i4", codecs.BytesRepr()),
    ],
)
def test_numcodecs_announce_what_comes_out(spec, dtype: str, encoded) -> None:
    assert spec.resolve(codecs.ArrayRepr(np.dtype(dtype), (4, 6), 7))[1] == encoded


def test_numcodecs_fill_in_what_zarr_python_fills_in() -> None:
    chunk = codecs.ArrayRepr(np.dtype(">f4"), (4,))
    for id, field in (
        ("delta", "dtype"),
        ("quantize", "dtype"),
        ("fixedscaleoffset", "dtype"),
        ("astype", "decode_dtype"),
    ):
        given = {"encode_dtype": "<f8"} if id == "astype" else {}
        assert codecs.NumcodecsCodec(id, given).resolve(chunk)[0].configuration() == given | {field: ">f4"}
    spec, encoded = codecs.NumcodecsCodec("shuffle").resolve(codecs.BytesRepr(16, 4))
    assert spec.configuration() == {"elementsize": 4}
    assert encoded == codecs.BytesRepr(16)
    assert codecs.NumcodecsCodec("shuffle", {"elementsize": 2}).resolve(codecs.BytesRepr(16, 4))[0].configuration() == {
        "elementsize": 2
    }


def test_codecs_are_imported_as_from_zarr_python():
    from gzarr.codecs.numcodecs import LZMA, Delta

    z = gzarr.array(np.arange(100), filters=[Delta(dtype="i8")], compressors=[LZMA(preset=1)])
    assert [codec["name"] for codec in z.metadata.to_dict()["codecs"]] == ["numcodecs.delta", "bytes", "numcodecs.lzma"]
    assert z[99] == 99
    with pytest.raises(ImportError, match="Nothing"):
        from gzarr.codecs.numcodecs import Nothing  # noqa: F401
