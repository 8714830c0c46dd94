"""Arrays and groups of every kind of store in other processes, spawned and forked, and as copies."""

import asyncio
import copy
import multiprocessing
import pickle
import warnings
from collections import UserDict

import numpy as np
import pytest

import gzarr
from gzarr.storage import CountingStore, read_only

N = 1 << 19  # 4 MiB: decoded by several threads
STORES = ["memory", "mapping", "directory", "zip", "counting", "read-only view"]


@pytest.fixture(params=STORES)
def root(request, tmp_path):
    """A group with an array, in a store of each kind."""
    kind = request.param
    if kind in ("directory", "zip"):
        path = tmp_path / ("x.zip" if kind == "zip" else "x.zarr")
        store, _ = gzarr.storage.open_store(path, mode="w")
    else:
        store = gzarr.MemoryStore(UserDict() if kind == "mapping" else {})
    group = gzarr.open_group(store, "w", attributes={"a": 1})
    group.create_array("b/x", data=np.arange(N), chunks=N // 8, shards=N // 2)
    if kind == "zip":
        group.close()
        store = gzarr.ZipStore(tmp_path / "x.zip", "r")
    store = CountingStore(store) if kind == "counting" else read_only(store) if kind == "read-only view" else store
    with store:
        yield gzarr.open_group(store, "r")


def total(node):
    """What a process works out of an array or group, also through its own threads and event loop."""
    array = node["b/x"] if isinstance(node, gzarr.Group) else node
    later = asyncio.run(array.aread(slice(0, 10)))
    return int(array[...].sum()), later.tolist(), array.read_only, dict(node.attrs)


def expected(node):
    return sum(range(N)), list(range(10)), True, dict(node.attrs)


def ways_to_start():
    return [method for method in ("spawn", "fork") if method in multiprocessing.get_all_start_methods()]


@pytest.fixture(scope="module", params=ways_to_start())
def pool(request):
    """Two processes, made while this one has threads that a forked child does not have."""
    array = gzarr.array(np.arange(N), chunks=N // 8)
    assert total(array)[0] == sum(range(N))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*multi-threaded, use of fork", DeprecationWarning)
        with multiprocessing.get_context(request.param).Pool(2) as pool:
            yield pool


def test_other_processes_read(root, pool):
    array = root["b/x"]
    assert pool.map_async(total, [array, root]).get(60) == [expected(array), expected(root)]


def test_copies(root):
    for node in (root, root["b/x"]):
        for again in (pickle.loads(pickle.dumps(node)), copy.copy(node), copy.deepcopy(node)):
            assert (again.path, again.device) == (node.path, node.device)
            assert total(again) == expected(node)
            if again.store is not node.store:
                again.store.close()


def write(args):
    array, start = args
    array[start : start + N // 8] = start
    return array[start]


def test_other_processes_write_chunks_of_their_own(tmp_path, pool):
    array = gzarr.create_array(tmp_path / "x.zarr", data=np.arange(N), chunks=N // 8)
    starts = list(range(0, N, N // 8))
    assert pool.map_async(write, [(array, start) for start in starts]).get(60) == starts
    np.testing.assert_array_equal(array[...], np.repeat(starts, N // 8))
