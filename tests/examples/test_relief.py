"""The relief of the Earth: its colours, its picture, and the program that ``make demo`` runs."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from examples.relief.picture import MAP, draw_picture, enlarge
from examples.relief.relief import HIMALAYA, load_relief, windows
from examples.relief.shading import hillshade, shaded_relief, tint

ROOT = Path(__file__).parents[2]


def test_flat_ground_has_light_one() -> None:
    flat = np.zeros((3, 4))
    np.testing.assert_allclose(hillshade(flat, flat, flat, np.zeros(3), 1.0), 1.0)


def test_slopes_facing_north_west_are_lit_and_their_backs_dark() -> None:
    ground, equator, rise = np.full((9, 9), 500.0), np.zeros(9), np.full((9, 9), 400.0)
    facing = hillshade(-rise, rise, ground, equator, 1 / 3)
    back = hillshade(rise, -rise, ground, equator, 1 / 3)
    assert facing.min() > 1.05
    assert back.max() < 0.95


def test_tints_separate_land_from_sea() -> None:
    sea, land = tint(np.array([-1.0, 1.0]))
    assert sea[2] > sea[0] + 30
    assert land[1] > land[2] + 30


def test_coast_is_drawn_between_land_and_sea_but_not_on_flat_ice() -> None:
    island = np.full((9, 9), -100.0)
    island[3:6, 3:6] = 100
    lat = np.zeros(9)
    drawn, bare = shaded_relief(island, lat, 1.0), shaded_relief(island, lat, 1.0, coast=0)
    assert (drawn != bare).any(axis=-1)[2:7, 2:7].any()
    assert not (drawn != bare).any(axis=-1)[:, 0].any()
    ice = np.zeros((5, 5))
    np.testing.assert_array_equal(shaded_relief(ice, lat[:5], 1.0), shaded_relief(ice, lat[:5], 1.0, coast=0))


def test_enlarging_joins_the_edges_at_180_degrees() -> None:
    ramp = np.tile(np.concatenate([np.arange(0, 500, 10), np.arange(500, 0, -10)]).astype("i2"), (4, 1))
    large = enlarge(ramp, 2)
    assert large.shape == (8, 200)
    assert abs(large[0, 0] - large[0, -1]) < 20


def test_the_picture_shows_sea_land_and_the_outlined_window() -> None:
    heights = load_relief().heights
    image = np.asarray(draw_picture([heights[window.key] for window in windows()], "subtitle")).astype(int)

    def at(lat: float, lon: float) -> np.ndarray:
        return image[MAP.y + round((90 - lat) * 6), MAP.x + round((lon + 180) * 6)]

    pacific, congo = at(-40, -130), at(-2, 21)
    assert pacific[2] > pacific[0] + 50
    assert congo[1] > congo[2]
    south, north, west, _ = HIMALAYA
    np.testing.assert_array_equal(at((south + north) / 2 + 1, west), (200, 16, 46))


def test_the_program_draws_what_it_read(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.relief", "--out", str(tmp_path), "--device", "cpu", "--tiles", "1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("relief.png\n")
    with Image.open(tmp_path / "relief.png") as image:
        assert image.size == (2352, 1786)
