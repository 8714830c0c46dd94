"""One test for every row of CORRECTNESS.md."""

import re
from pathlib import Path

import numpy as np
import pytest

import gzarr
from tests.conformance.layouts import v3

LEDGER = Path(__file__).parents[2] / "CORRECTNESS.md"


@pytest.mark.parametrize("endian", ["little", "big"])
@pytest.mark.parametrize("location", ["start", "end"])
def test_a_shard_as_long_as_its_index_without_checksum(endian: str, location: str) -> None:
    options = {
        "chunk_shape": [4],
        "codecs": [v3("bytes", endian="little")],
        "index_codecs": [v3("bytes", endian=endian)],
        "index_location": location,
    }
    values = np.arange(1, 17, dtype="i4")  # four chunks of 16 bytes, as are the four entries of the index
    stored: dict = {}
    array = gzarr.create_array(
        stored, shape=(16,), chunks=(16,), dtype="i4", compressors=None, serializer=v3("sharding_indexed", **options)
    )
    array[...] = values
    index = np.array(
        [[64 * (location == "start") + 16 * i, 16] for i in range(4)], "<u8" if endian == "little" else ">u8"
    )
    parts = [index.tobytes(), values.tobytes()] if location == "start" else [values.tobytes(), index.tobytes()]
    assert stored["c/0"] == b"".join(parts)
    assert np.array_equal(gzarr.open_array(stored)[...], values)


@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<c8", "<f2"])
def test_chunks_of_a_nan_that_v2_documents_cannot_name(dtype: str) -> None:
    size = np.dtype(dtype).itemsize
    payload = np.frombuffer(b"\xff" * size, dtype)  # a NaN, in both parts of a complex number too
    stored: dict = {}
    array = gzarr.create_array(stored, shape=(4,), chunks=(2,), dtype=dtype, zarr_format=2, fill_value=payload[0])
    array[:2] = np.repeat(payload, 2)
    assert array[:2].tobytes() == b"\xff" * 2 * size
    assert gzarr.open_array(stored)[:2].tobytes() == b"\xff" * 2 * size


def test_the_ledger_names_tests_that_exist() -> None:
    named = re.findall(r"test_wrong_bytes\.py::(\w+)", LEDGER.read_text())
    assert named
    assert [name for name in named if name not in globals()] == []
