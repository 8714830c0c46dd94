"""Labels equal SciPy's of the whole array, numbers included, whatever the blocks, chunks and shards."""

from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

import gzarr
from gzarr.devices import backend_for
from gzarr.images import create_image, label, open_image
from gzarr.images.labels import components, labelling
from gzarr.images.pyramid.cascade import Cascade
from gzarr.images.pyramid.downsample import downsample
from tests.support.memory import traced


def masks(seed: int, shape: tuple[int, ...], dtype: str, density: float) -> np.ndarray:
    """Noise, coarse in places, so that some objects are large."""
    rng = np.random.default_rng(seed)
    coarse = rng.random([-(-s // 4) for s in shape])
    for axis in range(len(shape)):
        coarse = np.repeat(coarse, 4, axis)
    both = np.minimum(rng.random(shape), coarse[tuple(slice(s) for s in shape)])
    mask = both < np.quantile(both, density) if both.size else both < 0
    return np.where(mask, rng.choice([1, 3, np.nan] if dtype[0] == "f" else [1, 2], shape), 0).astype(dtype)


@settings(max_examples=40)
@given(data=st.data())
def test_labels_equal_those_of_the_whole_array(data: st.DataObject) -> None:
    ndim = data.draw(st.integers(1, 4))
    shape = tuple(data.draw(st.tuples(*[st.integers(1, (90, 24, 13, 7)[ndim - 1])] * ndim)))
    chunks = tuple(data.draw(st.integers(1, s)) for s in shape)
    shards = data.draw(st.sampled_from([None, tuple(c * 2 for c in chunks)]))
    dtype = data.draw(st.sampled_from(["?", "u1", "i2", ">i4", "f2", "f4", "f8"]))
    mask = masks(data.draw(st.integers(0, 99)), shape, dtype, data.draw(st.sampled_from([0, 0.1, 0.4, 0.7, 1])))
    structure = ndimage.generate_binary_structure(ndim, data.draw(st.integers(1, ndim)))
    if data.draw(st.booleans()):
        structure &= np.flip(structure & (np.random.default_rng(1).random(structure.shape) < 0.7))
        structure |= np.flip(structure)
    expected, n = ndimage.label(mask.astype("f8") != 0, structure)
    z = gzarr.array(mask, chunks=chunks, shards=shards)
    out_chunks = tuple(data.draw(st.integers(1, s)) for s in shape)
    out = gzarr.full(shape, fill_value=7, chunks=out_chunks, dtype="u4")
    device = data.draw(st.sampled_from([None, "emulated"]))
    threads = mock.patch.object(labelling, "thread_count", return_value=data.draw(st.integers(1, 20)))
    with threads, mock.patch.object(labelling, "_WORTH_VOXELS", 1):  # many small blocks
        assert label(z, out, structure=structure, device=device) == n
    np.testing.assert_array_equal(out[...], expected)


def test_an_array_is_created_like_the_mask(tmp_path: Path) -> None:
    mask = masks(0, (40, 50), "?", 0.4)
    z = gzarr.create_array(tmp_path / "mask", data=mask, chunks=(5, 10), shards=(10, 20), dimension_names=["y", "x"])
    done = []
    n = label(tmp_path / "mask", tmp_path / "labels", 2, progress=lambda *args: done.append(args))
    out = gzarr.open_array(tmp_path / "labels")
    expected, expected_n = ndimage.label(mask, np.ones((3, 3)))
    assert n == expected_n
    np.testing.assert_array_equal(out[...], expected)
    assert (out.dtype, out.chunks, out.shards, out.dimension_names) == (np.uint8, z.chunks, z.shards, ("y", "x"))
    assert done[-1] == (2 * mask.nbytes, 2 * mask.nbytes, f"array {str(z.store_path)!r}")
    with pytest.raises(gzarr.ContainsArrayError, match="pass the opened array to replace it"):
        label(z, tmp_path / "labels")


def test_numpy_arrays_and_version_2_are_labelled(tmp_path: Path) -> None:
    mask = masks(0, (9, 9, 9), "u1", 0.2)
    expected, n = ndimage.label(mask)
    assert label(mask, tmp_path / "a") == n
    np.testing.assert_array_equal(gzarr.open_array(tmp_path / "a")[...], expected)
    assert label(gzarr.array(mask, zarr_format=2), tmp_path / "b") == n
    assert gzarr.open_array(tmp_path / "b").metadata.zarr_format == 2


def test_arrays_without_voxels_or_axes_are_labelled() -> None:
    for mask in (np.zeros((0, 4), "?"), np.ones((), "?"), np.zeros((), "?")):
        out = gzarr.zeros(mask.shape, dtype="u1")
        assert label(gzarr.array(mask), out) == mask.sum()
        np.testing.assert_array_equal(out[...], mask)


def test_numbers_that_do_not_fit_are_not_written() -> None:
    mask = np.zeros((40, 40), "?")
    mask[::2, ::2] = True
    out = gzarr.zeros(mask.shape, dtype="u1")
    with pytest.raises(ValueError, match=r"400 objects do not fit uint8; nothing was written. Give an array of uint16"):
        label(mask, out)
    assert not out.nchunks_initialized


@pytest.mark.parametrize(
    ("out", "options", "message"),
    [
        (gzarr.zeros((4, 5), dtype="u1"), {}, r"has shape \(4, 5\), the result \(4, 4\)"),
        (gzarr.zeros((4, 4), dtype="f4"), {}, "numbers of objects are integers, out has float32"),
        (None, {}, "out must be an array, an image or a path, got NoneType"),
        (gzarr.zeros((4, 4), dtype="u1"), {"connectivity": 3}, "connectivity must be from 1 to 2"),
        (gzarr.zeros((4, 4), dtype="u1"), {"structure": [[1, 0, 0]] * 3}, "structure must be symmetric"),
    ],
)
def test_what_cannot_be_labelled_is_refused(out: gzarr.Array, options: dict, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        label(gzarr.zeros((4, 4), dtype="u1"), out, **options)


def test_a_mask_has_numbers() -> None:
    with pytest.raises(ValueError, match="a mask has numbers, got"):
        label(gzarr.array(np.array(["a", "b"])), gzarr.zeros(2, dtype="u1"))


def test_chunks_may_be_of_several_sizes(tmp_path: Path) -> None:
    mask = np.eye(10, dtype="?")
    z = gzarr.create_array(tmp_path / "a", shape=(10, 10), chunks=[[3, 3, 4], [5, 5]], dtype="?")
    out = gzarr.create_array(tmp_path / "b", shape=(10, 10), chunks=[[5, 2, 3], [4, 6]], dtype="u1")
    z[...] = mask
    assert label(z, out) == 10
    np.testing.assert_array_equal(out[...], ndimage.label(mask)[0])


def test_out_is_not_the_mask() -> None:
    z = gzarr.zeros((4, 4), dtype="u1")
    with pytest.raises(ValueError, match="is an input"):
        label(z, z)


def test_an_image_of_labels_gets_its_pyramid_in_the_same_pass(tmp_path: Path, device: str) -> None:
    """Objects extend in space only: those of different times have numbers of their own."""
    data = masks(3, (2, 40, 600), "u1", 0.3)
    scale = {"y": 0.5, "x": 0.5}
    image = create_image(tmp_path / "image", data, axes="tyx", scale=scale, chunks=(1, 16, 32), levels=0)
    out = create_image(tmp_path / "labels", shape=data.shape, dtype="u4", axes="tyx", scale=scale, chunks=(1, 8, 64))
    with mock.patch.object(labelling, "_WORTH_VOXELS", 1):
        n = label(image, out, 2, device=device)
    flat = np.zeros((3, 3, 3), bool)
    flat[1] = True
    expected, expected_n = ndimage.label(data, flat)
    assert n == expected_n
    out = open_image(tmp_path / "labels")
    np.testing.assert_array_equal(out[0][...], expected)
    assert [level.shape for level in out] == [(2, 40, 600), (2, 20, 300), (2, 10, 150)]
    for below, above in pairwise(level[...] for level in out):
        np.testing.assert_array_equal(above, downsample(backend_for("cpu"), below, (1, 2, 2), "mode"))


def test_an_interrupted_call_goes_on(tmp_path: Path) -> None:
    mask = masks(0, (60, 60), "?", 0.4)
    z = gzarr.create_array(tmp_path / "mask", data=mask, chunks=(10, 10))
    image = create_image(tmp_path / "labels", shape=mask.shape, dtype="u4", chunks=(10, 10))
    written = []

    def write(cascade: Cascade, start: tuple[int, ...], values: np.ndarray) -> None:
        if len(written) >= 5:
            raise OSError("the disk is full")
        written.append(start)
        put(cascade, start, values)

    put = Cascade.put
    small = mock.patch.object(labelling, "_WORTH_VOXELS", 1)
    threads = mock.patch.object(labelling, "thread_count", return_value=8)
    for out in (image, tmp_path / "array"):
        written.clear()
        failing = mock.patch.object(Cascade, "put", write)
        with small, threads, failing, pytest.raises(OSError, match="full") as caught:
            label(z, out)
        assert "resume=True goes on" in " ".join(caught.value.__notes__)
        counting = mock.patch.object(Cascade, "put", autospec=True, side_effect=put)
        with small, threads, counting as puts:
            assert label(z, out, resume=True) == ndimage.label(mask)[1]
        assert puts.call_count == 18 - len(written)  # blocks of 10 x 20
    for found in (open_image(tmp_path / "labels")[0], gzarr.open_array(tmp_path / "array")):
        np.testing.assert_array_equal(found[...], ndimage.label(mask)[0])


def test_memory_is_bounded(tmp_path: Path) -> None:
    """32 MiB of labels by 4 MiB: blocks, tables and what is kept of the first pass."""
    shape, tile = (8, 1024, 1024), masks(1, (8, 128, 128), "?", 0.002)
    z = gzarr.create_array(tmp_path / "mask", shape=shape, chunks=(8, 128, 128), dtype="?")
    for y, x in np.ndindex(8, 8):
        z[:, y * 128 : y * 128 + 128, x * 128 : x * 128 + 128] = tile
    with traced() as peak:
        label(z, tmp_path / "labels", max_nbytes=4 << 20)
        assert peak() < 6 << 20  # encoded bytes in flight besides
    np.testing.assert_array_equal(gzarr.open_array(tmp_path / "labels")[...], ndimage.label(z[...])[0])


def test_tables_that_do_not_fit_are_refused() -> None:
    mask = np.indices((512, 512)).sum(0) % 2 == 0
    with pytest.raises(ValueError, match=r"max_nbytes is too low: after \d+ of \d+ blocks, tables of \d+ labels take"):
        label(gzarr.array(mask, chunks=(64, 64)), gzarr.zeros((512, 512), dtype="u4"), max_nbytes=1 << 20)


def test_a_mask_that_changes_meanwhile_is_noticed() -> None:
    """Blocks that were not kept are labelled again, and must have as many labels."""
    z = gzarr.array(np.eye(8, dtype="?"), chunks=(4, 4))
    out = gzarr.zeros((8, 8), dtype="u4")

    def clear(done: int, total: int, name: str) -> None:
        if done == total // 2:
            z[...] = False

    with (
        mock.patch.object(components.BlockObjects, "keep"),
        pytest.raises(ValueError, match="was changed while it was"),
    ):
        label(z, out, progress=clear)


def test_objects_are_linked_across_many_blocks_whose_pairs_are_reduced() -> None:
    """A comb: its teeth are objects of their own in each block until the back joins them."""
    mask = np.zeros((32, 32), "?")
    mask[:, ::2] = True
    mask[-1] = True
    out = gzarr.zeros(mask.shape, dtype="u1", chunks=(4, 4))
    few, small = mock.patch.object(components, "_MANY_PAIRS", 4), mock.patch.object(labelling, "_WORTH_VOXELS", 16)
    with few, small, mock.patch.object(labelling, "thread_count", return_value=200):
        assert label(gzarr.array(mask, chunks=(4, 4)), out) == 1
    np.testing.assert_array_equal(out[...], mask)
