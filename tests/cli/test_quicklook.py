"""``gzarr quicklook``."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image as Picture

import gzarr
from gzarr.cli.main import main
from gzarr.images import create_image

RAMP = np.arange(40 * 60, dtype="f4").reshape(40, 60)


def drawn(array: np.ndarray, tmp_path: Path, *options: str, **named: object) -> np.ndarray:
    """The picture of an array."""
    gzarr.create_array(tmp_path / "a.zarr", data=array, overwrite=True, **named)
    assert main(["quicklook", str(tmp_path / "a.zarr"), str(tmp_path / "a.png"), *options]) == 0
    with Picture.open(tmp_path / "a.png") as picture:
        return np.asarray(picture)


def test_a_plane_is_drawn_in_the_colours_of_a_bar(tmp_path: Path) -> None:
    seen = drawn(RAMP, tmp_path)
    plane, bar = seen[:, : 60 * 9], seen[:, 60 * 9 + 8 : 60 * 9 + 24]
    assert seen.shape[0] == 40 * 9
    light = plane[4::9, 4::9].sum(axis=-1).astype(int)
    assert (np.diff(light.ravel()) >= -3).mean() > 0.97  # the scale grows lighter
    assert [tuple(plane[0, 0]), tuple(plane[-1, -1])] == [(68, 1, 84), (253, 231, 37)]
    assert [tuple(bar[-1, 0]), tuple(bar[0, 0])] == [(68, 1, 84), (253, 231, 37)]
    assert set(seen[:, 60 * 9 + 24 :].reshape(-1, 3).sum(axis=-1)) == {0, 765}  # digits in white on black
    assert drawn(RAMP, tmp_path, "--size", "20").shape[0] == 14


def test_numbers_of_the_bar_are_those_of_the_data(tmp_path: Path) -> None:
    plane = np.zeros((8, 8), "i2")
    plane[:4] = 100
    packed = drawn(plane, tmp_path, attributes={"scale_factor": 0.5})
    same = drawn(plane / 2, tmp_path)
    np.testing.assert_array_equal(packed, same)
    assert not np.array_equal(drawn(plane, tmp_path, "--raw", attributes={"scale_factor": 0.5}), same)


@pytest.mark.parametrize("units", ["K", "µg m-3", "℃ (of the surface of the sea)"])
def test_the_unit_stands_below_the_highest_number(units: str, tmp_path: Path) -> None:
    without, seen = drawn(RAMP, tmp_path), drawn(RAMP, tmp_path, attributes={"units": units})
    differ = (seen[:, : without.shape[1]] != without).any(axis=(1, 2))
    assert set(np.flatnonzero(differ)) <= set(range(12, 26))
    assert differ.any()
    assert seen.shape[1] < without.shape[1] + 100


def test_what_is_missing_is_grey_and_north_is_up(tmp_path: Path) -> None:
    group = gzarr.open_group(tmp_path / "g.zarr", mode="w")
    data = np.arange(12, dtype="f4").reshape(3, 4)
    data[0, 1] = -1e34
    group.create_array("t", data=data, dimension_names=("lat", "lon"), attributes={"missing_value": -1e34})
    group.create_array("lat", data=[-30.0, 0.0, 30.0], attributes={"units": "degrees_north"})
    group.create_array("lon", data=[0.0, 15.0, 30.0, 45.0], attributes={"units": "degrees_east"})
    assert main(["quicklook", str(tmp_path / "g.zarr/t"), str(tmp_path / "a.png"), "--size", "120"]) == 0
    with Picture.open(tmp_path / "a.png") as picture:
        seen = np.asarray(picture)
    assert seen.shape[0] == 120  # 90 degrees high, 60 wide
    assert (tuple(seen[0, 79]), tuple(seen[-1, 0])) == ((253, 231, 37), (68, 1, 84))
    assert tuple(seen[-1, 30]) == (128, 128, 128)


def test_a_picture_is_named_as_its_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gzarr.create_array(tmp_path / "d.zarr/sst", data=RAMP)
    monkeypatch.chdir(tmp_path)
    assert (main(["quicklook", "d.zarr/sst"]), main(["quicklook", "d.zarr/sst/"])) == (0, 0)
    assert (tmp_path / "sst.png").exists()


def test_other_axes_are_cut_where_one_says(tmp_path: Path) -> None:
    stack = np.stack([np.full((8, 8), n, "u1") for n in (10, 20, 30)])
    named = {"dimension_names": ("time", "y", "x")}
    assert set(drawn(stack, tmp_path, **named).flat) == {20}
    assert set(drawn(stack, tmp_path, "--at", "time=2", **named).flat) == {30}
    assert set(drawn(stack, tmp_path, "--at", "0=0").flat) == {10}


@pytest.mark.parametrize("at", ["time=3", "y=0", "time", "time=x", "depth=0"])
def test_a_place_that_is_none_is_misuse(tmp_path: Path, at: str, capsys: pytest.CaptureFixture[str]) -> None:
    gzarr.create_array(tmp_path / "a.zarr", data=np.zeros((3, 8, 8)), dimension_names=("time", "y", "x"))
    with pytest.raises(SystemExit) as stop:
        main(["quicklook", str(tmp_path / "a.zarr"), str(tmp_path / "a.png"), "--at", at])
    assert stop.value.code == 2
    assert "time (0 to 2)" in capsys.readouterr().err


def test_colours_and_curves(tmp_path: Path) -> None:
    colors = np.random.default_rng(0).integers(0, 255, (30, 20, 3)).astype("u1")
    np.testing.assert_array_equal(drawn(colors, tmp_path, "--size", "30"), colors)
    large = drawn(colors, tmp_path)
    assert large.shape == (540, 360, 3)  # at least 512 pixels, a whole number for each element
    np.testing.assert_array_equal(large[8::18, 8::18], colors)
    np.testing.assert_array_equal(
        drawn(np.dstack([colors, colors[..., :1]]), tmp_path, "--size", "30")[..., :3], colors
    )
    curve = drawn(np.arange(100.0), tmp_path)
    assert curve.shape[0] == 128
    tops = np.argmax(curve[:, :512].sum(axis=-1) > 0, axis=0)
    assert tops.tolist() == sorted(tops, reverse=True)
    assert (tops[0], tops[-1]) == (127, 0)
    assert not drawn(np.array([1.0, np.nan, 2.0]), tmp_path)[:, 100:400].any()
    assert set(drawn(np.full((4, 4), np.nan), tmp_path).flat) == {128}  # and no bar, as there are no values


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf, 1e300])
def test_any_numbers_can_be_drawn(tmp_path: Path, value: float) -> None:
    plane = np.full((5, 6), value)
    plane[0, 0] = -1
    for values in (plane, plane > 0, plane.astype("c16")):
        assert drawn(values, tmp_path, "--size", "6").shape[0] == 5


def test_images_are_drawn_as_images_and_groups_are_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    create_image(tmp_path / "i.zarr", RAMP.astype("u2"), levels=1)
    assert main(["quicklook", str(tmp_path / "i.zarr"), str(tmp_path / "i.png"), "--size", "30"]) == 0
    with tifffile.TiffWriter(tmp_path / "t.tif") as file:
        file.write(np.zeros((20, 30, 3), "u1"), subifds=1, photometric="rgb")
        file.write(np.zeros((10, 15, 3), "u1"), subfiletype=1, photometric="rgb")
    assert main(["quicklook", str(tmp_path / "t.tif"), str(tmp_path / "t.png"), "--size", "30"]) == 0
    for name in ("i.png", "t.png"):
        with Picture.open(tmp_path / name) as picture:
            assert picture.size == (30, 20)
    create_image(tmp_path / "c.zarr", np.stack([RAMP, 0 * RAMP])[None].astype("u2"), axes="tcyx", levels=1)
    options = [str(tmp_path / "c.zarr"), str(tmp_path / "c.png"), "--at", "t=0", "--channels"]
    tifffile.imwrite(tmp_path / "c.ome.tif", np.stack([RAMP, 0 * RAMP]).astype("u2"), metadata={"axes": "CYX"})
    in_tiff = [str(tmp_path / "c.ome.tif"), str(tmp_path / "c.png"), "--size=540", "--channels"]
    for call, channel in product((options, in_tiff), "01"):
        assert main(["quicklook", *call, channel]) == 0
        with Picture.open(tmp_path / "c.png") as picture:
            assert picture.size == (540, 360)
            assert (np.asarray(picture).max() == 0) == (channel == "1")
    level = str(tmp_path / "i.zarr/0")
    wrong = [(options[0], "--at=z=0", "there are t, c, y, x"), (options[0], "--raw", "no --raw")]
    for path, option, why in (*wrong, (level, "--channels=1", "no axis 'c'"), (level, "x.jpg", "name in .png")):
        with pytest.raises(SystemExit, match="2"):
            main(["quicklook", path, *([option] if "jpg" in option else [options[1], option])])
        assert why in " ".join(capsys.readouterr().err.split())
    volume = np.stack([0 * RAMP, RAMP]).astype("u2")
    create_image(tmp_path / "v.zarr", volume, axes="zyx", scale=2.0, units="micrometer", levels=1)
    places = [("z=0", True), ("z=2um", False), ("z=0.5 µm", True), ("z=1900nm", False)]
    for at, is_dark in places:
        assert main(["quicklook", str(tmp_path / "v.zarr"), str(tmp_path / "v.png"), "--at", at]) == 0
        with Picture.open(tmp_path / "v.png") as picture:
            assert (np.asarray(picture).max() == 0) == is_dark
    gzarr.open_group(tmp_path / "g.zarr", mode="w").create_array("b/c", data=["text"])
    assert main(["quicklook", str(tmp_path / "g.zarr"), "x.png"]) == 1
    assert "one of its arrays: b/c" in capsys.readouterr().err
    assert main(["quicklook", str(tmp_path / "g.zarr/b/c"), "x.png"]) == 1
    assert "make no picture" in capsys.readouterr().err


@pytest.mark.parametrize("missing", [np.nan, 9.97e36])
def test_north_is_up_on_grids_whose_axes_are_numbered(missing: float, tmp_path: Path) -> None:
    group = gzarr.open_group(tmp_path / "g.zarr", mode="w")
    named = {"dimension_names": ("j", "i"), "attributes": {"coordinates": "lon lat"}}
    group.create_array("t", data=np.arange(16, dtype="u1").reshape(4, 4) * 16, **named)
    group.create_array("j", data=np.arange(4), dimension_names=("j",))
    lat = np.tile([[missing], [-1.0], [1.0], [missing]], 4)
    group.create_array("lat", data=lat, attributes={"units": "degrees_north"})
    assert main(["quicklook", str(tmp_path / "g.zarr/t"), str(tmp_path / "a.png"), "--size", "4"]) == 0
    with Picture.open(tmp_path / "a.png") as picture:
        assert np.asarray(picture)[:, 0].tolist() == [192, 128, 64, 0]


def test_flat_pictures_have_room_for_numbers(tmp_path: Path) -> None:
    seen = drawn(RAMP[:2, :4].repeat(64, axis=1), tmp_path, "--size", "256")
    assert seen.shape[0] == 72
    assert not seen[2:, :256].any()
