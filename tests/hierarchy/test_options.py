"""How an array object reads and writes."""

import pytest

import gzarr
from gzarr.hierarchy.options import ArrayConfig


def test_an_array_says_how_it_is_read_and_written():
    z = gzarr.zeros((2, 2), chunks=1, config={"write_empty_chunks": True})
    assert z.config == ArrayConfig("C", write_empty_chunks=True, read_missing_chunks=True)
    other = z.with_config({"read_missing_chunks": False, "order": "F"})
    assert other.config == ArrayConfig("C", write_empty_chunks=True, read_missing_chunks=False)
    assert z.with_config(other.config).config == other.config
    assert gzarr.open_array(z, config=ArrayConfig(read_missing_chunks=False)).config.read_missing_chunks is False
    root = gzarr.group()
    for _ in range(2):  # created, then opened
        assert root.require_array("a", (3,), config={"read_missing_chunks": False}).read_missing_chunks is False
    assert gzarr.open(z, write_empty_chunks=True).config.write_empty_chunks
    with gzarr.config.set({"array.read_missing_chunks": False}):
        assert not gzarr.zeros(3).config.read_missing_chunks


def test_other_names_and_values_are_refused():
    with pytest.raises(gzarr.MetadataError, match="write_empty_chunks must be True or False, got 'yes'"):
        gzarr.zeros(3, config={"write_empty_chunks": "yes"})
    with pytest.raises(gzarr.MetadataError, match="order must be 'C' or 'F', got 'K'"):
        gzarr.open_array(gzarr.zeros(3), config={"order": "K"})
    with pytest.raises(TypeError, match="config has no 'write_empty'; it has order, write_empty_chunks"):
        gzarr.zeros(3).with_config({"write_empty": True})
    assert gzarr.zeros(3).with_config({"sharding_coalesce_max_bytes": 5}).config == ArrayConfig()


def test_the_order_asked_for_goes_before_that_of_the_config():
    assert gzarr.zeros((2, 2), zarr_format=2, order="C", config={"order": "F"}).order == "C"
    assert gzarr.zeros((2, 2), zarr_format=2, config={"order": "F"}).order == "F"
