"""Scenes of tiles: what NumPy makes of the whole scene, and where tiles lie."""

from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr import images
from gzarr.images import create_image

ndi = pytest.importorskip("scipy.ndimage", reason="scipy is the oracle")
RNG = np.random.default_rng(0)
SCENE = (ndi.gaussian_filter(RNG.random((300, 400)), 1.0) * 60000).astype("u2")
PLACES = [(y, x) for y in range(0, 201, 65) for x in range(0, 301, 65) if x + 100 <= 400 and y + 100 <= 300]


def tiles() -> list[gzarr.Array]:
    return [gzarr.array(SCENE[y : y + 100, x : x + 100], chunks=(32, 32)) for y, x in PLACES]


@pytest.mark.parametrize("blend", ["cosine", "max", "first"])
def test_tiles_of_one_scene_become_the_scene(blend: Any, device: str) -> None:
    made = images.fuse(tiles(), None, PLACES, blend, device=device, max_nbytes=10**6)
    np.testing.assert_array_equal(made.to("cpu")[...], SCENE[: made.shape[0], : made.shape[1]])


@pytest.mark.parametrize("dtype", ["i4", "f4", "f8"])
def test_wide_numbers_are_blended_exactly(dtype: str) -> None:
    scene = (SCENE[:40, :60] * 30000.0 + 1).astype(dtype)
    pair = [gzarr.array(scene[:, :43]), gzarr.array(scene[:, 20:])]
    made = images.fuse(pair, None, [(0, 0), (0, 20)])[...]
    np.testing.assert_allclose(made, scene, rtol=1e-15)


def test_blends_differ_where_tiles_do() -> None:
    pair = [gzarr.array(np.full((20, 30), value), chunks=(8, 8)) for value in (100, 300)]
    made = {blend: images.fuse(pair, None, [(0, 0), (-5, 20)], blend)[...] for blend in ("cosine", "max", "first")}
    for blend, inner in [("max", 300), ("first", 100)]:
        expected = np.zeros((25, 50))
        expected[5:, :30], expected[:20, 30:], expected[:5, 20:], expected[5:20, 20:30] = 100, 300, 300, inner
        np.testing.assert_array_equal(made[blend], expected)
    hole = [gzarr.array(np.full((2, 2), value)) for value in (np.nan, 4.0)]
    for both in (hole, hole[::-1]):  # nothing was measured in one of them
        assert (images.fuse(both, None, [(0, 0), (0, 0)], "max")[...] == 4).all()
    across = made["cosine"][12, 18:32]
    assert (np.diff(across) >= 0).all()
    assert (across[0], across[-1]) == (100, 300)


def test_tiles_are_turned_and_images_placed_by_their_coordinates(device: str) -> None:
    turn, at = np.array([[np.cos(0.1), -np.sin(0.1)], [np.sin(0.1), np.cos(0.1)]]), np.array([12.5, 3.25])
    matrix = np.column_stack([turn, at])
    made = images.fuse(tiles()[:1], None, [matrix], "max", shape=(120, 130), device=device)
    corners = np.array([turn @ np.array(corner) + at for corner in [(0, 0), (0, 99), (99, 0), (99, 99)]])
    low = np.floor(corners.min(0))
    inverse = np.linalg.inv(turn)
    expected = ndi.affine_transform(SCENE[:100, :100], inverse, -inverse @ (at - low), (120, 130), order=1)
    np.testing.assert_array_equal(made.to("cpu")[...], expected)
    placed = [
        create_image(data=SCENE[y : y + 100, x : x + 100], scale=0.5, translation=(y / 2 + 7, x / 2), chunks=(32, 32))
        for y, x in PLACES
    ]
    scene = images.fuse(placed, None, levels=1, factors=2)
    np.testing.assert_array_equal(scene[0][...], SCENE[: scene.shape[0], : scene.shape[1]])
    assert (scene.translation(), len(scene)) == ({"y": 7.0, "x": 0.0}, 2)


@pytest.mark.parametrize("shift", [(3, -5), (0.5, 2.25), (-7.3, 0)])
def test_shifts_are_found_to_a_part_of_an_element(shift: tuple[float, float]) -> None:
    smooth = ndi.gaussian_filter(RNG.random((128, 128)), 2)
    moved = np.fft.ifftn(ndi.fourier_shift(np.fft.fftn(smooth), shift)).real
    found = images.register(gzarr.array(smooth), gzarr.array(moved), upsample=20)
    np.testing.assert_allclose(found.shift, -np.array(shift), atol=0.06)
    assert found.quality > 0.8


def test_all_tiles_are_placed_together() -> None:
    rough = np.array(PLACES, float) + RNG.integers(-2, 3, (len(PLACES), 2))
    rough[0] = PLACES[0]
    found = images.register_tiles(tiles(), rough)
    np.testing.assert_allclose(found, PLACES, atol=0.2)
    alone = images.register_tiles([tiles()[0], gzarr.array(RNG.integers(0, 9, (100, 100)))], [(0, 0), (0, 65)])
    np.testing.assert_array_equal(alone, [(0, 0), (0, 65)])


@pytest.mark.parametrize("blend", ["cosine", "max", "first"])
def test_overshooting_splines_are_clipped(blend: Any) -> None:
    tile = np.zeros((20, 20), "u1")
    tile[:, 10:] = 255
    made = images.fuse([gzarr.array(tile), gzarr.array(tile)], None, [(0, 0.5), (20, 0.5)], blend, order=3)
    expected = ndi.shift(tile.astype(float), (0, 0.5), order=3).clip(0, 255)
    np.testing.assert_allclose(made[:20, 1:20].astype(float), expected[:, 1:], atol=1)
    np.testing.assert_array_equal(made[20:], made[:20])


def test_what_has_no_shift_is_not_moved() -> None:
    stack = RNG.random((1, 60, 100))
    assert images.register(stack, np.roll(stack, (3, -5), (1, 2))).shift.tolist() == [0, -3, 5]
    for other in (stack, np.ones(stack.shape), np.full(stack.shape, np.nan)):
        found = images.register(np.ones(stack.shape), other)
        assert (found.shift.tolist(), found.quality) == ([0, 0, 0], 0)
    planes = [gzarr.array(stack[:, :, :60]), gzarr.array(stack[:, :, 43:])]  # thinner than tiles must overlap
    np.testing.assert_array_equal(images.register_tiles(planes, [(0, 0, 0), (0, 0, 40)])[1], (0, 0, 43))
