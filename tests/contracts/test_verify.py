"""Every store can be verified and repaired."""

from pathlib import Path

import numpy as np
import pytest

import gzarr
from tests.contracts.stores import MAKERS


@pytest.mark.parametrize("name", MAKERS)
def test_verify_and_repair(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with MAKERS[name](tmp_path, request) as store:
        root = gzarr.group(store, zarr_format=store.zarr_format or 3)
        shards = (6, 10) if root.zarr_format == 3 else None
        x = root.create_array("a/x", data=np.arange(100.0).reshape(10, 10), chunks=(3, 5), shards=shards)
        found = root.verify()
        assert (found.problems, found.leftover_files, found.unchecked) == ((), (), ())
        key = x._io.layout.key((1, 0))
        store[key] = b"damaged"
        assert [problem.key for problem in root.verify().problems] == [key]
        assert all(action.done for action in gzarr.repair(root, "chunks", apply=True).actions)
        assert root.verify().ok
        assert key not in store
