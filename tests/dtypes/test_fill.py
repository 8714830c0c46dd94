"""Fill values: the forms that are read and written, defaults, refusals."""

import base64
import json
import math

import numpy as np
import pytest

from gzarr.dtypes import cast_fill, default_fill, fill_from_json, fill_to_json, parse_dtype
from gzarr.errors import MetadataError
from tests.dtypes.scalars import bits, same

ml_dtypes = pytest.importorskip("ml_dtypes")

PAIR = [("a", "<i4"), ("b", ">f8")]
PADDED = np.dtype([("a", "i1"), ("b", "i8")], align=True)
NAT = -(2**63)


def b64(raw):
    return base64.b64encode(raw).decode()


READ = [
    ("?", True, np.True_),
    ("<i4", -3, np.int32(-3)),
    (">i4", 3, np.int32(3)),
    ("i4", 3.0, np.int32(3)),
    ("u8", 2**64 - 1, np.uint64(2**64 - 1)),
    ("f4", 1, np.float32(1)),
    ("f4", 0.1, np.float32(0.1)),
    ("f4", -0.0, np.float32(-0.0)),
    ("f4", 3.4028235e38, np.finfo("f4").max),
    ("f4", "NaN", np.float32("nan")),
    ("f4", math.nan, np.float32("nan")),
    ("f8", "Infinity", np.float64("inf")),
    ("f8", math.inf, np.float64("inf")),
    (">f2", "-Infinity", np.float16("-inf")),
    ("c8", [1.5, "NaN"], np.complex64(complex(1.5, math.nan))),
    (">c16", [0, "-Infinity"], np.complex128(complex(0, -math.inf))),
    ("M8[D]", 10957, np.datetime64("2000-01-01")),
    ("M8[D]", "NaT", np.datetime64("NaT", "D")),
    ("M8[D]", float(NAT), np.datetime64("NaT", "D")),
    (">m8[10us]", -1, np.timedelta64(-1, (("us", 10)))),
    ("M8", "NaT", np.datetime64("NaT")),
    ("M8", NAT, np.datetime64("NaT")),
    ("m8", 5, np.timedelta64(5)),
    ("S3", "YWI=", np.bytes_(b"ab")),
    ("S3", "YWIA", np.bytes_(b"ab")),
    ("S3", [97, 255], np.bytes_(b"a\xff")),
    ("S3", "", np.bytes_(b"")),
    ("<U3", "é\U0001f600", np.str_("é\U0001f600")),
    (">U3", "", np.str_("")),
    ("V2", "AQI=", np.void(b"\1\2")),
    ("V2", [1, 2], np.void(b"\1\2")),
    ("str", "", ""),
    ("str", "0é", "0é"),
    ("bytes", "YWI=", b"ab"),
    ("bytes", [97, 98], b"ab"),
    ("bytes", "", b""),
    ("object", {"a": [1]}, {"a": [1]}),
    ("object", 0, 0),
    ("bfloat16", 1.5, ml_dtypes.bfloat16(1.5)),
    ("bfloat16", "NaN", ml_dtypes.bfloat16(math.nan)),
    ("float8_e5m2", "Infinity", ml_dtypes.float8_e5m2(math.inf)),
    ("int4", -8, ml_dtypes.int4(-8)),
    ("uint2", 3, ml_dtypes.uint2(3)),
    ("float8_e8m0fnu", 1.0, ml_dtypes.float8_e8m0fnu(1.0)),
    ("float8_e8m0fnu", 0.0, bits("00", ml_dtypes.float8_e8m0fnu)),
]


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(("dtype", "text", "expected"), READ)
def test_forms_read_in_both_formats(dtype, text, expected, zarr_format):
    assert same(fill_from_json(text, parse_dtype(dtype), zarr_format), expected)


@pytest.mark.parametrize(
    ("dtype", "text", "expected"),
    [
        ("f2", "0x7e01", bits("7e01", "f2")),
        ("f4", "0x7fc00001", bits("7fc00001", "f4")),
        ("f4", "0xFFC00000", bits("ffc00000", "f4")),
        (">f4", "0x7f800001", bits("7f800001", "f4")),  # signalling
        ("f8", "0x7ff8000000000001", bits("7ff8000000000001", "f8")),
        ("f4", "0x3f800000", np.float32(1)),
        ("c8", ["0x7fc00001", "-Infinity"], bits("ff8000007fc00001", "c8")),
        ("bfloat16", "0x7fc1", bits("7fc1", ml_dtypes.bfloat16)),
        ("float8_e4m3fn", "0xff", bits("ff", ml_dtypes.float8_e4m3fn)),
        ("float8_e8m0fnu", "0x7f", ml_dtypes.float8_e8m0fnu(1.0)),
        ("float4_e2m1fn", "0x2", ml_dtypes.float4_e2m1fn(1.0)),
        ("float4_e2m1fn", "0x02", ml_dtypes.float4_e2m1fn(1.0)),
        ("complex_float16", [1.5, "0x7e01"], bits("7e013e00", ml_dtypes.complex32)),
        ("complex_bfloat16", [1.5, "0x7f80"], bits("7f803fc0", ml_dtypes.bcomplex32)),
    ],
)
def test_bits_in_hex_are_read_in_v3_and_refused_in_v2(dtype, text, expected):
    assert same(fill_from_json(text, parse_dtype(dtype), 3), expected)
    with pytest.raises(MetadataError, match="fill_value"):
        fill_from_json(text, parse_dtype(dtype), 2)


