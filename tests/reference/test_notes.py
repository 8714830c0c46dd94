"""The notes on zarr for robot-learning data sets: their snippets, scaled down.

Those that copy are in test_tutorial_copies. A codec registered the same way stands in for image codecs, except where
the notes tell how to register one.
"""

import json
from pathlib import Path

import numcodecs
import numpy as np
import pytest
from numcodecs.abc import Codec

import gzarr as zarr
from gzarr.storage import MemoryStore, ZipStore

N = 1000  # instead of 10000
CHUNK = 100  # instead of 1000


# -- arrays ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("zarr_format")
def test_create_in_memory():
    store = zarr.storage.MemoryStore()
    z = zarr.create_array(store=store, shape=(10000, 10000), chunks=(1000, 1000), dtype="int32")
    assert repr(z) == f"<Array {store} shape=(10000, 10000) dtype=int32>"
    z[0, :] = np.arange(10000)
    z[:, 0] = np.arange(10000)
    assert z[0, 9999] == 9999
    assert z[9999, 0] == 9999


@pytest.mark.usefixtures("zarr_format")
def test_open_by_path_keyword_alone():
    zarr.group("path/to/file")["a"] = np.arange(3)
    src = zarr.open(path="path/to/file", mode="r")
    assert isinstance(src, zarr.Group)
    assert isinstance(src.store, zarr.DirectoryStore)
    assert src.read_only
    assert src["a"][:].tolist() == [0, 1, 2]
    assert zarr.open(path="path/to/file/a")[1] == 1
    assert zarr.open_array(path="path/to/file/a", mode="r")[2] == 2
    assert zarr.open_group(path="path/to/file")["a"].shape == (3,)


@pytest.mark.usefixtures("zarr_format")
def test_mode_w_deletes_and_mode_a_keeps():
    zarr.group("g.zarr")["a"] = np.arange(3)
    assert list(zarr.open("g.zarr", mode="a")) == ["a"]
    assert list(zarr.open("g.zarr", mode="w")) == []
    assert list(zarr.open("g.zarr", mode="r")) == []


@pytest.mark.usefixtures("zarr_format")
def test_slices_are_numpy():
    z = zarr.array(np.arange(12).reshape(3, 4))
    assert type(z[:]) is np.ndarray
    assert type(z[0]) is np.ndarray
    assert isinstance(z[0, 0], np.generic)


@pytest.mark.usefixtures("zarr_format")
def test_the_positional_signature_of_zarr_2():
    z = zarr.array(
        data=np.arange(6),
        shape=None,
        chunks=None,
        dtype=None,
        compressor=None,
        fill_value=None,
        order="C",
        store=None,
        overwrite=False,
        path=None,
        chunk_store=None,
        synchronizer=None,
        cachesize=None,
        cache_type=None,
    )
    assert z[:].tolist() == list(range(6))
    assert z.compressor is None


@pytest.mark.usefixtures("zarr_format")
def test_chunk_shape_is_printed():
    array_custom_chunks = zarr.zeros((100, 100), chunks=(20, 10), dtype="f8")
    assert str(array_custom_chunks.shape) == "(100, 100)"
    assert str(array_custom_chunks.chunks) == "(20, 10)"


@pytest.mark.usefixtures("zarr_format")
def test_persistence():
    z1 = zarr.create_array(store="data/example-1.zarr", shape=(N, N), chunks=(CHUNK, CHUNK), dtype="int32")
    z1[:] = 42
    z1[0, :] = np.arange(N)
    z1[:, 0] = np.arange(N)
    z2 = zarr.open_array("data/example-1.zarr", mode="r")
    assert np.all(z1[:] == z2[:])
    a = np.arange(10)
    zarr.save("data/example-2.zarr", a)
    assert repr(zarr.load("data/example-2.zarr")) == "array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])"


