"""Segmentations of blocks are merged into one, by what neighbours have both seen."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from scipy import ndimage

import gzarr
import gzarr.images
from gzarr.images import merge_labels
from gzarr.images.filters import tables
from gzarr.images.labels import labelling
from gzarr.testing import transfers

PROPERTIES = ["area", "bbox", "centroid", "min_intensity", "max_intensity", "sum_intensity", "std_intensity"]


def discs(shape: tuple[int, ...], n: int, radius: int, seed: int) -> np.ndarray:
    """A mask of balls."""
    rng = np.random.default_rng(seed)
    mask = np.zeros(shape, bool)
    at = np.indices(shape)
    for _ in range(n):
        middle = [rng.integers(s) for s in shape]
        mask |= sum((a - m) ** 2 for a, m in zip(at, middle, strict=True)) <= radius**2
    return mask


def segmented(mask: np.ndarray, block: tuple[int, ...], depth: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Widened blocks side by side, each labelled on its own, by numbers in any order."""
    counts = [-(-s // b) for s, b in zip(mask.shape, block, strict=True)]
    stored = np.zeros([s + 2 * d * c for s, d, c in zip(mask.shape, depth, counts, strict=True)], "u8")
    wide = np.pad(mask, [(d, d) for d in depth])
    rng = np.random.default_rng(seed)
    for coords in itertools.product(*map(range, counts)):
        each = list(zip(coords, block, depth, mask.shape, strict=True))
        part, n = ndimage.label(wide[tuple(slice(c * b, min(c * b + b, s) + 2 * d) for c, b, d, s in each)])
        ids = np.append(0, (1 << 60) + rng.permutation(np.arange(1, n + 1)))
        where = tuple(
            slice(c * (b + 2 * d), c * (b + 2 * d) + e) for (c, b, d, _), e in zip(each, part.shape, strict=True)
        )
        stored[where] = ids[part]
    return stored


@pytest.mark.parametrize(
    ("shape", "block", "depth"),
    [
        ((70, 90), (32, 32), (6, 6)),
        ((40, 31), (16, 40), (5, 0)),
        ((24, 30, 26), (12, 12, 12), (4, 4, 4)),
        ((9,), (4,), (0,)),
    ],
)
def test_objects_at_borders_are_one(
    shape: tuple[int, ...], block: tuple[int, ...], depth: tuple[int, ...], device: str
) -> None:
    """Blocks see balls at their borders whole, so that the result is that of the whole mask."""
    mask = discs(shape, 30, 2, seed=len(shape))
    z = gzarr.array(segmented(mask, block, depth), chunks=[b + 2 * d for b, d in zip(block, depth, strict=True)])
    expected, n = ndimage.label(mask)
    out = gzarr.zeros(shape, chunks=(7,) * len(shape), dtype="u2")
    assert merge_labels(z, out, depth, threshold=0, device=device) == n
    np.testing.assert_array_equal(out[...], expected)


def test_labels_merge_above_the_threshold_only() -> None:
    """IoU at the border: 2 of 4 for the upper pair, 3 of 4 for the lower one."""
    labels = np.zeros((12, 8), int)
    labels[0:3, :4], labels[1:4, 4:] = 5, 9  # faces of 3 and 3 voxels, 2 of them beside each other
    labels[6:10, :4], labels[6:9, 4:] = 5, 4  # not the 5 above: within a block, labels mean what they say
    labels[6:10, :4] = 6
    z = gzarr.array(labels, chunks=(12, 4))
    for threshold, n in ((0.7, 3), (0.75, 4), (0.5, 3), (0.49, 2), (0, 2)):
        out = gzarr.zeros((12, 8), dtype="u1")
        assert merge_labels(z, out, threshold=threshold) == n
        assert (out[6, 3] == out[6, 4]) == (threshold < 0.75)
        assert (out[1, 3] == out[1, 4]) == (threshold < 0.5)


def test_what_lies_in_margins_only_has_no_number() -> None:
    """The left block sees an object beyond its border that the right block does not have."""
    stored = np.zeros((4, 16), "u1")
    stored[1:3, 7] = 1
    z = gzarr.array(stored, chunks=(4, 8))
    out = gzarr.zeros((4, 8), dtype="u1")
    assert merge_labels(z, out, (0, 2)) == 0
    assert not out[...].any()


def test_numbers_follow_the_merged_object_along_a_row_of_blocks() -> None:
    labels = np.ones((2, 40), "u1")
    labels[1] = np.where(np.arange(40) % 4, 7, 0)
    labels[1, 3::4] = 0  # one in the middle of each block
    out = gzarr.zeros((2, 40), dtype="u1")
    assert merge_labels(gzarr.array(labels, chunks=(2, 4)), out, threshold=0) == 11
    np.testing.assert_array_equal(out[0], 1)
    np.testing.assert_array_equal(out[1], np.where(labels[1], np.arange(40) // 4 + 2, 0))


def test_a_created_array_has_the_blocks_as_chunks(tmp_path: Path) -> None:
    z = gzarr.array(segmented(discs((20, 20), 9, 2, 0), (8, 8), (2, 2)), chunks=(12, 12))
    n = merge_labels(z, tmp_path / "out", 2)
    out = gzarr.open_array(tmp_path / "out")
    assert (out.shape, out.chunks, out.dtype) == ((20, 20), (8, 8), np.uint8)
    assert out[...].max() == n


def test_an_image_takes_blocks_of_whole_units(tmp_path: Path) -> None:
    mask = discs((40, 40), 12, 2, 0)
    z = gzarr.array(segmented(mask, (16, 16), (4, 4)), chunks=(24, 24))
    image = gzarr.images.create_image(tmp_path / "a", shape=(40, 40), dtype="u4", chunks=(8, 8))
    assert merge_labels(z, image, 4, threshold=0) == ndimage.label(mask)[1]
    np.testing.assert_array_equal(image[0][...], ndimage.label(mask)[0])
    image = gzarr.images.create_image(tmp_path / "b", shape=(40, 40), dtype="u4", chunks=(12, 12))
    with pytest.raises(ValueError, match="units of 12 along axis 0, which the blocks of 16 do not keep to"):
        merge_labels(z, image, 4)


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        (np.zeros((8, 8)), {}, "labels are integers, got float64"),
        (np.zeros((8, 8), int), {"threshold": 1}, "threshold must be from 0 up to 1, got 1"),
        (np.zeros((8, 8), int), {"depth": (1, 2, 3)}, "depth must be an integer >= 0, or 2 of them"),
        (np.zeros((8, 8), int), {"block": 0}, "block must be an integer >= 1, or 2 of them"),
        (np.zeros((8, 10), int), {"block": 4, "depth": 2}, "axis 1 of 10 is no row .* last one would have -2"),
    ],
)
def test_what_cannot_be_merged_is_refused(labels: np.ndarray, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        merge_labels(gzarr.array(labels), gzarr.zeros((8, 8), dtype="u1"), **options)


@pytest.fixture
def _arrays_of_the_device() -> Iterator[None]:
    with gzarr.config.set({"emulated.arrays": "device"}):
        yield


@pytest.mark.usefixtures("_arrays_of_the_device")
def test_a_block_on_a_device_crosses_to_the_host_once() -> None:
    """What neighbours compare and where objects begin, in one table; the numbers of all blocks come back at once."""
    mask = discs((24, 24), 12, 2, 0)
    expected, n = ndimage.label(mask)
    z = gzarr.array(segmented(mask, (8, 8), (2, 2)), chunks=(12, 12)).to("emulated")
    wide = gzarr.array(expected.astype("i1"), chunks=(8, 8)).to("emulated")
    out = gzarr.zeros((24, 24), chunks=(8, 8), dtype="u4", device="emulated")
    with transfers() as merging:
        assert merge_labels(z, out, 2, threshold=0) == n
    np.testing.assert_array_equal(out.to("cpu")[...], expected)
    small = mock.patch.object(labelling, "_WORTH_VOXELS", 64)
    with small, mock.patch.object(labelling, "thread_count", return_value=8), transfers() as labels:
        assert gzarr.images.label(wide, out) == n
    np.testing.assert_array_equal(out.to("cpu")[...], expected)
    with mock.patch.object(tables, "_BLOCK_SIZE", 64), transfers() as measuring:
        found = gzarr.images.measure(out, wide, PROPERTIES)
    for name, column in gzarr.images.measure(out.to("cpu"), wide.to("cpu"), PROPERTIES).items():
        np.testing.assert_array_equal(found[name], column)
    for counted, uploads in ((merging, 1), (labels, 1), (measuring, 0)):
        assert (counted.to_host.count, counted.to_device.count) == (9, uploads)


@pytest.mark.usefixtures("_arrays_of_the_device")
@pytest.mark.parametrize("limit", [2 << 20, 16 << 20])
def test_numbers_are_written_on_the_device_within_its_memory(limit: int) -> None:
    mask = discs((600, 800), 200, 6, 0)
    expected, n = ndimage.label(mask)
    given: gzarr.Array = gzarr.array(mask.astype("u1"), chunks=(100, 100)).to("emulated")
    for function in (gzarr.images.label, lambda *args, **how: merge_labels(*args, threshold=0, **how)):
        out = gzarr.zeros(mask.shape, chunks=(100, 100), dtype="u4", device="emulated")
        with transfers() as counted:
            assert function(given, out, max_device_nbytes=limit) == n
        assert counted.to_device.count == 1  # the numbers of all labels, which the device looks up and encodes
        assert counted.to_host.nbytes < mask.size // 4
        assert counted.peak_nbytes + counted.inside.peak_nbytes <= limit
        np.testing.assert_array_equal(out.to("cpu")[...], expected)
        given = out
