"""What only a CUDA device can show: caps that hold, no leaks, streams in order, nvCOMP's codecs there and back."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numcodecs import LZ4, Blosc, Zstd

import gzarr
from gzarr.codecs import BloscCodec
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device import nvcomp, nvcomp_tables
from gzarr.gpu.reading.select import find_missing_kvikio
from tests.gpu.hardware.opening import cuda_backend, on_cuda
from tests.support.threads import side_by_side

pytestmark = pytest.mark.gpu

DATA = np.random.default_rng(0).integers(0, 1000, (2048, 1024)).astype("i4")
COMPRESSORS = {"blosc": Blosc("lz4", 5, Blosc.SHUFFLE), "zstd": Zstd(3)}


@contextmanager
def pool_of(cupy: Any, limit: int = 0) -> Iterator[Any]:
    """A separate memory pool for all threads, with a limit; allocations beyond it raise."""
    pool = cupy.cuda.MemoryPool()
    pool.set_limit(size=limit)
    before = cupy.cuda.get_allocator()
    cupy.cuda.set_allocator(pool.malloc)
    try:
        yield pool
    finally:
        cupy.cuda.set_allocator(before)


def stored_as(compressor: str) -> gzarr.Array:
    return gzarr.create_array(data=DATA, chunks=(128, 128), compressor=COMPRESSORS[compressor], zarr_format=2)


@pytest.mark.parametrize("compressor", COMPRESSORS)
def test_the_cap_holds(cuda: Any, compressor: str) -> None:
    """Reads take the output and no more than the cap, rounded up to the pool's blocks of 512 bytes.

    Everything counts, temporaries of CuPy's own operations too: a pipeline slot's memory comes from the user's
    allocator.
    """
    cap = 2 << 20
    array = on_cuda(stored_as(compressor), cuda, max_device_nbytes=cap)
    cuda.cupy.get_default_memory_pool().free_all_blocks()
    with pool_of(cuda.cupy, DATA.nbytes + cap + (64 << 10)) as pool:
        found = array[:]
        np.testing.assert_array_equal(found.get(), DATA)
        assert pool.total_bytes() <= DATA.nbytes + cap + (64 << 10)
        del found


@pytest.mark.parametrize("compressor", COMPRESSORS)
def test_nothing_is_leaked(cuda: Any, compressor: str) -> None:
    array = on_cuda(stored_as(compressor), cuda)
    with pool_of(cuda.cupy) as pool:
        for _ in range(10):  # until both pipeline slots have their memory: it is chance which of them gets how much
            array[:]
        used, total = pool.used_bytes(), pool.total_bytes()
        assert used > 0  # of the pipeline slots, whose threads are not this one
        for _ in range(30):
            array[:]
            with pytest.raises(IndexError):
                array[99999]
        assert pool.used_bytes() == used
        assert pool.total_bytes() == total
        array.backend.release()
        assert pool.used_bytes() == 0


def test_results_are_ordered_on_the_callers_stream(cuda: Any) -> None:
    array = on_cuda(stored_as("blosc"), cuda)
    stream = cuda.cupy.cuda.Stream(non_blocking=True)
    for _ in range(20):
        with stream:
            total = array[:][::64].sum(dtype="i8")
            assert int(total) == int(DATA[::64].sum(dtype="i8"))


def test_threads_read_at_once(cuda: Any) -> None:
    array = on_cuda(stored_as("zstd"), cuda)

    def read(number: int) -> None:
        for _ in range(10):
            np.testing.assert_array_equal(array[number::3].get(), DATA[number::3])

    side_by_side(read, range(4))


def test_results_may_be_larger_than_a_batch(cuda: Any) -> None:
    array = on_cuda(stored_as("zstd"), cuda, max_device_nbytes=3 << 20)
    io = array._io
    assert array.backend.batch_nchunks(io.only_chain, array.nchunks, io.chunk_nbytes, writing=False) < array.nchunks
    np.testing.assert_array_equal(array[::2, 5:].get(), DATA[::2, 5:])


def test_small_reads_are_those_of_the_device(cuda: Any) -> None:
    """By default, the host decodes reads of few chunks: same answers, in the device's memory."""
    array = gzarr.open_array(stored_as("zstd").store, mode="r", device=GpuBackend(cuda.CudaDevice()))
    found = array[:130, 3:200:7]
    assert isinstance(found, cuda.cupy.ndarray)
    np.testing.assert_array_equal(found.get(), DATA[:130, 3:200:7])
    points = [1, 2000], [3, 1000]
    np.testing.assert_array_equal(array.vindex[points].get(), DATA[points])


@pytest.mark.parametrize("reader", ["host", "kvikio", "auto"])
@pytest.mark.parametrize("codec", ["none", "lz4", "blosc"])
def test_files(cuda: Any, tmp_path: Path, codec: str, reader: str) -> None:
    """Local files, plain and in shards, through either reader."""
    if reader == "kvikio" and (missing := find_missing_kvikio()) is not None:
        pytest.skip(f"KvikIO cannot be used: {missing}")
    compressors = {"none": [], "lz4": [LZ4()], "blosc": [BloscCodec("lz4", 5, "shuffle")]}[codec]
    for name, shards in (("plain", None), ("sharded", (512, 512))):
        stored = gzarr.create_array(
            tmp_path / name, data=DATA, chunks=(128, 128), shards=shards, compressors=compressors, device="cpu"
        )
        array = on_cuda(stored, cuda, reader=reader)
        read_by = array.backend._reader
        if array.backend.reader.name == "kvikio":
            read_by._min_file_nbytes = 0
        for key in (np.s_[:], np.s_[5:1900:3, ::-2], np.s_[700]):
            np.testing.assert_array_equal(array[key].get(), DATA[key])
        if array.backend.reader.name == "kvikio" and codec != "blosc":
            assert read_by.failure is None or "KvikIO read other bytes" in read_by.note


