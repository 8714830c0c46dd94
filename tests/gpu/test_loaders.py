"""Batches on a device are right in any order of the streams that make and use them, and none is read too early or late.

The double of CuPy carries out work in an order that chance chooses among those that events allow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.detection.thresholds import NEVER
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.hostbuild import find_compiler
from gzarr.storage import LocalStore
from tests.gpu.device.test_cuda import cuda  # noqa: F401 - a fixture
from tests.gpu.fake_cupy.streams import schedule
from tests.gpu.test_races import is_seen, without

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")

SEEDS = range(3)
IMAGES = np.random.default_rng(0).integers(0, 255, (96, 8, 9), np.uint8)
CUBE = np.random.default_rng(1).integers(0, 9999, (30, 20, 10)).astype("u2")
LABELS = np.arange(96, dtype="i4")
#: Arrays by name with their chunks, and what else a loader is told: memory is too little to keep the arrays whole.
WAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "pool": ({"image": (IMAGES, (8, 8, 9))}, {"shuffle": "exact", "memory": 9000, "dtype": "f4"}),
    "blocks": (
        {"image": (IMAGES, (4, 8, 9))},
        {"shuffle": "blocks", "block_chunks": 3, "memory": "600 %", "dtype": "f4"},
    ),
    "direct": (
        {"image": (IMAGES, (1, 8, 9)), "label": (LABELS, None)},
        {"shuffle": "exact", "memory": "600 %", "dtype": {"image": "f8"}},
    ),
    "windows": ({"image": (IMAGES, (8, 8, 9))}, {"window": gzarr.Window(3), "shuffle": True, "memory": "600 %"}),
    "crops": ({"cube": (CUBE, (8, 8, 8))}, {"crops": gzarr.Crops((6, 7, 5), n=60), "memory": "60 %"}),
}
#: How the array that is read gets into batches.
MODES = {"pool": "pool", "blocks": "pool", "direct": "direct", "windows": "direct", "crops": "direct"}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, tmp_path: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    arrays, options = WAYS[request.param]
    for name, (data, chunks) in arrays.items():
        if chunks is not None:
            gzarr.create_array(LocalStore(tmp_path / name), data=data, chunks=chunks, device="cpu")
    way = {name: tmp_path / name if chunks is not None else data for name, (data, chunks) in arrays.items()}, options
    rooms = loader_of(way, "cpu")._setup.rooms
    assert [room.mode for room in rooms.values()] == [MODES[request.param]]
    return way


def loader_of(way: tuple[dict[str, Any], dict[str, Any]], backend: Any, **more: Any) -> gzarr.Loader:
    arrays, options = way
    opened = {
        name: where if isinstance(where, np.ndarray) else gzarr.open_array(LocalStore(where), mode="r", device=backend)
        for name, where in arrays.items()
    }
    return gzarr.Loader(opened, 8, seed=3, **options, **more)


def wanted(way: tuple[dict[str, Any], dict[str, Any]]) -> list[dict[str, np.ndarray]]:
    return [{name: np.array(array) for name, array in batch.items()} for batch in loader_of(way, "cpu")]


def used(cupy: Any, batch: dict[str, Any]) -> dict[str, Any]:
    """Submit work that reads a batch, and that does not keep it: all that a device knows is addresses."""
    results = {}
    for name, array in batch.items():
        results[name] = cupy.empty(array.shape, array.dtype)
        results[name].data.copy_from_device_async(array.data, array.nbytes)
    return results


def cuda_backend(cuda: Any) -> GpuBackend:  # noqa: F811
    return GpuBackend(cuda.CudaDevice(), small_reads=NEVER, max_device_nbytes=3_000_000)


def train(cuda: Any, way: Any, expected: list[dict[str, np.ndarray]], **more: Any) -> None:  # noqa: F811
    """Go through an epoch and a part of another one on a stream of the caller."""
    cupy, loader = cuda.cupy, loader_of(way, cuda_backend(cuda), **more)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        found = [used(cupy, batch) for batch in loader]
        loader.set_epoch(0)
        for number, batch in enumerate(loader):
            found.append(used(cupy, batch))
            if number == 2:
                break
        loader.close()
        del batch
        other = cupy.empty((200, 200), "u1")
        other.fill(1)
        kept = used(cupy, {"": other})[""]
    stream.synchronize()
    assert (kept.get() == 1).all()
    assert len(found) == len(expected) + 3
    for batch, whole in zip(found, [*expected, *expected[:3]], strict=True):
        for name, array in whole.items():
            np.testing.assert_array_equal(batch[name].get(), array)


@pytest.mark.parametrize("seed", SEEDS)
def test_batches_are_right_in_any_order_of_streams(cuda, way, seed) -> None:  # noqa: F811
    expected = wanted(way)
    with schedule(seed):
        train(cuda, way, expected)


def test_the_emulated_device_gives_the_same_batches(way) -> None:
    backend = GpuBackend(EmulatedDevice(), small_reads=NEVER)
    for batch, whole in zip(loader_of(way, backend), wanted(way), strict=True):
        assert {name: array.tobytes() for name, array in batch.items()} == {
            name: array.tobytes() for name, array in whole.items()
        }


@pytest.mark.parametrize("module", ["gzarr.loader.leases", "gzarr.loader.loader", "gzarr.backend"])
def test_a_missing_wait_is_seen(cuda, tmp_path, module) -> None:  # noqa: F811
    gzarr.create_array(LocalStore(tmp_path / "image"), data=IMAGES, chunks=(8, 8, 9), device="cpu")
    way = {"image": tmp_path / "image"}, WAYS["pool"][1]
    expected = wanted(way)
    with without(GpuBackend, "wait", module):
        assert is_seen(lambda: train(cuda, way, expected))


def doubled(batch: dict[str, Any]) -> dict[str, Any]:
    """A transform whose results are in memory of their own."""
    return {name: array + array for name, array in batch.items()}


@pytest.mark.parametrize("seed", SEEDS)
def test_results_of_a_transform_are_the_caller_s(cuda, tmp_path, seed) -> None:  # noqa: F811
    gzarr.create_array(LocalStore(tmp_path / "image"), data=IMAGES, chunks=(8, 8, 9), device="cpu")
    way = {"image": tmp_path / "image"}, WAYS["pool"][1]
    expected = [doubled(batch) for batch in wanted(way)]
    with schedule(seed):
        train(cuda, way, expected, transform=doubled)


def test_crops_of_arrays_in_memory_are_cast_bit_for_bit(cuda) -> None:  # noqa: F811
    """Subnormal numbers and NaNs, of which CuPy makes others; numbers that become infinite, without a warning."""
    bits = np.random.default_rng(0).integers(0, 2**32, (20, 10, 10), np.uint32)
    bits[::2] &= 0x807FFFFF  # subnormal
    bits[1::4] |= 0x7F800000  # not a number
    large = np.random.default_rng(1).normal(size=bits.shape) * 1e38
    crops = gzarr.Crops((4, 5, 6), n=20)
    for values, dtype in ((bits.view("f4"), "f8"), (large, "f4")):
        backends = ("cpu", cuda_backend(cuda), GpuBackend(EmulatedDevice(), small_reads=NEVER))
        loaders = [gzarr.Loader(values, 8, crops=crops, dtype=dtype, device=backend) for backend in backends]
        for wanted, on_cuda, emulated in zip(*loaders, strict=True):
            assert on_cuda.get().tobytes() == wanted.tobytes() == emulated.tobytes()


def test_samples_of_damaged_chunks_are_left_out(cuda, tmp_path) -> None:  # noqa: F811
    store = LocalStore(tmp_path / "image")
    gzarr.create_array(store, data=IMAGES, chunks=(8, 8, 9), device="cpu")
    store["c/3/0/0"] = b"damaged"
    for options in ({"shuffle": "exact"}, {"shuffle": False, "window": gzarr.Window(2)}):
        way = {"image": tmp_path / "image"}, options
        expected = [{"image": np.array(batch["image"])} for batch in loader_of(way, "cpu", on_error="skip")]
        for seed in SEEDS:
            with schedule(seed):
                train(cuda, way, expected, on_error="skip")
