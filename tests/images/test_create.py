"""New images: what is stored, and what is refused before anything is."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import ContainsGroupError, MetadataError
from gzarr.images import Image, create_image, open_image


def test_what_is_stored_is_what_the_specification_says(tmp_path: Path, version: Any) -> None:
    path = tmp_path / "cell.ome.zarr"
    data = np.arange(2 * 3 * 4, dtype="u2").reshape(2, 3, 4)
    image = create_image(path, data, axes="cyx", scale=0.5, units="um", channels=["a", "b"], version=version)
    group = gzarr.open_group(path, "r")
    found = group.attrs["ome"] if version == "0.5" else group.attrs
    (item,) = found["multiscales"]
    assert item["name"] == "cell"
    assert item["datasets"] == [
        {"path": "0", "coordinateTransformations": [{"type": "scale", "scale": [1.0, 0.5, 0.5]}]}
    ]
    assert item["axes"] == [{"name": "c", "type": "channel"}] + [
        {"name": name, "type": "space", "unit": "micrometer"} for name in "yx"
    ]
    assert [channel["label"] for channel in found["omero"]["channels"]] == ["a", "b"]
    assert image.version == version == (found["version"] if version == "0.5" else item["version"])
    array = gzarr.open_array(path / "0", "r")
    if version == "0.5":
        assert array.metadata.dimension_names == ("c", "y", "x")
    else:
        assert array.attrs["_ARRAY_DIMENSIONS"] == ["c", "y", "x"]
        assert array.metadata.keys.separator == "/"
    np.testing.assert_array_equal(array[...], data)
    assert open_image(path).metadata == image.metadata


def test_an_image_in_memory_without_data() -> None:
    image = create_image(shape=(20, 30), dtype="f4", scale={"x": 2}, translation=[0, 5], name="mine")
    assert isinstance(image, Image)
    assert (image.shape, image.dtype, image.name, len(image)) == ((20, 30), np.dtype("f4"), "mine", 1)
    assert (image.scale(), image.translation()) == ({"y": 1.0, "x": 2.0}, {"y": 0.0, "x": 5.0})
    image[0][...] = 1
    assert open_image(image.group)[0][3, 4] == 1


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"dtype": None}, "dtype is missing"),
        ({"dtype": "U4"}, "images hold numbers"),
        ({"shape": None}, "shape is missing"),
        ({"scale": 0}, "scale: numbers > 0"),
        ({"scale": [1, -1]}, "scale: numbers > 0"),
        ({"scale": float("nan")}, "scale: numbers > 0"),
        ({"scale": [1, 1, 1]}, "scale: 2 numbers are needed"),
        ({"scale": {"z": 1}}, "there is no axis 'z'"),
        ({"translation": ["a", "b"]}, "translation: numbers are needed"),
        ({"version": "0.3"}, "'0.3' is not written"),
        ({"chunks": (0, 5)}, "chunk lengths"),
        ({"version": "0.4", "shards": (8, 8)}, "shards"),
        ({"channels": ["a", "b"]}, "a list of 1 is needed"),
        ({"name": 5}, "name: a text is needed, got 5"),
    ],
)
def test_nothing_is_deleted_for_an_image_that_cannot_be(tmp_path: Path, keywords: Any, message: str) -> None:
    create_image(tmp_path / "a.zarr", shape=(8, 8), dtype="u1")
    with pytest.raises(MetadataError, match=message):
        create_image(tmp_path / "a.zarr", overwrite=True, **{"shape": (8, 8), "dtype": "u1", **keywords})
    assert open_image(tmp_path / "a.zarr").shape == (8, 8)


def test_what_is_there_is_kept_unless_told_otherwise(tmp_path: Path) -> None:
    create_image(tmp_path / "a.zarr", shape=(8, 8), dtype="u1")
    with pytest.raises(ContainsGroupError, match="; pass overwrite=True to replace it"):
        create_image(tmp_path / "a.zarr", shape=(4, 4), dtype="u1")
    create_image(tmp_path / "a.zarr", shape=(4, 4), dtype="u1", overwrite=True)
    assert open_image(tmp_path / "a.zarr").shape == (4, 4)
    with pytest.warns(UserWarning, match='taken for "zyx"; if the last one is of colours, pass axes="yxc"'):
        create_image(shape=(60, 80, 3), dtype="u1")
    with pytest.raises(TypeError, match="did you mean 'chunks'"):
        create_image(shape=(4, 4), dtype="u1", chunk=3)


@pytest.mark.parametrize("dtype", ["u2", "f4"])
def test_channels_are_shown_over_the_range_of_the_data(dtype: str) -> None:
    data = np.zeros((3, 40, 40), dtype)
    data[0, :20] = 700
    data[2] = np.nan if dtype == "f4" else 5
    given = ["a", {"label": "b", "window": (1, 2)}, "c"]
    image = create_image(data=data, axes="cyx", channels=given, levels=1)
    low, high = (0, 65535) if dtype == "u2" else (0, 700)
    assert image.channels[0].window == (0, 700, low, high)
    assert image.channels[1].window is not None
    assert image.channels[1].window[:2] == (1, 2)
    full = (0, 65535) if dtype == "u2" else (0, 1)
    assert image.channels[2].window == (*full, *full)
    assert open_image(image.group).metadata == image.metadata
