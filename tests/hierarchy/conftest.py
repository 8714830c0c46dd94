"""A group that tests look around in."""

import numpy as np
import pytest

import gzarr


@pytest.fixture
def root(zarr_format: int) -> gzarr.Group:
    g = gzarr.group()
    g.create_array("a", shape=(4, 6), chunks=(2, 3), dtype="i4")[:] = np.arange(24).reshape(4, 6)
    g.create_array("foo/x", data=np.arange(5))
    g.create_group("foo/bar", attributes={"unit": "m"})
    g["foo/bar/y"] = np.arange(3)
    return g
