"""Pictures show the right voxels, in the right colours, out of the right level."""

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest

import gzarr
import gzarr.images
from gzarr.images import Image
from gzarr.images.ome.image_label import color_of

thumbnail, ortho = Image.thumbnail, Image.ortho


def pixels(png: bytes) -> np.ndarray:
    with PIL.Image.open(io.BytesIO(png)) as picture:
        assert picture.format == "PNG"
        return np.asarray(picture)


def image_of(data: np.ndarray, **options: Any) -> Image:
    image = gzarr.images.create_image(shape=data.shape, dtype=data.dtype, **options)
    image[0][...] = data
    return image


def test_a_small_picture_shows_every_voxel() -> None:
    data = np.arange(48, dtype="u1").reshape(6, 8) * 5
    shown = pixels(thumbnail(image_of(data)))
    np.testing.assert_array_equal(shown, np.stack([data] * 3, axis=-1))


def test_notebooks_show_a_thumbnail_where_pillow_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    image = image_of(np.eye(4, dtype="u1"))
    assert image._repr_png_() == image.thumbnail()
    for shape in ((0, 4), (1 << 14, 1 << 14)):
        assert gzarr.images.create_image(shape=shape, dtype="u1")._repr_png_() is None
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    assert image._repr_png_() is None
    with pytest.raises(gzarr.errors.MissingExtraError, match=r"pip install 'gzarr\[ome\]'"):
        image.thumbnail()


def test_notebooks_show_the_text_of_what_is_damaged_or_decoded_long(monkeypatch: pytest.MonkeyPatch) -> None:
    image = gzarr.images.create_image(shape=(8, 8), dtype="u1")
    image.group.store["0/c/0/0"] = b"damaged"
    assert image._repr_png_() is None
    image = gzarr.images.create_image(shape=(9, 8, 8), dtype="u1", chunks=(9, 8, 8))
    assert image._repr_png_() is not None
    monkeypatch.setattr("gzarr.images.image._QUICK_NBYTES", 9 * 8 * 8 - 1)
    assert image._repr_png_() is None


def test_axes_in_different_units_and_malformed_colours_are_drawn() -> None:
    image = gzarr.images.create_image(shape=(8, 8), dtype="u1", scale=(500, 0.5), units={"y": "nm", "x": "um"})
    image.group.attrs["ome"] = {**image.group.attrs["ome"], "omero": {"channels": [{"color": "red"}]}}
    image = image.reopened()
    assert (pixels(image.thumbnail()).shape, image.channels[0].extra) == ((8, 8, 3), {"color": "red"})


def test_three_channels_of_bytes_are_red_green_and_blue() -> None:
    data = np.random.default_rng(0).integers(0, 256, (3, 6, 8), dtype="u1")
    np.testing.assert_array_equal(pixels(thumbnail(image_of(data, axes="cyx"))), data.transpose(1, 2, 0))


def test_channels_are_blended_in_their_colours_and_windows() -> None:
    data = np.zeros((2, 4, 4), "u2")
    data[0, :2], data[1, :, :2] = 1000, 300
    channels = [
        {"label": "a", "color": "FF0000", "window": (0, 2000)},
        {"label": "b", "color": "00FF00", "window": (100, 300)},
    ]
    image = image_of(data, axes="cyx", channels=channels)
    shown = pixels(thumbnail(image))
    np.testing.assert_array_equal(
        shown[[0, 0, 3, 3], [0, 3, 0, 3]], [[128, 255, 0], [128, 0, 0], [0, 255, 0], [0, 0, 0]]
    )
    assert not pixels(thumbnail(image, channels="a"))[..., 1].any()
    np.testing.assert_array_equal(pixels(thumbnail(image, channels=[1]))[0, 0], [0, 255, 0])
    np.testing.assert_array_equal(pixels(thumbnail(image, contrast=(0, 1000)))[0, 0], [255, 77, 0])
    np.testing.assert_array_equal(pixels(thumbnail(image, contrast=[(0, 4000), (0, 300)]))[0, 0], [64, 255, 0])


def test_channels_that_are_not_active_are_left_out() -> None:
    data = np.full((2, 4, 4), 200, "u1")
    channels = [{"label": "a", "color": "FF0000"}, {"label": "b", "color": "00FF00", "active": False}]
    np.testing.assert_array_equal(pixels(thumbnail(image_of(data, axes="cyx", channels=channels)))[0, 0], [200, 0, 0])


