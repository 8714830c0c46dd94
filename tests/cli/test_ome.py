"""``gzarr ome``."""

import json
from pathlib import Path

import numpy as np
import pytest
import tifffile

import gzarr
from gzarr.cli.main import main
from gzarr.images import create_image, open_image

DATA = np.random.default_rng(0).integers(0, 255, (2, 600, 300)).astype("u2")


@pytest.fixture
def path(tmp_path: Path) -> str:
    """An image of one level, with labels."""
    image = create_image(
        tmp_path / "a.zarr", DATA, axes="cyx", levels=0, channels=["DAPI", "GFP"], scale=0.5, units="micrometer"
    )
    image.write_label("cells", (DATA[:1] > 100).astype("u4"))
    return str(tmp_path / "a.zarr")


def test_info_describes_an_image(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ome", "info", path]) == 0
    out = capsys.readouterr().out
    for words in ("OME-Zarr 0.5", "c, y (micrometer), x (micrometer)", "0: 2 x 600 x 300", "GFP, FF00FF", "cells"):
        assert words in out


def test_pyramid_builds_levels(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ome", "pyramid", path, "--factors", "y=4,x=2", "--levels", "1", "--method", "max"]) == 0
    assert "1: 2 x 150 x 150" in capsys.readouterr().out
    assert main(["ome", "pyramid", path]) == 1
    assert "pass --if-exists replace" in capsys.readouterr().err
    assert main(["ome", "pyramid", path, "--if-exists", "replace"]) == 0
    assert [level.shape for level in open_image(path)] == [(2, 600, 300), (2, 300, 150), (2, 150, 75)]
    with pytest.raises(SystemExit) as stop:
        main(["ome", "pyramid", path, "--if-exists", "replace", "--factors", "q=2"])
    assert stop.value.code == 2
    with pytest.raises(SystemExit):
        main(["ome", "pyramid", path, "--factors", "two"])


def test_validate_says_what_is_wrong(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ome", "validate", path, "--data"]) == 0
    ome = gzarr.open_group(path).attrs["ome"]
    gzarr.open_group(path).attrs["ome"] = {**ome, "version": "0.9"}
    assert main(["ome", "validate", path]) == 1
    assert "ome.version" in capsys.readouterr().out
    assert main(["ome", "validate", path, "--json"]) == 1
    assert not json.loads(capsys.readouterr().out)["ok"]
    assert main(["ome", "validate", f"{path}-missing"]) == 2


def test_convert_makes_images_of_arrays_and_tiff_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gzarr.save_array(tmp_path / "b.zarr", DATA)
    words = ["--axes", "zyx", "--scale", "2,0.5,0.5", "--unit", "um", "--chunks", "1,128,128"]
    assert main(["ome", "convert", str(tmp_path / "b.zarr"), str(tmp_path / "b.ome.zarr"), *words]) == 0
    image = open_image(tmp_path / "b.ome.zarr")
    assert (image.scale(0)["z"], image.units["z"], image[1].chunks) == (2.0, "micrometer", (1, 128, 128))
    np.testing.assert_array_equal(image[0][...], DATA)
    assert main(["ome", "convert", str(tmp_path / "b.zarr"), str(tmp_path / "b.ome.zarr")]) == 1
    tifffile.imwrite(tmp_path / "c.tif", DATA[0])
    for command in (["ome", "convert"], ["convert", "--ome"]):
        dest = tmp_path / f"{len(command[-1])}.zarr"
        assert main([*command, str(tmp_path / "c.tif"), str(dest)]) == 0
        assert len(open_image(dest)) == 3
    assert main(["convert", "--ome", str(tmp_path / "b.zarr" / "zarr.json"), str(tmp_path / "d.zarr")]) == 1
    assert "unknown" in capsys.readouterr().err
    words = [str(tmp_path / "b.zarr"), str(tmp_path / "b.ome.tif")]
    assert main(["ome", "convert", *words]) == 1
    assert f"gzarr convert {' '.join(words)}" in capsys.readouterr().err
    assert not (tmp_path / "b.ome.tif").exists()


@pytest.mark.parametrize("zarr_format", ["2", "3"])
def test_convert_changes_the_version(path: str, zarr_format: str) -> None:
    first, second = f"{path}-4", f"{path}-5"
    assert main(["ome", "pyramid", path]) == 0
    assert main(["ome", "convert", path, first, "--zarr-format", zarr_format]) == 0
    assert main(["ome", "convert", first, second, "--zarr-format", "3"]) == 0
    for place, version in ((first, {"2": "0.4", "3": "0.5"}[zarr_format]), (second, "0.5")):
        image = open_image(place, "r")
        assert image.version == version
        assert gzarr.images.validate(place).ok, gzarr.images.validate(place)
        assert [channel.label for channel in image.channels] == ["DAPI", "GFP"]
        np.testing.assert_array_equal(image[0][...], DATA)
        np.testing.assert_array_equal(image.labels["cells"][0][...], DATA[:1] > 100)


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_convert_puts_axes_in_order(tmp_path: Path, version: str) -> None:
    """Levels are copied, not made anew."""
    image = create_image(tmp_path / "a", DATA, axes="cyx", scale=0.5, levels=1, version=version)
    said, levels = image.group.attrs.asdict(), [level[...] for level in image]
    found = said.get("ome", said)["multiscales"][0]
    steps = [step[step["type"]] for one in found["datasets"] for step in one["coordinateTransformations"]]
    for values in (found["axes"], *steps):  # channels last
        values.append(values.pop(0))
    image.group.attrs.put({**said, "lab": "A"})
    for number, level in enumerate(levels):
        image.group.create_array(str(number), data=level.transpose(1, 2, 0), chunks=(64, 64, 2), overwrite=True)
    for other in ("0.4", "0.5"):
        dest = tmp_path / other
        assert main(["ome", "convert", str(tmp_path / "a"), str(dest), "--ome-version", other]) == 0
        made = open_image(dest)
        assert (made.axes, made.scale(1), made.group.attrs["lab"]) == (image.axes, image.scale(1), "A")
        for level, stored in zip(made, levels, strict=True):
            np.testing.assert_array_equal(level[...], stored)
        assert gzarr.images.validate(dest).ok, gzarr.images.validate(dest)


def test_thumbnail_draws_a_picture(path: str, tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    assert main(["ome", "thumbnail", path, str(tmp_path / "a.png"), "--size", "64", "--channels", "GFP"]) == 0
    assert (tmp_path / "a.png").read_bytes()[1:4] == b"PNG"
