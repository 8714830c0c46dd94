"""Levels of images, each made of the whole one before: what tests compare with."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gzarr
from gzarr.images import open_image
from gzarr.images.pyramid.downsample import downsample


def noise(shape: tuple[int, ...], dtype: str = "u2", seed: int = 0) -> NDArray[Any]:
    return np.random.default_rng(seed).integers(1, 200 if dtype == "u1" else 60000, shape).astype(dtype)


def levels_of(data: NDArray[Any], factors: Sequence[tuple[int, ...]], method: Any = "mean") -> list[NDArray[Any]]:
    levels, backend = [data], gzarr.zeros(1).backend
    for step in factors:
        levels.append(downsample(backend, levels[-1], step, method))
    return levels


def check(image: Any, data: NDArray[Any], method: Any = "mean") -> None:
    """Compare every level of an image as it is stored."""
    image = open_image(image.group)
    pairs = itertools.pairwise(level.shape for level in image)
    factors = [tuple(-(-a // b) for a, b in zip(*pair, strict=True)) for pair in pairs]
    for level, expected in zip(image, levels_of(data, factors, method), strict=True):
        np.testing.assert_array_equal(level[...], expected)
