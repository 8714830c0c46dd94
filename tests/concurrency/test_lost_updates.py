"""Processes that change parts of one object at the same time: no change is lost on any store that has conditions."""

import multiprocessing
from collections.abc import Iterator
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
from benchmarks.s3.objects import Objects
from benchmarks.s3.server import S3Server
from gzarr.metadata.documents import change_attributes
from gzarr.storage import Store, open_store
from tests.contracts.stores import MAKERS
from tests.support.servers import options_of

N_PROCESSES = 3
N_ROWS = 12
KINDS = ("sqlite", "s3", "azure")


#: Where the processes wait for each other, so that they really write at once.
_start: Any = None


def _begin(barrier: Any) -> None:
    global _start  # noqa: PLW0603 - one for the process
    _start = barrier


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(N_PROCESSES, _begin, (spawn.Barrier(N_PROCESSES),)) as processes:
        yield processes


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param != "s3":
        with MAKERS[request.param](tmp_path, request) as made:
            yield made
        return
    pytest.importorskip("obstore")
    with S3Server(Objects({"bucket": {}})) as server:
        yield open_store("s3://bucket/x", storage_options=options_of(server.endpoint))[0]


def write_rows(given: tuple[Store, str, int]) -> None:
    """Write every third row, the first of them row ``first``."""
    store, path, first = given
    array: Any = gzarr.open_array(store, path=path, mode="r+")
    _start.wait(60)
    for row in range(first, N_ROWS, N_PROCESSES):
        array[row] = row + 1
    store.close()


def set_attributes(given: tuple[Store, int, int]) -> None:
    store, zarr_format, first = given
    _start.wait(60)
    for i in range(first, N_ROWS, N_PROCESSES):
        change_attributes(store, "a", zarr_format, lambda old, i=i: {**old, f"n{i}": i})  # type: ignore[arg-type]
        gzarr.open_group(store, path=f"member{i}", mode="w-", zarr_format=zarr_format)  # type: ignore[arg-type]
    store.close()


LAYOUTS: dict[str, Any] = {
    "parts of one chunk": {"chunks": (N_ROWS, 50)},
    "chunks of one shard": {"chunks": (1, 50), "shards": (N_ROWS, 50)},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_row_is_lost(store: Store, layout: str, pool: Pool) -> None:
    gzarr.create_array(store, name="a", shape=(N_ROWS, 50), dtype="i4", **LAYOUTS[layout])
    jobs = [(store, "a", first) for first in range(N_PROCESSES)]
    pool.map_async(write_rows, jobs, chunksize=1).get(120)
    rows = gzarr.open_array(store, path="a")[:, 0]
    np.testing.assert_array_equal(rows, np.arange(1, N_ROWS + 1))


@pytest.mark.parametrize("store", ["sqlite", "s3"], indirect=True)
def test_no_attribute_and_no_entry_of_consolidated_metadata_is_lost(store: Store, zarr_format: int, pool: Pool) -> None:
    gzarr.create_array(store, name="a", shape=4, zarr_format=zarr_format)
    gzarr.consolidate_metadata(store)
    jobs = [(store, zarr_format, first) for first in range(N_PROCESSES)]
    pool.map_async(set_attributes, jobs, chunksize=1).get(120)
    expected = {f"n{i}": i for i in range(N_ROWS)}
    assert dict(gzarr.open_array(store, path="a").attrs) == expected
    root: Any = gzarr.open_consolidated(store)
    assert dict(root["a"].attrs) == expected
    assert {name for name in root if name != "a"} == {f"member{i}" for i in range(N_ROWS)}
