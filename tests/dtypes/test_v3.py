"""Names of data types in Zarr v3."""

import numpy as np
import pytest

from gzarr.dtypes import DataType, from_v3, parse_dtype, to_v3
from gzarr.dtypes.datatype import BYTES, OBJECT, STRING
from gzarr.errors import MetadataError, UnknownDataTypeError

ml_dtypes = pytest.importorskip("ml_dtypes")


def named(name, **configuration):
    return {"name": name, "configuration": configuration}


@pytest.mark.parametrize(
    ("json", "dtype"),
    [
        ("bool", "?"),
        ("int8", "i1"),
        ("uint64", "u8"),
        ("float16", "f2"),
        ("complex128", "c16"),
        (named("null_terminated_bytes", length_bytes=6), "S6"),
        (named("fixed_length_utf32", length_bytes=16), "U4"),
        (named("raw_bytes", length_bytes=5), "V5"),
        (named("numpy.datetime64", unit="D", scale_factor=1), "M8[D]"),
        (named("numpy.datetime64", unit="generic", scale_factor=1), "M8"),
        (named("numpy.timedelta64", unit="us", scale_factor=10), "m8[10us]"),
        (named("structured", fields=[["a", "int32"], ["s", named("null_terminated_bytes", length_bytes=3)]]), "i4,S3"),
    ],
)
def test_v3_names_round_trip(json, dtype):
    dt = from_v3(json)
    expected = np.dtype(dtype)
    if expected.names:
        expected = np.dtype([("a", "i4"), ("s", "S3")])
    assert dt == DataType(expected)
    assert to_v3(dt) == json
    assert to_v3(parse_dtype(expected.newbyteorder(">"))) == json


@pytest.mark.parametrize(
    ("json", "expected"),
    [
        ("r8", DataType(np.dtype("V1"))),
        ({"name": "r24"}, DataType(np.dtype("V3"))),
        ({"name": "int32", "configuration": {}}, DataType(np.dtype("i4"))),
        ("complex_float32", DataType(np.dtype("c8"))),
        ("complex_float64", DataType(np.dtype("c16"))),
        (named("numpy.datetime64", unit="μs", scale_factor=1), DataType(np.dtype("M8[us]"))),
        ("string", STRING),
        ({"name": "string"}, STRING),
        ("bytes", BYTES),
        ("variable_length_bytes", BYTES),
        ("binary", BYTES),
        (
            named("struct", fields=[{"name": "a", "data_type": "int32"}, {"name": "b", "data_type": {"name": "r16"}}]),
            DataType(np.dtype([("a", "i4"), ("b", "V2")])),
        ),
        (named("struct", fields=[["a", "bfloat16"]]), DataType(np.dtype([("a", ml_dtypes.bfloat16)]))),
    ],
)
def test_v3_reads_other_forms(json, expected):
    assert from_v3(json) == expected


def test_v3_subarrays_have_a_name_of_their_own():
    dt = parse_dtype([("a", ">i4", (2, 3)), ("n", [("x", "u1")], (2,))])
    json = to_v3(dt)
    assert json["configuration"]["fields"][0] == ["a", named("gzarr.subarray", data_type="int32", shape=[2, 3])]
    assert from_v3(json).dtype == np.dtype([("a", "i4", (2, 3)), ("n", [("x", "u1")], (2,))])


def test_v3_has_no_object_arrays_and_no_extended_floats():
    with pytest.raises(MetadataError, match="zarr_format=2"):
        to_v3(OBJECT)
    if np.dtype("g").itemsize > 8:
        with pytest.raises(UnknownDataTypeError):
            to_v3(parse_dtype("g"))


def deep_v3(depth, name="struct"):
    json = "int32"
    for _ in range(depth):
        field = {"name": "a", "data_type": json}
        json = named("struct", fields=[field]) if name == "struct" else named(name, data_type=json, shape=[1])
    return json


@pytest.mark.parametrize(
    "json",
    [
        None,
        4,
        [],
        {},
        {"configuration": {}},
        {"name": 4},
        {"name": "int32", "configuration": 4},
        named("int32", endian="little"),
        "r0",
        "r12",
        "r99999999999",
        "raw_bytes",
        "numpy.datetime64",
        named("raw_bytes"),
        named("raw_bytes", length_bytes=0),
        named("raw_bytes", length_bytes=1.5),
        named("raw_bytes", length_bytes=True),
        named("raw_bytes", length_bytes=2**31),
        named("fixed_length_utf32", length_bytes=6),
        named("numpy.datetime64", unit="s"),
        named("numpy.datetime64", unit="s", scale_factor=0),
        named("numpy.datetime64", unit="parsec", scale_factor=1),
        named("numpy.datetime64", unit="pc", scale_factor=1),
        named("numpy.datetime64", unit="s]", scale_factor=1),
        named("numpy.datetime64", unit="generic", scale_factor=2),
        named("struct"),
        named("struct", fields=[]),
        named("struct", fields=["a"]),
        named("struct", fields=[["", "int32"]]),
        named("struct", fields=[{"name": "a"}]),
        named("struct", fields=[["a", "int32"], ["a", "int32"]]),
        named("struct", fields=[["a", "string"]]),
        named("struct", fields=[["a", named("gzarr.subarray", data_type="int32", shape=[-1])]]),
        named("gzarr.subarray", data_type="int32", shape=[2]),
        deep_v3(17),
        deep_v3(900),
        deep_v3(900, "gzarr.subarray"),
    ],
)
def test_v3_malformed(json):
    with pytest.raises(MetadataError, match=r"data_type|dtype|data type"):
        from_v3(json)


@pytest.mark.parametrize(
    "json", ["float99", "<i4", "", named("acme", x=1), {"name": "acme"}, named("struct", fields=[["a", "acme"]])]
)
def test_v3_unknown(json):
    with pytest.raises(UnknownDataTypeError, match="register_data_type"):
        from_v3(json)
