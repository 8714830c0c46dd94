"""`CudaDevice` and its pipeline slots on real CuPy: lifetimes, streams, devices, other libraries, and what goes wrong.

What is right is shown by the suites in `tests/gpu/hardware`. Here the driver is asked how that came about: what waited,
what was allocated, and what was called.
"""

import gc
import threading
import zlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numcodecs import Blosc, Delta, Zlib, Zstd

import gzarr
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.codecs.batch import BatchContext, Streams
from gzarr.gpu.device.memory import MIN_BLOCK_NBYTES, OverLimitError
from gzarr.gpu.device.pipeline_slots import N_PIPELINE_SLOTS, PipelineSlot, PipelineSlots
from gzarr.gpu.pipeline.batches import NEVER
from gzarr.hierarchy.values import Separate
from tests.gpu.driver import driver
from tests.gpu.hardware.opening import cuda_backend, on_cuda, pipeline_slot_of
from tests.gpu.hardware.test_hardware_codecs import bare_deflate
from tests.gpu.hardware.test_hardware_device import pool_of
from tests.support.threads import side_by_side

DATA = np.random.default_rng(0).integers(0, 1000, (53, 41)).astype("i4")


def stored(**options: Any) -> gzarr.Array:
    return gzarr.create_array(**{"data": DATA, "chunks": (10, 7), "device": "cpu"} | options)


@pytest.fixture
def only_what_is_needed() -> Iterator[None]:
    """Nothing is done on a stream before something waits for it."""
    driver.drain()
    with driver.schedule(None):
        yield


# -- devices -----------------------------------------------------------------------------------------------------------


def test_threads_that_launch_at_once_compile_one_module_for_each_device(cuda, monkeypatch) -> None:
    compiled: list[int] = []
    module = cuda.cupy.RawModule
    monkeypatch.setattr(
        cuda.cupy, "RawModule", lambda **options: compiled.append(cuda.cupy.cuda.Device().id) or module(**options)
    )
    devices = [cuda.CudaDevice(number) for number in (0, 1)]
    barrier = threading.Barrier(6)

    def launch(number: int) -> None:
        device = devices[number % 2]
        barrier.wait(60)
        with pipeline_slot_of(device):
            device.launch("copy_streams", 1, (0, *[device.upload(np.zeros(8, np.uint64))] * 4))

    side_by_side(launch, range(6))
    assert set(compiled) == {0, 1}


def test_a_second_device_holds_its_own_results(cuda) -> None:
    source, device = stored(), cuda.cupy.cuda.Device
    with device(1):
        stream = cuda.cupy.cuda.Stream(non_blocking=True)
    for options in ({"small_reads": NEVER}, {}, {"small_reads": NEVER, "stream": stream}):
        second = GpuBackend(cuda.CudaDevice(1), **options)
        array = gzarr.open_array(source.store, mode="r", device=second)
        found = array[:]
        assert all(one.device == device(1) for one in (found, array[3:5, 2], array.vindex[[1], [2]]))
        assert device() == device(0)
        for pipeline_slot in second._pipeline_slots._all:
            assert all(block.device == device(1) for block in pipeline_slot.memory._blocks)
        with device(1):
            np.testing.assert_array_equal(found.get(stream=options.get("stream")), DATA)
    with pytest.raises(gzarr.DeviceError, match="cuda:2"):
        cuda.CudaDevice(2)


@pytest.mark.parametrize("max_device_nbytes", [None, 24_000])
@pytest.mark.usefixtures("only_what_is_needed")
def test_results_on_a_second_device_are_ready_on_its_own_default_stream(cuda, max_device_nbytes) -> None:
    """This holds whatever device is current: the default streams of all devices have the same address."""
    second = GpuBackend(cuda.CudaDevice(1), small_reads=NEVER, max_device_nbytes=max_device_nbytes)
    found = gzarr.open_array(stored(compressor=None).store, mode="r", device=second)[:]
    assert cuda.cupy.cuda.Stream.null.done
    with cuda.cupy.cuda.Device(1):
        np.testing.assert_array_equal(found.get(), DATA)


# -- memory ------------------------------------------------------------------------------------------------------------


def test_results_are_never_memory_of_a_pipeline_slot(cuda) -> None:
    with pipeline_slot_of(cuda.CudaDevice()) as pipeline_slot:
        pipeline_slot.device.empty(1000)
        before = pipeline_slot.memory.mark()
        pipeline_slot.device.result((1000,), np.dtype("f4"))
        assert pipeline_slot.memory.mark() == before


