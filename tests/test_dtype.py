"""Data types as objects: zarr-python's classes, and our own under the same names."""

import numpy as np
import pytest
import zarr.dtype

import gzarr
from gzarr import dtype as own
from gzarr.errors import MetadataError

#: An object of zarr-python, and the code that makes the same of ours.
BOTH = [
    *("Bool()", "Int8()", "UInt8()", "Int16()", "UInt16()", "Int32()", "Int64()"),
    *("Float16()", "Float32()", "Complex64()", "Complex128()"),
    "Int32(endianness='big')",
    "DateTime64(unit='ms', scale_factor=10)",
    "TimeDelta64(unit='s')",
    "FixedLengthUTF32(length=5)",
    "NullTerminatedBytes(length=5)",
    "RawBytes(length=5)",
    "VariableLengthUTF8()",
    "VariableLengthBytes()",
]


@pytest.mark.parametrize("code", BOTH)
def test_both_mean_the_same(code: str) -> None:
    ours, theirs = eval(code, vars(own)), eval(code, vars(zarr.dtype))
    arrays = [gzarr.create_array(shape=3, dtype=like, zarr_format=2) for like in (ours, theirs)]
    assert arrays[0].metadata.data_type == arrays[1].metadata.data_type
    for zarr_format in (2, 3):
        assert own.parse_dtype(theirs, zarr_format=zarr_format) == ours
        stored = ours.to_json(zarr_format)
        assert type(ours).from_json(stored, zarr_format=zarr_format).to_json(zarr_format) == stored
    assert ours.to_native_dtype() == theirs.to_native_dtype()
    assert ours.item_size >= 1


def test_records_and_what_has_no_class() -> None:
    record = own.parse_dtype([("a", "<i4"), ("b", "<f8")])
    assert record == own.Struct((("a", own.Int32("little")), ("b", own.Float64("little"))))
    assert gzarr.zeros(2, dtype=record).dtype == np.dtype([("a", "<i4"), ("b", "<f8")])
    padded = np.dtype({"names": ["a"], "formats": ["<i4"], "itemsize": 8})
    assert own.parse_dtype(padded).to_native_dtype() == padded
    bfloat = own.parse_dtype("bfloat16")
    assert gzarr.zeros(2, dtype=bfloat).metadata.data_type.name == "bfloat16"


def test_scalars_and_errors() -> None:
    assert (own.Int16().default_scalar(), own.Float32().to_json_scalar(np.nan, zarr_format=3)) == (0, "NaN")
    assert np.isnan(own.Float32().from_json_scalar("NaN", zarr_format=3))
    assert own.Int8.from_native_dtype("i1") == own.Int8()
    with pytest.raises(MetadataError, match=r"is Int8.*not Bool"):
        own.Bool.from_native_dtype("i1")
    with pytest.raises(MetadataError, match=r"write Int8\(\)"):
        gzarr.zeros(3, dtype=own.Int8)
    with pytest.raises(MetadataError):
        own.Int8().cast_scalar(300)
