"""The bytes codec resolves its byte order, and refuses objects."""

import numpy as np
import pytest

from gzarr.codecs import ArrayRepr, BytesCodec, BytesRepr
from gzarr.errors import MetadataError


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
