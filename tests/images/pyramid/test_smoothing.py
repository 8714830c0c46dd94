"""Levels made by a Gaussian filter, against the filter on whole arrays."""

from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.images import build_pyramid, create_image
from gzarr.images.pyramid.smoothing import smooth, weights_of
from tests.images.levels import check


def whole(data: np.ndarray[Any, Any], factors: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """A level, of the whole one below."""
    weights = [weights_of(f, n) for f, n in zip(factors, data.shape, strict=True)]
    padded = np.pad(data, [(w.before, w.after) for w in weights], mode="symmetric")
    shape = tuple(-(-n // f) for n, f in zip(data.shape, factors, strict=True))
    return np.asarray(smooth(gzarr.zeros(1).backend, padded, weights, shape))


@pytest.mark.parametrize(
    ("shape", "created", "built"),
    [
        ((300, 211), {"chunks": (32, 32)}, {"levels": 3}),
        ((300, 211), {"chunks": (16, 16), "shards": (64, 32)}, {"levels": 2, "max_nbytes": 3 << 20}),
        ((2, 5, 90, 80), {"chunks": (1, 4, 32, 32), "axes": "czyx"}, {"levels": 3}),
        ((100, 90), {"chunks": (16, 16), "version": "0.4"}, {"factors": [{"y": 3}, {"x": 4}]}),
    ],
)
def test_levels_are_those_of_whole_arrays(shape: Any, created: Any, built: Any) -> None:
    data = np.random.default_rng(0).integers(0, 60000, shape, "u2")
    image = create_image(data=data, levels=0, **created)
    image = build_pyramid(image, method="gaussian", **built)
    check(image, data, whole)
    assert image.metadata.type == "gaussian"
    assert set(image.translation(1).values()) <= {0, 0.5, 1}


def test_weights_are_scipys_about_the_middle_of_a_window() -> None:
    ndimage = pytest.importorskip("scipy.ndimage")
    # A factor of 3 has a middle element, where scipy's filter has its own.
    data = np.random.default_rng(0).standard_normal(90)
    weights = weights_of(3, 90)
    expected = ndimage.gaussian_filter(data, np.sqrt(8 / (8 * np.log(2))), truncate=4.0)[1::3]
    reach = weights.before
    assert (len(weights.values), weights.after) == (2 * reach + 3, reach + 2)
    np.testing.assert_allclose(whole(data, (3,)), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("factor", [2, 3, 4, 7])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 30])
def test_weights_keep_a_constant_and_need_what_there_is(factor: int, size: int) -> None:
    weights = weights_of(factor, size)
    assert sum(weights.values) == pytest.approx(1)
    assert max(weights.before, weights.after) < size or size == 1
    assert (whole(np.full(size, 7, "u1"), (factor,)) == 7).all()


def test_extremes_do_not_wrap_around() -> None:
    data = np.zeros((32, 32), "u1")
    data[::2] = 255
    assert set(np.unique(whole(data, (2, 2)))) <= set(range(100, 156))
    assert (whole(np.full((9, 9), 255, "u1"), (2, 2)) == 255).all()
