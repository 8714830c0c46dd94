"""Data types that users register."""

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
from gzarr.errors import MetadataError

ml_dtypes = pytest.importorskip("ml_dtypes")


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
