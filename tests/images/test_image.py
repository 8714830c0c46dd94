"""Opening images: what is read of all versions, and the one error for each that is malformed."""

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import GroupNotFoundError, MetadataError, ReadOnlyError, SelectionError
from gzarr.images import Image, create_image, open_image
from gzarr.images.ome.documents import write_multiscale

AXES = [{"name": name, "type": "space", "unit": "micrometer"} for name in "yx"]


def pyramid(version: str = "0.5", shapes: Any = ((8, 9), (4, 5)), **changes: Any) -> gzarr.Group:
    """A group with an image of two levels, whose metadata may be changed."""
    zarr_format = 3 if version == "0.5" else 2
    group = gzarr.group(zarr_format=zarr_format)
    levels = []
    for number, shape in enumerate(shapes):
        array = group.create_array(f"s{number}", shape=shape, dtype=changes.pop(f"dtype{number}", "u1"))
        array[...] = number
        transformations = [
            {"type": "scale", "scale": [0.5 * 2**number] * 2},
            {"type": "translation", "translation": [0.25 * (2**number - 1)] * 2},
        ]
        levels.append({"path": f"s{number}", "coordinateTransformations": transformations})
    item = {"name": "a", "axes": AXES, "datasets": levels, **changes.pop("item", {})}
    if version == "0.5":
        group.attrs["ome"] = {"version": "0.5", "multiscales": [item], **changes}
    else:
        group.attrs.put({"multiscales": [{"version": version, **item}], **changes})
    return group


def test_an_image_is_opened(version: str) -> None:
    image = open_image(pyramid(version))
    assert (image.axes, image.shape, image.ndim, image.dtype, len(image)) == (("y", "x"), (8, 9), 2, np.dtype("u1"), 2)
    assert (image.version, image.name, image.units, image.device) == (
        version,
        "a",
        dict.fromkeys("yx", "micrometer"),
        "cpu",
    )
    assert image.scale(1) == {"y": 1.0, "x": 1.0}
    assert image.translation(-1) == {"y": 0.25, "x": 0.25}
    assert [level.shape for level in image] == [(8, 9), (4, 5)]
    assert image[1][0, 0] == 1
    assert repr(image).endswith("yx 8 x 9 uint8, 2 levels>")
    with pytest.raises(SelectionError, match="2 levels, there is no level 2"):
        image.scale(2)


@pytest.mark.parametrize("version", ["0.1", "0.2", "0.3"])
def test_old_images_are_scaled_by_their_shapes(version: str) -> None:
    shapes = ((1, 1, 5, 8, 9), (1, 1, 5, 4, 5)) if version != "0.3" else ((8, 9), (4, 4))
    item = {"axes": ["y", "x"]} if version == "0.3" else {"axes": None}
    group = pyramid(version, shapes, item=item)
    if version != "0.3":
        group.attrs["multiscales"] = [{k: v for k, v in group.attrs["multiscales"][0].items() if k != "axes"}]
    image = open_image(group)
    assert "".join(image.axes) == "tczyx"[-image.ndim :]
    assert list(image.scale(1).values())[-3:] == [1.0, 2.0, 2.0][-image.ndim :]


def test_an_image_is_found_by_path_mode_and_store(tmp_path: Path) -> None:
    create_image(tmp_path / "a.zarr", np.zeros((4, 4), "u1"), path="deep/er")
    assert open_image(tmp_path / "a.zarr", path="deep/er").shape == (4, 4)
    image = open_image(tmp_path / "a.zarr" / "deep" / "er", "r")
    with pytest.raises(ReadOnlyError):
        write_multiscale(image.group, image.metadata)
    with pytest.raises(ReadOnlyError):
        image[0][...] = 1
    open_image(tmp_path / "a.zarr", path="deep/er")[0][...] = 1
    with pytest.raises(GroupNotFoundError):
        open_image(tmp_path / "b.zarr")
    with pytest.raises(ValueError, match="mode must be 'r' or 'r\\+'"):
        open_image(tmp_path / "a.zarr", "a")


def test_an_archive_is_opened_for_reading_unless_told_otherwise(tmp_path: Path) -> None:
    create_image(tmp_path / "a.zip", np.ones((4, 4), "u1")).group.close()
    images = [open_image(tmp_path / "a.zip") for _ in range(2)]
    assert [image.group.read_only for image in images] == [True, True]
    for image in images:
        image.group.close()
    with open_image(tmp_path / "a.zip", "r+").group as group:
        assert not group.read_only


def test_a_device_gets_the_region(device: str) -> None:
    image = open_image(pyramid(), device=device)
    data, coords = image.region(scale=1, y=slice(1, 3), x=1.25)
    assert (data.tolist(), coords["y"].tolist(), coords["x"]) == ([1, 1], [1.25, 2.25], 1.25)
    assert image.device == image.group.device
    assert image.write_label("ones", lambda block: block > 0).device == image.device
    assert {fault.field for fault in image.validate(data=True).errors} == {"dimension_names", ""}


