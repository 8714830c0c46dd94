"""All of gzarr takes and gives arrays of a device, which never become NumPy arrays unasked, nor are mixed with them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from scipy import ndimage

import gzarr
import gzarr.images
from gzarr.gpu.device import emulated_cupy as xp
from gzarr.interop import dask as gzarr_dask

DATA = np.random.default_rng(0).integers(0, 2000, (48, 40)).astype("u2")
ROWS = [3, 39, 7]


@pytest.fixture(autouse=True)
def arrays_of_the_device() -> Iterator[None]:
    with gzarr.config.set({"emulated.arrays": "device"}):
        yield


@pytest.fixture
def array(tmp_path: Path) -> gzarr.Array:
    return gzarr.create_array(tmp_path / "data", data=DATA, chunks=(16, 16), device="emulated")


def got(array: Any) -> np.ndarray:
    assert type(array) is xp.ndarray
    return array.get()


def test_every_selection_is_read_onto_the_device(array: gzarr.Array) -> None:
    for found, expected in (
        (array[...], DATA),
        (array[5], DATA[5]),
        (array[2:40:3, ::-1], DATA[2:40:3, ::-1]),
        (array[7, 8], DATA[7, 8]),
        (array.oindex[ROWS, 4:9], DATA[ROWS, 4:9]),
        (array.oindex[xp.asarray(ROWS)], DATA[ROWS]),
        (array.vindex[xp.asarray(ROWS), ROWS[::-1]], DATA[ROWS, ROWS[::-1]]),
        (array.blocks[1, 2], DATA[16:32, 32:]),
        (array[DATA > 1500], DATA[DATA > 1500]),
        (array[xp.asarray(DATA) > 1500], DATA[DATA > 1500]),
        (next(iter(array)), DATA[0]),
        (array.astype("f4")[1:3], DATA[1:3]),
        (gzarr.read_many([(array, 3), (array, slice(2))])[1], DATA[:2]),
    ):
        np.testing.assert_array_equal(got(found), expected)
    assert (np.asarray(array) == DATA).all()  # asked for: an array that is stored has no other NumPy values
    assert int(array[7, 8]) == DATA[7, 8]


def test_results_go_into_memory_of_either_side(array: gzarr.Array) -> None:
    for out in (xp.zeros(DATA.shape, "f8"), np.zeros(DATA.shape, "f8"), xp.zeros((48, 80))[:, ::-2]):
        assert array.get_basic_selection(..., out=out) is out
        np.testing.assert_array_equal(xp.asnumpy(out), DATA)
    on_host = gzarr.open_array(array.store_path, mode="r", device="cpu")
    with pytest.raises(ValueError, match="out is in GPU memory"):
        on_host.get_basic_selection(..., out=xp.zeros(DATA.shape))


@pytest.mark.parametrize("device", ["emulated", "cpu"])
def test_values_of_either_side_are_written(array: gzarr.Array, device: str) -> None:
    other = gzarr.empty_like(array, store={}, device=device)
    expected = DATA.copy()
    expected[ROWS], expected[5:9, 3], expected[10] = 1, DATA[5:9, 4], 9
    other[...] = array[...]
    other.oindex[ROWS] = xp.ones((3, 40), "u2")
    other[5:9, 3] = DATA[5:9, 4]
    other[10] = xp.asarray(9)
    other.append(array[:2])
    other[:2] = array[:2]
    other[:2, :20] = DATA[:2, :20]
    np.testing.assert_array_equal(xp.asnumpy(other[:48]), expected)
    np.testing.assert_array_equal(xp.asnumpy(other[48:]), DATA[:2])
    made = gzarr.create_array({}, data=array[...], chunks=16, device=device)
    np.testing.assert_array_equal(xp.asnumpy(made[...]), DATA)
    assert gzarr.open_array(array.store_path, mode="r", meta_array=array[0]).device == "emulated"


def test_statistics(array: gzarr.Array) -> None:
    stats = array.stats()
    assert (stats.min, stats.max) == (DATA.min(), DATA.max())
    assert array.stats(bins=8).histogram[0].sum() == DATA.size


def test_a_loader_gives_batches_on_the_device(array: gzarr.Array) -> None:
    loader = gzarr.Loader({"image": array, "label": np.arange(48)}, 8, seed=1, shuffle=True, dtype={"image": "f4"})
    batches = [{name: got(item) for name, item in batch.items()} for batch in loader]
    for batch in batches:
        np.testing.assert_array_equal(batch["image"], DATA[batch["label"]])
    assert sorted(np.concatenate([batch["label"] for batch in batches])) == list(range(48))


def test_images_are_filtered_labelled_and_reduced_on_the_device(array: gzarr.Array, tmp_path: Path) -> None:
    kinds = set()

    def smooth(block: Any) -> Any:
        kinds.add(type(block))
        return gzarr.scipy_namespace(block).ndimage.uniform_filter(block, 3)

    made = gzarr.images.map_overlap(smooth, array, tmp_path / "smooth", 1, block=(16, 16))
    np.testing.assert_array_equal(xp.asnumpy(made[...]), ndimage.uniform_filter(DATA, 3))
    assert kinds == {xp.ndarray}
    with pytest.raises(TypeError, match=r"Unsupported type <class 'numpy\.ndarray'>"):
        gzarr.images.map_overlap(lambda block: block * DATA[: len(block)], array, tmp_path / "mixed", 0)
    bright = gzarr.create_array(tmp_path / "bright", data=DATA > 1500, chunks=(16, 16), device="emulated")
    assert gzarr.images.label(bright, tmp_path / "labels") == ndimage.label(DATA > 1500)[1]
    image = gzarr.images.create_image(tmp_path / "image", data=array[...], axes="yx", device="emulated", levels=1)
    np.testing.assert_array_equal(got(image.levels[0][...]), DATA)
    assert got(image.levels[1][...]).shape == (24, 20)


def every_other(block: Any, factors: tuple[int, ...]) -> np.ndarray:
    return xp.asnumpy(block[:: factors[0], :: factors[1]])


@pytest.mark.parametrize("method", ["mean", "nearest", every_other])
def test_levels_are_made_of_values_of_the_host_too(tmp_path: Path, method: Any) -> None:
    images = []
    for device, how in (("emulated", method), ("cpu", method if isinstance(method, str) else "nearest")):
        path = tmp_path / device
        gzarr.images.create_image(path, DATA, axes="yx", device=device, levels=2, chunks=16, method=how)
        images.append(gzarr.images.open_image(path, "r", device="cpu"))
    for one, two in zip(*images, strict=True):
        np.testing.assert_array_equal(one[...], two[...])


@pytest.mark.parametrize("block", [(16, 16), (8, 8)])
def test_a_filter_may_return_values_of_the_host(array: gzarr.Array, tmp_path: Path, block: tuple[int, int]) -> None:
    made = gzarr.images.map_overlap(lambda part: part.get() + 1, array, tmp_path / "made", 1, block=block)
    np.testing.assert_array_equal(got(made[...]), DATA + 1)


def test_other_libraries_take_the_arrays(array: gzarr.Array) -> None:
    with dask.config.set(scheduler="sync"):
        total = gzarr_dask.from_zarr(array).sum(axis=0).compute()
    np.testing.assert_array_equal(got(total), DATA.sum(axis=0))


def test_what_runs_on_the_host_reads_numpy_arrays() -> None:
    texts = gzarr.array(np.array(["a", "bc"]), device="emulated")
    assert texts[:].tolist() == ["a", "bc"]
    assert texts.xp is np
