"""``gzarr quicklook``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
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


def test_a_plane_is_drawn_in_grey(tmp_path: Path) -> None:
    seen = drawn(RAMP, tmp_path).astype(int)
    assert seen.shape == RAMP.shape
    assert np.abs(seen - RAMP / RAMP.max() * 255).max() <= 1
    assert drawn(RAMP, tmp_path, "--size", "20").shape == (14, 20)


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
    np.testing.assert_array_equal(drawn(colors, tmp_path), colors)
    np.testing.assert_array_equal(drawn(np.dstack([colors, colors[..., :1]]), tmp_path)[..., :3], colors)
    curve = drawn(np.arange(100.0), tmp_path)
    assert curve.shape == (128, 100)
    assert np.argmax(curve, axis=0).tolist() == sorted(np.argmax(curve, axis=0), reverse=True)


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf, 1e300])
def test_any_numbers_can_be_drawn(tmp_path: Path, value: float) -> None:
    plane = np.full((5, 6), value)
    plane[0, 0] = -1
    assert drawn(plane, tmp_path).shape == (5, 6)
    assert drawn(plane > 0, tmp_path).shape == (5, 6)
    assert drawn(plane.astype("c16"), tmp_path).shape == (5, 6)


def test_images_are_drawn_as_images_and_groups_are_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    create_image(tmp_path / "i.zarr", RAMP.astype("u2"), levels=1)
    assert main(["quicklook", str(tmp_path / "i.zarr"), str(tmp_path / "i.png"), "--size", "30"]) == 0
    with Picture.open(tmp_path / "i.png") as picture:
        assert picture.size == (30, 20)
    gzarr.open_group(tmp_path / "g.zarr", mode="w").create_array("b/c", data=["text"])
    assert main(["quicklook", str(tmp_path / "g.zarr"), "x.png"]) == 1
    assert "one of its arrays: b/c" in capsys.readouterr().err
    assert main(["quicklook", str(tmp_path / "g.zarr/b/c"), "x.png"]) == 1
    assert "make no picture" in capsys.readouterr().err


def test_another_kind_of_picture_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gzarr.create_array(tmp_path / "a.zarr", data=RAMP)
    with pytest.raises(SystemExit, match="2"):
        main(["quicklook", str(tmp_path / "a.zarr"), str(tmp_path / "a.jpg")])
    assert "end its name in .png" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "a.jpg").exists()