def test_contrast_comes_from_percentiles_where_nothing_is_known() -> None:
    data = np.random.default_rng(0).normal(500, 20, (64, 64)).astype("f4")
    data[0, 0], data[0, 1] = np.nan, 1e9
    shown = pixels(thumbnail(image_of(data)))[..., 0]
    assert 100 < shown[1:].mean() < 155
    assert shown[1:].std() > 30


def test_values_that_are_all_equal_complex_or_bool_are_drawn() -> None:
    assert not pixels(thumbnail(image_of(np.full((4, 4), 7, "u2")))).any()
    assert set(pixels(thumbnail(image_of(np.full((4, 4), np.nan, "f4")))).flat) == {128}
    heights = image_of(np.array([[-9999, 1, 2], [-9999, 3, 4]], "f4"), skip=-9999)
    assert (pixels(thumbnail(heights)) == 128).all((0, 2)).tolist() == [True, False, False]
    assert pixels(thumbnail(image_of(np.eye(4, dtype="?"))))[0, 0, 0] == 255


@pytest.mark.filterwarnings("error")
def test_values_beyond_single_precision_are_drawn() -> None:
    data = np.array([[1.0, 2.0], [3.0, np.finfo("f8").max]])
    assert pixels(thumbnail(image_of(data))).shape[:2] == (2, 2)


def test_the_coarsest_level_that_suffices_is_read() -> None:
    """Of three levels with a value each, the second one has just enough voxels."""
    group = gzarr.group()
    levels = [
        group.create_array(str(k), shape=(64 >> k, 96 >> k), dtype="u1", fill_value=50 * k + 50) for k in range(3)
    ]
    scales = [[1.0 * 2**k] * 2 for k in range(3)]
    datasets = [
        {"path": str(k), "coordinateTransformations": [{"type": "scale", "scale": scales[k]}]}
        for k in range(len(levels))
    ]
    axes = [{"name": name, "type": "space"} for name in "yx"]
    group.attrs["ome"] = {"version": "0.5", "multiscales": [{"axes": axes, "datasets": datasets}]}
    image = gzarr.images.open_image(group)
    for size, value, shape in ((96, 50, (64, 96)), (49, 50, (33, 49)), (48, 100, (32, 48)), (20, 150, (13, 20))):
        shown = pixels(thumbnail(image, size))
        assert shown.shape == (*shape, 3)
        assert (shown == value).all()


def test_voxels_have_the_proportions_of_their_sizes() -> None:
    image = image_of(np.zeros((10, 40), "u1"), scale={"y": 4.0, "x": 0.5})
    assert pixels(thumbnail(image)).shape == (80, 40, 3)


def test_a_large_level_is_thinned_out_as_it_is_read() -> None:
    image = image_of(np.repeat(np.arange(256, dtype="u1")[None], 2048, 0), scale=1.0)
    shown = pixels(thumbnail(image, 64))
    assert shown.shape == (64, 8, 3)
    assert (np.diff(shown[0, :, 0].astype(int)) > 0).all()


def test_the_plane_is_in_the_middle_of_space_and_at_the_first_time() -> None:
    data = np.zeros((2, 5, 4, 4), "u1")
    data[0, 2], data[1, 4] = 10, 20
    image = image_of(data, axes="tzyx", scale={"z": 2.0, "t": 0.5})
    assert (pixels(thumbnail(image)) == 10).all()
    assert (pixels(thumbnail(image, position={"t": 0.5, "z": 8.0})) == 20).all()
    with pytest.raises(gzarr.errors.SelectionError, match=r"z=11.0 is outside the image, from 0.0 to 8.0"):
        thumbnail(image, position={"z": 11})
    with pytest.raises(gzarr.MetadataError, match="position"):
        thumbnail(image, position={"w": 1})


def test_three_planes_through_a_point() -> None:
    data = np.random.default_rng(0).integers(0, 256, (4, 6, 8), dtype="u1")
    image = image_of(data)
    shown = pixels(image.ortho({"z": 1, "y": 2, "x": 3}))
    assert shown.shape == (6 + 2 + 4, 8 + 2 + 4, 3)
    np.testing.assert_array_equal(shown[:6, :8, 0], data[1])
    np.testing.assert_array_equal(shown[:6, 10:, 0], data[:, :, 3].T)
    np.testing.assert_array_equal(shown[8:, :8, 0], data[:, 2])
    assert not shown[6:8].any()
    assert max(pixels(ortho(image, size=10)).shape) <= 10
    with pytest.raises(gzarr.MetadataError, match="no third axis of space: use thumbnail"):
        ortho(image_of(data[0]))