@pytest.mark.parametrize(
    ("dtype", "text", "expected"),
    [
        ("i4", None, None),
        (PAIR, None, None),
        ("str", None, None),
        ("?", 0, np.False_),
        ("S3", 0, np.bytes_(b"")),
        ("S3", "ab", np.bytes_(b"ab")),  # not base64
        ("U3", 0, np.str_("")),
        ("V2", 0, np.void(b"\0\0")),
        ("str", 0, ""),  # what zarr-python 2 writes where no fill value was given
        ("bytes", 0, b""),
        ("float4_e2m1fn", "Ag==", ml_dtypes.float4_e2m1fn(1.0)),
    ],
)
def test_forms_read_in_v2_only(dtype, text, expected):
    assert same(fill_from_json(text, parse_dtype(dtype), 2), expected)
    with pytest.raises(MetadataError, match="fill_value"):
        fill_from_json(text, parse_dtype(dtype), 3)


@pytest.mark.parametrize("text", [b64(b"\1\0\0\0\0\0\0\0\0\0\xf0\x3f"), {"a": 1, "b": 1.0}, [1, 1.0], {"b": 1, "a": 1}])
def test_forms_of_structs_in_v3(text):
    dt = parse_dtype([("a", "<i4"), ("b", "<f8")])
    value = fill_from_json(text, dt, 3)
    assert same(value, np.array((1, 1.0), dt.dtype)[()])


def test_struct_fields_that_are_missing_are_zero():
    assert fill_from_json({"b": 2}, parse_dtype([("a", "i4"), ("b", "f4")]), 3).item() == (0, 2.0)


def test_nested_structs_and_subarrays_in_json():
    dt = parse_dtype([("n", [("t", "M8[s]"), ("s", "U2")]), ("x", "f4", (2, 2)), ("r", "V2"), ("c", "c8")])
    value = fill_from_json({"n": {"t": 5, "s": "ab"}, "x": [[1, "NaN"], [2, 3]], "r": "AQI=", "c": [1, 2]}, dt, 3)
    assert value["n"]["t"] == np.datetime64(5, "s")
    assert value["n"]["s"] == "ab"
    np.testing.assert_array_equal(value["x"], [[1, math.nan], [2, 3]])
    assert value["r"].tobytes() == b"\1\2"
    assert value["c"] == 1 + 2j


def test_structs_in_v2_are_bytes_in_the_order_of_the_dtype():
    dt = parse_dtype(PAIR)
    value = cast_fill((1, 2.0), dt)
    assert fill_to_json(value, dt, 2) == "AQAAAEAAAAAAAAAA"  # as zarr-python 2.18.7 writes it
    assert same(fill_from_json("AQAAAEAAAAAAAAAA", dt, 2), value)
    assert fill_to_json(value, dt, 3) == b64(b"\1\0\0\0" + np.array(2.0, "<f8").tobytes())
    native = parse_dtype([("a", "<i4"), ("b", "<f8")])
    assert fill_from_json(fill_to_json(value, dt, 3), native, 3).item() == (1, 2.0)


def test_padding_never_holds_what_was_in_memory():
    dt = parse_dtype(PADDED)
    dirty = np.frombuffer(b"\xff" * 16, PADDED)[0]
    assert fill_to_json(dirty, dt, 2) == b64(b"\xff" + bytes(7) + b"\xff" * 8)
    assert fill_to_json(dirty, dt, 3) == b64(b"\xff" * 9)
    assert cast_fill(dirty, dt).tobytes() == b"\xff" + bytes(7) + b"\xff" * 8
    assert default_fill(dt).tobytes() == bytes(16)
    assert fill_from_json(b64(b"\xff" * 9), dt, 3).tobytes() == b"\xff" + bytes(7) + b"\xff" * 8