def test_too_little_memory_is_a_device_error(cuda: Any) -> None:
    array = on_cuda(stored_as("zstd"), cuda)
    with (
        pool_of(cuda.cupy, DATA.nbytes + 4096),
        pytest.raises(gzarr.DeviceError, match=r"(lower|raise) max_device_nbytes"),
    ):
        array[:]
    np.testing.assert_array_equal(array[::3].get(), DATA[::3])


@pytest.mark.parametrize("codec", sorted(nvcomp_tables.CODECS))
def test_nvcomp_there_and_back(cuda: Any, codec: str) -> None:
    """Compressed by nvCOMP, decompressed by nvCOMP: the calls, the options and the tables of every codec."""
    cupy, n, nbytes = cuda.cupy, 40, 1 << 16
    plain = cupy.asarray(np.repeat(np.random.default_rng(0).integers(0, 50, n * nbytes // 8, np.uint8), 8))
    room = -(-nvcomp.compress_max_nbytes(codec, nbytes) // 256) * 256
    packed, sizes = cupy.zeros(n * room, "u1"), cupy.zeros(n, "u8")
    statuses, back = cupy.full(n, -1, "i4"), cupy.zeros(n * nbytes, "u1")

    def table(start: int, step: int) -> Any:
        return cupy.asarray((start + step * np.arange(n)).astype("u8"))

    there, to, rows = table(plain.data.ptr, nbytes), table(packed.data.ptr, room), table(back.data.ptr, nbytes)
    full = cupy.full(n, nbytes, "u8")
    temp_nbytes = nvcomp.compress_temp_nbytes(codec, n, nbytes, n * nbytes)
    temp = cupy.empty(max(temp_nbytes, 1), "u1")
    at = (there.data.ptr, full.data.ptr, n, temp.data.ptr, temp_nbytes, to.data.ptr, sizes.data.ptr)
    nvcomp.compress_async(codec, nvcomp.StreamBatch(*at, statuses.data.ptr), nbytes)
    assert statuses.get().tolist() == [0] * n
    assert 0 < sizes.get().max() <= room
    temp_nbytes = nvcomp.query_temp_nbytes(codec, n, nbytes, n * nbytes)
    temp, actual = cupy.empty(max(temp_nbytes, 1), "u1"), cupy.zeros(n, "u8")
    at = (to.data.ptr, sizes.data.ptr, n, temp.data.ptr, temp_nbytes, rows.data.ptr, actual.data.ptr)
    nvcomp.decompress_async(codec, nvcomp.StreamBatch(*at, statuses.data.ptr), full.data.ptr)
    assert statuses.get().tolist() == [0] * n
    assert actual.get().tolist() == [nbytes] * n
    np.testing.assert_array_equal(back.get(), plain.get())


@pytest.mark.parametrize("codec", sorted(nvcomp_tables.CODECS))
def test_a_device_changes_neither_alignments_nor_scratch(cuda: Any, codec: str) -> None:
    """The tables are those of the library without a device."""
    stream = cuda.cupy.cuda.Stream(non_blocking=True)
    with stream:
        assert nvcomp.query_alignment(codec) == nvcomp_tables.CODECS[codec].alignment
        for n, largest in ((1, 1 << 16), (100, 1 << 20), (100_000, 4096)):
            asked = nvcomp.query_temp_nbytes(codec, n, largest, n * largest, stream.ptr)
            assert asked == nvcomp_tables.decompress_temp_nbytes(codec, n, largest, n * largest)


def test_a_profile_shows_what_the_device_did(cuda: Any) -> None:
    array = on_cuda(stored_as("zstd"), cuda, max_device_nbytes=6 << 20)
    np.testing.assert_array_equal(array[:].get(), DATA)
    with gzarr.profile() as p:
        array[:]
    for name in ("upload", "decode", "place"):
        rows = [row for row in p.timeline if row.stage == name and row.thread.startswith("cuda:0, ")]
        assert len(rows) >= p.stages["read"].batches > 1
        assert all(0 <= row.start <= row.end for row in rows)
        seconds = p.stages[name].device_seconds
        assert seconds is not None
        assert seconds > 0
    assert p.stages["decode"].bytes_out == DATA.nbytes


class OfAnotherLibrary:
    """An array of which nothing but the CUDA array interface is known."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.__cuda_array_interface__ = array.__cuda_array_interface__
        self.shape, self.dtype = array.shape, array.dtype


def test_arrays_of_another_device_are_written_from_and_not_read_into(cuda: Any) -> None:
    if cuda.cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("it takes two GPUs")
    array = on_cuda(stored_as("zstd"), cuda)
    with cuda.cupy.cuda.Device(1):
        there = cuda.cupy.zeros(DATA.shape, DATA.dtype)
        cuda.cupy.cuda.Device().synchronize()
    with pytest.raises(ValueError, match="out is not on cuda:0"):
        array.get_basic_selection(slice(None), out=OfAnotherLibrary(there))
    with cuda.cupy.cuda.Device(1):
        assert not there.any()
        there.set(DATA)
        cuda.cupy.cuda.Device().synchronize()
    written = gzarr.create_array(shape=DATA.shape, chunks=(128, 128), dtype=DATA.dtype, device=cuda_backend(cuda))
    written[:] = OfAnotherLibrary(there)
    np.testing.assert_array_equal(written[:].get(), DATA)