def test_streams_are_made_with_the_pipeline_slots(cuda) -> None:
    """CuPy's pool keeps free memory by stream: memory of a stream that is gone is not handed out again."""
    array = on_cuda(stored(), cuda)
    before = driver.calls("cudaStreamCreateWithPriority"), driver.calls("cudaStreamCreateWithFlags")
    for _ in range(5):
        array[:]
    assert (driver.calls("cudaStreamCreateWithPriority"), driver.calls("cudaStreamCreateWithFlags")) == before


CHAINS: dict[str, Any] = {
    "raw": {"compressor": None},
    "blosc": {"compressor": Blosc("lz4", 5, Blosc.SHUFFLE)},
    "blosclz, decoded on the host": {"compressor": Blosc("blosclz", 5)},
    "zstd with checksum, sharded": {"compressor": Zstd(1, checksum=True), "shards": (20, 14)},
    "delta": {"filters": [Delta("i4")], "zarr_format": 2},
}


@pytest.mark.parametrize("small_reads", [NEVER, None])
@pytest.mark.parametrize("chain", CHAINS)
def test_a_second_read_allocates_its_result_and_nothing_else(cuda, chain, small_reads) -> None:
    """CuPy's own operations count as well."""
    backend = GpuBackend(cuda.CudaDevice(), small_reads=small_reads)
    array = gzarr.open_array(stored(**CHAINS[chain]).store, mode="r", device=backend)
    selections = (np.s_[:], np.s_[3:50:7, ::-1], np.s_[20], np.s_[20, 30], np.s_[..., None, 3])
    with pool_of(cuda.cupy) as pool:
        for selection in selections:
            array[selection]
        sizes: list[int] = []
        cuda.cupy.cuda.set_allocator(lambda nbytes: sizes.append(nbytes) or pool.malloc(nbytes))
        pinned = driver.calls("cudaHostAlloc")
        found = [array[selection].nbytes for selection in selections]
        assert sizes == found
        assert driver.calls("cudaHostAlloc") == pinned
        backend.release()


def test_as_much_is_pinned_as_the_encoded_batches_in_flight(cuda) -> None:
    """CuPy's pool would round staging buffers up to a power of two, and keep them."""
    data = np.random.default_rng(0).integers(0, 1 << 20, (24, 128, 1024), "i4")  # 12 MiB
    source = stored(data=data, chunks=(1, 64, 512), compressor=None)
    array = on_cuda(source, cuda, max_device_nbytes=N_PIPELINE_SLOTS * (8 << 20), reader="host")
    gc.collect()  # what earlier tests have pinned
    before = driver.live_nbytes(driver.PINNED)
    for _ in range(2):
        np.testing.assert_array_equal(array[:].get(), data)
    io = array._io
    context = array.backend.batch_nchunks(io.only_chain, array.nchunks, io.chunk_nbytes, writing=False)
    assert context * N_PIPELINE_SLOTS < array.nchunks
    pinned = driver.live_nbytes(driver.PINNED) - before
    assert 0 < pinned <= N_PIPELINE_SLOTS * (1.3 * context * io.chunk_nbytes + MIN_BLOCK_NBYTES)
    array.backend.release()
    assert driver.live_nbytes(driver.PINNED) == before


def test_pinned_memory_lives_as_long_as_its_views(cuda) -> None:
    device, before = cuda.CudaDevice(), driver.live_nbytes(driver.PINNED)
    block = device.allocate_pinned(100_001)
    assert block.nbytes == driver.live_nbytes(driver.PINNED) - before == 100_001
    view = block[5:]
    del block
    assert driver.live_nbytes(driver.PINNED) > before
    del view
    assert driver.live_nbytes(driver.PINNED) == before
    assert device.staging(0).nbytes == 0


@pytest.mark.parametrize("end", [GpuBackend.release, id])
@pytest.mark.usefixtures("only_what_is_needed")
def test_pinned_memory_outlives_the_copies_that_nobody_has_waited_for(cuda, end) -> None:
    """What the host has decoded is uploaded without a wait."""
    backend = GpuBackend(cuda.CudaDevice())
    found = gzarr.open_array(stored().store, mode="r", device=backend)[..., 3]
    end(backend)
    del backend
    gc.collect()
    np.testing.assert_array_equal(found.get(), DATA[..., 3])


def test_blocks_that_a_pipeline_slot_replaces_go_back_to_the_device(cuda) -> None:
    """CuPy's pool would keep them for the slot's stream, beyond the cap; they are too small for what comes next."""
    pipeline_slot = PipelineSlot(cuda.CudaDevice(), 16 << 20)
    with pool_of(cuda.cupy) as pool:
        for nbytes in (2 << 20, 3 << 20, 6 << 20):
            with pipeline_slot.active():
                pipeline_slot.memory.take(nbytes)
                pipeline_slot.memory.rewind()
                pipeline_slot.memory.merge()
        assert pool.total_bytes() == pool.used_bytes() <= 16 << 20
        pipeline_slot.release()


