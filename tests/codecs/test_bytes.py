"""The bytes codec resolves its byte order, and refuses objects."""

import numpy as np
import pytest

from gzarr.codecs import ArrayRepr, BytesCodec, BytesRepr, TransposeCodec, VLenBytesCodec, VLenUTF8Codec
from gzarr.errors import CodecError, MetadataError
from tests.codecs.chains import chain_for, objects, round_trip


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


I4 = ArrayRepr(np.dtype("<i4"), (4, 6))


@pytest.mark.parametrize(("order", "resolved"), [("C", (0, 1)), ("F", (1, 0)), ([1, 0], (1, 0))])
def test_transpose_resolves_to_a_permutation(order, resolved) -> None:
    spec, encoded = TransposeCodec(order).resolve(I4)
    assert spec.order == resolved
    assert encoded.shape == tuple(I4.shape[axis] for axis in resolved)
    with pytest.raises(MetadataError, match="dimensions"):
        TransposeCodec((0, 1, 2)).resolve(I4)


def test_missing_strings_become_empty() -> None:
    assert round_trip(VLenUTF8Codec(), objects("a", None, "ß", 0)).tolist() == ["a", "", "ß", ""]
    assert round_trip(VLenBytesCodec(), objects(b"a", None, b"\0\xff")).tolist() == [b"a", b"", b"\0\xff"]


def test_strings_of_other_dtypes_are_taken() -> None:
    assert round_trip(VLenUTF8Codec(), np.array(["a", "bß"])).tolist() == ["a", "bß"]
    assert round_trip(VLenBytesCodec(), np.array([b"a", b"bc"])).tolist() == [b"a", b"bc"]
    array = np.array(["a", "", "東京" * 20], np.dtypes.StringDType())
    chain = chain_for([VLenUTF8Codec()], array.astype(object))
    assert chain.encode([array]) == chain.encode([array.astype(object)])
    assert round_trip(VLenUTF8Codec(), array).dtype == array.dtype


def test_what_numpy_calls_strings_are_taken() -> None:
    texts = objects(np.str_("a"), np.array("ß"), np.array("c", object), "d")
    assert round_trip(VLenUTF8Codec(), texts).tolist() == ["a", "ß", "c", "d"]
    assert texts[0] is not None
    assert type(texts[0]) is np.str_, "the given array was changed"
    items = objects(np.bytes_(b"a"), bytearray(b"bc"), memoryview(b"d\0"), np.array(b"e"), b"")
    assert round_trip(VLenBytesCodec(), items).tolist() == [b"a", b"bc", b"d\0", b"e", b""]


@pytest.mark.parametrize(("spec", "item"), [(VLenUTF8Codec(), b"a"), (VLenBytesCodec(), "a"), (VLenUTF8Codec(), 3)])
def test_what_is_no_string_is_refused(spec, item) -> None:
    chain = chain_for([spec], objects(item))
    with pytest.raises(CodecError, match=r"(?i)expected (unicode|byte|str)"):
        chain.encode([objects(item)])
