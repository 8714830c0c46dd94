"""`CudaDevice` calls CuPy and nvCOMP correctly: the suites on a double of CuPy that refuses what CuPy refuses.

Nothing here runs on a GPU. What is checked is argument passing: streams, addresses, tables, conversions, lifetimes.
"""

from __future__ import annotations

import collections
import gc
import importlib.util
import inspect
import json
import sys
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numcodecs import Blosc, Zlib

import gzarr
from benchmarks.gpu import cases, questions
from benchmarks.gpu import run as benchmark
from benchmarks.gpu.loading import loader_cases
from benchmarks.gpu.peers import PEERS
from benchmarks.gpu.pyramids import pyramid_cases
from benchmarks.gpu.streams import Gpu, Tables
from gzarr.gpu import kernels
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.codecs.batch import BatchContext
from gzarr.gpu.detection.thresholds import NEVER
from gzarr.gpu.device import nvcomp, nvcomp_tables
from gzarr.gpu.device.hostbuild import find_compiler
from gzarr.gpu.device.memory import OverLimitError
from gzarr.gpu.device.pinned import MAX_TABLE_NBYTES
from gzarr.gpu.device.pipeline_slots import PipelineSlot, PipelineSlots
from gzarr.gpu.reading.host import Batch
from gzarr.hierarchy.lazy import Separate
from tests.contracts.test_backend import *  # noqa: F403
from tests.gpu import fake_cupy
from tests.gpu.fake_cupy.memory import _pinned
from tests.gpu.fake_cupy.streams import queue_at, schedule
from tests.gpu.hardware.opening import cuda_backend, on_cuda, pipeline_slot_of
from tests.gpu.hardware.test_hardware_codecs import *  # noqa: F403
from tests.gpu.hardware.test_hardware_device import *  # noqa: F403
from tests.gpu.hardware.test_hardware_encoders import *  # noqa: F403
from tests.gpu.hardware.test_hardware_floats import *  # noqa: F403
from tests.gpu.hardware.test_hardware_images import *  # noqa: F403
from tests.gpu.hardware.test_hardware_loader import *  # noqa: F403
from tests.gpu.hardware.test_hardware_writes import *  # noqa: F403
from tests.properties import memory
from tests.properties.fewer import examples_of
from tests.properties.test_resizing import *  # noqa: F403
from tests.properties.test_selections import *  # noqa: F403

# These ask nvCOMP itself, which may not be installed, and needs a device to compress.
del test_nvcomp_there_and_back, test_a_device_changes_neither_alignments_nor_scratch  # noqa: F821
del test_formats_that_only_a_gpu_has, test_scratch_for_zstd_is_what_the_tables_guess_or_less  # noqa: F821
# The double exchanges nothing with torch.
del test_tensors_of_torch_are_right_and_keep_the_memory_of_a_batch  # noqa: F821

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")


