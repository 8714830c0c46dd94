"""Functions of blocks, combined: the same result whatever the chunks and threads."""

from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.images import create_image, reduce_blocks


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
    with pytest.raises(ValueError, match="inputs must have one shape"):
        reduce_blocks(lambda n, x: 0, [labels, gzarr.zeros((5, 12))], np.add)


@pytest.mark.parametrize("axis", [0, (1,), (0, 2), -1, "y", (0, 1, 2)])
def test_projections_are_those_of_the_whole_array(axis: Any, device: str) -> None:
    data = np.random.default_rng(0).integers(0, 60_000, (23, 17, 30)).astype("u2")
    z = gzarr.array(data, chunks=(4, 5, 8), dimension_names=("z", "y", "x"))
    along = 1 if axis == "y" else axis
    seen = []

    def look(block: Any) -> Any:
        seen.append(block.shape)
        return block.max(axis=along)

    found = reduce_blocks(look, z, z.to(device).xp.maximum, axis=axis, device=device)
    found = found.get() if hasattr(found, "get") else found
    np.testing.assert_array_equal(found, data.max(axis=along))
    assert found.dtype == "u2"
    found = reduce_blocks(lambda b: b.sum(axis=along), z, np.add, axis=axis, max_nbytes=1)
    np.testing.assert_array_equal(found, data.sum(axis=along))


def test_projections_combine_blocks_in_order_and_read_no_missing_chunks() -> None:
    store = gzarr.storage.CountingStore(gzarr.MemoryStore())
    z = gzarr.create_array(store, shape=(40, 6), chunks=(2, 3), dtype="i4", fill_value=5)
    z[:20, :3] = np.arange(60).reshape(20, 3)
    store.reset()
    first = reduce_blocks(lambda block: block[0], z, lambda a, b: a, axis=0, max_nbytes=1)
    assert len(store.requests) == 10
    last = reduce_blocks(lambda block: block[-1], z, lambda a, b: b, axis=0)
    np.testing.assert_array_equal([first, last], z[[0, 39]])
    mask = gzarr.array(z[...] > 50, chunks=(7, 6))
    count = reduce_blocks(lambda block, inside: inside.sum(0), [z, mask], np.add, axis=0)
    np.testing.assert_array_equal(count, (z[...] > 50).sum(0))


def reductions() -> dict[str, Any]:
    """Functions whose results lie where their blocks do."""
    return {
        "max": lambda b: b.max(0),
        "keepdims": lambda b: b.max(0, keepdims=True),
        "other axis": lambda b: b.max(1),
        "transposed": lambda b: b.max(0).T,
        "element by element": lambda b: b * 2,
        "flattened": lambda b: b.ravel(),
        "several": lambda b: (b.max(), b.max(0)),
    }


@pytest.mark.parametrize("chunks", [(10, 8), (1, 1), (5, 2)])
@pytest.mark.parametrize("name", reductions())
def test_results_that_follow_their_blocks_are_not_merged(name: str, chunks: tuple[int, int]) -> None:
    z = gzarr.array(np.arange(20 * 16).reshape(20, 16), chunks=chunks)
    combine: Any = (lambda a, b: [np.maximum(x, y) for x, y in zip(a, b, strict=True)]) if name == "several" else np.add
    with pytest.raises(ValueError, match=r"follows along axis [01]; combine would merge.*axis=0"):
        reduce_blocks(reductions()[name], z, combine, max_nbytes=1)


def test_results_that_are_as_long_as_their_blocks_by_chance_are_combined() -> None:
    data = np.arange(128 * 64).reshape(128, 64) % 64
    z = gzarr.array(data, chunks=(64, 32))
    bins = reduce_blocks(lambda b: np.histogram(b, 64, (0, 64))[0], z, np.add, max_nbytes=1)
    np.testing.assert_array_equal(bins, np.histogram(data, 64, (0, 64))[0])
    ends = reduce_blocks(lambda b: np.array([b.min(), b.max()]), gzarr.array(data, chunks=(2, 64)), np.maximum)
    assert ends.tolist() == [0, 63]
    sizes = reduce_blocks(lambda b: np.bincount(b.ravel()), gzarr.array(data % 2, chunks=(2, 64)), np.add, max_nbytes=1)
    assert sizes.tolist() == [data.size // 2] * 2


def test_results_that_are_put_behind_each_other_may_follow_their_blocks() -> None:
    z = gzarr.array(np.arange(30), chunks=7)
    kept = reduce_blocks(lambda b: b[b >= 0], z, lambda a, b: np.concatenate([a, b]), max_nbytes=1)
    np.testing.assert_array_equal(kept, z[:])
    rows = gzarr.array(np.arange(30).reshape(10, 3), chunks=(4, 3))
    across = reduce_blocks(lambda b: b.sum(0), rows, np.add, max_nbytes=1)  # there is one chunk along axis 1
    np.testing.assert_array_equal(across, rows[:].sum(0))


def test_shapes_of_projections_are_checked() -> None:
    z = gzarr.array(np.arange(20.0).reshape(4, 5), chunks=2)
    with pytest.raises(ValueError, match=r"func returned an array of shape \(\) for the block \[0:.*expected \(\d,\)"):
        reduce_blocks(np.max, z, np.maximum, axis=0)
    with pytest.raises(ValueError, match=r"combine returned an array of shape \(\)"):
        reduce_blocks(lambda b: b.max(0), z, lambda a, b: np.max([a, b]), axis=0, max_nbytes=1)
    with pytest.raises(ValueError, match=r"axis names the axis 'q'; the array has"):
        reduce_blocks(lambda b: b.max(0), z, np.maximum, axis="q")
    with pytest.raises(ValueError, match="skip= gives func elements on one axis"):
        reduce_blocks(lambda b: b.max(0), z, np.maximum, axis=0, skip=3)
    kinds = iter(["f4", "f4", "f8"] * 9)
    with pytest.raises(ValueError, match="return one data type"):
        reduce_blocks(lambda b: b.max(0).astype(next(kinds)), z, lambda a, b: a, axis=0, max_nbytes=1)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="inputs must be gzarr arrays or images, got ndarray"):
        reduce_blocks(np.sum, np.zeros(3), np.add)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="has no elements, so there is nothing to combine"):
        reduce_blocks(np.sum, gzarr.zeros(0), np.add)
