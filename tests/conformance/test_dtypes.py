"""Data types and fill values agree with zarr-python and TensorStore: their documents read here, ours read there."""

import json

import numpy as np
import pytest

from gzarr.dtypes import (
    cast_fill,
    default_fill,
    fill_from_json,
    fill_to_json,
    from_v2,
    from_v3,
    parse_dtype,
    to_v2,
    to_v3,
)
from gzarr.dtypes.datatype import packed_little

pytestmark = pytest.mark.filterwarnings("ignore")

NAME = {2: ".zarray", 3: "zarr.json"}
KEY = {2: "dtype", 3: "data_type"}
LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
ONE_BYTE = {"|b1", "|i1", "|u1"}


def document(dt, fill, zarr_format):
    """The metadata of an array of two elements and no chunks, with data type and fill value as gzarr writes them."""
    if zarr_format == 2:
        vlen = {"string": "vlen-utf8", "bytes": "vlen-bytes"}.get(dt.variable)
        return {
            "zarr_format": 2,
            "shape": [2],
            "chunks": [2],
            "dtype": to_v2(dt),
            "fill_value": fill_to_json(fill, dt, 2),
            "order": "C",
            "filters": [{"id": vlen}] if vlen else None,
            "compressor": None,
        }
    serializer = {"string": {"name": "vlen-utf8"}, "bytes": {"name": "vlen-bytes"}}.get(dt.variable, LITTLE)
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [2],
        "data_type": to_v3(dt),
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": fill_to_json(fill, dt, 3),
        "codecs": [serializer],
    }


def parse(metadata, zarr_format):
    """(data type, fill value) of a metadata document."""
    if zarr_format == 2:
        ids = [item["id"] for item in metadata["filters"] or ()]
        dt = from_v2(metadata["dtype"], ids[0] if ids else None)
    else:
        dt = from_v3(metadata["data_type"])
    return dt, fill_from_json(metadata["fill_value"], dt, zarr_format)


def stored_as(dt, zarr_format):
    """The dtype that an array of this type has once it was written and opened again."""
    if zarr_format == 2 or dt.variable:
        return dt.dtype
    return packed_little(dt.dtype)


def bits(value, dtype):
    """Bytes of a value in a dtype, or the value itself if it is of variable length."""
    return value if dtype.hasobject else np.asarray(value, dtype).tobytes()


NAN_PAYLOAD = np.frombuffer(b"\1\0\xc0\x7f", "<f4")[0]
CASES = [
    ("?", True),
    ("i1", -128),
    (">i2", -2),
    ("<i8", -(2**63)),
    ("u8", 2**64 - 1),
    ("f2", 0.1),
    ("<f4", -0.0),
    ("f4", float("nan")),
    (">f8", float("-inf")),
    ("f8", 1e300),
    ("c8", complex(float("nan"), float("inf"))),
    (">c16", 1 + 2j),
    ("S6", b"ab\xff"),
    ("S6", b""),
    ("U4", "é\U0001f600"),
    (">U4", ""),
    ("V5", b"abcde"),
    ("M8[D]", "2000-01-01"),
    ("M8[10us]", "NaT"),
    (">m8[ns]", -5),
    ("M8", "NaT"),
    ("str", ""),
    ("str", "é"),
    ([("a", "<i4"), ("b", "<f8")], (1, 2.0)),
    ([("a", "<i4"), ("b", ">f8"), ("s", "S3"), ("u", "<U2")], (1, 2.0, b"ab", "é")),
]
# In v2, zarr-python 3 cannot make variable-length bytes nor (3.1) read nested structs.
NESTED = [("a", "<i4"), ("n", [("x", "u1"), ("t", "<M8[s]")])]
CASES_V3 = [*CASES, ("bytes", b"a\xff"), (NESTED, (1, (3, 4)))]
FORMATS = [(2, *case) for case in CASES] + [(3, *case) for case in CASES_V3]


# -- zarr-python ---------------------------------------------------------------------------------------------------


@pytest.fixture
def zarr():
    module = pytest.importorskip("zarr")
    if int(module.__version__.split(".")[0]) < 3:
        pytest.skip("needs zarr-python 3; what zarr-python 2 writes is recorded below")
    return module


def has_swapped_field(dtype):
    return dtype.names is not None and packed_little(dtype) != dtype


