"""Results of other shapes: what NumPy and SciPy make of the whole array, with the right coordinates."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr import images
from gzarr.images import Image, create_image, open_image
from gzarr.images.transforms import warping

ndi = pytest.importorskip("scipy.ndimage", reason="scipy is the oracle")
SHAPE = (3, 20, 50, 61)
DATA = np.random.default_rng(0).integers(0, 60000, SHAPE).astype("u2")
TURN = np.array([[0.9, 0.2, -0.1], [-0.2, 0.85, 0.1], [0.15, -0.1, 0.95]])  # with many ties
AT = (3.3, -2, 5)


def picture(**options: Any) -> Image:
    return create_image(
        data=DATA, axes="czyx", scale=(1, 2, 0.5, 0.5), translation=(0, 4, 0, 1), chunks=(1, 8, 32, 32), **options
    )


def volume(dtype: str = "u2") -> gzarr.Array:
    return gzarr.array(DATA[0].astype(dtype), chunks=(8, 16, 16))


def host(made: Any) -> np.ndarray:
    array = made[0] if isinstance(made, Image) else made
    return np.asarray(array.to("cpu")[...])


@pytest.mark.parametrize("method", ["max", "min", "mean", "sum", "std", "median", "argmax"])
def test_projections_are_those_of_numpy(method: Any, device: str) -> None:
    made = images.project(picture(channels=["a", "b", "c"]), None, "z", method, device=device, max_nbytes=10**6)
    np.testing.assert_allclose(host(made), getattr(np, method)(DATA, axis=1), rtol=1e-12)
    assert (made.axes, made.scale()) == (("c", "y", "x"), {"c": 1.0, "y": 0.5, "x": 0.5})
    assert [channel.label for channel in made.channels] == ["a", "b", "c"]


@pytest.mark.parametrize("dtype", ["f4", "c8"])
def test_projections_of_floats_keep_their_type(dtype: str) -> None:
    data = (DATA[0] * (1 if dtype == "f4" else 1 + 2j)).astype(dtype)
    for method in ("mean", "std"):
        made = images.project(gzarr.array(data, chunks=(8, 16, 16)), None, 0, method)
        assert made.dtype == getattr(data, method)(0).dtype
        np.testing.assert_allclose(made[...], getattr(data, method)(0), rtol=1e-5)


def test_nan_is_the_largest_as_in_numpy() -> None:
    data = np.array([[1.0, np.nan, 2.0], [3.0, 5.0, np.nan], [9.0, 5.0, 1.0]])
    for method in ("max", "argmax", "mean"):
        made = images.project(gzarr.array(data, chunks=(1, 2)), None, 0, method)
        np.testing.assert_array_equal(made[...], getattr(np, method)(data, axis=0))


def test_a_projection_with_one_axis_of_space_is_an_array() -> None:
    made = images.project(images.crop(picture(), None, {"c": 0, "z": 8.0}), None, "y")
    assert isinstance(made, gzarr.Array)
    assert made.shape == (61,)


@pytest.mark.parametrize("k", [-1, 0, 1, 2, 3])
def test_turns_and_mirrors_are_those_of_numpy(k: int, device: str) -> None:
    made = images.rotate90(picture(), None, k, ("z", "x"), device=device, max_nbytes=2 * 10**6)
    np.testing.assert_array_equal(host(made), np.rot90(DATA, k, (1, 3)))
    assert made.scale()["x"] == (2.0 if k % 2 else 0.5)
    flipped = images.flip(picture(), None, ["y", -1][: k % 2 + 1], device=device)
    np.testing.assert_array_equal(host(flipped), np.flip(DATA, (2, 3)[: k % 2 + 1]))


def test_turns_and_mirrors_take_units_and_channels_along() -> None:
    image = create_image(data=DATA[0, 0], scale=(2, 500), units={"y": "micrometer", "x": "nanometer"})
    made = images.rotate90(image, None)
    assert (made.scale(), made.units) == ({"y": 0.5, "x": 2000.0}, image.units)
    mirrored = images.flip(picture(channels=["a", "b", "c"]), None, "c")
    assert [channel.label for channel in mirrored.channels] == ["c", "b", "a"]
    with pytest.raises(ValueError, match="must be of space"):
        images.rotate90(picture(), None, 1, ("c", "y"))


def test_a_part_keeps_its_coordinates_and_channels(tmp_path: Path) -> None:
    image = picture(channels=["a", "b", "c"])
    selection = {"c": slice(1, 3), "z": slice(8.0, 20.0), "y": slice(5000, 10000)}
    made = images.crop(
        picture(channels=["a", "b", "c"], units="micrometer"), tmp_path / "p", selection, units={"y": "nm"}
    )
    np.testing.assert_array_equal(host(open_image(tmp_path / "p")), DATA[1:3, 2:8, 10:20])
    assert made.translation() == {"c": 1.0, "z": 8.0, "y": 5.0, "x": 1.0}
    assert [channel.label for channel in made.channels] == ["b", "c"]
    one = images.crop(image, None, {"c": "b"}, levels=2, factors=2)
    assert (one.axes, [level.shape for level in one]) == (("z", "y", "x"), [(20, 50, 61), (10, 25, 31), (5, 13, 16)])
    with pytest.raises(ValueError, match="has no units"):
        images.crop(volume(), None, {0: slice(3)}, units="nm")


@pytest.mark.parametrize("order", [0, 1, 3])
@pytest.mark.parametrize("mode", ["constant", "nearest"])
@pytest.mark.parametrize("dtype", ["u2", "f4"])
def test_affine_is_that_of_scipy(order: int, mode: Any, dtype: str, device: str) -> None:
    how: dict[str, Any] = {"order": order, "mode": mode, "cval": 5}
    at = AT if device == "cpu" else (3.30007, -2, 5.00003)  # there, ties are rounded as CuPy rounds them
    expected = ndi.affine_transform(volume(dtype)[...], TURN, at, (25, 40, 50), **how)
    made = images.affine(volume(dtype), None, TURN, at, shape=(25, 40, 50), max_nbytes=10**7, device=device, **how)
    close = {} if order < 2 else {"atol": 1 if dtype == "u2" else 0.02}
    np.testing.assert_allclose(host(made).astype(float), expected.astype(float), rtol=0, **{"atol": 0, **close})
    assert made.dtype == expected.dtype


@pytest.mark.parametrize("matrix", [[1, 0.5], [1, 1], [0.75, 6], [1.02, 0.98], [[1, 1], [1, 1]], [[0, 0], [0, 2]]])
@pytest.mark.parametrize("mode", ["constant", "nearest"])
@pytest.mark.parametrize("order", [0, 1, 2, 4, 5])
def test_results_reach_beyond_the_input(matrix: Any, mode: Any, order: int) -> None:
    data = DATA[0, 0].astype(float)
    expected = ndi.affine_transform(data, np.array(matrix, float), (0, 2), (55, 40), order=order, mode=mode)
    z = gzarr.array(data, chunks=(16, 16))
    made = images.affine(z, None, matrix, (0, 2), shape=(55, 40), order=order, mode=mode)
    np.testing.assert_allclose(made[...], expected, rtol=0, atol=1e-14 * 60000 * (order > 1))


def test_affine_of_an_image_leaves_channels_alone() -> None:
    made = images.affine(picture(), None, np.column_stack([TURN, AT]), shape=(25, 40, 50))
    expected = [ndi.affine_transform(one, TURN, AT, (25, 40, 50), order=1) for one in DATA]
    np.testing.assert_array_equal(host(made), expected)
    with pytest.raises(ValueError, match="order must be 0 to 5, mode 'constant' or 'nearest', got 1 and 'reflect'"):
        images.affine(picture(), None, TURN, mode="reflect")
    with pytest.raises(ValueError, match="shape \\(2, 5\\)"):
        images.affine(picture(), None, np.ones((2, 5)))


@pytest.mark.parametrize("order", [0, 1, 3])
def test_rescale_smooths_and_interpolates_as_scikit_image(order: int, device: str) -> None:
    shape, data = (30, 20, 61), DATA[0].astype(float)
    factors = dict(enumerate(b / a for a, b in zip(data.shape, shape, strict=True)))
    sigma = [max((a / b - 1) / 2, 0) * (order > 0) for a, b in zip(data.shape, shape, strict=True)]
    smooth = ndi.gaussian_filter(data, sigma, mode="nearest")
    expected = ndi.zoom(smooth, list(factors.values()), order=order, mode="nearest", grid_mode=True)
    if not order:  # the element that holds the middle; zoom rounds ties in either way
        expected = data[
            np.ix_(*[(2 * np.arange(b) + 1) * a // (2 * b) for a, b in zip(data.shape, shape, strict=True)])
        ]
    made = images.rescale(volume("f8"), None, factors, order=order, max_nbytes=10**7, device=device)
    np.testing.assert_allclose(host(made), expected, rtol=1e-7)
    rounded = images.rescale(volume(), None, factors, order=order, device=device)
    np.testing.assert_allclose(host(rounded), np.clip(expected, 0, 65535), atol=0.51)


def test_rescale_to_a_voxel_size_covers_the_same_space() -> None:
    image = picture(units="micrometer")
    made = images.rescale(image, None, to=1000, units="nanometer")
    assert made.scale() == {"c": 1.0, "z": 1.0, "y": 1.0, "x": pytest.approx(61 / 30 / 2)}
    for name, n, m in zip("zyx", image.shape[1:], made.shape[1:], strict=True):
        ends = [one.translation()[name] - one.scale()[name] / 2 for one in (image, made)]
        assert ends[0] == pytest.approx(ends[1])
        assert n * image.scale()[name] == pytest.approx(m * made.scale()[name])


def test_resample_takes_the_grid_of_another_image(device: str) -> None:
    like = create_image(
        shape=(12, 30), axes="yx", scale=2000.0, translation=(1000, 3000), dtype="u1", units="nanometer"
    )
    plane = images.crop(picture(units="micrometer"), None, {"z": 4.0})
    made = images.resample(plane, None, like, device=device, mode="nearest")
    expected = [ndi.affine_transform(one, [4, 4], [2, 4], (12, 30), order=1, mode="nearest") for one in DATA[:, 0]]
    np.testing.assert_array_equal(host(made), expected)
    assert made.scale() == {"c": 1.0, "y": 2.0, "x": 2.0}
    assert made.translation()["x"] == 3.0


@pytest.mark.parametrize("order", [0, 1, 3])
def test_warp_is_map_coordinates(order: int, device: str) -> None:
    field = np.random.default_rng(1).normal(0, 3, (3, *SHAPE[1:])).astype("f4")
    field[:, :3, :3, :3] += 15  # a box that is much larger than its block
    how: dict[str, Any] = {"order": order, "mode": "nearest"}
    expected = ndi.map_coordinates(DATA[0], field + np.indices(SHAPE[1:]), **how)
    made = images.warp(volume(), None, gzarr.array(field, chunks=(3, 8, 16, 16)), device=device, **how)
    np.testing.assert_allclose(host(made).astype(float), expected, atol=int(order > 1))


def test_what_splines_need_cuts_no_block(monkeypatch: pytest.MonkeyPatch) -> None:
    shape, calls, interpolate = (80, 80, 80), [], ndi.map_coordinates

    def counted(*given: Any, **options: Any) -> Any:
        calls.append(1)
        assert len(calls) <= 65  # blocks, and the trial
        return interpolate(*given, **options)

    monkeypatch.setattr(ndi, "map_coordinates", counted)
    monkeypatch.setattr(warping, "_MOST_OF_BOX", 1)
    field = gzarr.zeros((3, *shape), chunks=(3, 20, 20, 20), dtype="f4")
    source = gzarr.zeros(shape, chunks=(20, 20, 20), dtype="u1")
    assert not images.warp(source, None, field, order=3, max_nbytes=10**7).stats().max


@pytest.mark.parametrize("shift", [1.0, -0.5])
def test_deskew_moves_planes_sideways(shift: float) -> None:
    made = images.deskew(picture(), None, 30, along="x", shift=shift)
    for number in range(20):
        row, at = host(made)[0, number], shift * number - min(shift * 19, 0)
        expected = ndi.shift(np.pad(DATA[0, number], [(0, 0), (0, row.shape[1] - 61)]).astype(float), (0, at), order=1)
        inside = slice(int(np.ceil(at)) + 1, int(at) + 60)
        np.testing.assert_allclose(row[:, inside], expected[:, inside], atol=1)
    assert made.scale()["z"] == pytest.approx(1.0)
    assert made.shape[-1] == 61 + int(np.ceil(abs(shift) * 19))


def test_what_is_not_stored_is_not_computed(tmp_path: Path) -> None:
    store = gzarr.storage.CountingStore(gzarr.storage.LocalStore(tmp_path))
    z = gzarr.zeros((2000, 2000, 2000), chunks=(100, 100, 100), dtype="u1", store=store)
    z[1000:1010, 1000:1010, 100:110] = 7
    for made in (
        images.project(z, None, 0),
        images.flip(z, None, 0),
        images.crop(z, None, {0: slice(500, 1500)}),
        images.rescale(z, None, 0.5, order=0),
    ):
        assert made.nchunks_initialized <= 8
        assert made.stats().max == 7


def test_a_killed_call_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image, calls = picture(), []

    def fails(*call: Any) -> None:
        calls.append(call)
        if len(calls) == 3:
            raise KeyboardInterrupt

    how: dict[str, Any] = {"max_nbytes": 10**6, "levels": 1, "factors": 2}
    with pytest.raises(KeyboardInterrupt):
        images.flip(image, tmp_path / "o", "x", progress=fails, **how)
    with pytest.raises(gzarr.errors.ContainsNodeError, match="is of something else"):
        images.flip(image, tmp_path / "o", "y", resume=True, **how)
    made = images.flip(image, tmp_path / "o", "x", resume=True, **how)
    np.testing.assert_array_equal(host(made), DATA[..., ::-1])
    images.build_pyramid(made, overwrite=True, levels=1, factors=2)
    assert gzarr.verify(tmp_path / "o").ok
    calls.clear()
    with pytest.raises(KeyboardInterrupt):
        images.flip(image[0], tmp_path / "a", "x", progress=fails, max_nbytes=10**6)
    with pytest.raises(gzarr.errors.ContainsNodeError, match="dtype was 'uint16', is 'uint8'"):
        images.flip(image[0], tmp_path / "a", "x", resume=True, dtype="u1", max_nbytes=10**6)
