"""Strings and bytes of variable length."""

import numpy as np
import pytest

from gzarr.codecs import VLenBytesCodec, VLenUTF8Codec
from gzarr.errors import CodecError
from tests.codecs.chains import chain_for, objects, round_trip


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
