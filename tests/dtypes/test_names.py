"""What users pass as dtype=, and the data types of v2 and v3 metadata."""

import ctypes
import subprocess
import sys

import numpy as np
import pytest
from numpy._core._rational_tests import rational

from gzarr.dtypes import (
    DataType,
    cast_fill,
    default_fill,
    fill_from_json,
    fill_to_json,
    from_v2,
    from_v3,
    parse_dtype,
    register_data_type,
    to_v2,
    to_v3,
)
from gzarr.errors import MetadataError, UnknownDataTypeError

ml_dtypes = pytest.importorskip("ml_dtypes")

OBJECT = np.dtype(object)
STRING, BYTES, ANY = DataType(OBJECT, "string"), DataType(OBJECT, "bytes"), DataType(OBJECT, "object")

ML = sorted(
    [
        "bfloat16",
        "float4_e2m1fn",
        "float6_e2m3fn",
        "float6_e3m2fn",
        "float8_e3m4",
        "float8_e4m3",
        "float8_e4m3b11fnuz",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
        "int2",
        "int4",
        "uint2",
        "uint4",
    ]
)


def named(name, **configuration):
    return {"name": name, "configuration": configuration}


@pytest.mark.parametrize(
    ("like", "expected"),
    [
        (">i4", ">i4"),
        ("i4", "<i4"),
        (np.float32, "f4"),
        (float, "f8"),
        (int, "i8"),
        (bool, "?"),
        (complex, "c16"),
        (ctypes.c_uint16, "u2"),
        ("complex64", "c8"),
        ("q", "i8"),
        ("g", "g"),
        ("S6", "S6"),
        ("U20", "U20"),
        (">U3", ">U3"),
        ("M8[D]", "M8[D]"),
        (">m8[10us]", ">m8[10us]"),
        ("M8", "M8"),
        ("V16", "V16"),
        ("r16", "V2"),
        ({"name": "raw_bytes", "configuration": {"length_bytes": 3}}, "V3"),
        ({"name": "int32"}, "i4"),
        ({"names": ["a", "b"], "formats": ["i4", "f8"]}, [("a", "i4"), ("b", "f8")]),
        ("i4,f8", [("f0", "i4"), ("f1", "f8")]),
        ([["a", "<i4"], ["b", ">f8", [2, 3]]], [("a", "<i4"), ("b", ">f8", (2, 3))]),
        ([("a", "i4"), ("n", [("x", ">u2", (2,))])], [("a", "i4"), ("n", [("x", ">u2", (2,))])]),
        ({"name": "numpy.timedelta64", "configuration": {"unit": "s", "scale_factor": 7}}, "m8[7s]"),
    ],
)
def test_parse_dtype_of_one_size(like, expected):
    dt = parse_dtype(like)
    assert dt == DataType(np.dtype(expected))
    assert dt.dtype.byteorder == np.dtype(expected).byteorder
    assert parse_dtype(dt) is dt


@pytest.mark.parametrize(
    ("like", "expected"),
    [
        (str, STRING),
        ("str", STRING),
        ("string", STRING),
        ("U", STRING),
        (np.dtype("U0"), STRING),
        (np.dtypes.StringDType(), STRING),
        (np.dtype(object, metadata={"vlen": str}), STRING),
        (bytes, BYTES),
        ("bytes", BYTES),
        ("variable_length_bytes", BYTES),
        ("S", BYTES),
        (np.dtype(object, metadata={"vlen": bytes}), BYTES),
        (object, ANY),
        ("O", ANY),
        ("object", ANY),
    ],
)
def test_parse_dtype_of_variable_length(like, expected):
    assert parse_dtype(like) == expected


@pytest.mark.parametrize("name", ML)
def test_ml_dtypes_by_class_dtype_and_name(name):
    kind = getattr(ml_dtypes, name)
    expected = DataType(np.dtype(kind))
    for like in (kind, np.dtype(kind), name, {"name": name}, expected):
        assert parse_dtype(like) == expected
    assert to_v2(expected) == to_v3(expected) == expected.name == name
    assert from_v2(name) == from_v3(name) == expected
    assert from_v2([["a", name, [2]]]).dtype == np.dtype([("a", kind, (2,))])


@pytest.mark.parametrize(("name", "theirs"), [("complex_float16", "complex32"), ("complex_bfloat16", "bcomplex32")])
def test_ml_complex_types_have_other_names_in_zarr(name, theirs):
    expected = DataType(np.dtype(getattr(ml_dtypes, theirs)))
    assert parse_dtype(name) == from_v3(name) == from_v2(name) == parse_dtype(expected.dtype) == expected
    assert to_v3(expected) == to_v2(expected) == name


