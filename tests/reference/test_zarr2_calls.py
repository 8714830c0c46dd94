"""Calls of zarr 2 that its tutorial does not show and that programs lean on."""

import pickle
from itertools import islice

import numcodecs
import numpy as np
import pytest

import gzarr as zarr


@pytest.fixture
def z(zarr_format):
    return zarr.array(np.arange(60).reshape(10, 6), chunks=(3, 4), store="z.zarr")


def test_arrays_as_other_types_and_digests(z):
    assert z.astype("f4")[2:4, 1].dtype == np.float32
    assert z.view(dtype="u8")[9, 5] == 59
    assert len(z.digest()) == 20
    assert z.hexdigest("sha256") == zarr.open("z.zarr").hexdigest("sha256")
    assert (len(z), z.itemsize, z.is_view, z.chunk_store, z.synchronizer) == (10, 8, False, z.store, None)
    assert z.view().is_view
    assert z.cdata_shape == (4, 2)


def test_rows_are_iterated_over(z):
    assert [row[0] for row in z] == list(range(0, 60, 6))
    assert [row[0] for row in islice(z, 2, 4)] == [12, 18]
    counted = zarr.storage.CountingStore(z.store)
    rows = zarr.open_array(counted, mode="r").islice(4, 8)
    counted.reset()
    assert [row[0] for row in rows] == [24, 30, 36, 42]
    assert len(counted.requests) == 4  # each of the two rows of chunks, once
    assert [row[0] for row in z.islice(end=1)] == [0]
    assert [row[0] for row in z.islice(8, 99)] == [48, 54]
    assert list(z.islice(5, 5)) == list(z.islice(10)) == []
    assert list(z.islice(5, 4)) == list(z.islice(11)) == []
    for start, end in ((-1, None), (0, -1), (0.5, 1)):
        with pytest.raises(ValueError, match=r"islice.*10 rows"):
            z.islice(start, end)


def test_keywords_that_change_nothing(z):
    again = zarr.open_array("z.zarr", mode="r", cache_metadata=False, cache_attrs=False, partial_decompress=True)
    assert again[9, 5] == 59
    assert zarr.zeros(3, meta_array=np.empty(())).meta_array.shape == ()


@pytest.mark.usefixtures("zarr_format")
def test_groups():
    g = zarr.group()
    g.create_groups("foo/bar", "x")
    g.array("b", [1, 2, 3])
    g["foo/a"] = [[1, 2], [3, 4]]
    names = []
    g.visit(names.append)
    assert names == ["b", "foo", "foo/a", "foo/bar", "x"]
    assert g.visitkeys(lambda name: name if "/" in name else None) == "foo/a"
    assert g.visitvalues(lambda node: getattr(node, "shape", None)) == (3,)
    assert g.visititems(lambda name, node: (name, node.shape) if name == "foo/a" else None) == ("foo/a", (2, 2))
    assert [name for name, _ in g.arrays(recurse=True)] == ["b", "a"]
    assert g.b[:].tolist() == [1, 2, 3]
    assert "b" in dir(g)
    g.move("b", "deep/c")
    assert "b" not in g
    assert g["deep/c"][:].tolist() == [1, 2, 3]
    assert [str(made.basename) for made in g.require_groups("x", "y")] == ["x", "y"]
    assert (
        str(g.tree(expand=True, level=1))
        == str(zarr.tree(g, expand=True, level=1))
        == "/\n├── deep\n├── foo\n├── x\n└── y"
    )
    g.attrs.put({"a": 1})
    g.attrs.update({"b": np.int64(2)})
    assert g.attrs.asdict() == {"a": 1, "b": 2}


@pytest.mark.usefixtures("zarr_format")
def test_chunks_in_a_store_of_their_own():
    metadata, chunks = {}, {}
    g = zarr.group(store=metadata, chunk_store=chunks)
    g["a"] = np.arange(4)
    assert all(key.rpartition("/")[2] in ("zarr.json", ".zgroup", ".zarray") for key in metadata)
    assert list(chunks) in (["a/c/0"], ["a/0"])
    assert zarr.open_group(metadata, "r", chunk_store=chunks)["a"][:].tolist() == [0, 1, 2, 3]


@pytest.mark.usefixtures("zarr_format")
@pytest.mark.parametrize("path", ["several.zarr", "several.zip"])
def test_several_arrays_saved_and_loaded(path):
    zarr.save(path, np.arange(3), x=np.ones(2))
    loaded = zarr.load(path)
    assert sorted(loaded) == ["arr_0", "x"]
    assert "x" in repr(loaded)
    assert loaded["x"].tolist() == [1, 1]
    zarr.save_group("group.zarr", y=np.zeros(2))
    zarr.save_array("array.zarr", np.arange(2))
    assert zarr.load("group.zarr")["y"].tolist() == [0, 0]
    assert zarr.load("array.zarr").tolist() == [0, 1]


@pytest.mark.usefixtures("zarr_format")
def test_stores_of_zarr_2():
    temporary = zarr.TempStore()
    zarr.zeros(3, store=temporary)[:] = 1
    assert zarr.open(temporary)[:].sum() == 3
    nested = zarr.NestedDirectoryStore("nested")
    zarr.ones((4, 4), chunks=2, store=nested, zarr_format=2)[:] = 2
    assert "0/1" in list(nested)
    store = zarr.MemoryStore()
    store["a/b"] = b"1"
    assert (store["a/b"], list(store), len(store), "a" in store) == (b"1", ["a/b"], 1, False)
    del store["a/b"]
    assert len(store) == 0


def test_codecs_are_also_at_the_top():
    assert zarr.Blosc is numcodecs.Blosc
    compressor = zarr.Blosc(cname="zstd", clevel=3, shuffle=zarr.Blosc.BITSHUFFLE)
    z = zarr.zeros(100, dtype="i4", compressor=compressor, filters=[zarr.Delta(dtype="i4")], zarr_format=2)
    assert (z.compressor, z.filters) == (compressor, [numcodecs.Delta("i4")])
    assert {"Blosc", "Zstd", "VLenArray"} <= set(dir(zarr))


def test_metadata_key_of_consolidated_metadata():
    g = zarr.group("c.zarr", zarr_format=2)
    g["a"] = np.arange(3)
    zarr.consolidate_metadata("c.zarr", metadata_key=".other")
    assert zarr.open_consolidated("c.zarr", metadata_key=".other")["a"][2] == 2


@pytest.mark.usefixtures("zarr_format")
def test_groups_and_arrays_travel(z):
    assert pickle.loads(pickle.dumps(z)) == z
    g = zarr.group("g.zarr")
    assert pickle.loads(pickle.dumps(g)) == g
