"""Streams are ordered by events alone: results are right in every order of work that events allow, wrong without one.

The driver carries out work in an order that chance chooses among these. Loaders and images have their own tests of what
is right (`tests/gpu/hardware`); here they do without some event.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numcodecs import LZ4, Blosc, Zlib

import gzarr
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.pipeline.batches import NEVER, Crossover
from gzarr.storage import LocalStore, MemoryStore
from tests.gpu.driver import driver
from tests.gpu.driver.driver import schedule
from tests.gpu.hardware import test_hardware_images as images
from tests.gpu.hardware import test_hardware_loader as loaders

pytestmark = pytest.mark.usefixtures("new_streams")
DATA = np.cumsum(np.random.default_rng(0).integers(0, 9, (256, 64)), axis=0).astype("i4")
SEEDS = (None, 0)
#: An order in which something goes wrong is found with one of these. None: nothing is done that is not waited for.
MANY_SEEDS = (None, *range(12))
CHAINS: dict[str, dict[str, Any]] = {
    "raw": {"compressor": None},
    "raw, sharded": {"compressor": None, "shards": (64, 64)},
    "lz4": {"compressor": LZ4(), "zarr_format": 2},
    "blosc": {"compressor": Blosc("lz4", 5, Blosc.SHUFFLE), "zarr_format": 2},
    "zlib": {"compressor": Zlib(), "zarr_format": 2},
    "zlib, straight into the result": {"compressor": Zlib(), "zarr_format": 2, "chunks": (16, 64)},
}
#: Small enough that an array takes several batches; encoders take more.
CAP_NBYTES = {"raw": 100_000, "raw, sharded": 100_000}
#: Reads and writes of as much are decoded and encoded on the host.
ALL_ON_HOST = Crossover(nchunks=1000, nbytes=1 << 20)


def opened(cuda: Any, where: Path | None, chain: str = "raw", **options: Any) -> gzarr.Array:
    """An array on the double, filled. where: a folder, or None for memory."""
    store = MemoryStore() if where is None else LocalStore(where)
    gzarr.create_array(store, data=DATA, device="cpu", overwrite=True, **{"chunks": (16, 32), **CHAINS[chain]})
    options = {
        "small_reads": NEVER,
        "small_writes": NEVER,
        "max_device_nbytes": CAP_NBYTES.get(chain, 2_000_000),
    } | options
    return gzarr.open_array(store, mode="r+", device=GpuBackend(cuda.CudaDevice(), **options))


def directly(array: gzarr.Array) -> gzarr.Array:
    """The array, whose small files are read by KvikIO too."""
    array.backend._reader._min_file_nbytes = 0
    return array


def on_stream(cuda: Any, array: gzarr.Array) -> None:
    """Read into an array that the caller is still filling on a stream, overwrite it there, and read it again."""
    cupy = cuda.cupy
    stream = cupy.cuda.Stream(non_blocking=True)
    out = cupy.empty(DATA.shape, "i4")
    first = cupy.empty(DATA.shape, "i4")
    cupy.cuda.Stream.null.synchronize()
    with stream:
        out.fill(7)
        array.get_basic_selection(out=out)
        first[:] = out
        out.fill(8)
        array.get_basic_selection(np.s_[16:48], out=out[16:48])
        np.testing.assert_array_equal(first.get(), DATA)
        np.testing.assert_array_equal(out[16:48].get(), DATA[16:48])
        assert (out[:16].get() == 8).all()


def written_from_stream(cuda: Any, array: gzarr.Array) -> None:
    """Write what the caller is still computing on a stream, changed as soon as the write has returned."""
    cupy = cuda.cupy
    stream = cupy.cuda.Stream(non_blocking=True)
    value = cupy.empty((80, 64), "i4")
    cupy.cuda.Stream.null.synchronize()
    with stream:
        value.fill(5)
        array[10:90] = value
        value.fill(6)
        found = array[:].get()
    assert (found[10:90] == 5).all()
    np.testing.assert_array_equal(found[90:], DATA[90:])


def in_pieces(cuda: Any, array: gzarr.Array) -> None:
    """Read pieces without looking at them before all have been read."""
    found = [array[row : row + 9, ::-1] for row in range(0, 119, 7)]
    for row, piece in zip(range(112, -7, -7), reversed(found), strict=True):  # no wait for others comes before the last
        np.testing.assert_array_equal(piece.get(), DATA[row : row + 9, ::-1])


def handed_over(cuda: Any, array: gzarr.Array) -> None:
    """Fill two batches in turns on a stream of its own, each of which the caller computes with on another one."""
    cupy, backend = cuda.cupy, array.backend
    stream = cupy.cuda.Stream(non_blocking=True)
    results, returned = [], [None, None]
    slots = np.arange(0, 255, 5)
    with backend.own_stream():
        pool, *batches = (backend.empty((n, 64), np.dtype("i4")) for n in (256, slots.size, slots.size))
    for number in range(6):
        out = batches[number % 2]
        with backend.own_stream():
            array.get_basic_selection(out=pool)
            backend.wait(returned[number % 2])
            backend.take(pool, slots + number % 3 % 2, out)
            ready = backend.record()
        with stream:
            backend.wait(ready)
            results.append(cupy.empty(out.shape, "i4"))
            results[-1][:] = out
            callers = backend.current_stream()
        returned[number % 2] = backend.record(callers)
    stream.synchronize()
    for number, result in enumerate(results):
        np.testing.assert_array_equal(result.get(), DATA[slots + number % 3 % 2])


USES = (on_stream, written_from_stream, in_pieces)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("how", ["memory", "files", "directly", "decoded on the host"])
@pytest.mark.parametrize("chain", CHAINS)
def test_results_are_right_in_any_order_of_streams(cuda, tmp_path, chain, how, seed) -> None:
    options: dict[str, Any] = {"reader": "kvikio" if how == "directly" else "host"}
    if how == "decoded on the host":
        options |= {"small_reads": ALL_ON_HOST, "small_writes": ALL_ON_HOST}
    with schedule(seed):
        for use in USES:
            array = opened(cuda, None if how == "memory" else tmp_path / use.__name__, chain, **options)
            use(cuda, directly(array) if how == "directly" else array)


def is_seen(use: Callable[[], None]) -> bool:
    """Whether some order of work gives a wrong result, or one that the driver objects to."""
    for seed in MANY_SEEDS:
        with schedule(seed):
            try:
                use()
            except AssertionError:
                driver.faults()
                return True
            if driver.faults():
                return True
    return False


@contextmanager
def without(kind: type, name: str, module: str) -> Iterator[None]:
    """A context in which what a module calls does nothing."""
    real = getattr(kind, name)

    def call(*args: Any) -> Any:
        return None if sys._getframe(1).f_globals["__name__"] == module else real(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, name, call)
        yield


@pytest.mark.parametrize("use", USES[:2])
def test_pipeline_slots_that_wait_for_nothing_are_seen(cuda, use) -> None:
    with without(cuda.CudaDevice, "wait", "gzarr.gpu.device.pipeline_slots"):
        assert is_seen(lambda: use(cuda, opened(cuda, None)))
    assert not is_seen(lambda: use(cuda, opened(cuda, None)))


def test_callers_that_wait_for_no_pipeline_slot_are_seen(cuda) -> None:
    """What the host decodes is uploaded without a wait: only an event tells the caller's stream."""
    with without(cuda.CudaDevice, "wait", "gzarr.gpu.device.pipeline_slots"):
        assert is_seen(lambda: in_pieces(cuda, opened(cuda, None, small_reads=ALL_ON_HOST)))


