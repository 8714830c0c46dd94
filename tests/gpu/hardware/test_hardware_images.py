"""Levels, filters and downsampled blocks of images on CUDA are those of the CPU, bit for bit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr.images
from gzarr.codecs import BloscCodec
from gzarr.cpu.backend import CpuBackend
from gzarr.gpu.pipeline.batches import NEVER
from gzarr.images.pyramid.downsample import METHODS, downsample
from tests.gpu.hardware.opening import cuda_backend

pytestmark = pytest.mark.gpu

VOLUME = np.random.default_rng(0).integers(0, 60_000, (12, 100, 110)).astype("u2")
#: Device memory of a computation: some units, of which three are under way.
CAP_NBYTES = 4 << 20
#: Memory of the units under way: the image is computed in many.
UNITS_NBYTES = 300_000


def stored(folder: Path, **options: Any) -> gzarr.images.Image:
    codec = BloscCodec("lz4", 5, "shuffle")
    return gzarr.images.create_image(
        folder, data=VOLUME, axes="zyx", chunks=(8, 32, 32), compressors=codec, levels=0, device="cpu", **options
    )


def on_device(cuda: Any, image: gzarr.images.Image) -> gzarr.images.Image:
    return image.to(cuda_backend(cuda, small_writes=NEVER, max_device_nbytes=CAP_NBYTES))


@pytest.mark.parametrize("dtype", ["u1", "i2", "u4", "i8", "f2", "f4", "f8"])
def test_blocks_are_downsampled_as_on_the_cpu(cuda: Any, dtype: str) -> None:
    backend = cuda_backend(cuda)
    block = np.random.default_rng(1).integers(0, 9, (9, 40, 51)).astype(dtype)
    there = backend.xp.asarray(block)
    for method in set(METHODS) - {"gaussian"}:  # it needs what is around a block
        for factors in ((2, 2, 2), (1, 3, 2)):
            found = downsample(backend, there, factors, method)
            assert isinstance(found, cuda.cupy.ndarray)
            np.testing.assert_array_equal(found.get(), downsample(CpuBackend(), block, factors, method))


@pytest.mark.parametrize("shards", [None, (16, 64, 64)])
def test_levels_are_those_of_the_cpu(cuda: Any, tmp_path: Path, shards: Any) -> None:
    images = [stored(tmp_path / name, shards=shards) for name in ("cpu", "cuda")]
    gzarr.images.build_pyramid(images[0], 3)
    gzarr.images.build_pyramid(on_device(cuda, images[1]), 3, max_nbytes=UNITS_NBYTES)
    levels = [gzarr.images.open_image(tmp_path / name, device="cpu").levels for name in ("cpu", "cuda")]
    assert len(levels[1]) == 4
    for wanted, found in zip(*levels, strict=True):
        np.testing.assert_array_equal(found[...], wanted[...])


def test_a_function_of_the_user_gets_arrays_on_the_device(cuda: Any, tmp_path: Path) -> None:
    def plus_neighbour(block: Any) -> Any:
        assert isinstance(block, cuda.cupy.ndarray)
        result = block.copy()
        result[:, 1:] = block[:, 1:] + block[:, :-1]
        return result

    source = on_device(cuda, stored(tmp_path / "source"))
    made = gzarr.images.map_overlap(
        plus_neighbour, source, tmp_path / "target", {"y": 1}, levels=1, max_nbytes=UNITS_NBYTES
    )
    wanted = VOLUME + np.pad(VOLUME, 1, mode="symmetric")[1:-1, :-2, 1:-1]
    np.testing.assert_array_equal(made.levels[0].to("cpu")[...], wanted)
    above = made.levels[1].to("cpu")[...]
    factors = [-(-n // m) for n, m in zip(wanted.shape, above.shape, strict=True)]
    np.testing.assert_array_equal(above, downsample(CpuBackend(), wanted, factors, "mean"))


def test_an_image_is_made_of_what_is_still_being_computed(cuda: Any, tmp_path: Path) -> None:
    """On the caller's stream, which goes on to change it."""
    cupy, volume = cuda.cupy, cuda.cupy.asarray(VOLUME)
    value = cupy.empty(VOLUME.shape, VOLUME.dtype)
    cupy.cuda.get_current_stream().synchronize()
    backend = cuda_backend(cuda, small_writes=NEVER, max_device_nbytes=CAP_NBYTES)
    with cupy.cuda.Stream(non_blocking=True):
        value.data.copy_from_device_async(volume.data, volume.nbytes)
        gzarr.images.create_image(
            tmp_path, data=value, axes="zyx", chunks=(8, 32, 32), levels=1, max_nbytes=UNITS_NBYTES, device=backend
        )
        value.fill(0)
    levels = gzarr.images.open_image(tmp_path, device="cpu").levels
    np.testing.assert_array_equal(levels[0][...], VOLUME)
    np.testing.assert_array_equal(levels[1][...], downsample(CpuBackend(), VOLUME, (2, 2, 2), "mean"))