def test_what_cupy_allocates_in_a_pipeline_slot_is_the_pipeline_slot_s(cuda) -> None:
    """Temporaries of CuPy's own operations are under the cap, and what does not fit says so."""
    device, cupy = cuda.CudaDevice(), cuda.cupy
    pipeline_slot = PipelineSlot(device, 1 << 16)
    with pool_of(cupy) as pool:
        mine = cupy.cuda.get_allocator()
        with pipeline_slot.active():
            temporary = cupy.ascontiguousarray(cupy.empty((64, 64), "u1")[:, ::2]) + 1
            assert temporary.data.mem is pipeline_slot.memory._blocks[0].data.mem
            with pytest.raises(OverLimitError):
                cupy.empty(1 << 17, "u1")
        assert cupy.cuda.get_allocator() == mine
        assert pool.used_bytes() == pipeline_slot.memory.nbytes == 1 << 16
        result = device.result((3,), np.dtype("f4"))
        assert pool.used_bytes() == (1 << 16) + 512
        del result, temporary
        pipeline_slot.release()


@pytest.mark.usefixtures("only_what_is_needed")
def test_a_failure_in_a_pipeline_slot_waits_before_memory_is_used_again(cuda) -> None:
    pipeline_slots = PipelineSlots(cuda.CudaDevice(), 1 << 20)
    ends: list[Any] = []

    def fail(_: int) -> None:
        with pipeline_slots.borrow() as pipeline_slot:
            pipeline_slot.device.upload(pipeline_slot.device.staging(100))
            ends.append(pipeline_slot.stream.record())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        pipeline_slots.run(fail, range(5))
    assert ends
    assert all(end.done for end in ends)
    assert all(pipeline_slot.memory.mark() in ((), (0,)) for pipeline_slot in pipeline_slots._all)
    assert cuda.cupy.cuda.get_current_stream() == cuda.cupy.cuda.Stream.null


@pytest.mark.usefixtures("only_what_is_needed")
@pytest.mark.parametrize("nbytes", [100, 2 << 20])
def test_pageable_memory_may_be_freed_once_it_is_uploaded(cuda, nbytes) -> None:
    """CUDA may read it when the stream comes to the copy, as it does where the device can address pageable memory."""
    device = cuda.CudaDevice()
    with pipeline_slot_of(device) as pipeline_slot:
        before = pipeline_slot.stream.record()
        device.upload(device.staging(1))
        there = device.upload(np.full(nbytes, 7, "u1"))
        assert pipeline_slot.stream.done == (nbytes > cuda._MAX_STAGED_NBYTES), before
        gc.collect()
        assert set(device.download(there).tolist()) == {7}
    assert device.download(device.upload(np.full(3, 7, "u1"))).tolist() == [7] * 3


@pytest.mark.usefixtures("only_what_is_needed")
def test_decoders_are_called_without_waiting(cuda) -> None:
    """Their tables go through staging memory: nothing waits between the upload of the streams and the results."""
    device = cuda.CudaDevice()
    packed = bare_deflate(b"x" * 1000)
    with pipeline_slot_of(device):
        staging = device.staging(len(packed))
        staging[:] = np.frombuffer(packed, np.uint8)
        waits = driver.calls("cudaStreamSynchronize")
        source, out = device.upload(staging), device.empty(1000)
        table = (device.address(source), len(packed), device.address(out), 1000)
        outcome = device.decompress("deflate", *(np.array([value]) for value in table))
        sums = device.crc("crc32", np.array([device.address(out)]), np.array([1000]))
        assert driver.calls("cudaStreamSynchronize") == waits
        assert device.download(outcome.statuses).tolist() == [0]
        assert device.download(out).tobytes() == b"x" * 1000
        assert device.download(sums.sums).tolist() == [zlib.crc32(b"x" * 1000)]


@pytest.mark.parametrize("where", ["host", "device"])
@pytest.mark.usefixtures("only_what_is_needed")
def test_a_batch_holds_the_memory_of_its_streams(cuda, where) -> None:
    """Whoever asked for them may drop streams and staging buffer before the device has come to them."""
    device, cupy = cuda.CudaDevice(), cuda.cupy
    host = device.staging(1000)
    host[:] = 7
    there = device.upload(host) if where == "device" else None
    batch = Streams(None if where == "device" else host, there, np.array([16]), np.array([100]))
    target, context = cupy.empty(100, "u1"), BatchContext(device)
    device.synchronize()
    with cupy.cuda.Stream(non_blocking=True):
        streams = batch.within(context)
        target.data.copy_from_device_async(streams.staging_buffer[16:].data, 100)
        del streams, batch, host, there
        gc.collect()
        assert set(target.get().tolist()) == {7}


