"""The route of a copy: objects, chunks, or decoded values."""

import numcodecs

import gzarr
from gzarr.copying.arrays import plan_route
from gzarr.copying.planning import new_meta
from gzarr.copying.sources import from_array


def test_a_route_is_chosen_by_what_is_stored():
    z = gzarr.create_array(shape=(8, 8), chunks=(2, 2), dtype="i4", compressor=numcodecs.Zstd(1))

    def how(**keywords):
        return plan_route(from_array(z), new_meta(from_array(z), keywords), 10**6).how

    assert how() == "objects"
    assert how(shards=(4, 4)) == "chunks"
    assert how(zarr_format=2) == "objects"
    assert how(compressors=None) == "decode"
    assert how(chunks=(4, 4)) == "decode"
    assert how(fill_value=3) == "decode"
    assert how(order="F") == "decode"