@pytest.mark.usefixtures("zarr_format")
def test_open_array_creates_and_resizes(capsys):
    z = zarr.open_array(store="./data/example-1.zarr", shape=(N, N), dtype="int32", chunks=(CHUNK, CHUNK))
    z[:] = 42
    print(z[0, 0], z[-1, -1])
    z.resize((2 * N, N))
    print(z[0, 0], z[-1, -1])
    z.resize((20, 10))
    print(z[0, 0], z[-1, -1])
    assert capsys.readouterr().out == "42 42\n42 0\n42 42\n"
    # "What lies outside is discarded; growth gives 0", also within the chunk at the edge.
    z.resize((N, N))
    assert z[:].sum() == 42 * 20 * 10


@pytest.mark.usefixtures("zarr_format")
def test_append():
    a = np.arange(100000, dtype="int32").reshape(1000, 100)
    z = zarr.create_array(store="data/example-4.zarr", shape=a.shape, dtype=a.dtype, chunks=(100, 10))
    z[:] = a
    assert z.append(a) == (2000, 100)
    assert z.append(np.vstack([a, a]), axis=1) == (2000, 200)
    assert zarr.open("data/example-4.zarr").shape == (2000, 200)


# -- datasets of a group -----------------------------------------------------------------------------------------


class XorCodec(Codec):
    """Stands for an image codec of another package: takes a whole chunk, gives bytes."""

    codec_id = "xor_of_the_notes"

    def __init__(self, level=0, numthreads=None):
        self.level = level
        self.numthreads = numthreads

    def encode(self, buf):
        return (np.ascontiguousarray(buf).view("u1") ^ 0xFF).tobytes()

    def decode(self, buf, out=None):
        return (np.frombuffer(buf, "u1") ^ 0xFF).tobytes()


@pytest.fixture
def registered():
    numcodecs.register_codec(XorCodec)
    yield
    numcodecs.registry.codec_registry.pop(XorCodec.codec_id)


@pytest.mark.usefixtures("zarr_format", "registered")
def test_one_image_a_chunk():
    out = zarr.group("replay.zarr")
    out.create_group("data")
    out["time"] = np.arange(5)
    out_res = (8, 8)
    img_compressor = XorCodec(level=99, numthreads=1)
    data = out["data"]
    for cam_id in range(2):
        _ = data.require_dataset(
            name=f"camera{cam_id}_rgb",
            shape=(out["time"].shape[0], *out_res, 3),
            chunks=(1, *out_res, 3),
            compressor=img_compressor,
            dtype=np.uint8,
        )
    assert sorted(data) == ["camera0_rgb", "camera1_rgb"]
    z = data["camera1_rgb"]
    assert z.compressor == img_compressor
    frames = np.random.default_rng(0).integers(0, 255, z.shape, dtype="u1")
    z[:] = frames
    assert z.nchunks_initialized == 5
    assert np.array_equal(zarr.open("replay.zarr/data/camera1_rgb", mode="r")[3], frames[3])
    # The attribute of the group that the notes use.
    assert out.data["camera0_rgb"].shape == (5, 8, 8, 3)


@pytest.mark.usefixtures("zarr_format")
def test_reading_with_a_codec_that_nobody_registered(registered):
    zarr.zeros((4, 8), chunks=(1, 8), dtype="u1", compressor=XorCodec(), store="x.zarr")[:] = 1
    codec = numcodecs.registry.codec_registry.pop(XorCodec.codec_id)
    unread = zarr.open("x.zarr", mode="r")
    assert unread.shape == (4, 8)
    with pytest.raises(zarr.errors.UnknownCodecError, match=r"xor_of_the_notes.*register"):
        unread[:]
    numcodecs.register_codec(codec)
    assert zarr.open("x.zarr", mode="r")[0, 0] == 1


