"""Strings and bytes of variable length."""

import numpy as np
import pytest

from gzarr.codecs import (
    VLenBytesCodec,
    VLenUTF8Codec,
)
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


@pytest.mark.parametrize(("spec", "item"), [(VLenUTF8Codec(), b"a"), (VLenBytesCodec(), "a"), (VLenUTF8Codec(), 3)])
def test_what_is_no_string_is_refused(spec, item) -> None:
    chain = chain_for([spec], objects(item))
    with pytest.raises(CodecError, match=r"(?i)expected (unicode|byte|str)"):
        chain.encode([objects(item)])