def run(code):
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_ml_types_are_imported_only_when_named():
    out = run(
        "import sys; from gzarr.dtypes import from_v3, parse_dtype\n"
        "parse_dtype('i4'); from_v3('float32'); print('ml_dtypes' in sys.modules)\n"
        "print(parse_dtype('bfloat16').dtype.itemsize, 'ml_dtypes' in sys.modules)"
    )
    assert out.split() == ["False", "2", "True"]


@pytest.mark.parametrize("function", ["parse_dtype", "from_v2", "from_v3"])
def test_without_ml_dtypes_the_error_names_the_extra(function):
    out = run(
        "import sys; sys.modules['ml_dtypes'] = None\n"
        "import gzarr.dtypes; from gzarr.errors import MissingExtraError\n"
        f"try: gzarr.dtypes.{function}('bfloat16')\n"
        "except MissingExtraError as error: print(error)"
    )
    assert "'bfloat16'" in out
    assert "pip install 'gzarr[ml]'" in out


def test_byte_swapped_extension_types_have_no_name_in_v2():
    swapped = parse_dtype(np.dtype(ml_dtypes.bfloat16).newbyteorder(">"))
    with pytest.raises(MetadataError, match="bfloat16 is stored little endian"):
        to_v2(swapped)
    assert from_v3(to_v3(swapped)).dtype == np.dtype(ml_dtypes.bfloat16)


# -- structs -------------------------------------------------------------------------------------------------------


def test_padding_is_kept_in_v2_as_fields_without_names_and_dropped_in_v3():
    aligned = np.dtype([("a", "i1"), ("b", "i8"), ("c", "i1")], align=True)
    dt = parse_dtype(aligned)
    assert dt.dtype == aligned
    assert to_v2(dt) == [["a", "|i1"], ["", "|V7"], ["b", "<i8"], ["c", "|i1"], ["", "|V7"]]
    assert from_v2(to_v2(dt)).dtype == aligned
    assert from_v3(to_v3(dt)).dtype == np.dtype([("a", "i1"), ("b", "i8"), ("c", "i1")])


def test_nested_padding_is_kept_in_v2():
    inner = np.dtype([("x", "u1"), ("y", "f8")], align=True)
    outer = np.dtype([("a", "i2"), ("n", inner, (2,))], align=True)
    assert from_v2(to_v2(parse_dtype(outer))).dtype == outer


def test_fields_out_of_order_or_overlapping_are_packed():
    view = np.zeros(2, [("a", "i4"), ("b", "i8"), ("c", ">i2")])[["c", "a"]].dtype
    assert parse_dtype(view).dtype == np.dtype([("c", ">i2"), ("a", "i4")])
    union = np.dtype({"names": ["i", "f"], "formats": ["u4", "f4"], "offsets": [0, 0]})
    assert parse_dtype(union).dtype == np.dtype([("i", "u4"), ("f", "f4")])


def test_records_are_structs():
    record = np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]).dtype
    assert parse_dtype(record).dtype.type is np.void


@pytest.mark.parametrize(
    ("like", "message"),
    [
        ([(("title", "a"), "i4")], "title 'title'"),
        (("i4", (2,)), "subarray"),
        ([("a", "O")], "elements of one size"),
        ([("a", "S")], "elements of one size"),
        ([("a", [("b", "U")])], "elements of one size"),
        ({"names": [""], "formats": ["i4"]}, "have a name"),
        (np.dtype([]), "1 or more fields"),
        ("V0", "at least one byte"),
    ],
)
def test_parse_dtype_refuses_what_cannot_be_stored(like, message):
    with pytest.raises(MetadataError, match=message):
        parse_dtype(like)


@pytest.mark.parametrize(
    "like", ["float99", "", "i4,,", 3.5, {"name": "float99"}, np.dtype(rational), "r", "M8[parsec]"]
)
def test_parse_dtype_of_unknown_names(like):
    with pytest.raises(UnknownDataTypeError, match="register_data_type"):
        parse_dtype(like)


# -- v2 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "|b1",
        "<i4",
        ">i4",
        "|u1",
        "<f2",
        ">c16",
        "|S6",
        "<U4",
        ">U4",
        "<M8[D]",
        ">m8[10us]",
        "<M8[2147483647Y]",
        "<M8",
        "|V5",
        "<f16",
    ],
)
def test_v2_names_round_trip(text):
    dt = from_v2(text)
    assert dt == DataType(np.dtype(text))
    assert to_v2(dt) == text


@pytest.mark.parametrize("text", ["int32", "i4", "=i4", "|i4"])  # zarr-python 2 reads them
def test_v2_reads_loose_spellings(text):
    assert from_v2(text) == DataType(np.dtype("i4"))


def test_v2_strings_of_no_length_are_stored_one_character_wide():
    assert from_v2("|S0").dtype == np.dtype("S1")
    assert from_v2(">U0").dtype == np.dtype(">U1")