@pytest.mark.parametrize("shape", [(), (0,), (3, 4)])
def test_uploads_keep_the_shape(cuda, shape) -> None:
    device, array = cuda.CudaDevice(), np.full(shape, 7, "f4")
    there = device.upload(array)
    assert there.shape == shape
    np.testing.assert_array_equal(device.download(there), array)
    np.testing.assert_array_equal(device.download(device.upload(array.T[::-1] if shape else array)), array.T)


# -- streams and arrays of others --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "made", [lambda s: s, lambda s: s.ptr, lambda s: SimpleNamespace(__cuda_stream__=lambda: (0, s.ptr))]
)
@pytest.mark.usefixtures("only_what_is_needed")
def test_streams_of_other_libraries_are_taken(cuda, made) -> None:
    stream = cuda.cupy.cuda.Stream(non_blocking=True)
    found = on_cuda(stored(), cuda, stream=made(stream))[:]
    assert not stream.done  # it waits for the pipeline slots, nothing else does
    np.testing.assert_array_equal(found.get(stream=stream), DATA)
    with pytest.raises(gzarr.DeviceError, match="expected a CuPy stream"):
        on_cuda(stored(), cuda, stream="mine")


class Computed:
    """A tensor of a library like torch whose values are still being computed on a stream of the library's own.

    Its interface is of a version, and names the stream or not. As torch's, it may refuse to be exported by DLPack.
    """

    def __init__(self, cuda: Any, value: int, version: int, *, dlpack: bool = True, names: bool = False) -> None:
        self._device, self._dlpack, self._version, self._names = cuda.CudaDevice(), dlpack, version, names
        self._stream = cuda.cupy.cuda.Stream(non_blocking=True)
        self._array = cuda.cupy.full(DATA.shape, 1, "i4")
        cuda.cupy.cuda.Stream.null.synchronize()
        with self._stream:
            self._array.fill(value)
        self.shape, self.dtype, self.ndim = DATA.shape, DATA.dtype, 2

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        given = self._array.__cuda_array_interface__ | {"version": self._version}
        given.pop("stream", None)
        return given | ({"stream": self._stream.ptr} if self._names else {})

    def __getitem__(self, key: Any) -> Any:
        part = Computed.__new__(Computed)
        part.__dict__.update(self.__dict__, _array=self._array[key])
        return part

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, *, stream: int, **_: Any) -> Any:
        if not self._dlpack:
            raise BufferError("Can't export tensors that require gradient")
        self._device.as_stream(stream).wait_event(self._stream.record())
        return self._array.__dlpack__(stream=-1)