def test_a_region_of_a_level(tmp_path: Path) -> None:
    data = np.arange(2 * 8 * 6, dtype="u2").reshape(2, 8, 6)
    image = create_image(tmp_path / "a", data, axes="cyx", scale=0.5, units="um", channels=["a", "b"])
    part, coords = image.region(c="b", y=slice(1, 2), x=1000, units={"y": "micrometer", "x": "nanometer"})
    np.testing.assert_array_equal(part, data[1, 2:4, 2])
    assert (coords["c"], coords["y"].tolist(), coords["x"]) == (1, [1.0, 1.5], 1000.0)
    assert image.region({"y": 2.0}).data.shape == (2, 6)
    with pytest.raises(SelectionError, match=r"level 0: 9 holds nothing of axis 'y', which spans -0\.25 to 3\.75"):
        image.region(y=9)
    with pytest.raises(MetadataError, match="there is no axis 'z'"):
        image.region(z=9)
    with pytest.raises(MetadataError, match="both choose a level"):
        image.region(level=0, scale=1)
    with pytest.raises(MetadataError, match="'second' is a unit of time"):
        image.region(y=1, units="second")
    with pytest.raises(MetadataError, match="scale: numbers > 0 are needed"):
        image.region(scale=math.nan)


def test_images_are_pickled_and_moved() -> None:
    image = open_image(pyramid())
    for other in (pickle.loads(pickle.dumps(image)), image.to("cpu"), image.reopened()):
        assert isinstance(other, Image)
        assert (other.metadata, other.levels) == (image.metadata, image.levels)


def scale(*values: float) -> dict[str, Any]:
    transformations = [{"type": "scale", "scale": list(values)}]
    return {"item": {"datasets": [{"path": "s0", "coordinateTransformations": transformations}]}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shapes": ((8, 9), (4, 10))}, r"datasets\[1\]: level 1, 's1', has the shape \(4, 10\), which is larger than"),
        ({"dtype1": "u2"}, r"datasets\[1\]: level 1, 's1', has the data type uint16, level 0 has uint8"),
        ({"shapes": ((8, 9), (4,))}, r"datasets\[1\]: level 1, 's1', has the shape \(4,\), of 1 axes, instead of"),
        (
            {"dtype0": "f4", "dtype1": "f4", "image-label": {}},
            r"datasets\[0\]: level 0, 's0', has labels of type float32",
        ),
        (scale(1.0), r"datasets\[0\].coordinateTransformations\[0\].scale: must be 2 numbers"),
        ({"item": {"axes": [*AXES, AXES[0]]}}, r"axes: axis 'y' is there more than once"),
    ],
)
def test_what_does_not_fit_is_one_error_with_group_level_and_field(version: str, changes: Any, message: str) -> None:
    group = pyramid(version, **changes)
    with pytest.raises(MetadataError, match=message) as caught:
        open_image(group)
    assert str(caught.value).startswith(f"{group.store_path}: {'ome.' * (version == '0.5')}multiscales[0].")


@pytest.mark.parametrize("path", ["gone", "../s0", "sub"])
def test_a_level_that_is_no_array(path: str) -> None:
    group = pyramid()
    group.create_group("sub")
    ome = group.attrs["ome"]
    ome["multiscales"][0]["datasets"][1]["path"] = path
    group.attrs["ome"] = ome
    with pytest.raises(MetadataError, match=r"datasets\[1\].path: "):
        open_image(group)


def test_an_image_that_was_not_finished_says_so() -> None:
    class Broken:
        shape, dtype, ndim = (8, 8), np.dtype("u1"), 2

        def __getitem__(self, region: Any) -> Any:
            raise OSError("the disk is gone")

    group = gzarr.group()
    with pytest.raises(OSError, match="the disk is gone"):
        create_image(group, Broken(), path="a")
    with pytest.raises(MetadataError, match=r"an unfinished create_image is here.*resume=True"):
        open_image(group, path="a")


def test_an_image_is_no_array() -> None:
    image = create_image(shape=(4, 5), dtype="u1")
    for wrong in (..., (0, 1), "0"):
        with pytest.raises(TypeError, match=r"takes the number of a level.*image\[0\]\["):
            image[wrong]  # type: ignore[index]
    with pytest.raises(SelectionError, match="has 1 levels, there is no level 3"):
        image[3]
    with pytest.raises(TypeError, match=r"several levels: take one, as image\[0\]"):
        np.asarray(image)


def test_a_region_is_shown_in_short() -> None:
    region = create_image(shape=(400, 500), dtype="u1", scale=0.5).region(y=3.0, x=slice(10, 20))
    assert repr(region) == "<Region 20 uint8, y 3, x 10 to 19.5>"