@pytest.mark.parametrize("seed", MANY_SEEDS)
def test_batches_are_handed_over_in_any_order_of_streams(cuda, seed) -> None:
    with schedule(seed):
        handed_over(cuda, opened(cuda, None))


@pytest.mark.parametrize("dtype", ["i4", "f8"])
def test_nobody_waits_until_rows_are_taken(cuda, dtype) -> None:
    backend = GpuBackend(cuda.CudaDevice())
    with schedule(None), backend.own_stream():
        pool, out = backend.empty((9, 5), np.dtype("i4")), backend.empty((4, 5), np.dtype(dtype))
        pool.set(np.arange(45, dtype="i4").reshape(9, 5))
        stream: Any = backend.current_stream()
        stream.synchronize()
        backend.take(pool, np.array([7, 0, 0, 3]), out)
        mark: Any = backend.record()
        assert not mark.done
        np.testing.assert_array_equal(out.get(), np.arange(45).reshape(9, 5)[[7, 0, 0, 3]])
        assert mark.done


def test_batches_that_are_handed_over_without_a_wait_are_seen(cuda) -> None:
    with without(cuda.CudaDevice, "wait", "gzarr.gpu.backend"):
        assert is_seen(lambda: handed_over(cuda, opened(cuda, None)))


def dropped_batches(cuda: Any, folder: Path) -> None:
    loaders.test_batches_hold_while_a_busy_stream_has_yet_to_read_them(cuda, folder / "whole", "pool")
    loaders.test_an_iteration_may_end_early_while_its_batches_are_read(cuda, folder / "part")


#: Modules that wait, and what is wrong without it.
WAITS: list[tuple[str, Callable[[Any, Path], None]]] = [
    *((f"gzarr.{module}", dropped_batches) for module in ("loader.leases", "loader.loader", "backend")),
    ("gzarr.images.gathered", lambda cuda, folder: images.test_levels_are_those_of_the_cpu(cuda, folder, None)),
    ("gzarr.images.tasks", images.test_an_image_is_made_of_what_is_still_being_computed),
]


@pytest.mark.parametrize(("module", "use"), WAITS)
def test_a_missing_wait_is_seen(cuda, tmp_path, module, use) -> None:
    numbers = iter(range(100))
    with without(GpuBackend, "wait", module):
        assert is_seen(lambda: use(cuda, tmp_path / str(next(numbers))))
