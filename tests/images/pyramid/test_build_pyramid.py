"""Pyramids of images, against whole arrays in NumPy and TensorStore's downsample driver."""

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import ChunkError, ContainsGroupError, ContainsNodeError, MetadataError
from gzarr.images import build_pyramid, create_image, open_image
from gzarr.images.pyramid.downsample import METHODS
from gzarr.storage import CountingStore, LocalStore, MemoryStore
from tests.images.levels import check, noise
from tests.support.processes import run_python

CASES: dict[str, Any] = {
    "plane": ((600, 530), {"chunks": (64, 64)}, {}),
    "sharded": ((600, 530), {"chunks": (32, 32), "shards": (128, 256)}, {}),
    "version 0.4": ((600, 530), {"chunks": (64, 64), "version": "0.4"}, {"levels": 3}),
    "volume": ((33, 290, 270), {"chunks": (16, 64, 64)}, {"levels": 2}),
    "channels": ((2, 3, 300, 300), {"chunks": (1, 2, 64, 64), "axes": "czyx"}, {"levels": 2}),
    "long voxels": ((20, 300, 300), {"chunks": (4, 64, 64), "scale": {"z": 4.0}}, {}),
    "chunks that no factor divides": ((310, 411), {"chunks": (33, 47)}, {"levels": 4}),
    "bytes": ((600, 600), {"chunks": (64, 64), "dtype": "u1"}, {}),
    "floats": ((300, 300), {"chunks": (64, 64), "dtype": "f4"}, {"levels": 2}),
    "factors by axis": ((300, 301), {"chunks": (64, 64)}, {"factors": [{"y": 3}, {"y": 1, "x": 4}]}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_every_level_is_the_one_below_downsampled_as_a_whole(case: Any) -> None:
    shape, created, built = case
    data = noise(shape, created.get("dtype", "u2"))
    image = create_image(shape=shape, **{"dtype": "u2", **created})
    image[0][...] = data
    check(build_pyramid(image, **built), data)
    assert not image.group.verify().problems


def test_the_guide_lists_every_method() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "images.md").read_text()
    rows = [line.split("|")[1] for line in guide.splitlines() if line.startswith("|")]
    assert [name for name in METHODS if not any(f'`"{name}"`' in row for row in rows)] == []


def test_places_of_voxels_count_from_level_0() -> None:
    data = noise((512, 512))
    image = create_image(data=data, levels=0, chunks=(64, 64), scale=0.5, translation={"y": 10.0}, units="um")
    image = build_pyramid(image, 2)
    assert [image.scale(k)["y"] for k in range(3)] == [0.5, 1.0, 2.0]
    assert [image.translation(k) for k in range(3)] == [
        {"y": 10.0, "x": 0.0},
        {"y": 10.25, "x": 0.25},
        {"y": 10.75, "x": 0.75},
    ]


def test_an_image_with_levels_is_not_built_again_unasked() -> None:
    data = noise((300, 300))
    image = build_pyramid(create_image(data=data, levels=0, chunks=(64, 64)), 3)
    with pytest.raises(
        ContainsNodeError, match="has 4 levels already: pass overwrite=True to build levels 1 to 3 anew"
    ):
        build_pyramid(image, 1)
    assert build_pyramid(image, 3, resume=True) is image
    image = build_pyramid(image, 1, method="max", overwrite=True)
    check(image, data, "max")
    assert len(open_image(image.group)) == 2
    assert sorted(image.group) == ["0", "1"]


def test_a_function_that_returns_something_else_is_named() -> None:
    image = create_image(data=noise((64, 64)), chunks=(32, 32))
    with pytest.raises(ValueError, match="shape"):
        build_pyramid(image, 1, method=lambda block, _: block)
    assert len(open_image(image.group)) == 1


def test_progress_counts_the_bytes_of_level_0() -> None:
    image = create_image(data=noise((300, 300)), levels=0, chunks=(64, 64))
    seen: list[tuple[int, int, str]] = []
    build_pyramid(image, 2, progress=lambda *args: seen.append(args))
    assert seen[-1] == (180000, 180000, "0")


def test_a_damaged_chunk_is_named_and_the_build_goes_on_once_it_is_repaired(tmp_path: Path) -> None:
    data = noise((256, 256))
    image = create_image(tmp_path / "image.zarr", data, chunks=(64, 64))
    chunk = tmp_path / "image.zarr" / "0" / "c" / "2" / "1"
    sound = chunk.read_bytes()
    chunk.write_bytes(sound[:20])
    with pytest.raises(ChunkError, match="0/c/2/1"):
        build_pyramid(image, 2)
    chunk.write_bytes(sound)
    check(build_pyramid(image, 2, resume=True), data)


def test_an_image_is_created_with_its_levels_in_one_pass(tmp_path: Path) -> None:
    data = noise((2, 1024, 512))
    store = CountingStore(LocalStore(tmp_path / "image.zarr"))
    image = create_image(store, data, axes="cyx", chunks=(1, 64, 64), scale=0.5)
    assert [level.shape[1:] for level in image] == [(1024, 512), (512, 256), (256, 128)]
    chunks = Counter(key for key in store.written if "/c/" in key)
    assert set(chunks.values()) == {1}
    assert not [request for request in store.requests if "/c/" in request.key]
    check(image, data)
    documents = [key for key in store.written if "/c/" not in key and not key.startswith("gzarr-")]
    assert documents[-1] == "zarr.json"


@pytest.mark.parametrize(
    "data", [np.ones((300, 300), "f8"), [[1.0, 2.0], [3.0, 4.0]], gzarr.array(np.ones((300, 300)))]
)
def test_data_of_another_dtype_are_cast_before_they_are_averaged(data: Any) -> None:
    image = create_image(data=data, dtype="u1", levels=1)
    expected = np.asarray(data).astype("u1")
    check(image, expected)
    assert image[1].dtype == "u1"


def test_an_image_is_not_created_over_its_data(tmp_path: Path) -> None:
    image = create_image(tmp_path / "image.zarr", noise((64, 64)))
    with pytest.raises(MetadataError, match="would be deleted before it is read"):
        create_image(tmp_path / "image.zarr", image[0], overwrite=True)
    assert open_image(tmp_path / "image.zarr").shape == (64, 64)


def test_a_new_image_is_made_of_an_image_in_one_pass(tmp_path: Path, version: Any) -> None:
    data = noise((2, 300, 280))
    shards = {"shards": (1, 64, 128)} if version == "0.5" else {}
    image = create_image(
        tmp_path / "old.zarr", data, axes="cyx", scale=0.5, units="um", channels=["A", "B"], version=version,
        chunks=(1, 32, 32), levels=0, **shards,
    )  # fmt: skip
    store = CountingStore(LocalStore(tmp_path / "new.zarr"))
    made = build_pyramid(image, 2, out=store)
    assert set(Counter(key for key in store.written if key[:2] in {"0/", "1/", "2/"} and "z" not in key).values()) == {
        1
    }
    check(made, data)
    assert [level.chunks for level in made] == [(1, 32, 32)] * 3
    assert (made[2].shards, made.version, made.units) == (image[0].shards, version, image.units)
    assert [channel.label for channel in made.channels] == ["A", "B"]
    assert len(open_image(tmp_path / "old.zarr")) == 1
    with pytest.raises(ContainsGroupError):
        build_pyramid(image, out=tmp_path / "new.zarr")
    with pytest.raises(MetadataError, match="would be deleted before it is read"):
        build_pyramid(image, out=tmp_path / "old.zarr", overwrite=True)


def test_a_new_image_is_made_of_an_array(tmp_path: Path) -> None:
    data = noise((2, 300, 280))
    array = gzarr.create_array(
        tmp_path / "array.zarr", data=data, chunks=(1, 64, 64), dimension_names=("t", "y", "x"), attributes={"a": 1}
    )
    made = build_pyramid(array, out=tmp_path / "image.zarr")
    check(made, data)
    assert (made.axes, len(made), made[0].attrs.asdict()) == (("t", "y", "x"), 2, {})
    whole = create_image(data=data, axes="cyx", chunks=(4, 200, 280), levels=1)
    check(whole, data)
    assert whole[1].chunks == (4, 150, 140)  # an axis that is not reduced may grow
    for given in (array, tmp_path / "array.zarr"):
        with pytest.raises(MetadataError, match="is an array, no image, and has no levels: `gzarr ome convert` makes"):
            build_pyramid(given)


@pytest.mark.parametrize("method", ["mean", "gaussian"])
def test_a_device_builds_the_same_levels(method: str) -> None:
    data = noise((2, 90, 101))
    store = MemoryStore()
    create_image(store, data, axes="cyx", chunks=(1, 32, 32), levels=0)
    image = build_pyramid(open_image(store), 2, method=method, device="emulated", max_nbytes=1 << 20)
    assert image[2].device == "emulated"
    expected = build_pyramid(create_image(data=data, axes="cyx", chunks=(1, 32, 32), levels=0), 2, method=method)
    for level, other in zip(open_image(store, device="cpu"), expected, strict=True):
        np.testing.assert_array_equal(level[...], other[...])


def test_levels_need_data() -> None:
    with pytest.raises(MetadataError, match="need data="):
        create_image(shape=(300, 300), dtype="u1", levels=2)


MEMORY = """
import resource, sys
import numpy as np
import gzarr
from gzarr.images import build_pyramid, create_image
gzarr.config.set({"threading.max_workers": 2})
image = create_image(sys.argv[1], shape=(8192, 4096), dtype="u2", chunks=(256, 256), compressors=None)
for row in range(0, 8192, 256):
    image[0][row : row + 256] = np.random.default_rng(row).integers(0, 60000, (256, 4096), "u2")
build_pyramid(create_image(data=np.ones((512, 512), "u2"), levels=0, chunks=(128, 128)))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
build_pyramid(image, max_nbytes=int(sys.argv[2]))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss has other units elsewhere")
def test_memory_stays_within_the_budget(tmp_path: Path) -> None:
    budget = 12 << 20  # of an image of 64 MiB
    assert int(run_python(MEMORY, args=[tmp_path / "image.zarr", budget])) < budget + (2 << 20)