@pytest.mark.usefixtures("zarr_format")
def test_images_need_a_registered_codec():
    Jpeg2k = pytest.importorskip("imagecodecs.numcodecs").Jpeg2k
    known = dict(numcodecs.registry.codec_registry)
    numcodecs.register_codec(Jpeg2k)
    try:
        z = zarr.zeros((4, 5, 512, 512, 3), chunks=(1, 1, 256, 256, 3), dtype="u1", compressor=Jpeg2k(reversible=True))
        image = np.random.default_rng(0).integers(0, 255, (256, 256, 3), "u1")
        z[3, 4, 256:, 256:] = image
        assert np.array_equal(z[3, 4, 256:, 256:], image)
        assert z.nchunks_initialized == 1
    finally:
        numcodecs.registry.codec_registry.clear()
        numcodecs.registry.codec_registry.update(known)


def test_a_replay_buffer_of_images_without_its_codec():
    document = {
        "chunks": [1, 8, 8, 3],
        "compressor": {"id": "imagecodecs_jpegxl_of_nobody", "level": 99},
        "dtype": "|u1",
        "fill_value": 0,
        "filters": None,
        "order": "C",
        "shape": [5, 8, 8, 3],
        "zarr_format": 2,
    }
    with ZipStore("dataset.zarr.zip", mode="w") as store:
        zarr.group(store=store, zarr_format=2).create_group("data")
        store["data/camera0_rgb/.zarray"] = json.dumps(document).encode()
        store["data/camera0_rgb/2.0.0.0"] = b"an image"
    with zarr.ZipStore("dataset.zarr.zip", mode="r") as store:
        camera = zarr.open_group(store, mode="r")["data"]["camera0_rgb"]
        assert "shape=(5, 8, 8, 3)" in repr(camera)
        with pytest.raises(zarr.errors.UnknownCodecError, match=r"imagecodecs_jpegxl_of_nobody.*gzarr\[images\]"):
            camera[2]


@pytest.mark.usefixtures("zarr_format")
def test_require_dataset_checks_shape_and_dtype():
    g = zarr.group()
    made = g.require_dataset("a", shape=(5,), dtype="i4")
    made[:] = 3
    assert g.require_dataset("a", shape=(5,), dtype="i4")[:].sum() == 15
    assert g.require_dataset("a", shape=5, dtype="i2")[:].sum() == 15
    with pytest.raises(TypeError, match=r"the existing array has shape \(5,\), not \(6,\)"):
        g.require_dataset("a", shape=(6,), dtype="i4")
    with pytest.raises(TypeError, match=r"dtypes \(int64, int32\) cannot be safely cast"):
        g.require_dataset("a", shape=(5,), dtype="i8")
    with pytest.raises(TypeError, match=r"dtypes \(int16, int32\) differ exactly"):
        g.require_dataset("a", shape=(5,), dtype="i2", exact=True)
    g.create_group("b")
    with pytest.raises(zarr.errors.ContainsNodeError, match="a group, not an array"):
        g.require_dataset("b", shape=(5,))


@pytest.mark.usefixtures("zarr_format")
def test_rename_by_copy_and_by_alias():
    group = zarr.group("r.zarr")
    old = group.create_dataset("old_name", data=np.arange(20), chunks=7, compressor=numcodecs.Zstd(3))
    old.attrs["unit"] = "m"
    group["new_name"] = group["old_name"]
    del group["old_name"]
    new = group["new_name"]
    assert list(group) == ["new_name"]
    assert (new.chunks, new.compressor, new.attrs.asdict()) == ((7,), numcodecs.Zstd(3), {"unit": "m"})
    assert new[:].tolist() == list(range(20))
    group.attrs["alias"] = {"display_name": "new_name"}
    assert group[group.attrs["alias"]["display_name"]] == new


@pytest.mark.usefixtures("zarr_format")
def test_delete():
    group = zarr.open_group("data.zarr", mode="a")
    group.create_dataset("my_array", shape=(2, 2), dtype=int)
    assert "my_array" in group
    del group["my_array"]
    assert "my_array" not in group
    group.create_dataset("my_array", shape=(2, 2), dtype=int)
    group.pop("my_array")
    assert "my_array" not in group
    assert not Path("data.zarr/my_array").exists()
    with pytest.raises(KeyError, match="my_array"):
        del group["my_array"]


