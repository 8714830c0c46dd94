"""Writes from a CUDA device: what is stored is what NumPy says, in order, under the cap, and nothing leaks."""

from typing import Any

import numpy as np
import pytest
from numcodecs import BZ2, Zstd

import gzarr
from gzarr.gpu.pipeline.batches import NEVER
from gzarr.testing import transfers
from tests.gpu.hardware.opening import cuda_backend
from tests.gpu.hardware.test_hardware_device import pool_of
from tests.gpu.pipeline.test_write import DATA, OF_RECORDS, RECORD, write_fields, write_parts
from tests.support.threads import side_by_side

pytestmark = pytest.mark.gpu

VALUES = np.random.default_rng(1).integers(0, 1000, (512, 256)).astype("i4")
CHAINS: dict[str, dict[str, Any]] = {
    "none": {"compressors": None},
    "zstd": {"compressors": gzarr.codecs.ZstdCodec(1)},
    "shards": {"shards": (128, 128)},
    "big endian, transposed": {"zarr_format": 2, "dtype": ">i4", "order": "F"},
    "default": {},
}


def opened_for_writing(cuda: Any, chain: str = "zstd", **options: Any) -> gzarr.Array:
    """An empty array of the values' shape, in memory."""
    keywords = {"shape": VALUES.shape, "chunks": (64, 64), "dtype": "i4", **CHAINS[chain]}
    stored = gzarr.create_array({}, device="cpu", **keywords)
    return gzarr.open_array(stored.store, device=cuda_backend(cuda, **options))


def stored_in(array: gzarr.Array) -> np.ndarray:
    """What the CPU backend reads."""
    return array.to("cpu")[...]


@pytest.mark.parametrize("chain", CHAINS)
def test_device_values_are_stored(cuda: Any, chain: str) -> None:
    array = opened_for_writing(cuda, chain)
    expected = np.zeros_like(VALUES)
    for key in (np.s_[:], np.s_[3:400:7, ::-2], np.s_[100, 5:70], np.s_[..., None, 9]):
        expected[key] = VALUES[key] + 1
        array[key] = cuda.cupy.asarray(expected[key])
        np.testing.assert_array_equal(stored_in(array), expected)
    rows, columns = [500, 3, 3, 77], [8, 255, 0, 8, 9]
    array.oindex[rows, columns] = cuda.cupy.asarray(VALUES[:4, :5])
    expected[np.ix_(rows, columns)] = VALUES[:4, :5]
    array.vindex[[1, 500, 1], [2, 200, 2]] = cuda.cupy.asarray(VALUES[9, :3])
    expected[[1, 500, 1], [2, 200, 2]] = VALUES[9, :3]
    mask = VALUES % 7 == 0
    array[mask] = cuda.cupy.asarray(VALUES[mask])
    expected[mask] = VALUES[mask]
    np.testing.assert_array_equal(stored_in(array), expected)


@pytest.mark.parametrize("options", OF_RECORDS, ids=["none", "blosc", "big", "shards"])
def test_fields_of_records_are_written(cuda: Any, options: dict[str, Any]) -> None:
    fill = np.array((1, -2.5, 3), RECORD)[()]
    stored = gzarr.create_array({}, shape=(41, 30), chunks=(5, 5), dtype=RECORD, fill_value=fill, **options)
    array = gzarr.open_array(stored.store, device=cuda_backend(cuda, small_writes=NEVER))
    with transfers() as counted:
        write_fields(array, cuda.cupy.asarray)
    assert counted.inside.to_host.count < 100  # some for each write, none for each chunk
    records = np.arange(41 * 30).reshape(41, 30).astype(RECORD)
    array[...] = records
    with transfers() as counted:
        fields = [array[name] for name in RECORD.names]
        points = array.get_coordinate_selection(([40, 3, 3], [2, 0, 29]), fields="b")
    assert counted.inside.to_host.nbytes <= 4 * 12 * array.nchunks  # sizes and statuses of streams
    for name, found in zip(RECORD.names, fields, strict=True):
        np.testing.assert_array_equal(found.get(), records[name])
    np.testing.assert_array_equal(points.get(), records["b"][[40, 3, 3], [2, 0, 29]])


@pytest.mark.parametrize("dtype", ["i4", "f4", "f8", "i8", "u1", "?", "f2"])
def test_layouts_and_dtypes_of_device_values(cuda: Any, dtype: str) -> None:
    array = opened_for_writing(cuda)
    values = (VALUES % 100).astype(dtype)
    wide = np.zeros((1024, 768), dtype)
    wide[::2, 1::3] = values
    for given in (
        cuda.cupy.asarray(wide)[::2, 1::3],
        cuda.cupy.asarray(np.ascontiguousarray(values.T)).T,
        cuda.cupy.asarray(np.ascontiguousarray(values[::-1, ::-1]))[::-1, ::-1],
        values,  # on the host
    ):
        array[:] = 1
        array[5:, 3:] = given[5:, 3:]
        expected = np.ones_like(VALUES)
        expected[5:, 3:] = values[5:, 3:]
        np.testing.assert_array_equal(stored_in(array), expected)
    array[:] = cuda.cupy.asarray(values[:1])
    np.testing.assert_array_equal(stored_in(array), np.broadcast_to(values[:1].astype("i4"), VALUES.shape))


