"""A CUDA device: CuPy for memory, streams and kernels, nvCOMP for the batched decoders and encoders.

Work goes to CuPy's current stream, and memory comes from CuPy's current allocator. `CudaDevice.activate` sets both for
its thread, so that temporaries of CuPy's own operations are counted too. Copies from pinned staging memory are
asynchronous; the host waits in `CudaDevice.download` and `CudaDevice.download_all`. NVRTC compiles a kernel when it is
first launched, in 0.04 to 1.2 seconds, and CuPy keeps the result in its folder of kernels (CUPY_CACHE_DIR), by source,
options and architecture, for other processes. CuPy's errors become `DeviceError` at the end of the contexts of this
module.
"""

import operator
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any

import cupy
import numpy as np
from numpy.typing import NDArray

from gzarr.backend import T
from gzarr.concurrency import new_lock
from gzarr.errors import DeviceError, OutOfMemoryError
from gzarr.gpu.device import nvcomp
from gzarr.gpu.device.allocators import available_nbytes, is_driver_error, is_out_of_memory
from gzarr.gpu.device.cuda_transfers import watching
from gzarr.gpu.device.memory import Arena, Staging
from gzarr.gpu.device.nvcomp_tables import DECODERS, ENCODERS, check_capacity, compress_options
from gzarr.gpu.device.protocol import Checksums, Device, Outcome, Table
from gzarr.gpu.kernels.sources import BLOCK_THREADS, COMPILER_OPTIONS, KERNELS, source
from gzarr.profiling import transfers

#: DLPack's device types of CUDA memory and of managed memory (dlpack.h, DLDeviceType).
_DLPACK_CUDA = (2, 13)
#: Since this version, an array interface that names no stream promises that none must be waited for (CUDA Array
#: Interface, "Synchronization").
_STREAM_VERSION = 3
#: Most blocks of a launch (CUDA C++ Programming Guide, "Compute Capabilities").
_MAX_BLOCKS = (1 << 31) - 1
#: Larger blocks are not pinned: pinned memory is taken from the page cache and from other processes.
_MAX_PINNED_NBYTES = 1 << 29
#: Larger arrays in pageable memory are not copied to pinned memory before they are uploaded.
_MAX_STAGED_NBYTES = 1 << 20
#: All streams that were made, by device, which are used again when nothing refers to them. They are not destroyed: in
#: reference cycles, the collector would do that before RMM frees memory in their order.
_streams: defaultdict[int, list[Any]] = defaultdict(list)
#: Held while one of them is taken.
_TAKING = new_lock()
#: Held while kernels are compiled: several threads that ask CuPy for the same module would each compile it.
_COMPILING = new_lock()
#: cudaErrorMemoryAllocation (CUDA Runtime API, cudaError_t), for device or pinned host memory.
_NO_MEMORY = 2

transfers.watched_by("cupy", partial(watching, cupy))


class _Handle:
    """The address of a stream as an object of CUDA's stream protocol."""

    def __init__(self, address: int) -> None:
        self._address = operator.index(address)

    def __cuda_stream__(self) -> tuple[int, int]:
        """The version of the protocol, and the address."""
        return 0, self._address


class _Registered:
    """Host memory that CUDA has pinned and mapped, as long as this lives."""

    def __init__(self, host: NDArray[Any]) -> None:
        mapped = cupy.cuda.runtime.hostAllocMapped  # as cudaHostRegisterMapped
        cupy.cuda.runtime.hostRegister(host.ctypes.data, host.nbytes, mapped)
        self._host, self._unregister = host, cupy.cuda.runtime.hostUnregister

    def __del__(self) -> None:
        with suppress(Exception):  # of a device that has failed, or memory that was never registered
            self._unregister(self._host.ctypes.data)


