"""Channels are shown with the range of what they hold, however an image was made."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
import gzarr.images
from gzarr.images.shown import shown

tifffile = pytest.importorskip("tifffile")

_DATA = np.arange(2 * 20 * 30, dtype="u2").reshape(2, 20, 30)


def _starts(image: Any) -> list[Any]:
    return [channel.window and channel.window[:2] for channel in image.channels]


def test_of_a_tiff_file_that_names_its_channels(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.ome.tif", _DATA, metadata={"axes": "CYX", "Channel": {"Name": ["a", "b"]}})
    gzarr.convert.from_tiff(tmp_path / "a.ome.tif", tmp_path / "a.zarr", ome=True)
    assert _starts(gzarr.images.open_image(tmp_path / "a.zarr")) == [(0, 599), (600, 1199)]


@pytest.mark.parametrize("dtype", ["u2", "f4"])
def test_of_what_a_filter_made(dtype: str, tmp_path: Path) -> None:
    image = gzarr.images.create_image({}, _DATA, axes="cyx", channels=["a", {"label": "b", "window": (5, 9)}])
    made = gzarr.images.map_blocks(lambda block: (block / 2).astype(dtype), image, tmp_path / "half.zarr", dtype=dtype)
    expected = [
        (low // 2 if dtype == "u2" else low / 2, high // 2 if dtype == "u2" else high / 2)
        for low, high in ((0, 599), (600, 1199))
    ]
    assert _starts(made) == _starts(gzarr.images.open_image(tmp_path / "half.zarr")) == expected
    assert _starts(image) == [(0, 599), (5, 9)]


def test_of_frames_that_were_appended(tmp_path: Path) -> None:
    channels = ["a", {"label": "b", "window": (0, 9)}]
    options: Any = {"shape": (2, 20, 30), "dtype": "u2", "axes": "tcyx", "channels": channels}
    with gzarr.images.ImageWriter(tmp_path / "run.zarr", **options) as writer:
        writer.append(_DATA)
    assert _starts(gzarr.images.open_image(tmp_path / "run.zarr")) == [(0, 599), (0, 9)]


def test_of_data_that_came_before_the_pyramid() -> None:
    image = gzarr.images.create_image({}, shape=_DATA.shape, dtype="u2", axes="cyx", channels=["a", "b"])
    image[0][...] = _DATA
    assert _starts(image) == [(0, 65535)] * 2
    assert _starts(gzarr.images.build_pyramid(image, levels=1, method="nearest"))[1] == (600, 1168)


def test_a_few_of_many_planes_tell_it() -> None:
    data = np.zeros((64, 8, 8), "u2")
    data[0], data[-1] = 3, 900
    image = gzarr.images.create_image({}, data, axes="tyx", levels=0)
    channels = gzarr.images.create_image({}, data[:1], axes="cyx", channels=["a"]).channels
    assert shown(channels, image.levels[-1], None, limit=1024)[0].window[:2] == (0, 900)
    assert shown(channels, image.levels[-1], None, limit=1)[0] == channels[0]