@pytest.mark.parametrize(
    ("dtype", "texts"),
    [
        ("?", [2, "true", 1.0]),
        ("i4", [3.5, "3", True, [3], math.nan, math.inf]),
        ("u1", [256, -1]),
        ("i8", [2**63]),
        ("int4", [8]),
        ("uint4", [-1]),
        ("f4", [1e39, 10**400, True, "1.0", "nan", "0x7fc0", "0x7fc000000", "0x7fc0_000", {}]),
        ("f2", [65520]),
        ("bfloat16", [1e39]),
        ("float8_e4m3fn", ["Infinity", 1000]),
        ("float4_e2m1fn", [7, "NaN"]),
        ("float8_e8m0fnu", [-1]),
        ("c8", [1.0, [1.0], [1.0, 2.0, 3.0], [1.0, "x"], [1e39, 0]]),
        ("M8[D]", ["2000-01-01", 1.5, 2**63, True]),
        ("M8", [0]),
        ("S3", ["YWJjZA==", "a\xe9", [256], [True], 1, {}]),
        ("U3", ["abcd", 1, ["a"]]),
        ("V2", ["AQ==", [1, 2, 3], {}]),
        (PAIR, ["AQAA", [1], {"z": 1}, {"a": 1.5}, 1]),
        ([("a", "i4", (2,))], [{"a": 1}, {"a": [1]}]),
        ("str", [1, ["a"]]),
        ("bytes", [1, "\xe9"]),
    ],
)
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_wrong_types_and_ranges_are_refused(dtype, texts, zarr_format):
    for text in texts:
        with pytest.raises(MetadataError, match=r"fill_value: expected .*, got "):
            fill_from_json(text, parse_dtype(dtype), zarr_format)


def test_the_refusal_of_v3_null_says_so():
    for dtype in ("i4", "str", "f4", PAIR):
        with pytest.raises(MetadataError, match="fill_value: expected"):
            fill_from_json(None, parse_dtype(dtype), 3)
        with pytest.raises(MetadataError, match="fill_value: expected a value"):
            fill_to_json(None, parse_dtype(dtype), 3)
        assert fill_to_json(None, parse_dtype(dtype), 2) is None


@pytest.mark.parametrize(
    ("dtype", "value", "v2", "v3"),
    [
        ("?", np.True_, True, True),
        ("i4", 3, 3, 3),
        ("f4", np.float32(0.1), 0.10000000149011612, 0.10000000149011612),
        ("f4", math.nan, "NaN", "NaN"),
        ("f4", bits("7fc00001", "f4"), "NaN", "0x7fc00001"),
        ("f8", bits("fff8000000000000", "f8"), "NaN", "0xfff8000000000000"),
        ("f4", math.inf, "Infinity", "Infinity"),
        ("f4", -math.inf, "-Infinity", "-Infinity"),
        ("c8", 1 + 2j, [1.0, 2.0], [1.0, 2.0]),
        ("c8", bits("7fc00001ff800000", "c8"), ["-Infinity", "NaN"], ["-Infinity", "0x7fc00001"]),
        ("M8[D]", np.datetime64("NaT"), NAT, NAT),
        ("m8[s]", 5, 5, 5),
        ("M8", "NaT", "NaT", "NaT"),
        ("m8", "NaT", NAT, NAT),
        ("S3", b"ab", "YWI=", "YWI="),
        ("S3", b"", "", ""),
        ("U3", "é", "é", "é"),
        ("V3", b"abc", "YWJj", "YWJj"),
        ("str", "x", "x", "x"),
        ("bytes", b"ab", "YWI=", "YWI="),
        ("bfloat16", 1.5, 1.5, 1.5),
        ("bfloat16", bits("7fc1", ml_dtypes.bfloat16), "NaN", "0x7fc1"),
        ("int4", -8, -8, -8),
        ("float4_e2m1fn", 1.0, "Ag==", 1.0),
        ("float8_e8m0fnu", 1.0, 1.0, "0x7f"),
    ],
)
def test_forms_written(dtype, value, v2, v3):
    dt = parse_dtype(dtype)
    for zarr_format, expected in ((2, v2), (3, v3)):
        text = fill_to_json(value, dt, zarr_format)
        assert same(text, expected)
        json.dumps(text, allow_nan=False)


def test_negative_zero_is_written_as_such():
    assert json.dumps(fill_to_json(np.float32(-0.0), parse_dtype("f4"), 2)) == "-0.0"
    assert json.dumps(fill_to_json(np.complex64(complex(-0.0, 0)), parse_dtype("c8"), 3)) == "[-0.0, 0.0]"


def test_object_fill_values_must_fit_json():
    dt = parse_dtype(object)
    assert fill_to_json({"a": [1, None]}, dt, 2) == {"a": [1, None]}
    assert fill_to_json(np.int64(3), dt, 2) == 3
    assert fill_to_json(None, dt, 2) is None
    with pytest.raises(MetadataError, match="fill_value: expected a value that JSON can hold"):
        fill_to_json(b"x", dt, 2)


def test_defaults_of_variable_lengths():
    assert [default_fill(parse_dtype(like)) for like in ("str", "bytes", "object")] == ["", b"", 0]