@pytest.mark.parametrize(("codec", "dtype"), [(BZ2(1), "i4"), (BZ2(1), "f4"), (Zstd(1), "f8")])
def test_what_the_host_casts_or_encodes_comes_down_at_once(cuda: Any, codec: Any, dtype: str) -> None:
    stored = gzarr.create_array({}, shape=DATA.shape, chunks=(5, 4), dtype="i4", compressor=codec, zarr_format=2)
    with transfers() as counted:
        write_parts(gzarr.open_array(stored.store, device=cuda_backend(cuda)), cuda.cupy.asarray, dtype)
    assert counted.inside.to_host.count < 50  # five writes of up to 121 chunks


def test_what_a_gpu_cannot_hold_takes_the_memory_of_a_part_at_a_time(cuda: Any) -> None:
    stored, at = gzarr.create_array({}, shape=(64, 64), chunks=(8, 8), dtype="M8[s]"), np.arange(1 << 20) % 64
    array = gzarr.open_array(stored.store, device=cuda_backend(cuda, max_device_nbytes=12 << 20))
    array.vindex[at, at] = cuda.cupy.asarray(at)  # of 8 MiB, from 8 chunks
    np.testing.assert_array_equal(stored[...].diagonal().astype(int), np.arange(64))


def test_equal_to_the_fill_value_is_not_stored(cuda: Any) -> None:
    array = opened_for_writing(cuda)
    array[:] = cuda.cupy.asarray(VALUES)
    assert array.nchunks_initialized == array.nchunks
    array[64:] = cuda.cupy.asarray(np.zeros((448, 256), "i4"))
    assert array.nchunks_initialized == 4


def test_values_are_read_in_the_order_of_the_callers_stream(cuda: Any) -> None:
    """A value that is still being made when it is written, and that changes as soon as it has been."""
    array = opened_for_writing(cuda)
    base = cuda.cupy.asarray(VALUES)
    stream = cuda.cupy.cuda.Stream(non_blocking=True)
    with stream:
        for number in range(4):
            value = base + number
            array[:] = value
            value[...] = -1
            np.testing.assert_array_equal(stored_in(array), VALUES + number)
    source = gzarr.array(VALUES, chunks=(50, 100), store={}, device="cpu").to(cuda_backend(cuda))
    for _ in range(4):
        with stream:
            array[:] = source[:]  # which may still be under way
        np.testing.assert_array_equal(stored_in(array), VALUES)
    ordered = opened_for_writing(cuda, stream=stream)
    with stream:
        value = base + 5
    stream.synchronize()
    ordered[3:] = value[3:]
    np.testing.assert_array_equal(stored_in(ordered)[3:], VALUES[3:] + 5)


def test_an_array_on_the_device_is_a_value(cuda: Any) -> None:
    backend = cuda_backend(cuda)
    source = gzarr.array(VALUES, chunks=(50, 100), store={}, device="cpu").to(backend)
    array = gzarr.create_array({}, shape=VALUES.shape, chunks=(64, 64), dtype="i4", device=backend)
    for _ in range(3):
        array[:] = source
        np.testing.assert_array_equal(stored_in(array), VALUES)


def test_the_cap_holds_for_writes(cuda: Any) -> None:
    cap = 1 << 20
    array = opened_for_writing(cuda, max_device_nbytes=cap)
    cuda.cupy.get_default_memory_pool().free_all_blocks()
    value = cuda.cupy.asarray(VALUES)
    with pool_of(cuda.cupy, cap + (64 << 10)) as pool:
        array[:] = value
        array[1:, 1:] = value[1:, 1:]
        assert pool.total_bytes() <= cap + (64 << 10)
    np.testing.assert_array_equal(stored_in(array), VALUES)


def test_writes_leak_nothing(cuda: Any) -> None:
    array = opened_for_writing(cuda)
    value = cuda.cupy.asarray(VALUES)
    with pool_of(cuda.cupy) as pool:
        for _ in range(6):
            array[:] = value
        used = pool.used_bytes()
        for _ in range(10):
            array[:] = value
        assert pool.used_bytes() == used
        array.backend.release()
        assert pool.used_bytes() == 0


def test_threads_write_at_once(cuda: Any) -> None:
    array = opened_for_writing(cuda, "shards", max_device_nbytes=4 << 20)
    value = cuda.cupy.asarray(VALUES)

    def write(number: int) -> None:
        for _ in range(4):
            array[number::4] = value[number::4]

    side_by_side(write, range(4))
    np.testing.assert_array_equal(stored_in(array), VALUES)
