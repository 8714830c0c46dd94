"""Arrays and groups for callers that await."""

import asyncio
import inspect
import pickle
import subprocess
import sys

import numpy as np
import pytest

import gzarr
from gzarr.api import asynchronous


def test_an_array_is_read_and_written():
    async def use():
        array = await asynchronous.create_array(None, shape=(4, 4), chunks=2, dtype="i4", attributes={"k": 1})
        assert (array.shape, array.attrs, array.path) == ((4, 4), {"k": 1}, "")
        await array.setitem((0, ...), [1, 2, 3, 4])
        assert (await array.getitem(0)).tolist() == [1, 2, 3, 4]
        assert (await array.oindex.getitem(([0], [1, 3]))).tolist() == [[2, 4]]
        await array.vindex.setitem(([1], [1]), 7)
        assert (await array.get_mask_selection(np.eye(4, dtype=bool))).tolist() == [1, 7, 0, 0]
        assert await array.nchunks_initialized() == 2
        assert await array.nbytes_stored() > 0
        assert array.with_config({"write_empty_chunks": True}).config.write_empty_chunks
        await array.resize((2, 2))
        assert await array.append(np.ones((1, 2))) == (3, 2)
        assert isinstance(await array.update_attributes({"u": 2}), gzarr.AsyncArray)
        like = await asynchronous.zeros_like(array)
        assert (type(like), like.shape) == (gzarr.AsyncArray, (3, 2))
        return array

    array = asyncio.run(use())
    assert array == gzarr.AsyncArray(gzarr.Array.open(array.store_path))
    assert pickle.loads(pickle.dumps(array)) == array
    assert repr(array).startswith("<AsyncArray memory://")


def test_a_group_is_listed():
    async def use():
        group = await gzarr.AsyncGroup.from_store({}, attributes={"k": 1})
        await group.create_array("a", shape=3)
        inner = await group.require_group("g")
        await inner.create_array("b", shape=3)
        assert sorted([key async for key in group.keys()]) == ["a", "g"]  # noqa: SIM118 - no mapping
        assert [(name, type(node)) async for name, node in group.arrays()] == [("a", gzarr.AsyncArray)]
        assert {path async for path, _ in group.members(None)} == {"a", "g", "g/b"}
        assert (await group.nmembers(), await group.contains("g"), await group.contains("x")) == (2, True, False)
        assert (await group.get_group("g")) == (await group.getitem("g")) == inner
        await group.delitem("a")
        assert [path async for path, _ in group.create_hierarchy({"h/i": gzarr.group().metadata})] == ["h", "h/i"]
        nodes = {"j": group.metadata}
        assert [path async for path, _ in asynchronous.create_hierarchy(store=inner, nodes=nodes)] == ["j"]
        with pytest.raises(KeyError):
            await group.getitem("a")
        reopened = await gzarr.AsyncGroup.open(group.store_path)
        assert (reopened, reopened.attrs) == (group, {"k": 1})
        assert len({reopened, group}) == 1
        array = await gzarr.AsyncArray.open(group.store_path / "g/b")
        assert array == gzarr.AsyncArray.from_dict(array.store_path, array.metadata.to_dict())

    asyncio.run(use())


def test_methods_have_the_parameters_of_those_they_call():
    for kind, sync in ((gzarr.AsyncArray, gzarr.Array), (gzarr.AsyncGroup, gzarr.Group)):
        names = [name for name in vars(sync) if not name.startswith("_") and callable(getattr(sync, name))]
        assert set(names) <= set(dir(kind))
    assert inspect.signature(gzarr.AsyncGroup.create_array) == inspect.signature(gzarr.Group.create_array)
    assert inspect.iscoroutinefunction(gzarr.AsyncGroup.create_array)
    with pytest.raises(TypeError, match=r"AsyncArray wraps a gzarr\.Array, got .*use await AsyncArray\.open"):
        gzarr.AsyncArray("data.zarr")


def test_a_node_gives_its_asynchronous_form():
    z, group = gzarr.zeros(3), gzarr.group()
    assert z.async_array == gzarr.AsyncArray(z)
    assert group.async_group == gzarr.AsyncGroup(group)
    assert gzarr.open_array(z.async_array) == gzarr.Array(z.async_array) == z
    unstored = gzarr.AsyncGroup(group.metadata, store_path=gzarr.storage.StorePath(group.store, "nothing/there"))
    assert gzarr.Group(unstored).path == "nothing/there"


def test_a_synchronous_node_is_used_as_the_asynchronous_one_is():
    store = gzarr.MemoryStore()
    z = gzarr.zeros(4, store=store, dtype="i4").with_config({"write_empty_chunks": True, "read_missing_chunks": False})
    assert gzarr.Array(z.async_array).config == z.config
    assert gzarr.Array(z.astype("f8").async_array).dtype == "f8"
    sealed = gzarr.Array(store, read_only=True)
    for same in (gzarr.Array(sealed.async_array), gzarr.Array(z.async_array, read_only=True)):
        with pytest.raises(gzarr.ReadOnlyError):
            same[0] = 1
    with pytest.raises(gzarr.ReadOnlyError):
        gzarr.Group(gzarr.AsyncGroup(gzarr.Group(gzarr.group().store, read_only=True))).create_group("a")


def test_the_module_needs_no_import():
    code = "import gzarr; gzarr.api.asynchronous.open; assert not hasattr(gzarr.api, 'nothing')"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_attributes_are_replaced_by_a_coroutine():
    root = gzarr.group(attributes={"a": 1})
    assert asyncio.run(root.update_attributes_async({"b": 2})) is root
    assert root.attrs.asdict() == {"b": 2}
