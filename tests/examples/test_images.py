"""The example of large images: its arithmetic, and the program."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tifffile")
pytest.importorskip("scipy")

from PIL import Image

from examples.images.land import PLACES, shade
from gzarr.images import open_image

ROOT = Path(__file__).parents[2]
#: Millions of square kilometres, of mainlands and islands without their neighbours.
AREAS = {"the Americas": 38.8, "Australia": 7.6, "Greenland": 2.17, "Borneo": 0.74, "Madagascar": 0.587}


def test_flat_ground_is_grey_and_slopes_to_the_north_west_are_light() -> None:
    y, x = np.mgrid[:5, :6] * 2000
    assert (shade(np.zeros((5, 6), "i2")) == 128).all()
    assert shade((x + y).astype("i2")).min() > 140
    assert shade((-x - y).astype("i2")).max() < 110


def test_the_program_labels_and_measures_the_land(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.images", "--out", str(tmp_path), "--device", "cpu"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    found = {name: float(area) for area, name in re.findall(r"([\d.]+) million km2  (.+)", done.stdout)}
    assert set(found) == set(PLACES)
    for name, area in AREAS.items():
        assert found[name] == pytest.approx(area, rel=0.05)
    for name in ("heights", "light"):
        image = open_image(tmp_path / f"{name}.zarr", "r")
        assert image.shape == (540, 1080)
        assert not image.validate(data=True).errors
    with Image.open(tmp_path / "land.png") as picture:
        assert picture.size == (1080, 702)
        assert len(picture.getcolors(1 << 24)) > 10_000
