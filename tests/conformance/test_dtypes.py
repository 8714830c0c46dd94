"""Data types and fill values agree with zarr-python and TensorStore where arrays that are exchanged do not show it."""

import numpy as np
import pytest

from gzarr.dtypes import (
    cast_fill,
    default_fill,
    fill_from_json,
    fill_to_json,
    from_v2,
    parse_dtype,
    to_v2,
)

pytestmark = pytest.mark.filterwarnings("ignore")


def bits(value, dtype):
    """Bytes of a value in a dtype, or the value itself if it is of variable length."""
    return value if dtype.hasobject else np.asarray(value, dtype).tobytes()


@pytest.fixture
def zarr():
    module = pytest.importorskip("zarr")
    if int(module.__version__.split(".")[0]) < 3:
        pytest.skip("needs zarr-python 3; what zarr-python 2 writes is recorded below")
    return module


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("dtype", ["?", ">i4", "f8", "c8", "S6", "U4", "M8[D]", "m8[10s]", "M8", "V5", "str"])
def test_defaults_are_those_of_zarr_python(zarr, dtype, zarr_format):
    dt = parse_dtype(dtype)
    theirs = zarr.create_array({}, shape=(2,), dtype=str if dt.variable else dt.dtype, zarr_format=zarr_format)
    assert bits(default_fill(dt), dt.dtype) == bits(theirs.fill_value, dt.dtype)


@pytest.mark.parametrize(
    ("dtype", "fill", "expected_dtype", "expected"),
    [
        # Written by zarr-python 2.18.7.
        ("|b1", False, "?", False),
        (">i4", 0, ">i4", 0),
        ("<f4", 0.10000000149011612, "<f4", 0.1),
        ("<c8", ["NaN", "Infinity"], "<c8", complex(float("nan"), float("inf"))),
        ("|S6", "", "S6", b""),
        ("|S3", "Yf8=", "S3", b"a\xff"),
        ("<U3", "\u00e9", "<U3", "é"),
        ("|V3", "AAAA", "V3", b"\0\0\0"),
        ("<M8[D]", 10957, "M8[D]", "2000-01-01"),
        ("<m8[s]", -9223372036854775808, "m8[s]", "NaT"),
        (
            [["a", "<i4"], ["b", ">f8", [2]]],
            "AQAAAEAAAAAAAAAAQAgAAAAAAAA=",
            [("a", "<i4"), ("b", ">f8", (2,))],
            (1, [2, 3]),
        ),
        (
            [["a", "|i1"], ["", "|V7"], ["b", "<i8"]],
            "AAAAAAAAAAAAAAAAAAAAAA==",
            np.dtype([("a", "i1"), ("b", "i8")], align=True),
            0,
        ),
        (
            [["a", "<i4"], ["n", [["x", "|u1"], ["y", "<M8[s]"]]]],
            "AAAAAAAAAAAAAAAAAA==",
            [("a", "<i4"), ("n", [("x", "u1"), ("y", "<M8[s]")])],
            0,
        ),
    ],
)
def test_recorded_documents_of_zarr_python_2(dtype, fill, expected_dtype, expected):
    dt = from_v2(dtype)
    asked = parse_dtype(expected_dtype)
    assert dt == asked
    assert to_v2(dt) == dtype
    assert fill_from_json(fill, dt, 2).tobytes() == cast_fill(expected, asked).tobytes()
    assert fill_to_json(expected, dt, 2) == fill
