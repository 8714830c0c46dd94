"""Values that users give, cast to a data type, or refused."""

import datetime as dt
import math

import numpy as np
import pytest

from gzarr.dtypes import cast_fill, default_fill, parse_dtype
from gzarr.errors import MetadataError
from tests.dtypes.scalars import bits, same

ml_dtypes = pytest.importorskip("ml_dtypes")


STRUCT = [("a", "i4"), ("s", "S3"), ("u", "U2"), ("x", "f4", (2, 2)), ("n", [("t", "M8[s]")])]


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        ("i4", 3, np.int32(3)),
        ("i4", 3.0, np.int32(3)),
        ("i4", "3", np.int32(3)),
        ("i4", np.array(3, "u8"), np.int32(3)),
        ("i4", True, np.int32(1)),
        ("u8", 2**64 - 1, np.uint64(2**64 - 1)),
        ("?", 1, np.True_),
        ("?", np.float32(0), np.False_),
        ("f4", 0.1, np.float32(0.1)),
        ("f4", "NaN", np.float32("nan")),
        ("f4", "-Infinity", np.float32("-inf")),
        ("f4", np.float64(-0.0), np.float32(-0.0)),
        ("f4", bits("7f800001", "f4"), bits("7f800001", "f4")),
        ("f4", ml_dtypes.bfloat16(1.5), np.float32(1.5)),
        ("f8", 2**70, np.float64(2**70)),
        ("c8", 1, np.complex64(1)),
        ("c8", "1+2j", np.complex64(1 + 2j)),
        ("c16", np.complex64(1 + 2j), np.complex128(1 + 2j)),
        ("M8[D]", "2000-01-01", np.datetime64("2000-01-01")),
        ("M8[D]", dt.date(2000, 1, 1), np.datetime64("2000-01-01")),
        ("M8[D]", dt.datetime(2000, 1, 1), np.datetime64("2000-01-01")),  # noqa: DTZ001
        ("M8[ns]", np.datetime64("2000", "Y"), np.datetime64("2000-01-01T00:00:00.000000000")),
        ("M8[D]", 0, np.datetime64("1970-01-01")),
        ("M8[D]", "NaT", np.datetime64("NaT", "D")),
        ("M8[D]", np.datetime64("NaT"), np.datetime64("NaT", "D")),
        ("m8[s]", dt.timedelta(minutes=1), np.timedelta64(60, "s")),
        ("m8[s]", 5, np.timedelta64(5, "s")),
        ("m8[s]", np.timedelta64(1, "m"), np.timedelta64(60, "s")),
        ("m8[s]", "NaT", np.timedelta64("NaT", "s")),
        ("S6", 0, np.bytes_(b"")),
        ("S6", 0.0, np.bytes_(b"")),
        ("S6", "ab", np.bytes_(b"ab")),
        ("S6", b"\xff", np.bytes_(b"\xff")),
        ("S6", 5, np.bytes_(b"5")),
        ("U4", 0, np.str_("")),
        ("U4", b"ab", np.str_("ab")),
        ("U4", "abcd", np.str_("abcd")),
        ("V3", b"abc", np.void(b"abc")),
        ("V3", b"", np.void(b"\0\0\0")),
        ("V3", 0, np.void(b"\0\0\0")),
        ("V3", np.void(b"abc"), np.void(b"abc")),
        ("str", 0, ""),
        ("str", np.str_("x"), "x"),
        ("bytes", 0, b""),
        ("bytes", np.bytes_(b"x"), b"x"),
        ("bytes", "x", b"x"),
        ("bfloat16", 1.5, ml_dtypes.bfloat16(1.5)),
        ("int4", -8, ml_dtypes.int4(-8)),
        ("object", [1], [1]),
        ("i4", None, None),
    ],
)
def test_casts(dtype, value, expected):
    assert same(cast_fill(value, parse_dtype(dtype)), expected)


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("u1", [300, -1, np.int64(300)]),
        ("i4", ["abc", 1.5, math.nan, math.inf, 1j, [1], np.timedelta64(1, "s"), np.zeros(2)]),
        ("int4", [8]),
        ("?", [2, "True"]),
        ("f4", ["abc", 1e300, 10**400, 1j, [1.0], np.datetime64("2000")]),
        ("float8_e4m3fn", [math.inf, 1e6]),
        ("c8", ["abc", 1e300]),
        ("M8[D]", ["abc", "2000-01-01T12", 1.5, np.timedelta64(1, "D"), 2**63, True]),
        ("M8[ns]", [np.datetime64("4000", "Y")]),
        ("m8[s]", [np.timedelta64(1, "ms"), "abc"]),
        ("M8", [0]),
        ("S2", [b"abc", "é", [1]]),
        ("U2", ["abc", b"\xff"]),
        ("V2", [b"abc", 1, "ab"]),
        ("str", [b"\xff", [1]]),
        ("bytes", ["é"]),
        (STRUCT, [(1,), {"a": 1}, (1, b"toolong", "", 0, 0), (1, b"", "", [1, 2, 3], 0)]),
        ([("a", "i4"), ("b", "u1")], [300]),
    ],
)
def test_casts_refuse_what_cannot_be_represented(dtype, values):
    for value in values:
        with pytest.raises(MetadataError, match=r"fill_value: expected .*, got ") as caught:
            cast_fill(value, parse_dtype(dtype))
        assert isinstance(caught.value, ValueError)


def test_casts_to_structs():
    dt = parse_dtype(STRUCT)
    value = cast_fill((1, "ab", b"x", [[1, 2], [3, 4]], ("2000-01-01",)), dt)
    assert value.dtype == dt.dtype
    assert (value["a"], value["s"], value["u"]) == (1, b"ab", "x")
    assert value["x"].tolist() == [[1, 2], [3, 4]]
    assert value["n"]["t"] == np.datetime64("2000-01-01", "s")
    assert same(cast_fill({"a": 1, "s": "ab", "u": "x", "x": [[1, 2], [3, 4]], "n": {"t": "2000-01-01"}}, dt), value)
    assert same(cast_fill(value, dt), value)
    assert same(cast_fill(0, dt), default_fill(dt))  # strings empty, not "0"
    assert cast_fill(3, parse_dtype([("a", "i4"), ("b", "f4", (2,))]))["b"].tolist() == [3, 3]