@contextmanager
def cuda_errors(device: str) -> Iterator[None]:
    """Turn CuPy's errors of driver and memory into errors that name a remedy. Raises: DeviceError."""
    try:
        yield
    except DeviceError:
        raise
    except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError) as error:
        raise (_out_of_memory if error.status == _NO_MEMORY else _failed)(device, error) from error
    except (MemoryError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise _out_of_memory(device, error) from error
        if is_driver_error(error):
            raise _failed(device, error) from error
        raise


def _failed(device: str, error: Exception) -> DeviceError:
    return DeviceError(
        f"{device}: the driver reports {error}; after a failed kernel CUDA refuses all further work of a process: "
        "if other reads fail too, start it anew"
    )


def _out_of_memory(device: str, error: Exception) -> OutOfMemoryError:
    return OutOfMemoryError(
        f"{device}: memory could not be allocated ({error}); lower max_device_nbytes, read a smaller selection, or "
        "free memory: delete arrays, then cupy.get_default_memory_pool().free_all_blocks(), or "
        "torch.cuda.empty_cache() if PyTorch has it"
    )


class CudaDevice(Device):
    """One CUDA device.

    Attributes
    ----------
    name
        "cuda:0" and so on.
    xp
        The module cupy.
    """

    xp = cupy
    decoders, encoders = DECODERS, ENCODERS

    def __init__(self, number: int = 0) -> None:
        with cuda_errors("CUDA"):
            count = cupy.cuda.runtime.getDeviceCount()
        if not 0 <= number < count:
            raise DeviceError(f"no device cuda:{number}: there are {count}, counted from 0")
        self.name = f"cuda:{number}"
        self._device = cupy.cuda.Device(number)
        super().__init__()
        self._kernels: dict[str, Any] = {}

    def owns(self, array: Any) -> bool:
        """Whether an array is in the memory of this device."""
        return isinstance(array, cupy.ndarray) and array.device == self._device

    def adopt(self, value: Any, stream: Any = None) -> Any:
        """A CuPy array that shares the memory of another library's array; None if that is not on a CUDA device.

        DLPack comes first: it makes the stream wait for the library's own stream. CUDA's array interface serves arrays
        that DLPack refuses. CuPy waits for the stream that an interface names; if one of version 2 names none, as
        torch's, this waits for the whole device.
        """
        if isinstance(value, cupy.ndarray):
            return value
        if hasattr(value, "__dlpack_device__") and int(value.__dlpack_device__()[0]) in _DLPACK_CUDA:
            try:
                with cuda_errors(self.name), self._device, nullcontext() if stream is None else stream:
                    return cupy.from_dlpack(value)
            except (BufferError, RuntimeError, TypeError, ValueError):
                if not hasattr(value, "__cuda_array_interface__"):
                    raise
        interface = getattr(value, "__cuda_array_interface__", None)
        if interface is None:
            return None
        with cuda_errors(self.name), _device_at(interface["data"][0]):  # CuPy would copy it to the current device
            adopted = cupy.asarray(value)
            if interface.get("version", 0) < _STREAM_VERSION and interface.get("stream") is None:
                adopted.device.synchronize()
        return adopted

    def current_stream(self) -> Any:
        """CuPy's current stream of this thread."""
        with self._device:
            return cupy.cuda.get_current_stream()

    def as_stream(self, stream: Any) -> Any:
        """A CuPy stream, an object with ``__cuda_stream__``, or the address of a stream. Raises: DeviceError."""
        if hasattr(stream, "wait_event"):  # CuPy's own classes of streams share no public base
            return stream
        try:
            return cupy.cuda.Stream.from_external(stream if hasattr(stream, "__cuda_stream__") else _Handle(stream))
        except (TypeError, ValueError) as error:
            raise DeviceError(
                f"stream: expected a CuPy stream, an object with __cuda_stream__ or an address, got {stream!r}"
            ) from error

    def new_stream(self) -> Any:
        """A non-blocking stream, which nothing else refers to."""
        streams = _streams[self._device.id]
        with cuda_errors(self.name), self._device, _TAKING:
            for number in range(len(streams)):
                if sys.getrefcount(streams[number]) == 2:  # the list's and the call's
                    return streams[number]
            streams.append(cupy.cuda.Stream(non_blocking=True))
            return streams[-1]

    @contextmanager
    def use(self, stream: Any) -> Iterator[None]:
        """Make a stream current for this thread. Raises: DeviceError for CuPy's errors within the context."""
        with cuda_errors(self.name), self._device, stream:
            yield

    def record(self, stream: Any) -> Any:
        """An event on a stream."""
        with cuda_errors(self.name), self._device:
            return stream.record(cupy.cuda.Event(disable_timing=True))

    def wait(self, stream: Any, event: Any) -> None:
        """Make a stream wait for an event."""
        with cuda_errors(self.name), self._device:  # the default stream is that of the current device
            stream.wait_event(event)

    def is_done(self, event: Any) -> bool:
        """Whether an event has happened."""
        with cuda_errors(self.name):
            return bool(event.done)

    @contextmanager
    def activate(self, stream: Any, memory: Arena, staging: Staging) -> Iterator[None]:
        """Make a stream and arenas current for this thread, for CuPy's own allocations too.

        Raises: DeviceError for CuPy's errors within the context.
        """
        # Blocks come from the user's allocator: the default pool, or another one.
        allocator = self._allocator
        own = cupy.cuda.using_allocator(lambda nbytes: memory.take(nbytes).data)
        with self._active(allocator=allocator, staging=staging), cuda_errors(self.name), self._device, stream, own:
            yield

    def allocate(self, nbytes: int) -> Any:
        """A block of device memory from the user's allocator. Raises: OutOfMemoryError."""
        allocator = self._allocator
        give_back = getattr(getattr(allocator, "__self__", None), "free_all_blocks", None)
        with cuda_errors(self.name), self._device:
            if give_back is not None:
                # A pool keeps what a pipeline slot has freed for the pipeline slot's stream only, beyond the pipeline
                # slot's limit. The next block is larger, so that this would be of no use.
                give_back(stream=cupy.cuda.get_current_stream())
            return self._allocated(lambda: cupy.ndarray((nbytes,), cupy.uint8, allocator(nbytes)))

    @property
    def _allocator(self) -> Callable[[int], Any]:
        """The user's allocator, also where a pipeline slot's is current."""
        allocator: Callable[[int], Any] = getattr(self._local, "allocator", None) or cupy.cuda.get_allocator()
        return allocator

    def _empty_pools(self) -> None:
        pool: Any = getattr(self._allocator, "__self__", None)
        for some in (cupy.get_default_memory_pool(), pool):
            if hasattr(some, "free_all_blocks"):
                some.free_all_blocks()

    def allocate_pinned(self, nbytes: int) -> NDArray[np.uint8]:
        """A block of pinned host memory; of pageable memory, from which copies are slower, if it is very large."""
        if nbytes > _MAX_PINNED_NBYTES:
            return np.empty(nbytes, np.uint8)
        # Not from CuPy's pool, which rounds up to a power of two and keeps what it has.
        with cuda_errors(self.name), self._device:
            memory = cupy.cuda.PinnedMemory(max(nbytes, 1))
        return np.frombuffer(cupy.cuda.PinnedMemoryPointer(memory, 0), np.uint8, nbytes)

    def empty(self, nbytes: int) -> Any:
        """Device memory: a flat uint8 array."""
        with self._device:
            return cupy.empty(nbytes, cupy.uint8)

    def result(self, shape: tuple[int, ...], dtype: np.dtype[Any], stream: Any = None) -> Any:
        """An uninitialized array on this device, which may not be the current one, from the user's allocator.

        Raises: DeviceError if there is not enough memory.
        """
        # CuPy's pool may return memory that work on the same stream still uses, and pipeline slots wait for that stream
        # only. In a read within a write, or within a store, a pipeline slot's allocator is current.
        outside = cupy.cuda.using_allocator(self._allocator)
        with cuda_errors(self.name), self._device, outside, nullcontext() if stream is None else stream:
            return self._allocated(lambda: cupy.empty(shape, dtype))

    def mapped(self, host: NDArray[Any]) -> Any:
        """Pinned host memory at the address that it has on the device, too."""
        with cuda_errors(self.name), self._device:
            memory = cupy.cuda.UnownedMemory(host.ctypes.data, host.nbytes, _Registered(host), self._device.id)
            return cupy.ndarray(host.shape, host.dtype, cupy.cuda.MemoryPointer(memory, 0))

    def owned_by(self, array: Any, owner: object) -> Any:
        """An array in the same memory, which keeps an owner alive."""
        memory = cupy.cuda.UnownedMemory(array.data.ptr, array.nbytes, (array, owner), array.data.device_id)
        with self._device:
            return cupy.ndarray(array.shape, array.dtype, cupy.cuda.MemoryPointer(memory, 0))

    def upload(self, host: NDArray[Any]) -> Any:
        """Copy a host array to the device in stream order."""
        array = cupy.empty(host.shape, host.dtype)
        source = np.asarray(host, order="C")
        arena = self._staging
        if not source.nbytes or _is_pinned(source):
            array.set(source)
        elif arena is not None and source.nbytes <= _MAX_STAGED_NBYTES:
            staged = arena.take(source.nbytes).view(source.dtype).reshape(source.shape)
            staged[...] = source
            array.set(staged)
        else:  # CUDA may read pageable memory as late as pinned memory, when the caller may have freed it
            array.set(source)
            self.synchronize()
        return array

    def download(self, array: Any, into: NDArray[Any] | None = None) -> NDArray[Any]:
        """Copy a device array to the host. Waits for earlier work. into: target of the same shape and dtype."""
        with cuda_errors(self.name):
            copied: NDArray[Any] = cupy.asnumpy(array, out=into)
        return copied

    def download_all(self, arrays: Sequence[Any]) -> list[NDArray[Any]]:
        """Copy device arrays to pinned memory. Waits once."""
        with cuda_errors(self.name):
            return super().download_all(arrays)

    def _begin_download(self, array: Any, host: NDArray[Any]) -> None:
        array.get(out=host, blocking=False)

    def synchronize(self) -> None:
        """Wait for the stream."""
        cupy.cuda.get_current_stream().synchronize()

    def push_range(self, name: str) -> None:
        """Begin an NVTX range."""
        cupy.cuda.nvtx.RangePush(name)

    def pop_range(self) -> None:
        """End the NVTX range begun last."""
        cupy.cuda.nvtx.RangePop()

    def mark(self) -> Any:
        """A timed event on the current stream; None if the device has failed, which the read reports."""
        try:
            return cupy.cuda.get_current_stream().record()
        except cupy.cuda.runtime.CUDARuntimeError:
            return None

    def seconds_between(self, start: Any, end: Any) -> float:
        """Seconds between two events; 0 if the device has failed."""
        try:
            with self._device:
                start.synchronize()
                end.synchronize()
                return float(cupy.cuda.get_elapsed_time(start, end)) * 1e-3
        except (AttributeError, cupy.cuda.runtime.CUDARuntimeError):
            return 0.0

    def address(self, array: Any) -> int:
        """Address of an array's first element."""
        return int(array.data.ptr)

    def launch(self, kernel: str, n_threads: int, args: tuple[Any, ...]) -> None:
        """Run a kernel with at least ``n_threads`` threads."""
        if n_threads == 0:
            return
        typed = []
        for argument, value in zip(KERNELS[kernel], args, strict=True):
            plain = self.address(value) if isinstance(value, cupy.ndarray) else int(value)
            typed.append(np.int64(plain) if argument.type == "i64" else np.uint64(plain))
        blocks = min(-(-n_threads // BLOCK_THREADS), _MAX_BLOCKS)
        self._kernel(kernel)((blocks,), (BLOCK_THREADS,), tuple(typed))

    def _kernel(self, name: str) -> Any:
        if name not in self._kernels:
            with _COMPILING, self._device:
                module = cupy.RawModule(code=source(name), options=COMPILER_OPTIONS)
                self._kernels[name] = module.get_function(name)
        return self._kernels[name]

    def compile_all(self) -> None:
        """Compile all kernels, or load them from CuPy's folder. Raises: DeviceError."""
        with cuda_errors(self.name):
            for name in KERNELS:
                self._kernel(name)

    def decompress(self, decoder: str, source: Table, nbytes: Table, target: Table, capacity: Table) -> Outcome:
        """Decode many streams in one call of nvCOMP. Raises: DeviceError if nvCOMP refuses the call."""
        n = source.size
        tables = self._upload_tables(source, nbytes, target, capacity)
        stream = cupy.cuda.get_current_stream().ptr
        scratch_nbytes = nvcomp.query_temp_nbytes(decoder, n, int(capacity.max()), int(capacity.sum()), stream)
        batch, outcome, _scratch = self._batch(tables, scratch_nbytes, stream)
        nvcomp.decompress_async(decoder, batch, self.address(tables) + 3 * n * 8)
        return outcome

    def compress(
        self, encoder: str, source: Table, nbytes: Table, target: Table, capacity: int, typesize: int = 1
    ) -> Outcome:
        """Encode many chunks in one call of nvCOMP. Raises: DeviceError if nvCOMP refuses the call."""
        n, largest = source.size, int(nbytes.max())
        check_capacity(encoder, largest, capacity)
        options = compress_options(encoder, typesize)
        tables = self._upload_tables(source, nbytes, target)
        stream = cupy.cuda.get_current_stream().ptr
        scratch_nbytes = nvcomp.compress_temp_nbytes(encoder, n, largest, int(nbytes.sum()), options, stream)
        batch, outcome, _scratch = self._batch(tables, scratch_nbytes, stream)
        nvcomp.compress_async(encoder, batch, largest, options)
        return outcome

    def _batch(self, tables: Any, scratch_nbytes: int, stream: int) -> tuple[nvcomp.StreamBatch, Outcome, Any]:
        """A call for streams by tables of their addresses, sizes and targets. Returns: it, its results, and scratch.

        In a pipeline slot, tables and scratch stay in its arenas until the batch is done. Outside of one, CuPy's pool
        reuses them in stream order.
        """
        n, scratch = tables.shape[1], cupy.empty(max(scratch_nbytes, 1), cupy.uint8)
        outcome = Outcome(cupy.empty(n, cupy.int32), cupy.empty(n, cupy.uint64))
        source, sizes, target = (self.address(tables) + row * n * 8 for row in range(3))
        work = self.address(scratch), scratch_nbytes, target, self.address(outcome.sizes)
        return nvcomp.StreamBatch(source, sizes, n, *work, self.address(outcome.statuses), stream), outcome, scratch

    def crc(self, kind: str, source: Table, nbytes: Table) -> Checksums:
        """Checksums of many byte ranges."""
        n = source.size
        tables = self._upload_tables(source, nbytes)
        sums = cupy.empty(n, cupy.uint32)
        statuses = cupy.empty(n, cupy.int32)
        base = self.address(tables)
        stream = cupy.cuda.get_current_stream().ptr
        places = (self.address(sums), self.address(statuses))
        nvcomp.crc_async(kind, base, base + n * 8, n, int(nbytes.max()), *places, stream)
        return Checksums(sums, statuses)

    def _upload_tables(self, *tables: Table) -> Any:
        """Upload tables in one copy, as uint64 for nvCOMP.

        In a pipeline slot, they pass through its staging memory, which is not reused before the batch is done, so
        nothing waits. Outside of one, the copy is complete when this returns.
        """
        arena, shape = self._staging, (len(tables), tables[0].size)
        nbytes = 8 * shape[0] * shape[1]
        host = np.empty(shape, np.uint64) if arena is None else arena.take(nbytes).view(np.uint64).reshape(shape)
        for row, table in zip(host, tables, strict=True):
            row[:] = table
        return self.upload(host)

    def measured(self, call: Callable[[], T]) -> tuple[T, int | None]:
        """The result of a call, and what a pool of its own took for it, which gives nothing back meanwhile."""
        pool = cupy.cuda.MemoryPool()
        with cuda_errors(self.name), self._device, cupy.cuda.using_allocator(pool.malloc):
            return call(), pool.total_bytes()

    def free_nbytes(self) -> int:
        """Free device memory, including what the allocator's pool keeps."""
        with cuda_errors(self.name), self._device:
            free, _ = cupy.cuda.runtime.memGetInfo()
            return available_nbytes(self._allocator, cupy.get_default_memory_pool(), int(free), self._device.id)


def _device_at(address: int) -> Any:
    """The device with the memory at an address; the current one for no address."""
    return cupy.cuda.Device(cupy.cuda.runtime.pointerGetAttributes(address).device if address else None)


def _is_pinned(array: NDArray[Any]) -> bool:
    """Whether an array is in memory that `CudaDevice.allocate_pinned` allocated."""
    owner: Any = array
    while isinstance(owner, (np.ndarray, memoryview)):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    return isinstance(owner, cupy.cuda.PinnedMemoryPointer)