def test_v2_objects_are_what_the_object_codec_says():
    assert from_v2("|O", "vlen-utf8") == STRING
    assert from_v2("|O", "vlen-bytes") == BYTES
    assert from_v2("|O", "json2") == from_v2("|O", "pickle") == from_v2("|O") == ANY
    assert to_v2(STRING) == to_v2(BYTES) == to_v2(ANY) == "|O"


def test_v2_struct_shapes_may_be_one_integer():
    assert from_v2([["a", "<i4", 2]]).dtype == np.dtype([("a", "<i4", (2,))])


def deep(depth):
    json = "<i4"
    for _ in range(depth):
        json = [["a", json]]
    return json


@pytest.mark.parametrize(
    "json",
    [
        None,
        4,
        {},
        [],
        ["<i4"],
        [["a"]],
        [["a", "<i4", 2, 3]],
        [[1, "<i4"]],
        [["a", 4]],
        [["a", "<i4", [-1]]],
        [["a", "<i4", "2"]],
        [["a", "<i4", [2**31, 2**31]]],
        [["a", "<i4"], ["a", "<i4"]],
        [["", "<i4"]],
        [["", "|V4"]],
        [["a", "|O"]],
        [["a", []]],
        "|V0",
        deep(17),
        deep(900),
    ],
)
def test_v2_malformed(json):
    with pytest.raises(MetadataError, match=r"dtype|data type"):
        from_v2(json)


@pytest.mark.parametrize(
    "text", ["i4,f8", "<i3", "<q9", "float99", "<M8[parsec]", "|V99999999999", "", "(2,)i4", "<S", "x" * 99]
)
def test_v2_unknown(text):
    with pytest.raises(UnknownDataTypeError, match="register_data_type"):
        from_v2(text)


# -- v3 ------------------------------------------------------------------------------------------------------------


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
        to_v3(ANY)
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


# -- registration --------------------------------------------------------------------------------------------------


@pytest.fixture
def _clean_registry(monkeypatch):
    from gzarr.dtypes import extension

    monkeypatch.setattr(extension, "_by_name", dict(extension._by_name))
    monkeypatch.setattr(extension, "_names", dict(extension._names))


@pytest.mark.usefixtures("_clean_registry")
def test_a_registered_user_defined_type_is_written_by_its_name():
    register_data_type("acme.rational", rational)
    register_data_type("acme.rational", rational)  # again is no harm
    dt = parse_dtype("acme.rational")
    assert dt == parse_dtype(rational) == DataType(np.dtype(rational))
    assert to_v2(dt) == to_v3(dt) == "acme.rational"
    assert from_v2("acme.rational") == from_v3("acme.rational") == dt
    half = rational(1, 2)
    assert fill_to_json(half, dt, 3) == "0x0000000100000001"  # two 32-bit integers: 1 and 2 - 1
    assert fill_from_json("0x0000000100000001", dt, 3) == half
    assert fill_from_json(3, dt, 3) == cast_fill(3, dt) == rational(3)
    assert default_fill(dt) == rational(0)
    for bad in ("x", 1.5, None, "0x00"):
        with pytest.raises(MetadataError, match="fill_value"):
            fill_from_json(bad, dt, 3)
    with pytest.raises(MetadataError, match="fill_value"):
        cast_fill(1.5, dt)
    with pytest.raises(MetadataError, match=r"already has the name 'acme\.rational'"):
        register_data_type("acme.ratio", rational)


@pytest.mark.usefixtures("_clean_registry")
def test_a_registered_numpy_dtype_is_an_alias_for_reading():
    register_data_type("acme.count", "u4")
    assert from_v3("acme.count") == from_v2("acme.count") == parse_dtype("acme.count") == DataType(np.dtype("u4"))
    assert to_v3(from_v3("acme.count")) == "uint32"
    register_data_type("acme.big", ">u4")
    assert from_v3("acme.big").dtype == np.dtype("u4")
    assert from_v2("acme.big").dtype == np.dtype(">u4")
    with pytest.raises(MetadataError, match="is taken"):
        register_data_type("acme.count", "u8")


@pytest.mark.parametrize("name", ["int32", "bfloat16", "raw_bytes", "r16", "string"])
def test_standard_names_cannot_be_registered(name):
    with pytest.raises(MetadataError, match="is taken"):
        register_data_type(name, "u8")


def test_ml_types_cannot_be_renamed_nor_objects_registered():
    with pytest.raises(MetadataError, match="already has the name 'bfloat16'"):
        register_data_type("acme.bf16", ml_dtypes.bfloat16)
    with pytest.raises(MetadataError, match="elements of one size"):
        register_data_type("acme.object", object)


def test_names_to_show():
    assert [parse_dtype(like).name for like in ("i4", ">i4", str, object, "bfloat16", "M8[s]")] == [
        "int32",
        ">i4",
        "string",
        "object",
        "bfloat16",
        "datetime64[s]",
    ]
