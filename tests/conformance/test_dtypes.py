"""Data types and fill values agree with zarr-python and TensorStore where arrays that are exchanged do not show it."""

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

pytestmark = pytest.mark.filterwarnings("ignore")

NAME = {2: ".zarray", 3: "zarr.json"}
LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}


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


def bits(value, dtype):
    """Bytes of a value in a dtype, or the value itself if it is of variable length."""
    return value if dtype.hasobject else np.asarray(value, dtype).tobytes()


# -- zarr-python ---------------------------------------------------------------------------------------------------


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


@pytest.fixture
def tensorstore():
    return pytest.importorskip("tensorstore")


def ts_open(tensorstore, path, zarr_format, **options):
    driver = {2: "zarr", 3: "zarr3"}[zarr_format]
    spec = {"driver": driver, "kvstore": {"driver": "file", "path": str(path)}, **options.pop("spec", {})}
    return tensorstore.open(spec, **options).result()


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
