"""Segmentations in overlapping blocks, and measures of objects: what SciPy gives for the whole array."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr import images
from gzarr.images import create_image

ndi = pytest.importorskip("scipy.ndimage", reason="scipy is the oracle")


def blobs(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Smooth noise, brighter within objects that are smaller than 12 elements."""
    noise = np.random.default_rng(seed).normal(size=shape)
    return np.asarray(ndi.gaussian_filter(noise, 1.5) * 1000, "f4")


def threshold(block: Any) -> Any:
    return gzarr.scipy_namespace(block).ndimage.label(block > 150)[0]


@pytest.mark.parametrize("block", [None, 16, (20, 37, 20)])
def test_objects_are_those_of_the_whole_array(block: Any, device: str) -> None:
    data = blobs((37, 41, 60))
    whole, n = ndi.label(data > 150)
    out = gzarr.zeros(data.shape, chunks=(16, 16, 16), dtype="u4")
    z = gzarr.array(data, chunks=(16, 16, 16))
    assert images.segment(threshold, z, out, 12, block=block, max_nbytes=10**8, device=device) == n
    np.testing.assert_array_equal(out[...], whole)


def test_channels_are_seen_together_and_blocks_say_where_they_are(tmp_path: Path) -> None:
    data = blobs((2, 70, 90))
    image = create_image(data=data, axes="cyx", chunks=(1, 32, 32), scale=(1, 0.5, 0.5))
    seen = []

    def brightest(block: Any, where: images.Where) -> Any:
        seen.append(where)
        inner = tuple(slice(p.start - h[0], p.stop + h[1]) for p, h in zip(where.box, where.halo, strict=True))
        np.testing.assert_array_equal(block, data[:, *inner])
        return ndi.label(block.max(axis=0) > 150)[0]

    n = images.segment(brightest, image, tmp_path / "n", {"y": 12, "x": 12}, threshold=0.1)
    whole, expected = ndi.label(data.max(axis=0) > 150)
    assert n == expected
    np.testing.assert_array_equal(gzarr.open_array(tmp_path / "n")[...], whole)
    assert (slice(32, 64), slice(64, 90)) in [where.box for where in seen]


def test_an_interrupted_segmentation_goes_on_where_it_was(tmp_path: Path) -> None:
    data = blobs((60, 60))
    np.save(tmp_path / "calls", 0)
    z, log = gzarr.array(data, chunks=(20, 20)), tmp_path / "log"
    out = gzarr.zeros(data.shape, chunks=(20, 20), dtype="u4")

    def logged(block: Any) -> Any:
        with log.open("a") as file:
            file.write("x")
        if log.stat().st_size == 6:
            raise OSError("out of memory")
        return threshold(block)

    how: dict[str, Any] = {"depth": 12, "work": tmp_path / "work", "resume": "threshold", "max_nbytes": 10**5}
    with pytest.raises(OSError, match="out of memory"):
        images.segment(logged, z, out, **how)
    images.segment(logged, z, out, **how)
    np.testing.assert_array_equal(out[...], ndi.label(data > 150)[0])
    assert log.stat().st_size <= 9 + 1 + 3  # every block once, the one that failed, a trial of each call
    images.segment(logged, z, out, **how)  # killed between its blocks, which are whole, and its labels


@pytest.mark.parametrize("wrong", [lambda b: b, lambda b: np.zeros((2, 2), int), lambda b: None])
def test_what_is_no_label_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="segment: func returned"):
        images.segment(wrong, gzarr.array(blobs((40, 40)), chunks=(20, 20)), None, 4)


ALL = ("area", "centroid", "bbox", "sum_intensity", "mean_intensity", "min_intensity", "max_intensity", "std_intensity")


