"""The values that users pass as dtype=."""

import ctypes

import numpy as np
import pytest
from numpy._core._rational_tests import rational

from gzarr import dtypes
from gzarr.dtypes.datatype import BYTES, OBJECT, STRING
from gzarr.errors import MetadataError, UnknownDataTypeError


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
    dt = dtypes.parse_dtype(like)
    assert dt == dtypes.DataType(np.dtype(expected))
    assert dt.dtype.byteorder == np.dtype(expected).byteorder
    assert dtypes.parse_dtype(dt) is dt


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
        (object, OBJECT),
        ("O", OBJECT),
        ("object", OBJECT),
    ],
)
def test_parse_dtype_of_variable_length(like, expected):
    assert dtypes.parse_dtype(like) == expected


# -- structs -------------------------------------------------------------------------------------------------------


def test_fields_out_of_order_or_overlapping_are_packed():
    view = np.zeros(2, [("a", "i4"), ("b", "i8"), ("c", ">i2")])[["c", "a"]].dtype
    assert dtypes.parse_dtype(view).dtype == np.dtype([("c", ">i2"), ("a", "i4")])
    union = np.dtype({"names": ["i", "f"], "formats": ["u4", "f4"], "offsets": [0, 0]})
    assert dtypes.parse_dtype(union).dtype == np.dtype([("i", "u4"), ("f", "f4")])


def test_records_are_structs():
    record = np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]).dtype
    assert dtypes.parse_dtype(record).dtype.type is np.void


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
        dtypes.parse_dtype(like)


@pytest.mark.parametrize(
    "like", ["float99", "", "i4,,", 3.5, {"name": "float99"}, np.dtype(rational), "r", "M8[parsec]"]
)
def test_parse_dtype_of_unknown_names(like):
    with pytest.raises(UnknownDataTypeError, match="register_data_type"):
        dtypes.parse_dtype(like)


def test_names_to_show():
    assert [dtypes.parse_dtype(like).name for like in ("i4", ">i4", str, object, "bfloat16", "M8[s]")] == [
        "int32",
        ">i4",
        "string",
        "object",
        "bfloat16",
        "datetime64[s]",
    ]


@pytest.mark.parametrize(("name", "near"), [("i5", "i8"), ("flaot32", "float32"), ("float12", "float32")])
def test_the_error_for_an_unknown_name_suggests_one(name, near):
    with pytest.raises(UnknownDataTypeError, match=f"did you mean '{near}'"):
        dtypes.parse_dtype(name)


@pytest.mark.parametrize("like", [np.longdouble, np.clongdouble, np.dtype([("a", np.longdouble)])])
def test_long_doubles_are_refused_with_what_to_use(like):
    instead = "complex128" if like is np.clongdouble else "float64"
    with pytest.raises(UnknownDataTypeError, match=f"long doubles are no data type of Zarr v3.*{instead!r}"):
        dtypes.to_v3(dtypes.parse_dtype(like))


ml_dtypes = pytest.importorskip("ml_dtypes")


@pytest.fixture
def _clean_registry(monkeypatch):
    from gzarr.dtypes import extension

    monkeypatch.setattr(extension, "_by_name", dict(extension._by_name))
    monkeypatch.setattr(extension, "_names", dict(extension._names))


@pytest.mark.usefixtures("_clean_registry")
def test_a_registered_user_defined_type_is_written_by_its_name():
    dtypes.register_data_type("acme.rational", rational)
    dtypes.register_data_type("acme.rational", rational)  # again is no harm
    dt = dtypes.parse_dtype("acme.rational")
    assert dt == dtypes.parse_dtype(rational) == dtypes.DataType(np.dtype(rational))
    assert dtypes.to_v2(dt) == dtypes.to_v3(dt) == "acme.rational"
    assert dtypes.from_v2("acme.rational") == dtypes.from_v3("acme.rational") == dt
    half = rational(1, 2)
    assert dtypes.fill_to_json(half, dt, 3) == "0x0000000100000001"  # two 32-bit integers: 1 and 2 - 1
    assert dtypes.fill_from_json("0x0000000100000001", dt, 3) == half
    assert dtypes.fill_from_json(3, dt, 3) == dtypes.cast_fill(3, dt) == rational(3)
    assert dtypes.default_fill(dt) == rational(0)
    for bad in ("x", 1.5, None, "0x00"):
        with pytest.raises(MetadataError, match="fill_value"):
            dtypes.fill_from_json(bad, dt, 3)
    with pytest.raises(MetadataError, match="fill_value"):
        dtypes.cast_fill(1.5, dt)
    with pytest.raises(MetadataError, match=r"already has the name 'acme\.rational'"):
        dtypes.register_data_type("acme.ratio", rational)


@pytest.mark.usefixtures("_clean_registry")
def test_a_registered_numpy_dtype_is_an_alias_for_reading():
    dtypes.register_data_type("acme.count", "u4")
    assert (
        dtypes.from_v3("acme.count")
        == dtypes.from_v2("acme.count")
        == dtypes.parse_dtype("acme.count")
        == dtypes.DataType(np.dtype("u4"))
    )
    assert dtypes.to_v3(dtypes.from_v3("acme.count")) == "uint32"
    dtypes.register_data_type("acme.big", ">u4")
    assert dtypes.from_v3("acme.big").dtype == np.dtype("u4")
    assert dtypes.from_v2("acme.big").dtype == np.dtype(">u4")
    with pytest.raises(MetadataError, match="is taken"):
        dtypes.register_data_type("acme.count", "u8")


@pytest.mark.parametrize("name", ["int32", "bfloat16", "raw_bytes", "r16", "string"])
def test_standard_names_cannot_be_registered(name):
    with pytest.raises(MetadataError, match="is taken"):
        dtypes.register_data_type(name, "u8")


def test_ml_types_cannot_be_renamed_nor_objects_registered():
    with pytest.raises(MetadataError, match="already has the name 'bfloat16'"):
        dtypes.register_data_type("acme.bf16", ml_dtypes.bfloat16)
    with pytest.raises(MetadataError, match="elements of one size"):
        dtypes.register_data_type("acme.object", object)
