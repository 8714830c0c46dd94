"""Calls of the zarr 2 tutorial that no test of a module makes, and what it says they print."""

import lzma

import numpy as np
import pytest
from numcodecs import LZMA, Blosc, Zstd, blosc

import gzarr as zarr

# -- compressors and filters -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("format_2")
def test_default_compressor_of_format_2():
    z = zarr.zeros((100, 100), chunks=(10, 10))
    assert repr(z.compressor) == "Blosc(cname='lz4', clevel=5, shuffle=SHUFFLE, blocksize=0)"


def test_default_compressor_of_format_3():
    z = zarr.zeros((100, 100), chunks=(10, 10))
    assert repr(z.compressor) == "Zstd(level=0)"
    assert z.compressors == (zarr.codecs.ZstdCodec(level=0),)


def test_lzma_with_a_filter_pipeline(zarr_format):
    lzma_filters = [{"id": lzma.FILTER_DELTA, "dist": 4}, {"id": lzma.FILTER_LZMA2, "preset": 1}]
    data = np.arange(10000, dtype="i4").reshape(100, 100)
    z = zarr.array(data, chunks=(50, 50), compressor=LZMA(filters=lzma_filters), store="lzma.zarr")
    assert np.array_equal(z[:], data)
    again = zarr.open("lzma.zarr", mode="r")
    assert repr(again.compressor) == repr(z.compressor)
    assert np.array_equal(again[:], data)
    # Format 2 sorts the fields of its documents, which is how the tutorial came to print "dist" first.
    delta = {2: "{'dist': 4, 'id': 3}", 3: "{'id': 3, 'dist': 4}"}[zarr_format]
    assert repr(z.compressor) == (
        f"LZMA(format=1, check=-1, preset=None, filters=[{delta}, {{'id': 33, 'preset': 1}}])"
    )


@pytest.mark.usefixtures("zarr_format")
def test_changing_the_default_compressor(monkeypatch):
    monkeypatch.setattr(zarr.storage, "default_compressor", Zstd(level=1))
    z = zarr.zeros(100000000, chunks=1000000)
    assert repr(z.compressor) == "Zstd(level=1)"
    monkeypatch.setattr(zarr.storage, "default_compressor", Blosc())
    assert repr(zarr.zeros(100, chunks=10).compressor) == ("Blosc(cname='lz4', clevel=5, shuffle=SHUFFLE, blocksize=0)")


@pytest.mark.usefixtures("zarr_format")
def test_configuring_blosc(monkeypatch):
    before = blosc.set_nthreads(2)
    data = np.arange(100_000)
    try:
        for use_threads in (True, False, None):
            monkeypatch.setattr(blosc, "use_threads", use_threads)
            z = zarr.array(data, chunks=10_000, compressor=zarr.Blosc(cname="lz4"))
            assert np.array_equal(z[:], data)
    finally:
        assert blosc.set_nthreads(before) == 2


# -- what the tutorial does not show, and programs lean on ---------------------------------------------------------


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
