"""The asynchronous edge: the same answers as the synchronous calls, many at once over a slow store."""

import asyncio
import threading
import time

import numpy as np
import pytest

import gzarr
from gzarr.storage.base import Request
from gzarr.storage.memory import MemoryStore
from tests.support.meeting import Meeting

DATA = np.arange(50 * 30, dtype="i4").reshape(50, 30)


class DistantStore(MemoryStore):
    """A memory store whose calls do something on their way: a function of the keys."""

    def __init__(self, travel=lambda keys: None):
        super().__init__({})
        self._travel = travel

    def get_one(self, request: Request):
        self._travel([request.key])
        return super().get_one(request)

    def get_many(self, requests):
        self._travel([request[0] for request in requests])
        return super().get_many(requests)

    def set_many(self, items):
        items = list(items)
        self._travel([key for key, _ in items])
        super().set_many(items)


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 120))


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_reads_and_writes_equal_the_synchronous_ones(zarr_format):
    async def story():
        z = gzarr.open_array({}, "w", shape=DATA.shape, chunks=(7, 11), dtype="i4", zarr_format=zarr_format)
        await z.awrite(..., DATA)
        await z.awrite((3, slice(2, 5)), -1)
        return await z.aread(), await z.aread((slice(2, 5), [1, 3])), await z.aread((0, 0)), z

    whole, rows, single, z = asyncio.run(story())
    np.testing.assert_array_equal(whole, z[...])
    np.testing.assert_array_equal(rows, z[2:5, [1, 3]])
    assert (single, whole[3, 2:5].tolist()) == (0, [-1, -1, -1])


def test_errors_are_those_of_the_synchronous_calls():
    async def story():
        z = gzarr.open({}, "w", shape=3)
        with pytest.raises(gzarr.SelectionError):
            await z.aread(7)
        with pytest.raises(ValueError, match="shape"):
            await z.awrite(..., np.zeros(4))
        reader = gzarr.open(z.store, "r")
        with pytest.raises(gzarr.ReadOnlyError):
            await reader.awrite(0, 1)

    asyncio.run(story())


@pytest.mark.parametrize("shape", [(50, 30), (50, 1 << 19)], ids=["small", "large: decoded on the pool"])
def test_reads_of_a_distant_store_wait_together(shape):
    """Each of the large ones is cut into two batches."""
    store = DistantStore()
    z = gzarr.create_array(store, shape=shape, chunks=(1, shape[1] // 2), dtype="i4", fill_value=7)
    z[:, :5] = np.arange(shape[0])[:, None] + 1
    meeting = Meeting(32)
    store._travel = lambda keys: meeting.attend()

    async def story():
        return await asyncio.gather(*(z.aread((i, slice(0, shape[1]))) for i in range(shape[0])))

    rows = run(story())
    assert [int(row[0]) for row in rows] == list(range(1, shape[0] + 1))
    assert meeting.met, f"no more than {meeting.most} reads were under way at once"


def test_more_reads_than_threads_come_to_an_end():
    """Each read waits for a thread, and for the pool that decodes: none may wait for one that waits for it."""
    store = DistantStore(lambda keys: time.sleep(0.002))
    z = gzarr.create_array(store, data=np.arange(1 << 19), chunks=1 << 16, shards=1 << 18)

    async def story():
        return await asyncio.gather(*(z.aread(slice(i, None)) for i in range(40)))

    with gzarr.config.set({"async.concurrency": 8, "threading.max_workers": 3}):
        found = run(story())
    assert [int(part[0]) for part in found] == list(range(40))
    assert {int(part[-1]) for part in found} == {(1 << 19) - 1}


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_members_of_a_distant_group_arrive_together(zarr_format):
    store = DistantStore()
    root = gzarr.open_group(store, "w", zarr_format=zarr_format)
    for i in range(100):
        root.create_array(f"a{i:02}", shape=(i,))
    calls = []
    store._travel = calls.append

    async def story():
        return [node.shape async for _, node in root.amembers()]

    assert run(story()) == [(i,) for i in range(100)]
    assert sum(map(len, calls)) >= 100
    assert len(calls) < 10


def test_a_read_that_is_cancelled_before_its_turn_is_never_made():
    store = DistantStore()
    z = gzarr.create_array(store, data=np.arange(10), chunks=1)
    under_way, go_on = threading.Event(), threading.Event()
    store._travel = lambda keys: (under_way.set(), go_on.wait(60))
    asked = []
    get_one, get_many = store.get_one, store.get_many
    store.get_one = lambda request: asked.append(request.key) or get_one(request)
    store.get_many = lambda requests: asked.extend(r.key for r in requests) or get_many(requests)

    async def story():
        first = asyncio.create_task(z.aread(0))
        await asyncio.to_thread(under_way.wait, 60)
        second = asyncio.create_task(z.aread(1))
        await asyncio.sleep(0.02)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        go_on.set()
        return await first

    with gzarr.config.set({"async.concurrency": 1}):
        assert (asyncio.run(story()), asyncio.run(z.aread(2))) == (0, 2)
    assert asked == ["c/0", "c/2"]


def test_a_write_that_is_cancelled_after_it_began_comes_to_its_end():
    store = DistantStore()
    z = gzarr.create_array(store, shape=4, chunks=4, dtype="i4")
    under_way, go_on = threading.Event(), threading.Event()
    store._travel = lambda keys: (under_way.set(), go_on.wait(60))

    async def story():
        task = asyncio.create_task(z.awrite(..., 5))
        await asyncio.to_thread(under_way.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()

    run(story())
    deadline = time.monotonic() + 60
    while "c/0" not in store and time.monotonic() < deadline:
        time.sleep(0.01)
    assert z[:].tolist() == [5, 5, 5, 5]