@pytest.fixture(scope="module")
def cuda() -> Any:
    """gzarr.gpu.device.cuda, loaded anew with the double in CuPy's place."""
    before = sys.modules.get("cupy")
    sys.modules["cupy"] = fake_cupy.module()
    try:
        path = Path(kernels.__file__).parents[1] / "device" / "cuda.py"
        spec = importlib.util.spec_from_file_location("cuda_with_a_double", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        if before is None:
            del sys.modules["cupy"]
        else:
            sys.modules["cupy"] = before
    library = dict(vars(nvcomp))
    for name in ("decompress_async", "compress_async", "compress_temp_nbytes", "crc_async"):
        assert str(inspect.signature(getattr(fake_cupy.kernels, name))) == str(inspect.signature(library[name]))
        library[name] = getattr(fake_cupy.kernels, name)
    module.nvcomp = SimpleNamespace(**library)
    return module


@pytest.fixture(autouse=True, scope="module")
def gpu_everywhere(cuda: Any) -> Iterator[None]:
    device = gzarr.config.set({"device": cuda_backend(cuda)})
    with device, memory.allocated_by(cuda.cupy), examples_of(globals()):
        yield


@pytest.fixture
def only_what_is_needed() -> Iterator[None]:
    """Nothing is done on a stream before something waits for it."""
    with schedule(None):
        yield


@pytest.fixture
def backend(cuda: Any) -> GpuBackend:
    return cuda_backend(cuda)


DATA = np.random.default_rng(0).integers(0, 1000, (53, 41)).astype("i4")


@pytest.mark.parametrize(
    "compressor", [None, Blosc("lz4", 5, Blosc.SHUFFLE), Blosc("zstd", 5, Blosc.BITSHUFFLE), Zlib()]
)
def test_arrays_come_back_in_the_memory_of_the_device(cuda, compressor):
    stored = gzarr.create_array(data=DATA, chunks=(10, 7), compressor=compressor)
    found = stored[3:40:3, ::-2]
    assert isinstance(found, cuda.cupy.ndarray)
    np.testing.assert_array_equal(found.get(), DATA[3:40:3, ::-2])
    out = cuda.cupy.empty((53, 82), "f8")[:, ::2]
    assert stored.get_basic_selection(..., out=out) is out
    np.testing.assert_array_equal(out.get(), DATA)
    stored[:10] = found[:10, :1]


def test_threads_that_launch_at_once_compile_one_module_for_each_device(cuda, monkeypatch):
    monkeypatch.setattr(fake_cupy.RawModule, "compiled", [])
    monkeypatch.setattr(fake_cupy.RawModule, "_there", set())
    devices = [cuda.CudaDevice(number) for number in (0, 0, 1)]
    barrier = threading.Barrier(6)

    def launch(number: int) -> None:
        device = devices[number % 3]
        barrier.wait(30)
        with pipeline_slot_of(device):
            device.launch("copy_streams", 1, (0, *[device.upload(np.zeros(8, np.uint64))] * 4))

    threads = [threading.Thread(target=launch, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(fake_cupy.RawModule.compiled) == [0, 1]


def test_raw_streams_are_copied_on_the_device():
    data = np.random.default_rng(0).integers(0, 2**31, (64, 64)).astype("i4")
    stored = gzarr.create_array(data=data, chunks=(32, 32), compressor=Blosc("lz4", 1, Blosc.SHUFFLE))
    fake_cupy.RawKernel.launches.clear()
    np.testing.assert_array_equal(stored[:].get(), data)
    np.testing.assert_array_equal(stored.vindex[[1, 40], [2, 3]].get(), data[[1, 40], [2, 3]])
    assert set(fake_cupy.RawKernel.launches) == {"copy_streams", "copy_plain", "place_points"}


def test_a_second_device_holds_its_own_results(cuda):
    stored = gzarr.create_array(data=DATA, chunks=(10, 7))
    for small_reads in (NEVER, None):
        second = GpuBackend(cuda.CudaDevice(1), small_reads=small_reads)
        array = gzarr.open_array(stored.store, mode="r", device=second)
        found = array[:]
        assert found.device == cuda.cupy.cuda.Device(1)
        np.testing.assert_array_equal(found.get(), DATA)
        assert (array[3:5, 2].device, array.vindex[[1], [2]].device) == (found.device, found.device)
        for pipeline_slot in second._pipeline_slots._all:
            assert pipeline_slot.stream.device_id == 1
            assert all(block.device == found.device for block in pipeline_slot.memory._blocks)
    with cuda.cupy.cuda.Device(1):
        stream = cuda.cupy.cuda.Stream(non_blocking=True)
    assert cuda.cupy.cuda.Device() == cuda.cupy.cuda.Device(0)
    second = GpuBackend(cuda.CudaDevice(1), small_reads=NEVER, stream=stream)
    found = gzarr.open_array(stored.store, mode="r", device=second)[:]
    assert found.device == cuda.cupy.cuda.Device(1)
    stream.synchronize()
    np.testing.assert_array_equal(found.get(), DATA)
    with pytest.raises(gzarr.DeviceError, match="cuda:2"):
        cuda.CudaDevice(2)


@pytest.mark.parametrize("max_device_nbytes", [None, 24_000])
@pytest.mark.usefixtures("only_what_is_needed")
def test_results_on_a_second_device_are_ready_on_its_own_default_stream(cuda, max_device_nbytes):
    """This holds whatever device is current: the default streams of all devices have the same address."""
    stored = gzarr.create_array(data=DATA, chunks=(10, 7), compressor=None)
    second = GpuBackend(cuda.CudaDevice(1), small_reads=NEVER, max_device_nbytes=max_device_nbytes)
    cupy = cuda.cupy
    cupy.cuda.Stream.null.synchronize()  # whatever other tests left there
    found = gzarr.open_array(stored.store, mode="r", device=second)[:]
    assert cupy.cuda.Device() == cupy.cuda.Device(0)
    assert not cupy.cuda.Stream.null.pending
    with cupy.cuda.Device(1):
        assert cupy.cuda.Stream.null.pending  # it waits for the pipeline slots, nothing else does
        np.testing.assert_array_equal(found.get(), DATA)


def test_results_are_never_memory_of_a_pipeline_slot(cuda):
    with pipeline_slot_of(cuda.CudaDevice()) as pipeline_slot:
        pipeline_slot.device.empty(1000)
        before = pipeline_slot.memory.mark()
        pipeline_slot.device.result((1000,), np.dtype("f4"))
        assert pipeline_slot.memory.mark() == before


def test_streams_are_made_with_the_pipeline_slots(cuda):
    """CuPy's pool keeps free memory by stream: memory of a stream that is gone is not handed out again."""
    array = on_cuda(gzarr.create_array(data=DATA, chunks=(10, 7)), cuda)
    before = fake_cupy.Stream.made
    for _ in range(5):
        array[:]
    assert fake_cupy.Stream.made == before


def test_memory_is_kept_for_the_next_read(cuda):
    array = on_cuda(gzarr.create_array(data=DATA, chunks=(10, 7)), cuda)
    pool, asked = fake_cupy.MemoryPool(), []
    with cuda.cupy.cuda.using_allocator(lambda nbytes: asked.append(nbytes) or pool.malloc(nbytes)):
        found = array[:]
        first = list(asked)
        for _ in range(5):
            del found
            found = array[:]
    assert asked[len(first) :] == [DATA.nbytes] * 5
    assert pool.used_bytes() >= sum(first)
    array.backend.release()
    del found
    assert pool.used_bytes() == 0


def test_blocks_that_a_pipeline_slot_replaces_go_back_to_the_device(cuda):
    """CuPy's pool would keep them for the slot's stream, beyond the cap; they are too small for what comes next."""
    pipeline_slot, pool = PipelineSlot(cuda.CudaDevice(), 8 << 20), fake_cupy.MemoryPool()
    with cuda.cupy.cuda.using_allocator(pool.malloc):
        for nbytes in (2 << 20, 3 << 20, 5 << 20, 7 << 20):
            with pipeline_slot.active():
                pipeline_slot.memory.require(nbytes)
                pipeline_slot.rewind()
    assert pool.total_bytes() == pool.used_bytes() <= 8 << 20


def test_what_cupy_allocates_in_a_pipeline_slot_is_the_pipeline_slot_s(cuda):
    """Temporaries of CuPy's own operations are under the cap, and what does not fit says so."""
    device, cupy = cuda.CudaDevice(), cuda.cupy
    pipeline_slot, pool = PipelineSlot(device, 1 << 16), fake_cupy.MemoryPool()
    mine = cupy.cuda.get_allocator()
    with cupy.cuda.using_allocator(pool.malloc):
        with pipeline_slot.active():
            temporary = cupy.ascontiguousarray(cupy.empty((64, 64), "u1")[:, ::2]) + 1
            assert temporary._mem is pipeline_slot.memory._blocks[0]._mem
            with pytest.raises(OverLimitError):
                cupy.empty(1 << 17, "u1")
        assert pool.used_bytes() == pipeline_slot.memory.nbytes == 1 << 16
        result = device.result((3,), np.dtype("f4"))
        assert pool.used_bytes() == (1 << 16) + 512
        assert result._mem is not temporary._mem
    assert cupy.cuda.get_allocator() == mine


def test_a_failure_in_a_pipeline_slot_waits_before_memory_is_used_again(cuda):
    pipeline_slots = PipelineSlots(cuda.CudaDevice(), 1 << 20)
    streams = []

    def fail(_: int) -> None:
        with pipeline_slots.borrow() as pipeline_slot:
            pipeline_slot.device.upload(pipeline_slot.device.staging(100))
            queue = pipeline_slot.stream.queue
            assert queue.done < queue.submitted
            streams.append((queue, queue.submitted))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        pipeline_slots.run(fail, range(5))
    assert streams
    assert all(queue.done >= place for queue, place in streams)
    assert all(pipeline_slot.memory.mark() in ((), (0,)) for pipeline_slot in pipeline_slots._all)
    assert cuda.cupy.cuda.get_current_stream() is fake_cupy.Stream.null


@pytest.mark.usefixtures("only_what_is_needed")
def test_pipeline_slots_and_the_caller_wait_for_each_other(cuda):
    """What the caller submitted before a read is done first, and what it submits afterwards comes after it."""
    array = on_cuda(gzarr.create_array(data=DATA, chunks=(10, 7), compressor=None), cuda)
    cupy = cuda.cupy
    out = cupy.full(DATA.shape, 7, "i4")
    cupy.cuda.Stream.null.synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    order = []
    with stream:
        stream.queue.submit(lambda: order.append(out._host[0, 0]))
        array.get_basic_selection(out=out)
        assert order == [7]
        np.testing.assert_array_equal(out.get(), DATA)


@pytest.mark.parametrize(
    "made", [lambda s: s, lambda s: s.ptr, lambda s: SimpleNamespace(__cuda_stream__=lambda: (0, s.ptr))]
)
@pytest.mark.usefixtures("only_what_is_needed")
def test_streams_of_other_libraries_are_taken(cuda, made):
    stored = gzarr.create_array(data=DATA, chunks=(10, 7))
    stream = cuda.cupy.cuda.Stream(non_blocking=True)
    array = on_cuda(stored, cuda, stream=made(stream))
    found = array[:]
    assert found._mem._queue is stream.queue  # where the pool knows what work is still under way with it
    assert stream.pending  # it waits for the pipeline slots, nothing else does
    with stream:
        np.testing.assert_array_equal(found.get(), DATA)
    with pytest.raises(gzarr.DeviceError, match="expected a CuPy stream"):
        on_cuda(stored, cuda, stream="mine")


class Foreign:
    """An array of another library in the memory of a device: by CUDA's array interface, or by DLPack."""

    def __init__(self, host: np.ndarray, how: str, number: int = 0) -> None:
        self.device_number = number
        if how == "interface":
            self.__cuda_array_interface__ = {**host.__array_interface__, "version": 3}
        else:
            self.__dlpack__, self.__dlpack_device__ = lambda **_: host.__dlpack__(), lambda: (2, number)


@pytest.mark.parametrize("compressor", [None, Zlib()])
@pytest.mark.parametrize("selection", [np.s_[:], np.s_[3:40:3, ::-2]])
def test_memory_of_a_batch_is_used_again_when_the_batch_is_done(cuda, selection, compressor):
    """An uncompressed batch has nothing to inspect, yet its copies must be complete."""
    data = np.arange(64 * 64 * 40, dtype="i4").reshape(40 * 64, 64)
    stored = gzarr.create_array(data=data, chunks=(16, 64), compressor=compressor, zarr_format=2)
    array = on_cuda(stored, cuda, max_device_nbytes=1 << 18)
    io = array._io
    assert 10 * array.backend.batch_nchunks(io.only_chain, 160, io.chunk_nbytes, writing=False) < 160
    np.testing.assert_array_equal(array[selection].get(), data[selection])


@pytest.mark.parametrize("how", ["interface", "dlpack"])
def test_arrays_of_other_libraries_are_read_into_and_written(cuda, how):
    stored = gzarr.create_array(data=DATA, chunks=(10, 7))
    target = np.zeros((41, 53), "i4")
    on_cuda(stored, cuda).get_basic_selection(out=Foreign(target.T, how))
    np.testing.assert_array_equal(target.T, DATA)
    stored[3:5] = Foreign(np.full((2, 41), 9, "i4"), how)
    assert (stored[3:5].get() == 9).all()
    assert cuda.CudaDevice().adopt(DATA) is None


class Computed:
    """A tensor of a library like torch whose values are still being computed on a stream of the library's own.

    Its interface is of a version, and names the stream or not. As torch's, it may refuse to be exported by DLPack.
    """

    def __init__(self, cuda: Any, value: int, version: int, *, dlpack: bool = True, names: bool = False) -> None:
        self._stream = cuda.cupy.cuda.Stream(non_blocking=True)
        self._array = cuda.cupy.full(DATA.shape, 1, "i4")
        cuda.cupy.cuda.Stream.null.synchronize()
        self.shape, self.dtype, self._dlpack = DATA.shape, DATA.dtype, dlpack
        self._stream.queue.submit(lambda: self._array._host.fill(value))
        self.__cuda_array_interface__ = {**self._array._host.__array_interface__, "version": version, "strides": None}
        if names:
            self.__cuda_array_interface__["stream"] = self._stream.ptr

    def __getitem__(self, key: Any) -> Any:
        part = Computed.__new__(Computed)
        part.__dict__.update(self.__dict__, _array=self._array[key])
        part.__cuda_array_interface__ = self.__cuda_array_interface__ | {
            name: part._array._host.__array_interface__[name] for name in ("data", "shape", "strides")
        }
        return part

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, *, stream: int) -> Any:
        if not self._dlpack:
            raise BufferError("Can't export tensors that require gradient")
        event = self._stream.record()
        queue_at(stream).submit(None, event.work)
        return self._array.__dlpack__()


#: The arguments of `Computed` with which it can be read at the right time.
COMPUTED = {
    "dlpack": {"version": 2},
    "version 2": {"version": 2, "dlpack": False},
    "version 3": {"version": 3, "dlpack": False, "names": True},
}


@pytest.mark.parametrize("how", COMPUTED)
@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("own_stream", [False, True])
def test_a_tensor_that_is_still_being_computed_is_written_as_it_will_be(cuda, how, lazy, own_stream):
    stream = cuda.cupy.cuda.Stream(non_blocking=True) if own_stream else None
    stored = gzarr.create_array(data=DATA, chunks=(10, 7))
    array = gzarr.open_array(stored.store, mode="r+", device=cuda_backend(cuda, stream=stream))
    value = Computed(cuda, 9, **COMPUTED[how])
    array[...] = Separate(Lazy(value)) if lazy else value
    assert (array[...].get() == 9).all()


class Lazy:
    """A value that is read as it is written, into tensors of another library."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self.shape, self.dtype, self.ndim = value.shape, value.dtype, 2

    def __getitem__(self, key: Any) -> Any:
        return self._value[key]


@pytest.mark.parametrize("how", COMPUTED)
@pytest.mark.parametrize("own_stream", [False, True])
def test_a_tensor_that_is_still_being_computed_is_read_into_afterwards(cuda, how, own_stream):
    stream = cuda.cupy.cuda.Stream(non_blocking=True) if own_stream else None
    array = on_cuda(gzarr.create_array(data=DATA, chunks=(10, 7)), cuda, stream=stream)
    out = Computed(cuda, 9, **COMPUTED[how])
    array.get_basic_selection(out=out)
    (stream or cuda.cupy.cuda.Stream.null).synchronize()
    out._stream.synchronize()
    np.testing.assert_array_equal(out._array.get(), DATA)


def test_a_tensor_that_neither_protocol_gives_says_why(cuda):
    tensor = Computed(cuda, 9, 2, dlpack=False)
    refused = SimpleNamespace(__dlpack_device__=lambda: (2, 0), __dlpack__=tensor.__dlpack__)
    with pytest.raises(BufferError, match="require gradient"):
        cuda.CudaDevice().adopt(refused)


def test_an_out_that_is_read_only_is_refused(cuda):
    """CuPy would write into it."""
    array = on_cuda(gzarr.create_array(data=DATA, chunks=(10, 7)), cuda)
    target = np.zeros_like(DATA)
    target.flags.writeable = False
    with pytest.raises(ValueError, match="out is read-only"):
        array.get_basic_selection(out=Foreign(target, "interface"))


def test_an_out_on_another_device_is_refused(cuda):
    array = on_cuda(gzarr.create_array(data=DATA, chunks=(10, 7)), cuda)
    with pytest.raises(ValueError, match="copy it there"):
        array.get_basic_selection(out=Foreign(np.zeros_like(DATA), "interface", 1))


def test_small_reads_are_decoded_on_the_host(cuda):
    stored = gzarr.create_array(data=DATA, chunks=(10, 7), compressor=Zlib())
    array = gzarr.open_array(stored.store, mode="r", device=GpuBackend(cuda.CudaDevice()))
    fake_cupy.RawKernel.launches.clear()
    np.testing.assert_array_equal(array[:15, :9].get(), DATA[:15, :9])
    assert fake_cupy.RawKernel.launches == ["copy_plain"]
    np.testing.assert_array_equal(array[:].get(), DATA)
    assert "deflate" in fake_cupy.RawKernel.launches


# -- errors of the driver --------------------------------------------------------------------------------------------


def test_too_little_memory_for_the_result_says_what_to_do(cuda):
    array = on_cuda(gzarr.create_array(data=DATA, chunks=(10, 7)), cuda)
    pool = fake_cupy.MemoryPool()
    pool.set_limit(size=1024)
    with (
        cuda.cupy.cuda.using_allocator(pool.malloc),
        pytest.raises(gzarr.DeviceError, match=r"cuda:0: memory.*allocating 8\d+ bytes.*lower max_device_nbytes.*free"),
    ):
        array[:]


def test_too_little_memory_for_a_batch_says_what_to_do_and_the_next_read_works(cuda):
    array = on_cuda(gzarr.create_array(data=DATA, chunks=(10, 7)), cuda)
    pool = fake_cupy.MemoryPool()
    pool.set_limit(size=DATA.nbytes + 1024)
    with (
        cuda.cupy.cuda.using_allocator(pool.malloc),
        pytest.raises(gzarr.DeviceError, match="lower max_device_nbytes") as caught,
    ):
        array[:]
    assert isinstance(caught.value.__cause__, fake_cupy.OutOfMemoryError)
    np.testing.assert_array_equal(array[:].get(), DATA)


@pytest.mark.parametrize(("status", "says"), [(2, "lower max_device_nbytes"), (700, "start it anew")])
def test_errors_of_the_driver_say_what_to_do(cuda, monkeypatch, status, says):
    array = on_cuda(gzarr.create_array(data=DATA, chunks=(10, 7)), cuda)

    def fail(*_: Any, **__: Any) -> None:
        raise fake_cupy.CUDARuntimeError(status)

    with monkeypatch.context() as patch:
        patch.setattr(cuda.nvcomp, "decompress_async", fail)
        with pytest.raises(gzarr.DeviceError, match=rf"cuda:0: .*cudaError {status}.*{says}"):
            array[:]
    np.testing.assert_array_equal(array[:].get(), DATA)


@pytest.mark.parametrize("shape", [(), (0,), (3, 4)])
def test_uploads_keep_the_shape(cuda, shape):
    device = cuda.CudaDevice()
    array = np.full(shape, 7, "f4")
    there = device.upload(array)
    assert there.shape == shape
    np.testing.assert_array_equal(device.download(there), array)
    np.testing.assert_array_equal(device.download(device.upload(array.T[::-1] if shape else array)), array.T)


def test_pinned_memory_is_as_large_as_asked_for_and_freed(cuda, monkeypatch):
    """CuPy's own pool rounds up to a power of two, and keeps what it has."""
    monkeypatch.delattr(cuda.cupy.cuda, "alloc_pinned_memory")
    asked: list[int] = []
    pin = cuda.cupy.cuda.PinnedMemory
    monkeypatch.setattr(cuda.cupy.cuda, "PinnedMemory", lambda size: asked.append(size) or pin(size))
    device, before = cuda.CudaDevice(), len(_pinned)
    block = device.allocate_pinned(100_001)
    assert block.nbytes == 100_001
    assert asked == [100_001]
    view = block[5:]
    del block
    assert len(_pinned) == before + 1
    del view
    assert len(_pinned) == before
    assert device.staging(0).nbytes == 0


@pytest.mark.usefixtures("only_what_is_needed")
@pytest.mark.parametrize("nbytes", [100, 2 << 20])
def test_pageable_memory_may_be_freed_once_it_is_uploaded(cuda, nbytes):
    """CUDA may read it when the stream comes to the copy, as it does where the device can address pageable memory."""
    device = cuda.CudaDevice()
    with pipeline_slot_of(device) as pipeline_slot:
        waited = pipeline_slot.stream.queue.done
        there = device.upload(np.full(nbytes, 7, "u1"))
        gc.collect()
        assert (pipeline_slot.stream.queue.done > waited) == (nbytes > MAX_TABLE_NBYTES)
        assert set(device.download(there).tolist()) == {7}
    assert device.download(device.upload(np.full(3, 7, "u1"))).tolist() == [7] * 3


def test_decoders_are_called_without_waiting(cuda):
    """Their tables go through staging memory: nothing waits between the upload of the streams and the results."""
    device = cuda.CudaDevice()
    packed = bare_deflate(b"x" * 1000)  # noqa: F405
    with pipeline_slot_of(device) as pipeline_slot:
        staging = device.staging(len(packed))
        staging[:] = np.frombuffer(packed, np.uint8)
        source, out = device.upload(staging), device.empty(1000)
        done = pipeline_slot.stream.queue.done
        table = (device.address(source), len(packed), device.address(out), 1000)
        outcome = device.decompress("deflate", *(np.array([value]) for value in table))
        sums = device.crc("crc32", np.array([device.address(out)]), np.array([1000]))
        assert pipeline_slot.stream.queue.done == done
        assert device.download(outcome.statuses).tolist() == [0]
        assert device.download(out).tobytes() == b"x" * 1000
        assert device.download(sums.sums).tolist() == [zlib.crc32(b"x" * 1000)]


@pytest.mark.parametrize("where", ["host", "device"])
def test_a_batch_holds_the_memory_of_its_streams(cuda, where):
    """Whoever asked for them may drop streams and staging buffer before the device has come to them."""
    device, cupy = cuda.CudaDevice(), cuda.cupy
    host = device.staging(1000)
    host[:] = 7
    there = device.upload(host) if where == "device" else None
    batch = Batch(None if where == "device" else host, there, np.array([16]), np.array([100]))
    target, context = cupy.empty(100, "u1"), BatchContext(device)
    device.synchronize()
    with cupy.cuda.Stream(non_blocking=True):
        streams = batch.streams(context)
        target.data.copy_from_device_async(streams.staging_buffer[16:].data, 100)
        del streams, batch, host, there
        gc.collect()
        assert set(target.get().tolist()) == {7}


def test_the_double_refuses_what_cupy_refuses(cuda):
    there = cuda.cupy.asarray(DATA)
    with pytest.raises(TypeError, match="Implicit conversion"):
        np.asarray(there)
    with pytest.raises(TypeError):
        there + DATA
    with pytest.raises(TypeError):
        there[:3] = DATA[:3]
    with pytest.raises(ValueError):
        cuda.cupy.empty(3, "M8[s]")
    with cuda.cupy.cuda.Device(1):
        stream = cuda.cupy.cuda.Stream()
    with pytest.raises(RuntimeError, match="does not match"), stream:
        pass
    with pytest.raises(fake_cupy.CUDARuntimeError):
        stream.record()  # an event of the first device
    with cuda.cupy.cuda.using_allocator(np.empty), pytest.raises(TypeError):
        cuda.cupy.empty(3)


# -- the questions put to hardware -----------------------------------------------------------------------------------


@pytest.fixture
def gpu(cuda: Any) -> Gpu:
    return Gpu(cuda.CudaDevice(), cuda.cupy, cuda.nvcomp)


def test_questions_are_asked_rightly(gpu: Gpu) -> None:
    """The double decodes with host libraries: their answers to sound streams are known."""
    rows = questions.temp_sizes(gpu)["rows"]
    assert {row[0] for row in rows} == set(nvcomp_tables.CODECS)
    assert all(asked == formula for *_, asked, formula in rows)
    frames = questions.zstd_frames(gpu)
    assert frames["plain"] == {"statuses": [0], "sizes": [65536], "right": [True], "wrote_past_end": False}
    assert frames["checksum"]["right"] == [True]
    assert frames["no content size"]["right"] == [True]
    assert frames["wrong checksum"]["statuses"] == [12]
    dummies = questions.dummy_streams(gpu)
    assert dummies["zstd, room 1"]["right"] == [True] * 3
    for codec in ("lz4", "zstd", "deflate"):
        assert questions.damaged(codec)(gpu)["works_afterwards"]
        assert questions.truncated(codec)(gpu)["works_afterwards"]
    tables = Tables(gpu, "deflate", [questions.bare("deflate", questions.TEXT)] * 3, [1 << 16] * 3, shift=4)
    tables.decode(gpu)
    assert tables.result().outputs == [questions.TEXT] * 3
    misaligned = Tables(gpu, "deflate", [b"\3\0"], [1], shift=1)
    misaligned.decode(gpu)
    with pytest.raises(gzarr.DeviceError, match="not aligned"):
        misaligned.result()


MEASUREMENTS = ["bandwidths", "launch_costs", "sum_rates", "place_box_variants", "small_reads"]
MEASUREMENTS += ["small_writes", "readers", "pipeline_slots", "placement_rates", "pinned_memory", "batch_sizes"]


def test_the_benchmark_runs_through(gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its branches for CUDA, on the double; the file stays in a temporary folder."""
    monkeypatch.setattr(benchmark, "open_gpu", lambda: gpu)
    some = [
        cases.Case("blosc-lz4", 4 << 10, "sharded", 256, full=True),
        cases.Case("zstd", 4 << 10, "plain", 256),
        cases.StreamsCase("lz4", 70),
        loader_cases(small=True)[1],
        pyramid_cases(small=True)[0],
    ]
    monkeypatch.setattr(benchmark, "cases", lambda *, small: some)
    result = json.loads(benchmark.run(tmp_path, "cuda", 60, small=True).read_text())
    assert result["machine"]["gpu"] == "no GPU: a double"
    own = [row for row in result["rows"] if row["contender"] == "gzarr"]
    assert collections.Counter(row["table"] for row in own) == {
        "resident": 2,
        "streams": 1,
        "file": 5 + 3,
        "write": 2,
        "memory": 2,
        "loader": 1,
        "pyramid": 1,
    }
    assert all(row["bare_nvcomp_seconds"] > 0 for row in own if row["table"] in ("resident", "streams"))
    assert all(0 < row["peak_nbytes"] <= row["cap_nbytes"] for row in own if row["table"] == "memory")
    assert sum("small reads" in row["contender"] for row in result["rows"]) == 3 + 2
    assert {row["contender"] for row in result["failed"]} <= set(PEERS) - {"gzarr on the CPU, upload"}
