"""Chunks by the names of axes, and guessed chunks that keep colours and channels together."""

import numpy as np
import pytest

import gzarr
from gzarr.copying.planning import guessed
from gzarr.copying.sources import from_memory, regular_grid
from gzarr.errors import CopyError


@pytest.fixture(params=[2, 3], ids=["v2", "v3"])
def root(request):
    root = gzarr.open_group(gzarr.MemoryStore(), "w", zarr_format=request.param)
    for name, shape, chunks, dims in (
        ("t", (4, 6, 8), (2, 6, 4), ["time", "lat", "lon"]),
        ("lat", (6,), (6,), ["lat"]),
        ("plain", (5,), (5,), None),
    ):
        names = {"dimension_names": dims} if request.param == 3 else {"attributes": {"_ARRAY_DIMENSIONS": dims}}
        root.create_array(name, data=np.zeros(shape), chunks=chunks, **(names if dims else {}))
    return root


def test_lengths_by_names(root):
    dest = gzarr.MemoryStore()
    gzarr.transfer(root, dest, chunks={"time": 1, "lat": 3})
    copy = gzarr.open(dest)
    assert [copy[name].chunks for name in ("t", "lat", "plain")] == [(1, 3, 4), (3,), (5,)]


def test_each_array_has_its_own(root):
    dest = gzarr.MemoryStore()
    gzarr.transfer(root, dest, each={"t": {"chunks": {"lon": -1}, "compressors": None}})
    copy = gzarr.open(dest)
    assert (copy["t"].chunks, copy["t"].compressors) == ((2, 6, 8), ())
    with pytest.raises(CopyError, match=r"/lat has no axis named 'time'; it has lat|lat has no axis"):
        gzarr.transfer(root, gzarr.MemoryStore(), each={"lat": {"chunks": {"time": 1}}})


def test_shards_by_names(root):
    dest = gzarr.MemoryStore()
    if root.zarr_format == 2:
        gzarr.transfer(root, dest := gzarr.MemoryStore(), chunks={"time": 1}, shards={"time": 4}, zarr_format=3)
    else:
        gzarr.transfer(root, dest, chunks={"time": 1}, shards={"time": 4})
    copy = gzarr.open(dest)["t"]
    assert (copy.chunks, copy.shards) == ((1, 6, 4), (4, 6, 4))


def test_names_that_nothing_has_are_refused(root):
    with pytest.raises(CopyError, match="has no axis named 'tiem'; it has lat, lon, time"):
        gzarr.transfer(root, gzarr.MemoryStore(), chunks={"tiem": 1})


@pytest.mark.parametrize(
    ("shape", "names", "expected"),
    [
        ((4096, 4096, 3), None, (512, 512, 3)),
        ((4096, 4096, 3), ("y", "x", "c"), (512, 512, 3)),
        ((3, 4096, 4096), ("c", "y", "x"), (3, 512, 512)),
        ((40, 512, 512), ("c", "y", "x"), None),
        ((4096, 4096), ("y", "x"), None),
        ((512, 3), None, None),
    ],
)
def test_colours_and_channels_stay_whole(shape, names, expected):
    source = from_memory(np.zeros(1, "u1"))
    source = type(source)("a", shape, "u1", 1, source.read, regular_grid(shape), dimension_names=names)
    assert guessed(source) == expected
