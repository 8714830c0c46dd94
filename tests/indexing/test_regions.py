"""Regions of an array: whole objects of the destination, within a limit of bytes."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gzarr.copying.sources import regular_grid
from gzarr.indexing.grid import VaryingAxis
from gzarr.indexing.regions import cut


@given(st.data())
def test_regions_hold_whole_objects_and_cover_everything_once(data):
    shape = tuple(data.draw(st.lists(st.integers(0, 30), min_size=0, max_size=3)))
    source = regular_grid(shape, tuple(data.draw(st.integers(1, 12)) for _ in shape))
    dest = regular_grid(shape, tuple(data.draw(st.integers(1, 12)) for _ in shape))
    if shape and shape[0] > 5 and data.draw(st.booleans()):
        dest = (VaryingAxis(shape[0], (2, 3, shape[0] - 5)), *dest[1:])
    limit = data.draw(st.integers(1, 2000))
    regions = cut(source, dest, 4, limit)
    seen = np.zeros(shape, int)
    pairs = 0
    for region in regions:
        seen[region] += 1
        for axis, part in zip(dest, region, strict=True):
            assert part.start == axis.bounds(axis.locate(part.start))[0]
            assert part.stop == min(axis.bounds(axis.locate(part.stop - 1))[1], axis.extent)
        pairs += math.prod(
            axis.locate(p.stop - 1) - axis.locate(p.start) + 1 for axis, p in zip(source, region, strict=True)
        )
        nbytes = 4 * math.prod(p.stop - p.start for p in region)
        assert nbytes <= regions.nbytes
        touched = [axis.locate(p.stop - 1) - axis.locate(p.start) for axis, p in zip(dest, region, strict=True)]
        assert nbytes <= limit or not any(touched)
    assert (seen == 1).all()
    if all(shape):
        assert regions.reads == pytest.approx(pairs / math.prod(axis.nchunks for axis in source))


def test_regions_grow_to_read_every_chunk_once_where_they_may():
    grids = regular_grid((1000, 1000), (100, 10)), regular_grid((1000, 1000), (30, 100))
    assert cut(*grids, 1, 10**6).reads == 1.0
    tight = cut(*grids, 1, 30 * 200)
    assert 1.0 < tight.reads < 10.0
    assert tight.nbytes <= 30 * 200