@pytest.mark.parametrize(("zarr_format", "dtype", "fill"), FORMATS)
def test_documents_of_zarr_python_are_read(zarr, zarr_format, dtype, fill):
    asked = parse_dtype(dtype)
    if zarr_format == 3 and has_swapped_field(asked.dtype):
        # zarr-python 3.1 writes such fields' fill values big endian and reads them back little endian.
        asked = parse_dtype(packed_little(asked.dtype))
    like = {"string": "string", "bytes": "variable_length_bytes"}.get(asked.variable, asked.dtype)
    store = {}
    zarr.create_array(store, shape=(2,), dtype=like, fill_value=cast_fill(fill, asked), zarr_format=zarr_format)
    dt, value = parse(json.loads(store[NAME[zarr_format]].to_bytes()), zarr_format)
    assert dt.variable == asked.variable
    assert dt.dtype == stored_as(asked, zarr_format)
    assert bits(value, dt.dtype) == bits(cast_fill(fill, asked), dt.dtype)
    if asked.dtype.str[1:] == "M8":
        return  # zarr-python 3.1 cannot open what it wrote
    theirs = zarr.open_array(store, mode="r")
    assert dt.variable or dt.dtype == theirs.dtype
    assert bits(value, dt.dtype) == bits(theirs.fill_value, dt.dtype)


@pytest.mark.parametrize(("zarr_format", "dtype", "fill"), [*FORMATS, (3, "f4", NAN_PAYLOAD)])
def test_zarr_python_reads_our_documents(zarr, tmp_path, zarr_format, dtype, fill):
    dt = parse_dtype(dtype)
    text = json.dumps(document(dt, fill, zarr_format), allow_nan=False)
    (tmp_path / NAME[zarr_format]).write_text(text)
    theirs = zarr.open_array(tmp_path, mode="r")
    expected = stored_as(dt, zarr_format)
    assert bits(theirs.fill_value, expected) == bits(cast_fill(fill, dt), expected)
    if dt.variable:
        assert list(theirs[:]) == [fill, fill]
    else:
        assert theirs.dtype == expected
        assert theirs[:].tobytes() == np.full(2, cast_fill(fill, dt), expected).tobytes()


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


def test_recorded_struct_of_zarr_python_3_4():
    fields = [
        {"name": "a", "data_type": "int32"},
        {"name": "s", "data_type": {"name": "null_terminated_bytes", "configuration": {"length_bytes": 3}}},
        {"name": "r", "data_type": {"name": "raw_bytes", "configuration": {"length_bytes": 3}}},
        {"name": "c", "data_type": "complex64"},
        {
            "name": "n",
            "data_type": {"name": "struct", "configuration": {"fields": [{"name": "x", "data_type": "uint8"}]}},
        },
    ]
    dt = from_v3({"name": "struct", "configuration": {"fields": fields}})
    assert dt.dtype == np.dtype([("a", "i4"), ("s", "S3"), ("r", "V3"), ("c", "c8"), ("n", [("x", "u1")])])
    fill = {"a": 0, "s": "", "r": "AAAA", "c": [0.0, 0.0], "n": {"x": 0}}
    assert fill_from_json(fill, dt, 3).tobytes() == default_fill(dt).tobytes()


# -- TensorStore ---------------------------------------------------------------------------------------------------

ML_CASES = [
    ("bfloat16", 1.5),
    ("bfloat16", float("nan")),
    ("bfloat16", float("-inf")),
    ("bfloat16", -0.0),
    ("float8_e3m4", 1.5),
    ("float8_e4m3fn", 1.5),
    ("float8_e4m3fn", float("nan")),
    ("float8_e4m3fnuz", -1.5),
    ("float8_e4m3fnuz", float("nan")),
    ("float8_e4m3b11fnuz", 1.5),
    ("float8_e5m2", float("inf")),
    ("float8_e5m2", float("nan")),
    ("float8_e5m2fnuz", 1.5),
    ("float4_e2m1fn", -6.0),
    ("int4", -8),
    ("int2", 1),
]
TS_CASES = [
    *ML_CASES,
    ("?", True),
    ("<i4", -3),
    ("u8", 2**64 - 1),
    ("f2", 0.1),
    ("<f4", -0.0),
    ("f8", float("nan")),
    ("c8", complex(float("nan"), float("inf"))),
    ("c16", 1 + 2j),
]


