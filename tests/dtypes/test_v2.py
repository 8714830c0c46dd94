"""Names of data types in Zarr v2."""

import numpy as np
import pytest

from gzarr.dtypes import DataType, from_v2, from_v3, parse_dtype, to_v2, to_v3
from gzarr.dtypes.datatype import BYTES, OBJECT, STRING
from gzarr.errors import MetadataError, UnknownDataTypeError

ml_dtypes = pytest.importorskip("ml_dtypes")


def test_byte_swapped_extension_types_have_no_name_in_v2():
    swapped = parse_dtype(np.dtype(ml_dtypes.bfloat16).newbyteorder(">"))
    with pytest.raises(MetadataError, match="bfloat16 is stored little endian"):
        to_v2(swapped)
    assert from_v3(to_v3(swapped)).dtype == np.dtype(ml_dtypes.bfloat16)


def test_padding_is_kept_in_v2_as_fields_without_names_and_dropped_in_v3():
    aligned = np.dtype([("a", "i1"), ("b", "i8"), ("c", "i1")], align=True)
    dt = parse_dtype(aligned)
    assert dt.dtype == aligned
    assert to_v2(dt) == [["a", "|i1"], ["", "|V7"], ["b", "<i8"], ["c", "|i1"], ["", "|V7"]]
    assert from_v2(to_v2(dt)).dtype == aligned
    assert from_v3(to_v3(dt)).dtype == np.dtype([("a", "i1"), ("b", "i8"), ("c", "i1")])


@pytest.mark.parametrize("text", ["int32", "i4", "=i4", "|i4"])  # zarr-python 2 reads them
def test_v2_reads_loose_spellings(text):
    assert from_v2(text) == DataType(np.dtype("i4"))


def test_v2_strings_of_no_length_are_stored_one_character_wide():
    assert from_v2("|S0").dtype == np.dtype("S1")
    assert from_v2(">U0").dtype == np.dtype(">U1")


def test_v2_objects_are_what_the_object_codec_says():
    assert from_v2("|O", "vlen-utf8") == STRING
    assert from_v2("|O", "vlen-bytes") == BYTES
    assert from_v2("|O", "json2") == from_v2("|O", "pickle") == from_v2("|O") == OBJECT
    assert to_v2(STRING) == to_v2(BYTES) == to_v2(OBJECT) == "|O"


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