def test_channels_and_contrast_are_checked() -> None:
    image = image_of(np.zeros((2, 4, 4), "u1"), axes="cyx", channels=["a", "b"])
    with pytest.raises(gzarr.errors.SelectionError, match=r"has no channel 'c'; it has 2: \['a', 'b'\]"):
        thumbnail(image, channels="c")
    with pytest.raises(gzarr.errors.SelectionError, match="no channel 'c'; it has 2: without names, 0 to 1"):
        thumbnail(image_of(np.zeros((2, 4, 4), "u1"), axes="cyx"), channels="c")
    with pytest.raises(gzarr.errors.SelectionError, match="has no channel 2"):
        thumbnail(image, channels=[0, 2])
    for contrast in ((1, 0), (1,), [(0, 1)] * 3, (0, np.nan)):
        with pytest.raises(ValueError, match=r"contrast must be \(low, high\), or 2 of such pairs"):
            thumbnail(image, contrast=contrast)
    with pytest.raises(gzarr.MetadataError, match="size=0: a picture has a positive number of pixels"):
        thumbnail(image_of(np.zeros((2, 2), "u1")), 0)
    with pytest.raises(gzarr.MetadataError, match="has no voxels"):
        thumbnail(gzarr.images.create_image(shape=(0, 4), dtype="u1"))


def test_labels_have_a_colour_each() -> None:
    group = gzarr.group()
    group.create_array("0", data=np.arange(16, dtype="u4").reshape(4, 4))
    dataset = {"path": "0", "coordinateTransformations": [{"type": "scale", "scale": [1.0, 1.0]}]}
    axes = [{"name": name, "type": "space"} for name in "yx"]
    label = {"colors": [{"label-value": 3, "rgba": [10, 20, 30, 255]}]}
    group.attrs["ome"] = {
        "version": "0.5",
        "multiscales": [{"axes": axes, "datasets": [dataset]}],
        "image-label": label,
    }
    shown = pixels(thumbnail(gzarr.images.open_image(group)))
    np.testing.assert_array_equal(shown[0, 0], [0, 0, 0])
    np.testing.assert_array_equal(shown[0, 3], [10, 20, 30])
    np.testing.assert_array_equal(shown[1, 1], color_of(5)[:3])


@pytest.mark.parametrize("arrays", ["device", "numpy"])
def test_pictures_labels_and_validation_of_the_emulated_device_are_the_same(tmp_path: Path, arrays: str) -> None:
    data = np.random.default_rng(0).integers(0, 256, (5, 16, 24), dtype="u1")
    image = gzarr.images.create_image(tmp_path / "a", data, axes="zyx", chunks=(1, 8, 8), scale=0.5, units="micrometer")
    at, units = {"z": 1500.0}, "nanometer"
    seen = []

    def bright(block: Any) -> Any:
        seen.append(type(block))
        return block > 100

    with gzarr.config.set({"emulated.arrays": arrays}):
        drawn = [draw(image, device="emulated") for draw in (thumbnail, ortho)]
        assert thumbnail(image, position=at, units=units, device="emulated") == thumbnail(image, position={"z": 1.5})
        label = image.write_label("bright", bright, device="emulated")
        assert label.group.backend is image.group.backend
        report = image.validate(data=True, device="emulated")
    assert drawn == [thumbnail(image), ortho(image)]
    assert all(kind.__name__ == {"device": "EmulatedArray", "numpy": "ndarray"}[arrays] for kind in seen)
    np.testing.assert_array_equal(label[0][...], data > 100)
    assert report.ok, report
    file = next(path for path in (tmp_path / "a" / "0" / "c").rglob("*") if path.is_file())
    file.write_bytes(file.read_bytes()[:-7])
    damaged = [image.validate(data=True, device=device).errors for device in ("cpu", "emulated")]
    assert [fault.field for fault in damaged[0]] == [fault.field for fault in damaged[1]] != []
