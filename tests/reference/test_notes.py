"""The notes on zarr for robot-learning data sets: their snippets, scaled down.

Those that copy are in test_tutorial_copies. A codec registered the same way stands in for image codecs, except where
the notes tell how to register one.
"""

import json

import numcodecs
import numpy as np
import pytest
from numcodecs.abc import Codec

import gzarr as zarr
from gzarr.storage import ZipStore

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
