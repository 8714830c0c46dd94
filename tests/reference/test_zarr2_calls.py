"""Calls of zarr 2 that its tutorial does not show and that programs lean on."""

import numpy as np
import pytest

import gzarr as zarr


@pytest.fixture
def z(zarr_format):
    return zarr.array(np.arange(60).reshape(10, 6), chunks=(3, 4), store="z.zarr")


def test_keywords_that_change_nothing(z):
    again = zarr.open_array("z.zarr", mode="r", cache_metadata=False, cache_attrs=False, partial_decompress=True)
    assert again[9, 5] == 59
    assert zarr.zeros(3, meta_array=np.empty(())).meta_array.shape == ()


def test_metadata_key_of_consolidated_metadata():
    g = zarr.group("c.zarr", zarr_format=2)
    g["a"] = np.arange(3)
    zarr.consolidate_metadata("c.zarr", metadata_key=".other")
    assert zarr.open_consolidated("c.zarr", metadata_key=".other")["a"][2] == 2