@pytest.fixture
def tensorstore():
    return pytest.importorskip("tensorstore")


def ts_open(tensorstore, path, zarr_format, **options):
    driver = {2: "zarr", 3: "zarr3"}[zarr_format]
    spec = {"driver": driver, "kvstore": {"driver": "file", "path": str(path)}, **options.pop("spec", {})}
    return tensorstore.open(spec, **options).result()


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(("dtype", "fill"), TS_CASES)
def test_documents_of_tensorstore_are_read(tensorstore, tmp_path, dtype, fill, zarr_format):
    asked = parse_dtype(dtype)
    value = cast_fill(fill, asked)
    theirs = ts_open(
        tensorstore, tmp_path, zarr_format, create=True, dtype=asked.dtype, shape=[2], fill_value=np.array(value)
    )
    metadata = json.loads((tmp_path / NAME[zarr_format]).read_text())
    assert metadata[KEY[zarr_format]] == (to_v2 if zarr_format == 2 else to_v3)(asked)
    dt, read = parse(metadata, zarr_format)
    assert dt == asked
    assert theirs.dtype.numpy_dtype == dt.dtype
    assert read.tobytes() == value.tobytes()
    assert json.dumps(fill_to_json(value, dt, zarr_format)) == json.dumps(metadata["fill_value"])


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(("dtype", "fill"), TS_CASES)
def test_tensorstore_reads_our_documents(tensorstore, tmp_path, dtype, fill, zarr_format):
    dt = parse_dtype(dtype)
    (tmp_path / NAME[zarr_format]).write_text(json.dumps(document(dt, fill, zarr_format)))
    theirs = ts_open(tensorstore, tmp_path, zarr_format)
    assert theirs.dtype.numpy_dtype == dt.dtype
    # JSON of v3 tells all bit patterns apart but the unused high bits of int4.
    expected = [fill_to_json(fill, dt, 3)] * 2
    assert [fill_to_json(item, dt, 3) for item in theirs.read().result()] == expected


@pytest.mark.parametrize(
    ("dtype", "hexadecimal"),
    [
        ("f4", "7fc00001"),
        ("f8", "fff8000000000001"),
        ("bfloat16", "7fc1"),
        ("float8_e4m3fn", "ff"),
        ("float8_e8m0fnu", "7f"),
    ],
)
def test_tensorstore_reads_our_bits(tensorstore, tmp_path, dtype, hexadecimal):
    dt = parse_dtype(dtype)
    fill = np.frombuffer(bytes.fromhex(hexadecimal)[::-1], dt.dtype)[0]
    (tmp_path / NAME[3]).write_text(json.dumps(document(dt, fill, 3)))
    assert ts_open(tensorstore, tmp_path, 3).fill_value.tobytes() == fill.tobytes()


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_tensorstore_opens_the_fields_of_our_structs(tensorstore, tmp_path, zarr_format):
    dt = parse_dtype([("a", "<i4"), ("b", "<f8")])
    (tmp_path / NAME[zarr_format]).write_text(json.dumps(document(dt, (1, 2.0), zarr_format)))
    for field, expected in (("a", 1), ("b", 2.0)):
        theirs = ts_open(tensorstore, tmp_path, zarr_format, spec={"field": field})
        assert theirs.read().result().tolist() == [expected, expected]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_tensorstore_opens_our_raw_bytes(tensorstore, tmp_path, zarr_format):
    (tmp_path / NAME[zarr_format]).write_text(json.dumps(document(parse_dtype("V2"), b"\1\2", zarr_format)))
    assert ts_open(tensorstore, tmp_path, zarr_format).shape == (2, 2)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn", "int4", "int2"])
def test_elements_of_tensorstore_have_the_size_and_bits_of_the_dtype(tensorstore, tmp_path, name, zarr_format):
    dt = parse_dtype(name)
    data = np.array([1, 0, -1]).astype(dt.dtype)
    raw = {"compressor": None} if zarr_format == 2 else {}
    ts_open(tensorstore, tmp_path, zarr_format, create=True, dtype=dt.dtype, shape=[3], spec={"metadata": raw}).write(
        data
    ).result()
    chunk = (tmp_path / ("0" if zarr_format == 2 else "c/0")).read_bytes()
    assert len(chunk) == 3 * dt.dtype.itemsize
    np.testing.assert_array_equal(np.frombuffer(chunk, dt.dtype), data)
