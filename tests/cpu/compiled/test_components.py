"""The compiled loop labels blocks as SciPy does."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from gzarr.cpu.compiled import library
from gzarr.cpu.compiled.components import label_components

pytestmark = pytest.mark.skipif(library.loop() is None, reason=f"the compiled loop is {library.status()}")


@pytest.mark.parametrize("shape", [(1,), (100,), (23, 40), (1, 1, 9), (7, 9, 21), (3, 4, 5, 17), (2, 1, 3, 4, 9)])
def test_labels_and_first_voxels_equal_those_of_scipy(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    for density in (0, 0.02, 0.3, 0.6, 0.97, 1):
        mask = rng.random(shape) < density
        for connectivity in range(1, len(shape) + 1):
            structure = ndimage.generate_binary_structure(len(shape), connectivity)
            expected, n = ndimage.label(mask, structure)
            found = label_components(mask, structure)
            assert found is not None
            np.testing.assert_array_equal(found[0], expected)
            numbers, firsts = np.unique(expected, return_index=True)
            np.testing.assert_array_equal(found[1], firsts[numbers > 0])
            assert len(found[1]) == n


def test_any_structure_of_plain_runs_is_done() -> None:
    rng = np.random.default_rng(0)
    done = 0
    for _ in range(60):
        mask = rng.random((9, 10, 11)) < 0.4
        structure = rng.random((3, 3, 3)) < 0.5
        structure |= np.flip(structure)
        structure[1, 1] = True
        found = label_components(mask, structure)
        if found is not None:
            np.testing.assert_array_equal(found[0], ndimage.label(mask, structure)[0])
            done += 1
    assert done > 10


def test_labels_meet_late() -> None:
    """Combs and spirals join labels that began far apart, again and again; tables grow."""
    comb = np.ones((300, 4001), bool)
    comb[:-1, 1::2] = False
    labels, firsts = label_components(comb, ndimage.generate_binary_structure(2, 1))
    assert firsts.tolist() == [0]
    np.testing.assert_array_equal(labels, comb)
    spiral = np.ones((41, 41), bool)
    for ring in range(1, 20, 2):
        spiral[ring : 41 - ring, ring : 41 - ring] = False
        spiral[ring + 1 : 40 - ring, ring + 1 : 40 - ring] = True
        spiral[ring, ring - 1] = False
        spiral[ring + 1, ring] = True
    for connectivity in (1, 2):
        structure = ndimage.generate_binary_structure(2, connectivity)
        np.testing.assert_array_equal(label_components(spiral, structure)[0], ndimage.label(spiral, structure)[0])


def test_what_the_loop_cannot_do_is_left() -> None:
    plain = np.ones((3, 3), bool)
    assert label_components(np.ones((4, 4), bool).T[::2], plain) is None
    assert label_components(np.ones((0, 4), bool), plain) is None
    assert label_components(np.ones((4, 4), bool), np.array([[1, 0, 1], [1, 1, 1], [1, 0, 1]], bool)) is None
    assert label_components(np.ones((4, 4), bool), np.array([[0, 1, 0], [0, 1, 0], [0, 1, 0]], bool)) is None
    assert label_components(np.ones((), bool), np.ones((), bool)) is None


def test_tables_that_lie_are_refused() -> None:
    loop = library.loop()
    mask, out = np.ones((4, 5), bool), np.empty((4, 5), np.int32)
    rows = np.array([[-1, 0, 0]], np.int64)
    for args in (
        (mask, np.array([4, 6], np.int64), rows, out),
        (mask, np.array([1 << 40, 1 << 40], np.int64), rows, out),
        (mask, np.array([0, 5], np.int64), rows, out),
        (mask, np.array([], np.int64), rows, out),
        (mask, np.array([4, 5], np.int64), rows, out[:3]),
        (mask, np.array([4, 5], np.int64), rows * 2, out),
    ):
        with pytest.raises(ValueError, match="do not fit each other"):
            loop.components(*args)
    # Rows that come after one, or are not there, are none that it touches.
    firsts = loop.components(mask, np.array([4, 5], np.int64), np.array([[1, 0, 0], [-1, -1, 1]], np.int64), out)
    assert np.frombuffer(firsts, np.int64).tolist() == [0]