# -- groups ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("zarr_format")
def test_group_of_a_store():
    store = zarr.storage.MemoryStore()
    root = zarr.create_group(store=store)
    r2 = zarr.group(store=store)
    assert str(root) == str(r2) == f"<Group {store}>"
    foo = root.create_group("foo")
    bar = foo.create_group("bar")
    assert f"{foo} {bar}" == f"<Group {store}/foo> <Group {store}/foo/bar>"
    z1 = bar.create_array(name="baz", shape=(10000, 10000), chunks=(1000, 1000), dtype="int32")
    assert repr(z1) == f"<Array {store}/foo/bar/baz shape=(10000, 10000) dtype=int32>"
    bar["new_group/new_baz"] = bar["baz"]
    copy = root["foo/bar/new_group/new_baz"]
    assert (copy.chunks, copy.dtype, copy.shape) == (z1.chunks, z1.dtype, z1.shape)
    assert repr(root["foo"]) == f"<Group {store}/foo>"
    assert repr(root.tree()).splitlines() == [
        "/",
        "└── foo",
        "    └── bar",
        "        ├── baz (10000, 10000) int32",
        "        └── new_group",
        "            └── new_baz (10000, 10000) int32",
    ]


@pytest.mark.usefixtures("zarr_format")
def test_values():
    src = zarr.group()
    src["meta/episode_ends"] = np.arange(4)
    first = next(iter(src["meta"].values()))
    assert isinstance(first, zarr.Array)
    assert first.name == "/meta/episode_ends"
    assert list(src["meta"].keys()) == ["episode_ends"]
    assert [(name, node.shape) for name, node in src["meta"].items()] == [("episode_ends", (4,))]


def test_open_group_makes_these_files():
    root = zarr.open_group("data/group.zarr", mode="w")
    assert repr(root) == "<Group file://data/group.zarr>"
    z = root.create_array(name="foo/bar/baz", shape=(10000, 10000), chunks=(1000, 1000), dtype="int32")
    assert repr(z) == "<Array file://data/group.zarr/foo/bar/baz shape=(10000, 10000) dtype=int32>"
    found = sorted(path.as_posix() for path in Path("data").rglob("*"))
    assert found == [
        "data/group.zarr",
        "data/group.zarr/foo",
        "data/group.zarr/foo/bar",
        "data/group.zarr/foo/bar/baz",
        "data/group.zarr/foo/bar/baz/zarr.json",
        "data/group.zarr/foo/bar/zarr.json",
        "data/group.zarr/foo/zarr.json",
        "data/group.zarr/zarr.json",
    ]


@pytest.mark.usefixtures("zarr_format")
def test_require_group_and_a_dataset_of_no_length():
    root = zarr.group()
    meta = root.require_group("meta", overwrite=False)
    if "episode_ends" not in meta:
        meta.zeros("episode_ends", shape=(0,), dtype=np.int64, compressor=None, overwrite=False)
    again = root.require_group("/meta")
    assert again == meta
    ends = again["episode_ends"]
    assert ends.append([3, 8]) == (2,)
    assert ends[:].tolist() == [3, 8]
    assert list(root.require_group("meta", overwrite=True)) == []


@pytest.mark.usefixtures("zarr_format")
def test_group_store():
    assert isinstance(zarr.group().store, MemoryStore)
    assert isinstance(zarr.open_group("g.zarr").store, zarr.DirectoryStore)
    assert isinstance(zarr.open_group("g.zip", mode="w").store, ZipStore)


