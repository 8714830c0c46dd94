"""Batches of a loader on CUDA are right by NumPy, also while later ones come into memory of those that were dropped."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import gzarr
from gzarr.codecs import BloscCodec, Crc32cCodec, ZstdCodec
from gzarr.gpu.backend import GpuBackend
from gzarr.storage import LocalStore
from tests.gpu.hardware.opening import cuda_backend, is_software

pytestmark = pytest.mark.gpu

BATCH, SEED = 16, 3
IMAGES = np.random.default_rng(0).integers(0, 255, (160, 30, 33), np.uint8)
CUBE = np.random.default_rng(1).integers(0, 9999, (70, 50, 40)).astype("u2")
LABELS = np.arange(len(IMAGES), dtype="i4")
COMPRESSORS = {"lz4": [BloscCodec("lz4", 5, "shuffle")], "zstd": [ZstdCodec(1), Crc32cCodec()]}
#: Extents of a crop, and steps of a window.
CROP, STEPS = (16, 20, 12), 3
#: What the caller's stream copies before it reads a batch: some milliseconds of work, in which later batches come.
BUSY_NBYTES, BUSY_TIMES = 1 << 28, 20

Batch = dict[str, Any]


class Way(NamedTuple):
    """What is loaded and how: arrays by name with their chunks (None: an array of NumPy), codec, options, values."""

    arrays: dict[str, tuple[np.ndarray, tuple[int, ...] | None]]
    codec: str
    options: dict[str, Any]
    wanted: Callable[[gzarr.Loader, np.ndarray], Batch]


def rows(_: gzarr.Loader, ids: np.ndarray) -> Batch:
    return {"image": IMAGES[ids].astype("f4")}


def labelled(_: gzarr.Loader, ids: np.ndarray) -> Batch:
    return {"image": IMAGES[ids].astype("f8"), "label": LABELS[ids]}


def windows(_: gzarr.Loader, ids: np.ndarray) -> Batch:
    return {"image": IMAGES[ids[:, None] + np.arange(STEPS)]}


def crops(loader: gzarr.Loader, ids: np.ndarray) -> Batch:
    starts = loader._setup.samples.at(SEED, 0).boxes(ids, 3).tolist()
    return {"cube": np.stack([CUBE[tuple(slice(s, s + n) for s, n in zip(at, CROP, strict=True))] for at in starts])}


WAYS = {
    "pool": Way(
        {"image": (IMAGES, (16, 30, 33))}, "zstd", {"shuffle": "exact", "memory": 150_000, "dtype": "f4"}, rows
    ),
    "blocks": Way(
        {"image": (IMAGES, (4, 30, 33))},
        "lz4",
        {"shuffle": "blocks", "block_chunks": 6, "memory": "600 %", "dtype": "f4"},
        rows,
    ),
    "direct": Way(
        {"image": (IMAGES, (1, 30, 33)), "label": (LABELS, None)},
        "lz4",
        {"shuffle": "exact", "memory": "600 %", "dtype": {"image": "f8"}},
        labelled,
    ),
    "windows": Way(
        {"image": (IMAGES, (8, 30, 33))},
        "zstd",
        {"window": gzarr.Window(STEPS), "shuffle": True, "memory": "600 %"},
        windows,
    ),
    "crops": Way({"cube": (CUBE, (16, 16, 16))}, "lz4", {"crops": gzarr.Crops(CROP, n=100), "memory": "60 %"}, crops),
}


def loader_on(cuda: Any, folder: Path, way: Way, **more: Any) -> gzarr.Loader:
    """A loader of stored arrays, all of whose chunks are decoded on the device."""
    backend, opened = cuda_backend(cuda), {}
    for name, (data, chunks) in way.arrays.items():
        opened[name] = data if chunks is None else opened_on(backend, LocalStore(folder / name), way, data, chunks)
    return gzarr.Loader(opened, BATCH, seed=SEED, device=backend, **way.options, **more)


def opened_on(backend: GpuBackend, store: Any, way: Way, data: np.ndarray, chunks: tuple[int, ...]) -> gzarr.Array:
    gzarr.create_array(store, data=data, chunks=chunks, compressors=COMPRESSORS[way.codec], device="cpu")
    return gzarr.open_array(store, mode="r", device=backend)


def wanted_of(loader: gzarr.Loader, way: Way) -> list[Batch]:
    """The batches of the first epoch, by NumPy."""
    loader.set_epoch(0)
    return [way.wanted(loader, loader.batch_ids(step)) for step in range(len(loader))]


def copied(cupy: Any, batch: Batch) -> Batch:
    """Submit copies of a batch to the current stream. The batch is not kept: a device knows addresses only."""
    copies = {}
    for name, array in batch.items():
        copies[name] = cupy.empty(array.shape, array.dtype)
        copies[name].data.copy_from_device_async(array.data, array.nbytes)
    return copies


def flipped(chunk: Any) -> bytes:
    """A chunk whose checksum, its last bytes, is another one."""
    return bytes(chunk[:-1]) + bytes([chunk[-1] ^ 1])


def check(found: list[Batch], expected: list[Batch]) -> None:
    assert len(found) == len(expected)
    for batch, whole in zip(found, expected, strict=True):
        assert set(batch) == set(whole)
        for name, values in whole.items():
            assert batch[name].dtype == values.dtype
            np.testing.assert_array_equal(batch[name].get(), values)


@pytest.mark.parametrize("name", WAYS)
def test_epochs_are_those_of_numpy(cuda: Any, tmp_path: Path, name: str) -> None:
    """All batches of an epoch are kept: none shares memory with another one."""
    loader = loader_on(cuda, tmp_path, WAYS[name])
    mode = "pool" if name in ("pool", "blocks") else "direct"
    assert [room.mode for room in loader._setup.rooms.values()] == [mode]
    expected = wanted_of(loader, WAYS[name])
    found = list(loader)
    assert all(isinstance(array, cuda.cupy.ndarray) for batch in found for array in batch.values())
    check(found, expected)
    assert loader.stats().samples == sum(len(next(iter(batch.values()))) for batch in expected)


@pytest.mark.parametrize("name", WAYS)
def test_batches_hold_while_a_busy_stream_has_yet_to_read_them(cuda: Any, tmp_path: Path, name: str) -> None:
    """The caller drops each batch when its stream has only been told to read it, and the memory is used again."""
    cupy, loader = cuda.cupy, loader_on(cuda, tmp_path, WAYS[name])
    expected = wanted_of(loader, WAYS[name])
    nbytes = 1 << 12 if is_software(cuda) else BUSY_NBYTES
    one, other = cupy.zeros(nbytes, "u1"), cupy.zeros(nbytes, "u1")
    cupy.cuda.get_current_stream().synchronize()
    found, addresses = [], []
    with cupy.cuda.Stream(non_blocking=True) as stream:
        for epoch in (0, 0):
            loader.set_epoch(epoch)
            for batch in loader:
                for _ in range(BUSY_TIMES):
                    other.data.copy_from_device_async(one.data, nbytes)
                found.append(copied(cupy, batch))
                addresses.append(next(iter(batch.values())).data.ptr)
                del batch
        loader.close()
        stream.synchronize()
    check(found, [*expected, *expected])
    assert name != "pool" or len(set(addresses)) < len(expected)


def test_batches_of_the_host_are_uploaded_ahead(cuda: Any) -> None:
    cupy, backend = cuda.cupy, cuda_backend(cuda)
    array = gzarr.array(IMAGES, chunks=(16, 30, 33), device="cpu")
    host = gzarr.Loader(array, BATCH, shuffle=True, transform=np.negative)
    expected, found = [{"": batch.copy()} for batch in host], []
    host.set_epoch(0)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        for batch in host.prefetch_to(backend):  # type: ignore[arg-type]
            one = cupy.zeros(1 << 12, "u1")
            for _ in range(BUSY_TIMES):
                cupy.zeros(1 << 12, "u1").data.copy_from_device_async(one.data, 1 << 12)
            found.append(copied(cupy, {"": batch}))
            del batch
        stream.synchronize()
    check(found, expected)


def test_an_iteration_may_end_early_while_its_batches_are_read(cuda: Any, tmp_path: Path) -> None:
    cupy, way = cuda.cupy, WAYS["pool"]
    loader = loader_on(cuda, tmp_path, way)
    expected = wanted_of(loader, way)[:2]
    with cupy.cuda.Stream(non_blocking=True) as stream:
        for _ in range(5):
            found = [copied(cupy, batch) for batch, _ in zip(loader, expected, strict=False)]
            loader.close()
            loader.set_epoch(0)
            others = cupy.zeros(1 << (12 if is_software(cuda) else 20), "u1")  # of memory that may have been a batch's
            stream.synchronize()
            check(found, expected)
            assert not others.any()


def test_a_transform_runs_on_the_device(cuda: Any, tmp_path: Path) -> None:
    def doubled(batch: Batch) -> Batch:
        return {name: array + array for name, array in batch.items()}

    way = WAYS["pool"]
    loader = loader_on(cuda, tmp_path, way, transform=doubled)
    expected = [doubled(batch) for batch in wanted_of(loader, way)]
    with cuda.cupy.cuda.Stream(non_blocking=True) as stream:
        found = list(loader)
        stream.synchronize()
    check(found, expected)


def test_samples_of_damaged_chunks_are_left_out(cuda: Any, tmp_path: Path) -> None:
    """A checksum behind the compressor tells of the damage: no decoder of the device gets damaged bytes."""
    way = WAYS["pool"]
    loader = loader_on(cuda, tmp_path, way, on_error="skip")
    store = LocalStore(tmp_path / "image")
    store["c/3/0/0"] = flipped(store["c/3/0/0"])
    damaged = range(3 * 16, 4 * 16)
    ids = [loader.batch_ids(step) for step in range(len(loader))]
    expected = [rows(loader, some[~np.isin(some, damaged)]) for some in ids]
    check(list(loader), [batch for batch in expected if len(batch["image"])])
    assert loader.stats().skipped == len(damaged)


def test_a_damaged_chunk_is_named_and_the_next_epoch_is_right(cuda: Any, tmp_path: Path) -> None:
    way = WAYS["pool"]
    loader = loader_on(cuda, tmp_path, way)
    store = LocalStore(tmp_path / "image")
    good = store["c/3/0/0"]
    store["c/3/0/0"] = flipped(good)
    with pytest.raises(gzarr.ChunkError, match="c/3/0/0"):
        list(loader)
    store["c/3/0/0"] = good
    expected = wanted_of(loader, way)
    check(list(loader), expected)


def test_views_by_dlpack_keep_the_memory_of_a_batch(cuda: Any, tmp_path: Path) -> None:
    way = WAYS["blocks"]
    loader = loader_on(cuda, tmp_path, way)
    expected = wanted_of(loader, way)
    views = [{name: cuda.cupy.from_dlpack(array) for name, array in batch.items()} for batch in loader]
    check(views, expected)


def test_tensors_of_torch_are_right_and_keep_the_memory_of_a_batch(cuda: Any, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA")
    tensors_of = import_module("gzarr.interop.torch").tensors
    way = WAYS["direct"]
    loader = loader_on(cuda, tmp_path, way)
    expected = wanted_of(loader, way)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), cuda.CudaDevice().as_stream(stream.cuda_stream):
        tensors = [tensors_of(batch) for batch in loader]
        sums = [float(batch["image"].sum()) for batch in tensors]
    assert sums == [float(batch["image"].sum()) for batch in expected]
    for batch, whole in zip(tensors, expected, strict=True):
        for name, values in whole.items():
            assert batch[name].is_cuda
            np.testing.assert_array_equal(batch[name].cpu().numpy(), values)


def test_a_profile_sees_what_a_loader_reads(cuda: Any, tmp_path: Path) -> None:
    loader = loader_on(cuda, tmp_path, WAYS["pool"])
    with gzarr.profile() as p:
        list(loader)
    for name in ("upload", "decode", "place"):
        assert any(row.stage == name and row.thread.startswith("cuda:0, ") for row in p.timeline)
        assert (p.stages[name].device_seconds or 0) > 0


def test_crops_of_arrays_in_memory_are_cast_bit_for_bit(cuda: Any) -> None:
    """Subnormal numbers and NaNs, of which CuPy makes others; numbers that become infinite, without a warning."""
    bits = np.random.default_rng(0).integers(0, 2**32, (20, 10, 10), np.uint32)
    bits[::2] &= 0x807FFFFF  # subnormal
    bits[1::4] |= 0x7F800000  # not a number
    large = np.random.default_rng(1).normal(size=bits.shape) * 1e38
    options: dict[str, Any] = {"crops": gzarr.Crops((4, 5, 6), n=20)}
    for values, dtype in ((bits.view("f4"), "f8"), (large, "f4")):
        backends = (cuda_backend(cuda), "cpu", "emulated")
        loaders = [gzarr.Loader(values, 8, dtype=dtype, device=backend, **options) for backend in backends]
        for found, wanted, emulated in zip(*loaders, strict=True):
            assert found.get().tobytes() == wanted.tobytes() == emulated.tobytes()


def test_a_window_with_a_damaged_chunk_is_left_out(cuda: Any, tmp_path: Path) -> None:
    way = WAYS["windows"]
    loader = loader_on(cuda, tmp_path, way, on_error="skip")
    store = LocalStore(tmp_path / "image")
    store["c/3/0/0"] = flipped(store["c/3/0/0"])
    loader.set_epoch(0)
    good = [ids[(ids + STEPS <= 24) | (ids >= 32)] for ids in map(loader.batch_ids, range(len(loader)))]
    check(list(loader), [windows(loader, ids) for ids in good if ids.size])


def test_samples_are_uploaded_out_of_memory_that_ranks_share(cuda: Any, tmp_path: Path) -> None:
    options: dict[str, Any] = {"share": "node", "rank": 0, "world_size": 1}
    loader = loader_on(cuda, tmp_path, WAYS["pool"], **options)
    expected = wanted_of(loader, WAYS["pool"])
    check(list(loader), expected)
    memory = loader._setup.reused[None]
    assert memory.mapped("image", loader._setup.backend).data.ptr == memory.arrays["image"].ctypes.data
