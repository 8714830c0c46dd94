"""Intensities changed by what all of an image says: NumPy on the whole array, and formulas of scikit-image."""

from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr import images

ndi = pytest.importorskip("scipy.ndimage", reason="scipy is the oracle")
RNG = np.random.default_rng(0)
TWO = np.concatenate([RNG.normal(200, 30, 3000), RNG.normal(900, 80, 1000)]).clip(0).astype("u2").reshape(50, 80)


def host(made: gzarr.Array) -> np.ndarray:
    return np.asarray(made.to("cpu")[...])


def between_classes(level: int) -> float:
    low, high = TWO[level >= TWO].astype(float), TWO[level < TWO].astype(float)
    return len(low) * len(high) * (low.mean() - high.mean()) ** 2 if len(high) else 0.0


def cross_entropy(level: float) -> float:
    values = TWO.astype(float) - TWO.min()
    parts = [values[values <= level], values[values > level]]
    return -sum(part.sum() * np.log(part.mean()) for part in parts)


def test_thresholds_are_the_best_of_all(device: str) -> None:
    z = gzarr.array(TWO, chunks=(16, 32))
    otsu = images.find_threshold(z)
    assert otsu == max(np.unique(TWO)[:-1], key=between_classes)
    li = images.find_threshold(z, "li") - TWO.min()
    assert cross_entropy(li) == min(cross_entropy(li + step) for step in (-40, 0, 40))
    assert images.find_threshold(z, "mean") == pytest.approx(TWO.mean())
    np.testing.assert_array_equal(host(images.threshold(z, None, device=device)), otsu < TWO)
    np.testing.assert_array_equal(host(images.threshold(z, None, 300)), TWO > 300)
    for dtype, factor, more, near in ("f8", 1 / 7, 0, 0.3), ("f2", 1, 0, 1), ("f4", 0.01, 1e5, 0.02):
        floats = (TWO * factor + more).astype(dtype)
        assert images.find_threshold(gzarr.array(floats)) == pytest.approx(otsu * factor + more, abs=near)
        assert images.find_threshold(gzarr.array(floats), "mean") == pytest.approx(floats.mean(dtype="f8"), rel=1e-12)
    with pytest.raises(ValueError, match="intensities need some that are there"):
        images.find_threshold(gzarr.array([1, np.inf]))


def test_ranges_are_stretched_and_histograms_matched(device: str) -> None:
    z, like = gzarr.array(TWO, chunks=(16, 32)), RNG.integers(0, 255, (30, 40)).astype("u1")
    low, high = TWO.min(), TWO.max()
    stretched = (TWO - float(low)) / (high - low) * 65535
    np.testing.assert_allclose(host(images.rescale_intensity(z, None, device=device)), stretched, atol=0.51)
    some = images.rescale_intensity(z, None, (300, 800), (0, 10), device=device)
    np.testing.assert_array_equal(host(some), np.rint((TWO.clip(300, 800) - 300) / 50))
    _, where, counts = np.unique(TWO, return_inverse=True, return_counts=True)
    share = np.cumsum(counts) / TWO.size
    np.testing.assert_allclose(
        host(images.equalize(z, None, device=device)), share[where].reshape(TWO.shape), rtol=1e-6
    )
    wanted, n = np.unique(like, return_counts=True)
    expected = np.interp(share, np.cumsum(n) / like.size, wanted)[where].reshape(TWO.shape)
    matched = images.match_histogram(z, None, gzarr.array(like), device=device)
    np.testing.assert_allclose(host(matched), expected, atol=0.51)


@pytest.mark.parametrize("dtype", ["u2", "f4"])
def test_uneven_light_is_corrected(dtype: str, device: str) -> None:
    y, x = np.mgrid[:50, :80]
    flat, dark = 1000 - (y - 25) ** 2 * 0.3 - x, RNG.uniform(90, 110, (50, 80))
    even = RNG.integers(100, 2000, (4, 50, 80))
    seen = (even * (flat - dark) / (flat - dark).mean() + dark).astype(dtype)
    z = gzarr.array(seen, chunks=(1, 16, 32))
    made = host(images.flat_field(z, None, flat, dark, device=device, block=(2, 20, 30), max_nbytes=10**6))
    np.testing.assert_allclose(made, even, atol=5)
    smooth: Any = np.stack([ndi.gaussian_filter(one.astype("f4"), 3) for one in seen])
    plain = images.subtract_background(z, None, 3, device=device)
    np.testing.assert_allclose(host(plain), (seen - smooth).clip(0), atol=0.51)
    with pytest.raises(ValueError, match="must be above 0"):
        images.flat_field(z, None, flat, 2000)


def test_missing_elements_stay_missing_and_constant_images_constant() -> None:
    data = RNG.random((40, 50)).astype("f4")
    data[:20] = -9999
    image = images.create_image(data=data, skip=-9999, chunks=(16, 16))
    for made in (
        images.rescale_intensity(image, None),
        images.equalize(image, None),
        images.match_histogram(image, None, image),
        images.flat_field(image, None, np.linspace(1, 2, 50)),
        images.subtract_background(image, None, 1),
    ):
        np.testing.assert_array_equal(host(made[0]) == -9999, data == -9999)
    whole = (data[20:] - data[20:].min().astype("f8")) / np.ptp(data[20:].astype("f8"))
    np.testing.assert_allclose(host(images.rescale_intensity(image, None)[0])[20:], whole, atol=1e-6)
    bright = np.where(data < 0, 65535, data * 1000).astype("u2")
    for one in images.create_image(data=bright, skip=65535)[0], gzarr.array(bright, attributes={"_FillValue": 65535}):
        assert not host(images.threshold(one, None))[:20].any()
    even = gzarr.array(np.full((4, 4), 2.5))
    assert [images.find_threshold(even, method) for method in ("otsu", "li", "mean")] == [2.5] * 3
    assert (images.equalize(even, None)[...] == 1).all()