# -- stores ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("zarr_format")
def test_stores():
    store = zarr.storage.ZipStore("data.zip", mode="w")
    z = zarr.create_array(store=store, shape=(2,), dtype="float64")
    assert repr(z) == "<Array zip://data.zip shape=(2,) dtype=float64>"
    store.close()
    data = {}
    store = zarr.storage.MemoryStore(data)
    z = zarr.create_array(store=store, shape=(2,), dtype="float64")
    assert repr(z) == f"<Array memory://{id(data)} shape=(2,) dtype=float64>"
    z[:] = 1
    assert len(data) == 2
    store = zarr.DirectoryStore("data.zarr")
    root = zarr.group(store=store, overwrite=True)
    root["kept"] = np.ones(1)
    assert list(zarr.open(store=store, mode="a")) == ["kept"]


@pytest.mark.usefixtures("zarr_format")
def test_rewriting_a_data_set():
    rng = np.random.default_rng(5)
    source = zarr.open("src.zarr", mode="w")
    source.create_dataset("meta/episode_ends", data=np.array([3, 6]), chunks=1)
    source.create_dataset("data/action", data=rng.random((6, 7)), chunks=(2, 7), compressor=numcodecs.LZ4())
    source.create_dataset("data/hand", data=rng.integers(0, 255, (6, 8, 8, 3), dtype="u1"), chunks=(1, 8, 8, 3))
    source.create_dataset("data/state", data=rng.random((6, 13)))
    source.create_dataset("data/head", data=rng.integers(0, 255, (6, 8, 8, 3), dtype="u1"), chunks=(1, 8, 8, 3))
    source.create_dataset("data/mask", data=rng.integers(0, 2, (6, 8, 8, 1), dtype="u1"), chunks=(1, 8, 8, 1))

    src = zarr.open("src.zarr", mode="r")
    store = zarr.storage.DirectoryStore("dst.zarr")
    target = zarr.open(store, mode="a")
    target["/meta/episode_ends"] = src["/meta/episode_ends"]
    target["/data/action"] = src["data/action"]
    target["/data/right_cam_img"] = src["data/hand"]
    target["/data/right_state"] = src["data/state"]
    data = target["data"]
    heads_shape = src["data/head"].shape
    rgbm = data.require_dataset(
        name="rgbm",
        shape=(heads_shape[0],) + heads_shape[1:3] + (4,),  # noqa: RUF005 - as the notes have it
        chunks=(1,) + heads_shape[1:3] + (4,),  # noqa: RUF005
        dtype=np.uint8,
    )
    rgbm[:] = np.concatenate([src["data/head"][:], src["data/mask"][:]], axis=-1)

    written = zarr.open("dst.zarr", mode="r")
    assert sorted(written["data"]) == ["action", "rgbm", "right_cam_img", "right_state"]
    assert written["data/action"].chunks == (2, 7)
    assert written["data/action"].compressor == numcodecs.LZ4()
    assert written["data/right_cam_img"].chunks == (1, 8, 8, 3)
    for name, old in {"action": "action", "right_cam_img": "hand", "right_state": "state"}.items():
        assert np.array_equal(written[f"data/{name}"][:], source[f"data/{old}"][:])
    assert np.array_equal(written["meta/episode_ends"][:], [3, 6])
    assert written["data/rgbm"].shape == (6, 8, 8, 4)
    assert np.array_equal(written["data/rgbm"][..., 3], source["data/mask"][..., 0])


@pytest.mark.usefixtures("zarr_format")
def test_reading_a_zip():
    with ZipStore("my_data.zip", mode="w") as store:
        root = zarr.group(store=store)
        root.zeros("array1", shape=(100, 100), chunks=(10, 10), dtype="f8")[0:10, 0:10] = 1.0
        root.zeros("array2", shape=(50, 50), chunks=(5, 5), dtype="i4")[0:5, 0:5] = 2
    zip_store = ZipStore("my_data.zip", mode="r")
    root_loaded = zarr.open_group(zip_store, mode="r")
    assert str(root_loaded.tree()) == "/\n├── array1 (100, 100) float64\n└── array2 (50, 50) int32"
    assert np.all(root_loaded["array1"][0:10, 0:10] == 1)
    assert root_loaded["array1"].nchunks_initialized == 1
    assert root_loaded["array2"][:].sum() == 50
    zip_store.close()
