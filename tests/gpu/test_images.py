"""Images on a device: levels and filters are right in any order of the streams, which have work at the same time.

The double of CuPy carries out work in an order that chance chooses among those that events allow.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numcodecs import LZ4

import gzarr
import gzarr.images
from gzarr.cpu.windows import reduce_by_numpy
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.detection.thresholds import NEVER
from gzarr.gpu.device.hostbuild import find_compiler
from gzarr.images.image import Image
from tests.gpu.device.test_cuda import cuda  # noqa: F401 - a fixture
from tests.gpu.fake_cupy.streams import schedule
from tests.gpu.test_overlap import TimedReader, at_once
from tests.gpu.test_races import is_seen, without

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")

SEEDS = range(2)
DATA = np.random.default_rng(0).integers(0, 2000, (150, 150), np.uint16)
#: Cells of several tasks, also at the ends, in levels 1 and 2.
CHUNKS = (32, 32)
#: The smallest units: a task for each chunk, and cells of all levels above wait for several.
MAX_NBYTES = 40_000


def halved(levels: int, method: str = "mean") -> list[np.ndarray]:
    """The levels of `DATA`."""
    made = [DATA]
    for _ in range(levels):
        out = np.empty([-(-n // 2) for n in made[-1].shape], DATA.dtype)
        reduce_by_numpy(made[-1], (2, 2), method, out)
        made.append(out)
    return made


def backend(cuda: Any) -> GpuBackend:  # noqa: F811
    return GpuBackend(cuda.CudaDevice(), small_reads=NEVER, small_writes=NEVER, max_device_nbytes=3_000_000)


def stored(folder: Path) -> Image:
    return gzarr.images.create_image(
        folder, data=DATA, axes="yx", chunks=CHUNKS, compressors=LZ4(), version="0.4", levels=0, device="cpu"
    )


def with_levels(cuda: Any, folder: Path) -> None:  # noqa: F811
    """Build the levels of an image."""
    stored(folder)
    image = gzarr.images.open_image(folder, "r+", device=backend(cuda))
    gzarr.images.build_pyramid(image, levels=2, max_nbytes=MAX_NBYTES, overwrite=True)
    check_levels(folder)


def with_levels_of_what_is_being_made(cuda: Any, folder: Path) -> None:  # noqa: F811
    """Create an image of an array that the caller is still computing on a stream, and change that afterwards."""
    cupy, made = cuda.cupy, cuda.cupy.asarray(DATA)
    value = cupy.empty(DATA.shape, DATA.dtype)
    cupy.cuda.Stream.null.synchronize()
    with cupy.cuda.Stream(non_blocking=True):
        value[:] = made
        gzarr.images.create_image(
            folder,
            data=value,
            axes="yx",
            chunks=CHUNKS,
            compressors=LZ4(),
            version="0.4",
            levels=2,
            max_nbytes=MAX_NBYTES,
            device=backend(cuda),
        )
        value.fill(0)
    check_levels(folder)


def filtered(cuda: Any, folder: Path) -> None:  # noqa: F811
    """Filter an image, with the levels of the result."""
    source = stored(folder / "source").to(backend(cuda))
    target = gzarr.images.map_overlap(plus_neighbour, source, folder / "target", depth=2, levels=1, max_nbytes=55_000)
    wanted = DATA + np.pad(DATA, 1, mode="symmetric")[:-2, 1:-1]
    np.testing.assert_array_equal(target.levels[0].to("cpu")[...], wanted)
    above = np.empty([-(-n // 2) for n in wanted.shape], wanted.dtype)
    reduce_by_numpy(wanted, (2, 2), "mean", above)
    np.testing.assert_array_equal(target.levels[1].to("cpu")[...], above)


def plus_neighbour(block: Any) -> Any:
    """A filter whose result is in memory of its own."""
    result = block.copy()
    result[1:] = block[1:] + block[:-1]
    return result


def check_levels(folder: Path) -> None:
    image = gzarr.images.open_image(folder, device="cpu")
    for level, wanted in zip(image.levels, halved(2), strict=True):
        np.testing.assert_array_equal(level[...], wanted)


WAYS: dict[str, Callable[[Any, Path], None]] = {
    "levels": with_levels,
    "levels of what is being made": with_levels_of_what_is_being_made,
    "filter": filtered,
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("way", WAYS)
def test_levels_are_right_in_any_order_of_streams(cuda, tmp_path, way, seed) -> None:  # noqa: F811
    with schedule(seed):
        WAYS[way](cuda, tmp_path)


@pytest.mark.parametrize(
    ("module", "way"),
    [
        ("gzarr.images.gathered", "levels"),
        ("gzarr.images.tasks", "levels of what is being made"),
        ("gzarr.images.tasks", "filter"),
    ],
)
def test_a_missing_wait_is_seen(cuda, tmp_path, module, way) -> None:  # noqa: F811
    numbers = iter(range(100))
    with without(GpuBackend, "wait", module):
        assert is_seen(lambda: WAYS[way](cuda, tmp_path / str(next(numbers))))


class Streams(list[Any]):
    """Streams of tasks: who asks in virtual time finds the one that is idle first."""

    def pop(self, index: Any = None) -> Any:
        self.sort(key=lambda stream: -stream.queue.end)
        return super().pop()


def seconds(cuda: Any, folder: Path, n: int) -> Any:  # noqa: F811
    """The virtual clock of a build with so many units at once."""
    data = np.random.default_rng(0).integers(0, 2**16, (1024, 1024), np.uint16)
    options = {"axes": "yx", "chunks": (128, 128), "compressors": LZ4(), "version": "0.4", "device": "cpu"}
    gzarr.images.create_image(folder, data=data, levels=0, overwrite=True, **options)
    device = GpuBackend(cuda.CudaDevice(), reader=TimedReader(), small_reads=NEVER, small_writes=NEVER)
    device._pipeline_slots._streams = Streams(device._device.new_stream() for _ in range(3))
    image = gzarr.images.open_image(folder, "r+", device=device)
    for _ in range(2):  # the first one pins memory
        with at_once(n) as time, schedule(None):
            image = gzarr.images.build_pyramid(image, levels=1, max_nbytes=4 << 20, overwrite=True)
    return time


def test_reading_computing_and_writing_overlap(cuda, tmp_path) -> None:  # noqa: F811
    """Less than they could: the double carries out one task after the other, so a slot may do later work first."""
    one, three = seconds(cuda, tmp_path / "one", 1), seconds(cuda, tmp_path / "three", 3)
    assert three.busy == pytest.approx(one.busy, rel=0.01)
    assert three.elapsed < 0.9 * one.elapsed