@pytest.mark.parametrize("dtype", ["u2", "f4", "i4"])
def test_measures_are_exact_across_blocks(dtype: str, device: str) -> None:
    data = (blobs((40, 50, 60)) * 30).clip(0).astype(dtype)
    labels, n = ndi.label(data > 3000)
    labels[labels == 3] = 2  # one object in two parts
    each, of = np.setdiff1d(np.arange(1, n + 1), 3), (labels, data.astype("f8"))
    table = images.measure(
        create_image(data=labels.astype("u4"), chunks=(16, 16, 16), scale=(2, 0.5, 0.5), translation=(7, 0, 0)),
        gzarr.array(data, chunks=(20, 16, 32)),
        [*ALL, "volume", "position"],
        device=device,
    )
    np.testing.assert_array_equal(table["label"], each)
    np.testing.assert_array_equal(table["area"], np.bincount(labels.ravel())[each])
    centers = np.array(ndi.center_of_mass(labels > 0, labels, each))
    boxes = [box for box in ndi.find_objects(labels) if box is not None]
    for axis in range(3):
        np.testing.assert_allclose(table[f"centroid-{axis}"], centers[:, axis], rtol=1e-12)
        assert table[f"bbox-{axis}"].tolist() == [box[axis].start for box in boxes]
        assert table[f"bbox-{axis + 3}"].tolist() == [box[axis].stop for box in boxes]
    for name, function in [("mean", ndi.mean), ("min", ndi.minimum), ("max", ndi.maximum), ("sum", ndi.sum)]:
        np.testing.assert_allclose(table[f"{name}_intensity"], function(of[1], labels, each), rtol=1e-6)
    np.testing.assert_allclose(table["std_intensity"], [of[1][labels == n].std() for n in each], rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(table["volume"], table["area"] * 0.5)
    np.testing.assert_allclose(table["position-z"], centers[:, 0] * 2 + 7)


def test_tables_become_those_of_other_libraries(tmp_path: Path) -> None:
    table = images.measure(gzarr.array(np.array([[1, 1, 0], [0, 2, 2]])), properties=["area", "bbox"])
    table.to_csv(tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text().splitlines()[1:] == ["1,2,0,0,1,2", "2,2,1,1,2,3"]
    pytest.importorskip("pandas", reason="its tables")
    assert table.to_pandas().set_index("label")["area"].to_dict() == {1: 2, 2: 2}
    parquet = pytest.importorskip("pyarrow.parquet", reason="its files")
    table.to_parquet(tmp_path / "t.parquet")
    assert parquet.read_table(tmp_path / "t.parquet")["bbox-3"].to_pylist() == [2, 3]
    for name, remedy in (("intensity_mean", "give image="), ("volume", "give an Image"), ("size", "expected area, ")):
        with pytest.raises(ValueError, match=f"'{name}' is not known of what is given; {remedy}"):
            images.measure(gzarr.array(np.array([1, 2])), properties=[name])


def test_images_of_one_block_or_none_and_numbers_that_do_not_fit() -> None:
    data, out = np.eye(8, dtype="i8") * 2**32, gzarr.zeros((8, 8), dtype="u4")
    assert images.segment(lambda block: block > 0, gzarr.array(data), out, 2) == 1
    with pytest.raises(ValueError, match="above 2"):
        images.segment(lambda block: block, gzarr.array(data), out, 2)
    nothing = gzarr.zeros((0, 8), dtype="u4")
    assert images.segment(threshold, gzarr.zeros((0, 8)), nothing, 2) == 0
    assert images.measure(nothing)["bbox-3"].shape == (0,)
    huge = gzarr.array(np.full((4, 8), 2**62, "u8"), chunks=(2, 8))
    table = images.measure(gzarr.ones((4, 8), dtype="u1"), huge, ["mean_intensity", "intensity_std", "num_pixels"])
    assert [column.tolist() for column in table.values()] == [[1], [2.0**62], [0], [32]]
    with pytest.raises(ValueError, match="unequal lengths"):
        images.tabulate(lambda block: {"label": block[0], "n": block[0, 1:]}, out)
