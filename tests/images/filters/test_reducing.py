"""Functions of blocks, combined: the same result whatever the chunks and threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.images import create_image, reduce_blocks


@pytest.mark.parametrize("device", ["cpu", "emulated"])
def test_blocks_are_combined_in_order(device: str) -> None:
    data = np.arange(1 << 16, dtype="i4")
    z = gzarr.array(data, chunks=1000)

    def ends(block: Any) -> list[tuple[int, int]]:
        return [(int(block[0]), int(block[-1]))]

    found = reduce_blocks(ends, z, lambda a, b: a + b, device=device, max_nbytes=40_000)
    assert len(found) > 10
    assert found == sorted(found)
    assert [low for low, _ in found[1:]] == [high + 1 for _, high in found[:-1]]


def test_missing_chunks_are_blocks_of_the_fill_value() -> None:
    z = gzarr.create_array(shape=(10, 10), chunks=(3, 3), dtype="u1", fill_value=2)
    z[0, 0] = 5
    assert reduce_blocks(lambda x: x.sum(dtype=int), z, np.add) == 2 * 100 + 3


def test_level_0_of_an_image_is_reduced() -> None:
    image = create_image(data=np.arange(64, dtype="u1").reshape(8, 8))
    assert reduce_blocks(np.max, image, max) == 63


def test_objects_of_an_image_are_measured() -> None:
    data = np.arange(10 * 12, dtype="u2").reshape(10, 12)
    numbers = (data // 7 % 5).astype("u1")
    image, labels = create_image(data=data), gzarr.array(numbers, chunks=(3, 5))
    sums = reduce_blocks(lambda n, x: np.bincount(n.ravel(), x.ravel(), 5), [labels, image], np.add, device="emulated")
    np.testing.assert_array_equal(sums, np.bincount(numbers.ravel(), data.ravel()))
    with pytest.raises(ValueError, match="arrays must have one shape"):
        reduce_blocks(lambda n, x: 0, [labels, gzarr.zeros((5, 12))], np.add)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="expected a gzarr array, got ndarray"):
        reduce_blocks(np.sum, np.zeros(3), np.add)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="has no elements, so there is nothing to combine"):
        reduce_blocks(np.sum, gzarr.zeros(0), np.add)
