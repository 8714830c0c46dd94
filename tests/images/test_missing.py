"""Missing values: levels, statistics and pictures of images are made of what is there, with NumPy's as the oracle."""

import io
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import gzarr
from gzarr.cli.main import main
from gzarr.errors import ContainsNodeError, MetadataError
from gzarr.images import ImageWriter, build_pyramid, create_image, map_blocks, map_overlap, open_image, reduce_blocks
from gzarr.metadata.conventions import nodata_of
from gzarr.storage import MemoryStore
from tests.support.values import host

SHAPE = (203, 190)
HOLES = np.random.default_rng(1).random(SHAPE) < 0.4
HOLES[:70, :50] = True
VALUES = np.random.default_rng(0).normal(1000, 10, SHAPE)
METHODS: dict[str, Callable[..., Any]] = {"mean": np.nanmean, "median": np.nanmedian, "min": np.nanmin}


def above(values: NDArray[Any], gone: NDArray[Any], method: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """The next level as floats, and where it is missing: of the elements that are there."""
    pad = [(0, n % 2) for n in values.shape]
    padded = np.pad(np.where(gone, np.nan, values.astype("f8")), pad, constant_values=np.nan)
    n, m = (side // 2 for side in padded.shape)
    windows = padded.reshape(n, 2, m, 2).transpose(0, 2, 1, 3).reshape(n, m, 4)
    gone = np.isnan(windows).all(-1)
    windows[gone] = 0
    return METHODS[method](windows, -1), gone


def check(image: Any, values: NDArray[Any], gone: NDArray[Any], method: str, nodata: Any) -> None:
    """Compare the levels with the oracle, each made of the one before as it is stored."""
    assert len(image) > 2
    for level in image.levels[1:]:
        wanted, gone = above(values, gone, method)
        values = host(level[...])
        if values.dtype.kind in "iu":
            wanted = np.rint(wanted)
        np.testing.assert_allclose(values[~gone], wanted[~gone], rtol=1e-5)
        np.testing.assert_array_equal(values[gone], np.full(gone.sum(), nodata, values.dtype))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", ["f4", "i2"])
def test_levels_of_an_image_with_nodata(device: str, method: str, dtype: str) -> None:
    data = np.where(HOLES, -9999, VALUES).astype(dtype)
    how: dict[str, Any] = {"levels": 3, "method": method, "chunks": (32, 32), "device": device}
    image = create_image(MemoryStore(), data, skip=-9999, **how)
    check(image, data, HOLES, method, -9999)
    assert [nodata_of(level.metadata) for level in image] == [-9999] * 4
    assert not image.validate(data=True).errors
    again = build_pyramid(image.reopened(), 3, method=method, overwrite=True)  # as it records
    check(again, data, HOLES, method, -9999)


@pytest.mark.parametrize("kind", ["numpy", "gzarr"])
def test_levels_of_an_image_with_a_mask(device: str, kind: str) -> None:
    data = VALUES.astype("u2")
    mask: Any = HOLES if kind == "numpy" else gzarr.array(HOLES, chunks=(40, 50))
    image = create_image(MemoryStore(), data, skip=mask, levels=3, chunks=(16, 16), device=device, max_nbytes=1 << 20)
    np.testing.assert_array_equal(host(image[0][...]), data)
    check(image, data, HOLES, "mean", 0)


def test_nan_is_skipped_if_asked_for_and_in_a_copy() -> None:
    data = np.where(HOLES, np.nan, VALUES)
    plain = create_image(MemoryStore(), data, levels=1)
    np.testing.assert_array_equal(np.isnan(plain[1][0]), HOLES[:2].reshape(2, 95, 2).any((0, 2)))
    for version in ("0.4", "0.5"):
        image = create_image(MemoryStore(), data, levels=3, skip=np.nan, version=version)
        check(image, data, HOLES, "mean", np.nan)
        assert np.isnan(nodata_of(image[0].metadata))
        copied = build_pyramid(image[0], 3, out=MemoryStore())
        check(copied, data, HOLES, "mean", np.nan)
        assert np.isnan(nodata_of(copied[1].metadata))
    assert build_pyramid(image.reopened(), 1, overwrite=True, skip=False)[1][20:22, 10:12].tolist() != [[1]]


def normalized(values: NDArray[Any], gone: NDArray[Any]) -> NDArray[Any]:
    """A Gaussian over what is there, by normalized convolution of the whole array, at every other element."""
    from gzarr.images.pyramid.smoothing import weights_of

    sums = []
    for part in (np.where(gone, 0, values.astype("f8")), (~gone).astype("f8")):
        for axis in (0, 1):
            weight = weights_of(2, part.shape[axis])
            pad = [(0, 0), (0, 0)]
            pad[axis] = (weight.before, weight.after)
            padded = np.pad(part, pad, mode="symmetric")
            part = np.apply_along_axis(np.correlate, axis, padded, np.array(weight.values), "valid")  # noqa: PLW2901
            part = part[(slice(None),) * axis + (slice(None, None, 2),)][: -(-SHAPE[0] // 2), : part.shape[1]]  # noqa: PLW2901
        sums.append(part)
    return sums[0] / np.where(sums[1] > 0, sums[1], 1)


@pytest.mark.parametrize("kind", ["number", "mask"])
def test_a_gaussian_is_a_normalized_convolution(device: str, kind: str) -> None:
    data = np.where(HOLES, -9999 if kind == "number" else 7, VALUES)
    skip: Any = -9999 if kind == "number" else HOLES
    how: dict[str, Any] = {"levels": 2, "method": "gaussian", "chunks": (32, 32), "device": device}
    image = create_image(MemoryStore(), data, skip=skip, **how)
    _, gone = above(data, HOLES, "mean")
    level = host(image[1][...])
    np.testing.assert_allclose(level[~gone], normalized(data, HOLES)[~gone], rtol=1e-9)
    np.testing.assert_array_equal(level[gone], -9999 if kind == "number" else 0)
    _, higher = above(level, gone, "mean")
    top = host(image[2][...])
    np.testing.assert_array_equal(top == (-9999 if kind == "number" else 0), higher)
    assert abs(top[~higher] - 1000).max() < 50


def test_on_a_cluster(tmp_path: Path) -> None:
    data = VALUES.astype("f4")
    image = create_image(str(tmp_path / "a.zarr"), data, levels=0, chunks=(16, 16))
    mask = gzarr.array(HOLES, store=str(tmp_path / "mask.zarr"), chunks=(32, 32))

    class Workers(ThreadPoolExecutor):
        def submit(self, function: Any, /, *arguments: Any) -> Any:  # as to other processes
            return super().submit(function, *pickle.loads(pickle.dumps(arguments)))

    with Workers(2) as client:
        built = build_pyramid(image, 3, on=client, skip=mask, max_nbytes=20_000)
    check(built, data, HOLES, "mean", 0)


@pytest.mark.parametrize("shards", [None, (64, 64)])
def test_a_build_is_resumed_with_what_it_skipped(shards: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data = VALUES.astype("f4")
    store = MemoryStore()
    image = create_image(store, data, levels=0, chunks=(16, 16), shards=shards)
    other = ~HOLES
    seen: list[Any] = []

    def stop(done: int, total: int, name: str) -> None:
        seen.append(done)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_pyramid(image, 3, skip=HOLES, progress=stop, max_nbytes=100_000)
    for skip in (None, -9999, other):
        with pytest.raises(ContainsNodeError, match="skip"):
            build_pyramid(open_image(store), 3, skip=skip, resume=True, max_nbytes=100_000)
    built = build_pyramid(open_image(store), 3, skip=HOLES.copy(), resume=True, max_nbytes=100_000)
    check(built, data, HOLES, "mean", 0)


def test_the_pyramid_of_a_filter(device: str) -> None:
    data = np.where(HOLES, -9999, VALUES).astype("f4")
    image = create_image(MemoryStore(), data, skip=-9999, levels=2, chunks=(32, 32), device=device)

    def double(block: Any) -> Any:
        return (
            np.where(block == -9999, block, 2 * block) if isinstance(block, np.ndarray) else block * (1 + (block > 0))
        )

    made = map_blocks(double, image, MemoryStore(), levels=3)
    check(made, host(made[0][...]), HOLES, "mean", -9999)
    out = create_image(MemoryStore(), shape=SHAPE, dtype="f4", skip=-9999, chunks=(32, 32), device=device)
    check(map_overlap(double, image, out, 1, levels=3), host(made[0][...]), HOLES, "mean", -9999)
    flags = map_blocks(lambda block: block > 0, image, MemoryStore(), method="mode")
    assert nodata_of(flags[0].metadata) is None
    with pytest.raises(ValueError, match=r"skip= is of the pyramid of an image"):
        map_blocks(double, image[0], None, skip=0)


def test_frames_of_a_microscope(tmp_path: Path) -> None:
    data = np.where(HOLES, 0, VALUES).astype("u2")
    with ImageWriter(tmp_path / "a.zarr", shape=SHAPE, dtype="u2", axes="tyx", skip=0, levels=2) as writer:
        writer.append(data)
        writer.append(data)
    level = open_image(tmp_path / "a.zarr")[1][1]
    wanted, gone = above(data, HOLES, "mean")
    np.testing.assert_array_equal(level, np.where(gone, 0, np.rint(wanted)))
    with pytest.raises(MetadataError, match="a mask needs data"):
        ImageWriter(MemoryStore(), shape=SHAPE, dtype="u2", axes="tyx", skip=HOLES)


def test_functions_of_blocks_get_what_is_there() -> None:
    data = np.where(HOLES, -9999, VALUES)
    array, labels = gzarr.array(data, chunks=(60, 70)), gzarr.array(np.arange(data.size).reshape(SHAPE) % 3)
    there = data[~HOLES]
    assert reduce_blocks(np.min, array, min, skip=-9999) == there.min()
    assert reduce_blocks(np.sum, array, np.add, skip=HOLES) == pytest.approx(there.sum())
    counts = reduce_blocks(lambda block, label: np.bincount(label, minlength=3), [array, labels], np.add, skip=-9999)
    np.testing.assert_array_equal(counts, np.bincount(labels[...][~HOLES]))
    with pytest.raises(ValueError, match=r"all elements .* are missing"):
        reduce_blocks(np.sum, array, np.add, skip=np.ones(SHAPE, bool))


def test_zeros_of_an_image_that_came_from_v2_are_values(tmp_path: Path) -> None:
    create_image(tmp_path / "a.zarr", np.where(HOLES, 0, VALUES).astype("u2"), version="0.4", levels=1)
    assert main(["ome", "convert", str(tmp_path / "a.zarr"), str(tmp_path / "b.zarr"), "--zarr-format", "3"]) == 0
    image = open_image(tmp_path / "b.zarr")
    before = image[1][...]
    assert image[0].stats().n_missing == 0
    np.testing.assert_array_equal(build_pyramid(image, 1, overwrite=True)[1][...], before)


# -- pictures ----------------------------------------------------------------------------------------------------------


def pixels(png: bytes) -> NDArray[Any]:
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(png)))[..., 0]


@pytest.mark.parametrize("kind", ["recorded", "number", "mask", "nan"])
def test_pictures_of_what_is_there(kind: str) -> None:
    volume = np.full((8, 64, 64), 250.0, "f4")
    volume[:, :, 32:] = 1000
    holes = np.zeros(volume.shape, bool)
    holes[:, :16, :] = True
    holes[:, ::3, ::2] = True
    nodata = np.nan if kind == "nan" else -9999
    data = volume if kind == "mask" else np.where(holes, nodata, volume).astype("f4")
    skip: Any = {"recorded": -9999, "mask": holes}.get(kind)
    image = create_image(MemoryStore(), data, axes="zyx", levels=0 if skip is None else 1, skip=skip)
    shown: Any = {"recorded": None, "number": -9999, "mask": holes, "nan": np.nan}[kind]
    for size, side in ((64, 64), (16, 16)):
        drawn = pixels(image.thumbnail(size, contrast=(0, 1000), skip=shown))
        assert drawn.shape == (side, side)
        assert (drawn[: side // 4] == 128).all()
        there = drawn[side // 4 :] if size == 16 else np.where(holes[0], 0, drawn)[16:][~holes[0, 16:]].reshape(-1)
        assert set(np.unique(there)) == {64, 255}
    front = pixels(image.ortho(size=82, contrast=(0, 1000), skip=shown))[:64, :64]
    assert set(np.unique(front[16:][~holes[4, 16:]])) == {64, 255}
    assert (front[:16] == 128).all()
    assert pixels(image.thumbnail(64, skip=shown))[20:].max() == 255


def test_masks_lie_over_levels_of_any_extent() -> None:
    """A level of 2 rows may be made of windows of 4 out of 5, and not of 3."""
    data = np.random.default_rng(3).normal(100, 5, (5, 66)).astype("f4")
    holes = np.zeros(data.shape, bool)
    holes[:3, :22] = True
    masked = create_image(MemoryStore(), data, skip=holes, levels=2, factors=2)
    marked = create_image(MemoryStore(), np.where(holes, np.nan, data), skip=np.nan, levels=2, factors=2)
    for size in (9, 17, 33, 66):
        drawn = masked.thumbnail(size, skip=holes, contrast=(0, 110))
        np.testing.assert_array_equal(pixels(drawn), pixels(marked.thumbnail(size, contrast=(0, 110))))


@pytest.mark.parametrize(("dtype", "nodata"), [("f4", -9999.1), ("i2", -9999), ("u1", 255), ("f4", np.nan)])
def test_images_of_another_type_know_what_is_missing(dtype: str, nodata: float) -> None:
    source = build_pyramid(gzarr.array([[4.0, nodata], [2.0, 3.0]]), 0, out=MemoryStore(), skip=nodata)[0]
    image = create_image(MemoryStore(), source, dtype=dtype, levels=1)
    np.testing.assert_array_equal(nodata_of(image[0].metadata), np.array(nodata, dtype))
    assert image[1][0, 0] == 3


def test_channels_are_shown_without_nodata() -> None:
    data = np.where(HOLES, -9999, VALUES).astype("f4")
    image = create_image(MemoryStore(), data[None], axes="cyx", channels=["heights"], skip=-9999)
    assert image.channels[0].window.start > 900
    empty = create_image(MemoryStore(), np.full((1, 20, 20), -1.0), axes="cyx", channels=["none"], skip=-1)
    assert set(pixels(empty.thumbnail(20)).flat) == {128}


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("skip", "error", "named"),
    [
        (-1, ValueError, "skip=-1: .*no element of type uint8 is that"),
        (0.5, ValueError, "skip=0.5"),
        (True, ValueError, "skip=True"),
        ("x", ValueError, "skip='x'"),
        (np.zeros((3, 3), bool), ValueError, r"shape \(3, 3\), but the array \(20, 30\)"),
        ([0, 1], TypeError, "is of int64, not of bools"),
        (np.zeros((20, 30), "u1"), TypeError, "is of uint8, not of bools; give mask != 0"),
    ],
)
def test_what_cannot_be_skipped_is_refused_before_anything_is_written(skip: Any, error: Any, named: str) -> None:
    data, store = np.zeros((20, 30), "u1"), MemoryStore()
    with pytest.raises(error, match=named):
        create_image(store, data, skip=skip)
    assert not list(store)
    with pytest.raises(error, match=named):
        gzarr.array(data).stats(skip=skip)
    with pytest.raises(error, match=named):
        build_pyramid(create_image(MemoryStore(), data, levels=0), 1, skip=skip)
    for fine in (np.nan, False, np.zeros((20, 30), bool).tolist()):
        assert create_image(MemoryStore(), data, skip=fine, levels=1)[1].shape == (10, 15)


def test_a_mask_of_data_that_are_transposed_is_refused() -> None:
    xarray = pytest.importorskip("xarray")
    data = xarray.DataArray(np.zeros((4, 4, 4)), dims=("y", "x", "c"))
    with pytest.raises(MetadataError, match="skip: the data, with the axes"):
        create_image(MemoryStore(), data, skip=np.zeros((4, 4, 4), bool))
    assert create_image(MemoryStore(), data, skip=0).axes == ("c", "y", "x")


def test_a_function_sees_all_elements() -> None:
    data = np.where(HOLES, -9999, VALUES)

    def first(block: Any, factors: Any) -> Any:
        return block[:: factors[0], :: factors[1]]

    image = create_image(MemoryStore(), data, skip=-9999, levels=0)
    np.testing.assert_array_equal(build_pyramid(image, 1, method=first)[1][...], data[::2, ::2])
    with pytest.raises(ValueError, match="a function as the method sees all elements"):
        build_pyramid(image, 1, method=first, skip=-9999, overwrite=True)
