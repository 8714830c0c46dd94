"""Filters that store numbers as another data type, both directions: astype and cast_value."""

from __future__ import annotations

import numpy as np
import pytest
from numcodecs import AsType

from gzarr import codecs
from gzarr.gpu.device.hostbuild import find_compiler
from tests.gpu.codecs.filtering import check, numbers

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")


@pytest.mark.parametrize(
    ("stored", "dtype", "encoded"),
    [
        ("<i2", "<i4", "emulated"),
        ("<i4", "<i2", "emulated"),
        ("<u1", "<f4", "host"),
        ("<f4", "<u1", "emulated"),
        ("<f8", "<i8", "emulated"),
        (">u8", ">i2", "emulated"),
        ("<i4", "<f8", "host"),
        ("<f4", "<f8", "emulated"),
        ("<f8", "<f4", "emulated"),
        ("<f2", "<i4", "host"),
        ("u1", "?", "emulated"),
    ],
)
def test_astype(stored: str, dtype: str, encoded: str) -> None:
    data = numbers(dtype)
    if "i" not in dtype or "f" in stored:
        data = data if dtype == "?" else np.clip(data, 0, 100).astype(dtype)
    decoded = "host" if "f" in stored and "f" not in dtype else "emulated"
    check(data, [AsType(stored, dtype)], decoded=decoded, encoded=encoded)


@pytest.mark.parametrize(
    ("dtype", "stored", "decoded", "encoded"),
    [
        ("<f8", "float32", "emulated", "host"),
        ("<f8", "int16", "emulated", "host"),
        ("<i8", "int8", "emulated", "host"),
        ("<f4", "float16", "emulated", "host"),
        ("<f8", "int64", "host", "host"),
        ("<i4", "float64", "host", "emulated"),
        ("<i2", "int64", "host", "emulated"),
        ("<u4", "float64", "host", "emulated"),
        ("u1", "int16", "host", "emulated"),
        (">i4", "int32", "emulated", "emulated"),
        ("<i8", "float64", "host", "host"),
    ],
)
def test_cast_value(dtype: str, stored: str, decoded: str, encoded: str) -> None:
    data = (numbers("i1") % 50).astype(dtype)
    check(data, [codecs.CastValueCodec(stored)], decoded=decoded, encoded=encoded, zarr_format=3)


def test_cast_value_with_a_map() -> None:
    data = (numbers("i1") % 50).astype("<f8")
    data[::3, ::2] = np.nan
    data[1, 1] = np.inf
    pairs = [["NaN", -32768], ["Infinity", 32767]]
    scalar_map = {"encode": pairs, "decode": [[b, a] for a, b in pairs]}
    spec = codecs.CastValueCodec("int16", scalar_map=scalar_map)
    check(data, [spec], encoded="host", zarr_format=3, fill_value=0)


def test_cast_value_to_the_same_data_type_with_a_map() -> None:
    values = numbers("<f8", special=True)
    values[0, :3] = np.nan
    scalar_map = {"encode": [["NaN", -1], [2.5, 7]], "decode": [[-1, "NaN"]]}
    check(values, [codecs.CastValueCodec("float64", scalar_map=scalar_map)], zarr_format=3)
