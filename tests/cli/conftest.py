"""Data that commands look at."""

from pathlib import Path

import numpy as np
import pytest

import gzarr


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A group with one array, ``foo/bar``."""
    path = tmp_path / "data.zarr"
    root = gzarr.open_group(path, mode="w")
    foo = root.create_group("foo")
    foo.create_array(name="bar", shape=(10, 20), chunks=(5, 10), dtype="int32")[...] = np.ones((10, 20), "i4")
    return path