class Lazy:
    """A value that is read as it is written, into tensors of another library."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self.shape, self.dtype, self.ndim = value.shape, value.dtype, 2

    def __getitem__(self, key: Any) -> Any:
        return self._value[key]


#: The arguments of `Computed` with which it can be read at the right time.
COMPUTED = {
    "dlpack": {"version": 2},
    "version 2": {"version": 2, "dlpack": False},
    "version 3": {"version": 3, "dlpack": False, "names": True},
}


@pytest.mark.parametrize("how", COMPUTED)
@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("own_stream", [False, True])
@pytest.mark.usefixtures("only_what_is_needed")
def test_a_tensor_that_is_still_being_computed_is_written_as_it_will_be(cuda, how, lazy, own_stream) -> None:
    stream = cuda.cupy.cuda.Stream(non_blocking=True) if own_stream else None
    array = gzarr.open_array(stored().store, mode="r+", device=cuda_backend(cuda, stream=stream))
    value = Computed(cuda, 9, **COMPUTED[how])
    array[...] = Separate(Lazy(value)) if lazy else value
    assert (gzarr.open_array(array.store, device="cpu")[...] == 9).all()


@pytest.mark.parametrize("how", COMPUTED)
@pytest.mark.parametrize("own_stream", [False, True])
@pytest.mark.usefixtures("only_what_is_needed")
def test_a_tensor_that_is_still_being_computed_is_read_into_afterwards(cuda, how, own_stream) -> None:
    stream = cuda.cupy.cuda.Stream(non_blocking=True) if own_stream else None
    out = Computed(cuda, 9, **COMPUTED[how])
    on_cuda(stored(), cuda, stream=stream).get_basic_selection(out=out)
    (stream or cuda.cupy.cuda.Stream.null).synchronize()
    out._stream.synchronize()
    np.testing.assert_array_equal(out._array.get(), DATA)


def test_a_tensor_that_neither_protocol_gives_says_why(cuda) -> None:
    tensor = Computed(cuda, 9, 2, dlpack=False)
    refused = SimpleNamespace(__dlpack_device__=lambda: (2, 0), __dlpack__=tensor.__dlpack__)
    with pytest.raises(BufferError, match="require gradient"):
        cuda.CudaDevice().adopt(refused)
    assert cuda.CudaDevice().adopt(DATA) is None


def test_an_out_that_is_read_only_is_refused(cuda) -> None:
    """CuPy would write into it."""
    out = Computed(cuda, 9, 3)
    data, _ = out.__cuda_array_interface__["data"]
    refused = SimpleNamespace(
        __cuda_array_interface__=out.__cuda_array_interface__ | {"data": (data, True)}, shape=DATA.shape
    )
    with pytest.raises(ValueError, match="out is read-only"):
        on_cuda(stored(), cuda).get_basic_selection(out=refused)


# -- what is seen of it ------------------------------------------------------------------------------------------------


@pytest.fixture
def ranges(cuda, monkeypatch) -> Iterator[list[tuple[str, ...]]]:
    """The NVTX ranges that have ended, each with those around it."""
    ended: list[tuple[str, ...]] = []
    local = threading.local()

    def push(name: str) -> None:
        local.__dict__.setdefault("open", []).append(name)

    def pop() -> None:
        ended.append(tuple(local.open))
        local.open.pop()

    monkeypatch.setattr(cuda.cupy.cuda.nvtx, "RangePush", push)
    monkeypatch.setattr(cuda.cupy.cuda.nvtx, "RangePop", pop)
    yield ended
    assert not local.__dict__.get("open")


def test_stages_are_nvtx_ranges_while_there_is_a_profile_or_the_settings_say_so(cuda, ranges) -> None:
    source = stored(compressor=Blosc("lz4", 5, Blosc.SHUFFLE))
    array = gzarr.open_array(source.store, mode="r+", device=cuda_backend(cuda, small_writes=NEVER))
    array[:]
    assert not ranges
    with gzarr.profile():
        array[:]
        array[:8] = 1
    found = {names[-1].removeprefix("gzarr:") for names in ranges}
    assert {"locate", "read", "upload", "decode", "place", "check"} <= found
    assert {"load old", "encode", "store", "build"} <= found
    assert ("gzarr:locate", "gzarr:read") in ranges
    ranges.clear()
    with gzarr.config.set({"gpu.nvtx": True}):
        array[:]
    assert ("gzarr:locate", "gzarr:place", "gzarr:decode", "gzarr:upload") in ranges


def test_ranges_end_where_a_read_fails(cuda, ranges) -> None:
    source = stored(compressor=Zlib())
    source.store["c/0/0"] = source.store["c/0/0"][:10]
    with pytest.raises(gzarr.ChunkError), gzarr.profile() as p:
        on_cuda(source, cuda)[:]
    assert p.stages["decode"].calls == 2  # by tables, and once more by the reference path, which says what is wrong


def test_a_profile_waits_for_nothing_before_its_end(cuda) -> None:
    array = on_cuda(stored(), cuda)
    array[:]
    with gzarr.profile() as p:
        array[:]
        waits = driver.calls("cudaEventSynchronize")
        array[:]
        assert driver.calls("cudaEventSynchronize") == waits
    assert driver.calls("cudaEventSynchronize") > waits
    assert p.stages["read"].device_seconds is None
    assert (p.stages["place"].device_seconds or 0) > 0


def test_a_device_that_failed_has_no_times(cuda) -> None:
    device = cuda.CudaDevice()
    mark = device.mark()
    with driver.failing("cudaEventRecord", 719):
        assert device.mark() is None
        assert device.seconds_between(mark, mark) == device.seconds_between(mark, None) == 0
    driver.faults()


@pytest.mark.parametrize(("status", "says"), [(2, "lower max_device_nbytes"), (700, "start it anew")])
def test_errors_of_the_driver_say_what_to_do(cuda, monkeypatch, status, says) -> None:
    array = on_cuda(stored(compressor=Zlib()), cuda)
    with driver.failing("cudaMemcpyAsync", status), pytest.raises(gzarr.DeviceError, match=f"cuda:0: .*{says}"):
        array[:]
    driver.faults()
    np.testing.assert_array_equal(array[:].get(), DATA)
