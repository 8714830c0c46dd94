"""A double of CuPy on NumPy memory, with CuPy's signatures and refusals, to run `CudaDevice` where there is no GPU.

It shows wrong calls: arrays that are not NumPy's and do not become so by themselves, NumPy arrays handed to device
functions, arguments of kernels that are not 64 bits wide, tables in the wrong order, copies that have not happened yet.
Work is queued on streams and done only when something waits for it, so that host memory which is given back or changed
too early is seen: pinned memory is overwritten when it is freed. Its own arithmetic on floats is as wrong as CuPy's
(`tests.gpu.flushing`). It shows nothing about CUDA itself, and no speed.
"""

from __future__ import annotations

import bisect
import ctypes
import itertools
import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any, Self

import numpy as np

from gzarr.gpu import kernels
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.hostbuild import HostKernels
from gzarr.gpu.device.nvcomp_tables import compress_options
from tests.gpu.flushing import flushed, result_of

_NO_CONVERSION = "Implicit conversion to a NumPy array is not allowed. Please use `.get()`"
#: What fresh device memory and freed memory hold.
FRESH, FREED = 0xA5, 0xDB
N_DEVICES = 2


class CUDARuntimeError(RuntimeError):
    """Like cupy.cuda.runtime.CUDARuntimeError."""

    def __init__(self, status: int) -> None:
        super().__init__(f"cudaError {status}")
        self.status = status


class CUDADriverError(RuntimeError):
    """Like cupy.cuda.driver.CUDADriverError."""

    def __init__(self, status: int) -> None:
        super().__init__(f"CUDA_ERROR {status}")
        self.status = status


class OutOfMemoryError(MemoryError):
    """Like cupy.cuda.memory.OutOfMemoryError."""

    def __init__(self, size: int, total: int, limit: int = 0) -> None:
        super().__init__(f"Out of memory allocating {size} bytes (allocated so far: {total} bytes)")


#: cudaErrorInvalidConfiguration, cudaErrorInvalidResourceHandle, cudaErrorNotReady.
_INVALID_CONFIGURATION, _INVALID_HANDLE, _NOT_READY = 9, 400, 600


class _Current(threading.local):
    def __init__(self) -> None:
        self.device = 0
        self.streams: list[list[Stream]] = [[Stream.null] for _ in range(N_DEVICES)]
        self.allocator: Callable[[int], MemoryPointer] | None = None


#: Work of all streams is done under one lock, by whoever waits: several threads may wait for each other's streams.
_DOING = threading.RLock()


class _Queue:
    """The work of a stream, in order; behind an event lies what was submitted after it."""

    def __init__(self) -> None:
        self.pending: deque[Callable[[], None]] = deque()
        self.submitted = self.done = 0
        self._busy = False

    def submit(self, task: Callable[[], None]) -> None:
        with _DOING:
            self.pending.append(task)
            self.submitted += 1

    def run(self, until: int | None = None) -> None:
        """Do the work that was submitted so far, or before some point."""
        with _DOING:
            until = self.submitted if until is None else until
            while self.done < until and not self._busy:
                self._busy = True
                try:
                    self.pending.popleft()()
                finally:
                    self.done += 1
                    self._busy = False


class Stream:
    """A queue of work: done when it is waited for, in order."""

    null: Stream
    numbers = itertools.count(0x1000)
    queues: weakref.WeakValueDictionary[int, _Queue] = weakref.WeakValueDictionary()
    made = 0

    def __init__(self, null: bool = False, non_blocking: bool = False, ptds: bool = False, priority: Any = None):
        self.ptr = 0 if null else next(Stream.numbers)
        self.device_id = -1 if null else _current.device
        self._own = None if null else _Queue()
        if self._own is not None:
            Stream.queues[self.ptr] = self._own
        Stream.made += not null

    @classmethod
    def from_external(cls, obj: Any) -> Self:
        if not hasattr(obj, "__cuda_stream__"):
            raise TypeError(f"Object of type {type(obj).__name__} does not implement the CUDA stream protocol")
        _, pointer = obj.__cuda_stream__()
        made = cls.__new__(cls)
        made.ptr, made.device_id, made._own = pointer, -1, None if pointer == 0 else Stream.queues[pointer]
        return made

    @property
    def queue(self) -> _Queue:
        """Each device has a default stream; the address 0 means that of the current one."""
        return _default_queues[_current.device] if self._own is None else self._own

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.ptr

    @property
    def pending(self) -> deque[Callable[[], None]]:
        return self.queue.pending

    @property
    def done(self) -> bool:
        return not self.queue.pending

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.ptr == self.ptr

    def __hash__(self) -> int:
        return hash(self.ptr)

    def __enter__(self) -> Self:
        if self.device_id not in (-1, _current.device):
            raise RuntimeError("The device that the stream is created on does not match with the current device")
        _current.streams[_current.device].append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _current.streams[_current.device].pop()

    def synchronize(self) -> None:
        self.queue.run()

    def record(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        # An event that is recorded again counts as it was when it was waited for.
        queue, place = event.queue, event.place
        if queue is not None:
            self.queue.submit(lambda: queue.run(place))


class Event:
    """A point on a stream; waiting for it does what comes before it."""

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False):
        self.queue: _Queue | None = None
        self.place = 0
        self.ptr = 1
        self.device_id = _current.device
        self.timed = not disable_timing
        self.time = 0.0

    @property
    def done(self) -> bool:
        return self.queue is None or self.queue.done >= self.place

    def record(self, stream: Stream | None = None) -> None:
        stream = stream or get_current_stream()
        if (_current.device if stream.ptr == 0 else stream.device_id) not in (-1, self.device_id):
            raise CUDARuntimeError(_INVALID_HANDLE)
        if self.timed:
            stream.queue.submit(lambda: setattr(self, "time", time.perf_counter()))
        self.queue, self.place = stream.queue, stream.queue.submitted

    def synchronize(self) -> None:
        if self.queue is not None:
            self.queue.run(self.place)


def get_elapsed_time(start_event: Event, end_event: Event) -> float:
    if not start_event.timed or not end_event.timed:
        raise CUDARuntimeError(_INVALID_HANDLE)
    if not start_event.done or not end_event.done:
        raise CUDARuntimeError(_NOT_READY)
    return 1e-3 + (end_event.time - start_event.time) * 1e3


class Device:
    """A device's number, and a context in which it is current."""

    def __init__(self, device: int | None = None):
        self.id = _current.device if device is None else int(device)
        self._before = threading.local()

    def __enter__(self) -> Self:
        self._before.__dict__.setdefault("stack", []).append(_current.device)
        _current.device = self.id
        return self

    def __exit__(self, *exc: object) -> None:
        _current.device = self._before.stack.pop()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    __hash__ = None  # type: ignore[assignment]

    def use(self) -> None:
        _current.device = self.id

    def synchronize(self) -> None:
        for queue in list(Stream.queues.values()):
            queue.run()


class Nvtx(threading.local):
    """Like cupy.cuda.nvtx: ranges that are open on this thread; those that ever were, in `ended`."""

    ended: list[tuple[str, ...]] = []

    def __init__(self) -> None:
        self.open: list[str] = []

    def RangePush(self, message: str, id_color: int = -1) -> None:  # noqa: N802 - CuPy's name
        if not isinstance(message, str):
            raise TypeError("Argument 'message' has incorrect type")
        self.open.append(message)

    def RangePop(self) -> None:  # noqa: N802 - CuPy's name
        Nvtx.ended.append(tuple(self.open))
        self.open.pop()


nvtx = Nvtx()


def get_current_stream(device_id: int = -1) -> Stream:
    return _current.streams[_current.device if device_id < 0 else device_id][-1]


def _submit(task: Callable[[], None]) -> None:
    """Queue work on the current stream, which must belong to the current device."""
    stream = get_current_stream()
    if stream.device_id not in (-1, _current.device):
        raise CUDARuntimeError(_INVALID_HANDLE)
    stream.queue.submit(task)


# -- memory of the device --------------------------------------------------------------------------------------------


class Memory:
    """A block of device memory; freed, it is overwritten in the order of the stream on which it was allocated.

    CuPy's pool hands it out again for work on that stream; what other streams still do with it would show.
    """

    def __init__(self, size: int, pool: MemoryPool | None = None):
        self.size = size
        self.device_id = _current.device
        self.backing = np.full(size, FRESH, np.uint8)
        self.ptr = int(self.backing.ctypes.data)
        self._queue = get_current_stream().queue
        self._pool = pool

    def __del__(self) -> None:
        if self._pool is not None:
            self._pool.freed(self.size)
        backing = self.backing
        with _DOING:
            # No other memory gets this address while work that holds it is under way.
            for queue in list(Stream.queues.values()):
                if queue.pending and queue is not self._queue:
                    queue.submit(lambda: _keep(backing))
            self._queue.submit(lambda: backing.fill(FREED))
            if len(self._queue.pending) == 1:
                self._queue.run()


class UnownedMemory:
    """Like cupy.cuda.UnownedMemory: memory of another library."""

    def __init__(self, ptr: int, size: int, owner: object, device_id: int = -1):
        self.ptr, self.size, self.owner = ptr, size, owner
        self.device_id = _current.device if device_id < 0 else device_id
        self.backing = np.ctypeslib.as_array(_bytes_at(ptr, size)) if size else np.empty(0, np.uint8)


class MemoryPointer:
    """Like cupy.cuda.MemoryPointer."""

    def __init__(self, mem: Memory | UnownedMemory, offset: int):
        self.mem, self._offset = mem, offset
        self.ptr, self.device_id = mem.ptr + offset, mem.device_id

    def copy_from_device_async(self, src: MemoryPointer, size: int, stream: Any = None) -> None:
        target, source = self.ptr, src.ptr
        _submit(lambda: _keep(ctypes.memmove(target, source, size)))


class MemoryPool:
    """Like cupy.cuda.MemoryPool, except that it keeps nothing."""

    def __init__(self, allocator: Any = None):
        self.used = self.limit = 0
        self._lock = threading.RLock()

    def malloc(self, size: int) -> MemoryPointer:
        size = -(-size // 512) * 512
        with self._lock:
            if self.limit and self.used + size > self.limit:
                raise OutOfMemoryError(size, self.used, self.limit)
            self.used += size
        return MemoryPointer(Memory(size, self), 0)

    def freed(self, size: int) -> None:
        with self._lock:
            self.used -= size

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        self.limit = size or 0

    def used_bytes(self) -> int:
        return self.used

    total_bytes = used_bytes

    def free_bytes(self) -> int:
        return 0

    def free_all_blocks(self, stream: Any = None) -> None:
        pass


_POOL = MemoryPool()
_allocator: list[Callable[[int], MemoryPointer]] = [_POOL.malloc]


def get_allocator() -> Callable[[int], MemoryPointer]:
    return _current.allocator or _allocator[0]


def set_allocator(allocator: Callable[[int], MemoryPointer] | None = None) -> None:
    if _current.allocator is not None:
        raise ValueError("Can't change the global allocator inside `using_allocator` context manager")
    _allocator[0] = allocator or _POOL.malloc


@contextmanager
def using_allocator(allocator: Callable[[int], MemoryPointer] | None = None) -> Iterator[None]:
    before, _current.allocator = _current.allocator, allocator or _POOL.malloc
    try:
        yield
    finally:
        _current.allocator = before


def _allocate(nbytes: int) -> MemoryPointer:
    found = get_allocator()(nbytes)
    if not isinstance(found, MemoryPointer):
        raise TypeError(f"Cannot convert {type(found).__name__} to cupy.cuda.memory.MemoryPointer")
    return found


# -- arrays ----------------------------------------------------------------------------------------------------------


def _keep(*_: Any) -> None:
    """Whoever queues this keeps its arguments until then."""


def _host(value: Any) -> Any:
    """What an operation on the device takes: device arrays and plain numbers, never NumPy arrays."""
    if isinstance(value, ndarray):
        get_current_stream().synchronize()
        return value._host
    if isinstance(value, np.ndarray) and value.ndim:
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    return value


def _operand(value: Any) -> Any:
    """What an operation calculates with, casts or compares."""
    return flushed(_host(value))


def _index(key: Any) -> Any:
    """Lists and NumPy arrays may be indices."""
    if isinstance(key, tuple):
        return tuple(_index(item) for item in key)
    return _host(key) if isinstance(key, ndarray) else key


def _operator(name: str) -> Callable[..., Any]:
    def apply(self: ndarray, *others: Any) -> Any:
        found = getattr(_operand(self), name)(*(_operand(other) for other in others))
        return found if found is NotImplemented else _new(result_of(found))

    return apply


def _new(host: Any) -> ndarray:
    """A result in memory of its own, from the current allocator."""
    host = np.asarray(host)
    order = "F" if host.flags.f_contiguous and not host.flags.c_contiguous else "C"
    made = ndarray(host.shape, host.dtype, order=order)
    made._host[...] = host
    return made


def _view(host: np.ndarray, of: ndarray) -> ndarray:
    """An array in the memory of another one."""
    made = ndarray.__new__(ndarray)
    made._host, made._mem = host, of._mem
    return made


def _is_basic(key: Any) -> bool:
    items = key if isinstance(key, tuple) else (key,)
    return all(item is None or item is ... or isinstance(item, (slice, int, np.integer)) for item in items)


class ndarray:  # noqa: N801 - CuPy's name
    """Like cupy.ndarray: it never becomes a NumPy array by itself."""

    __array_priority__ = 100

    def __init__(
        self, shape: Any, dtype: Any = float, memptr: MemoryPointer | None = None, strides: Any = None, order: str = "C"
    ):
        dtype = np.dtype(dtype)
        if dtype.kind not in "biufc" or not dtype.isnative:
            raise ValueError(f"Unsupported dtype {dtype}")
        shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
        memptr = memptr or _allocate(math.prod(shape) * dtype.itemsize)
        self._mem = memptr.mem
        self._host = np.ndarray(shape, dtype, memptr.mem.backing, memptr._offset, strides, order)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise TypeError(_NO_CONVERSION)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return _new(result_of(getattr(ufunc, method)(*(_operand(item) for item in inputs), **kwargs)))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        own = globals().get(function.__name__)
        return NotImplemented if own is None else own(*args, **kwargs)

    shape = property(lambda self: self._host.shape)
    dtype = property(lambda self: self._host.dtype)
    ndim = property(lambda self: self._host.ndim)
    size = property(lambda self: self._host.size)
    nbytes = property(lambda self: self._host.nbytes)
    itemsize = property(lambda self: self._host.itemsize)
    strides = property(lambda self: self._host.strides)
    T = property(lambda self: _view(self._host.T, self))
    device = property(lambda self: Device(self._mem.device_id))

    @property
    def flags(self) -> Any:
        flags = self._host.flags
        return SimpleNamespace(c_contiguous=flags.c_contiguous, f_contiguous=flags.f_contiguous, owndata=flags.owndata)

    @property
    def data(self) -> MemoryPointer:
        return MemoryPointer(self._mem, int(self._host.__array_interface__["data"][0]) - self._mem.ptr)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self._host.__array_interface__, "version": 3, "stream": 1}

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self._mem.device_id

    def __dlpack__(self, *, stream: Any = None, **kwargs: Any) -> Any:
        # An export keeps this array alive, and so keeps its memory out of the pool.
        kept = SimpleNamespace(__array_interface__=self._host.__array_interface__, owner=self)
        return np.asarray(kept).__dlpack__(**kwargs)

    def set(self, arr: Any, stream: Stream | None = None) -> None:
        if not isinstance(arr, np.ndarray):
            raise TypeError("Only numpy.ndarray can be set to cupy.ndarray")
        if arr.dtype != self.dtype or arr.shape != self.shape:
            raise ValueError(f"Shape or dtype mismatch: {arr.shape} {arr.dtype}, {self.shape} {self.dtype}")
        if not (self.flags.c_contiguous or self.flags.f_contiguous):
            raise RuntimeError("Cannot set to non-contiguous array")
        stream = stream or get_current_stream()
        arr = np.asarray(arr, order="C" if self.flags.c_contiguous else "F")
        pinned = _pinned_at(arr.ctypes.data, arr.nbytes)
        if pinned is None:  # pageable memory was copied when the call returns
            stream.synchronize()
            self._host[...] = arr
            return
        target, keep = self._host.__array_interface__["data"][0], (self._mem, pinned)
        start, nbytes = arr.ctypes.data, arr.nbytes
        stream.queue.submit(lambda: _keep(keep, ctypes.memmove(target, start, nbytes)))

    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> np.ndarray:
        stream = stream or get_current_stream()
        if out is not None and not blocking:
            return self._get_later(stream, out)
        stream.synchronize()
        source = self
        if not (self.flags.c_contiguous or self.flags.f_contiguous):
            source = _new(self._host)  # made contiguous on the device first
        if out is not None:
            out[...] = source._host
            return out
        return np.array(source._host, order=order)

    def _get_later(self, stream: Stream, out: np.ndarray) -> np.ndarray:
        if not isinstance(out, np.ndarray) or out.dtype != self.dtype or out.shape != self.shape:
            raise ValueError("out has another type, dtype or shape")
        pinned = _pinned_at(out.ctypes.data, out.nbytes)
        if not (self.flags.c_contiguous and out.flags.c_contiguous) or pinned is None:
            raise ValueError("only a copy between contiguous arrays, to pinned memory, goes on by itself")
        target, start, nbytes = out.ctypes.data, self._host.__array_interface__["data"][0], self.nbytes
        keep = (self._mem, pinned)
        stream.queue.submit(lambda: _keep(keep, ctypes.memmove(target, start, nbytes)))
        return out

    def view(self, dtype: Any) -> ndarray:
        return _view(self._host.view(dtype), self)

    def reshape(self, *shape: Any, order: str = "C") -> ndarray:
        if self._host.flags.c_contiguous and order == "C":
            return _view(self._host.reshape(*shape), self)
        return _new(_host(self).reshape(*shape, order=order))

    def astype(
        self, dtype: Any, order: str = "K", casting: Any = None, subok: Any = None, copy: bool = True
    ) -> ndarray:
        if not copy and self.dtype == dtype:
            return self
        # Nothing is converted if the type stays.
        return _new(_host(self) if self.dtype == dtype else result_of(_operand(self).astype(dtype)))

    def copy(self, order: str = "C") -> ndarray:
        return _new(_host(self))

    def transpose(self, *axes: Any) -> ndarray:
        return _view(self._host.transpose(*axes), self)

    def fill(self, value: Any) -> None:
        _host(self).fill(_host(value))

    def sum(self, axis: Any = None, dtype: Any = None) -> ndarray:
        return _new(result_of(_operand(self).sum(axis, dtype)))

    def tolist(self) -> Any:
        return self.get().tolist()

    def item(self) -> Any:
        return self.get().item()

    def __getitem__(self, key: Any) -> ndarray:
        if _is_basic(key):
            items = key if isinstance(key, tuple) else (key,)
            found = self._host[(*items, ...) if ... not in items else items]  # an array without axes is a view, too
            return _view(found, self)
        return _new(_host(self)[_index(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        whole = type(key) is slice and key == slice(None) and isinstance(value, np.ndarray)
        given = value if whole else _host(value)
        converts = getattr(given, "dtype", self.dtype) != self.dtype
        _host(self)[_index(key)] = result_of(flushed(given).astype(self.dtype)) if converts else given

    def __len__(self) -> int:
        return len(self._host)

    def __bool__(self) -> bool:
        return bool(self.get())

    def __int__(self) -> int:
        return int(self.get())


for _name in (
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "and",
    "or",
    "xor",
    "rshift",
):
    setattr(ndarray, f"__{_name}__", _operator(f"__{_name}__"))
    if hasattr(np.ndarray, f"__r{_name}__"):
        setattr(ndarray, f"__r{_name}__", _operator(f"__r{_name}__"))
for _name in ("invert", "neg"):
    setattr(ndarray, f"__{_name}__", _operator(f"__{_name}__"))
for _name in ("all", "any", "min", "max"):
    setattr(ndarray, _name, _operator(_name))
ndarray.__hash__ = None  # type: ignore[assignment, method-assign]


def empty(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    made = ndarray(shape, dtype, order=order)
    flat, keep = made._host.reshape(-1, order="A").view(np.uint8), made._mem
    _submit(lambda: _keep(keep, flat.fill(FRESH)))
    return made


def zeros(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    made = ndarray(shape, dtype, order=order)
    host, keep = made._host, made._mem
    _submit(lambda: _keep(keep, host.fill(0)))
    return made


def full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C") -> ndarray:
    made = ndarray(shape, np.asarray(fill_value).dtype if dtype is None else dtype, order=order)
    made.fill(fill_value)
    return made


def asarray(
    a: Any, dtype: Any = None, order: str | None = None, *, copy: bool | None = None, blocking: bool = False
) -> ndarray:
    if isinstance(a, ndarray):
        return a if dtype is None or a.dtype == dtype else a.astype(dtype)
    if hasattr(a, "__cuda_array_interface__"):
        stream = a.__cuda_array_interface__.get("stream")
        if stream is not None:  # as CuPy does unless CUPY_CUDA_ARRAY_INTERFACE_SYNC=0
            _queue_at(stream).run()
        return _adopted(a, a.__cuda_array_interface__, getattr(a, "device_number", -1))
    return _new(np.array(a, dtype, order=order or "K"))


def from_dlpack(array: Any, *, device: Any = None, copy: Any = None) -> ndarray:
    if array.__dlpack_device__()[0] not in (2, 13):
        raise RuntimeError(
            "CPU arrays cannot be directly imported to CuPy. Use `cupy.array(numpy.from_dlpack(input))`."
        )
    stream = get_current_stream(array.__dlpack_device__()[1]).ptr or 1  # cudaStreamLegacy
    try:
        capsule = array.__dlpack__(stream=stream, max_version=(1, 0), copy=copy)
    except TypeError:
        capsule = array.__dlpack__(stream=stream)
    host = np.from_dlpack(SimpleNamespace(__dlpack__=lambda **_: capsule, __dlpack_device__=lambda: (1, 0)))
    return _adopted((array, host), host.__array_interface__, array.__dlpack_device__()[1])


def _adopted(owner: Any, interface: Any, device_id: int) -> ndarray:
    """An array in the memory that an interface describes, on the device where that lies."""
    shape, dtype = interface["shape"], np.dtype(interface["typestr"])
    pointer, steps = interface["data"][0], interface.get("strides")
    reach = [(n - 1) * step for n, step in zip(shape, steps or (), strict=False)]
    low = pointer + sum(r for r in reach if r < 0)
    nbytes = math.prod(shape) * dtype.itemsize if steps is None else sum(map(abs, reach)) + dtype.itemsize
    memory = UnownedMemory(low, nbytes, owner, device_id)
    return ndarray(shape, dtype, MemoryPointer(memory, pointer - low), steps)


array = asarray


def asnumpy(a: Any, stream: Any = None, order: str = "C", out: Any = None, *, blocking: bool = True) -> np.ndarray:
    return a.get(stream, order, out, blocking) if isinstance(a, ndarray) else np.asarray(a, order=order)


def broadcast_to(array: ndarray, shape: Any) -> ndarray:
    return _view(np.broadcast_to(array._host, shape), array)


def ascontiguousarray(a: ndarray, dtype: Any = None) -> ndarray:
    host = np.ascontiguousarray(_host(a), dtype)
    return a if host is a._host else _new(host)


def cumsum(a: ndarray, axis: int | None = None, dtype: Any = None, out: Any = None) -> ndarray:
    return _new(result_of(np.cumsum(_operand(a), axis, dtype)))


def unpackbits(a: ndarray, axis: Any = None, bitorder: str = "big") -> ndarray:
    if axis is not None:
        raise NotImplementedError("axis option is not supported yet")
    if a.dtype.kind not in "bu" or a.itemsize != 1:
        raise TypeError("Expected an input array of unsigned byte data type")
    return _new(np.unpackbits(_host(a), bitorder=bitorder))


def packbits(a: ndarray, axis: Any = None, bitorder: str = "big") -> ndarray:
    if axis is not None:
        raise NotImplementedError("axis option is not supported yet")
    if a.dtype.kind not in "biu":
        raise TypeError("Expected an input array of integer or boolean data type")
    return _new(np.packbits(_host(a), bitorder=bitorder))


def rint(x: ndarray) -> ndarray:
    return _new(result_of(np.rint(_operand(x))))


def isnan(x: ndarray) -> ndarray:
    return _new(np.isnan(_operand(x)))


def may_share_memory(a: ndarray, b: ndarray, max_work: Any = None) -> bool:
    return np.may_share_memory(a._host, b._host)


# -- pinned memory and kernels ---------------------------------------------------------------------------------------

_pinned: list[tuple[int, np.ndarray]] = []


def _pinned_at(start: int, nbytes: int) -> np.ndarray | None:
    """The block of pinned memory that holds a range; None if it is pageable."""
    with _DOING:
        number = bisect.bisect_right(_pinned, start, key=lambda block: block[0]) - 1
        if number < 0:
            return None
        first, backing = _pinned[number]
        return backing if start + nbytes <= first + backing.size else None


class PinnedMemory:
    """Pinned memory without a pool. It is overwritten when nothing refers to it any more."""

    def __init__(self, size: int, flags: int = 0):
        backing = np.full(max(size, 1), FREED, np.uint8)
        self.size, self.ptr = size, int(backing.ctypes.data)
        with _DOING:
            bisect.insort(_pinned, (self.ptr, backing), key=lambda block: block[0])
        weakref.finalize(self, _give_back, self.ptr)


def PinnedMemoryPointer(mem: PinnedMemory, offset: int) -> Any:  # noqa: N802 - a class in CuPy
    """A buffer over pinned memory, which it keeps."""
    size = mem.size - offset
    pointer = type("PinnedMemoryPointer", (ctypes.c_int8 * max(size, 1),), {}).from_address(mem.ptr + offset)
    pointer.mem, pointer.ptr = mem, mem.ptr + offset
    return pointer


def alloc_pinned_memory(size: int) -> Any:
    """Pinned memory of a pool, which here is as good as none."""
    return PinnedMemoryPointer(PinnedMemory(size), 0)


def _give_back(start: int) -> None:
    with _DOING:
        number = bisect.bisect_left(_pinned, start, key=lambda block: block[0])
        _pinned.pop(number)[1].fill(FREED)


class RawKernel:
    """A kernel, compiled by g++ and run when its stream is waited for."""

    launches: list[str] = []

    def __init__(self, code: str, name: str, options: tuple[str, ...] = (), backend: str = "nvrtc"):
        if code not in (kernels.source(name), kernels.all_sources()) or not isinstance(options, tuple):
            raise ValueError("not a kernel of gzarr, or options that are no tuple")
        self.name = name
        self.attributes = {"num_regs": 0, "local_size_bytes": 0, "max_threads_per_block": 1024}

    def __call__(self, grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...], shared_mem: int = 0):
        if not 1 <= grid[0] < 2**31 or not 1 <= block[0] <= 1024:
            raise CUDARuntimeError(_INVALID_CONFIGURATION)
        for argument, value in zip(kernels.KERNELS[self.name], args, strict=True):
            wanted = np.int64 if argument.type == "i64" else np.uint64
            if type(value) is not wanted:
                raise TypeError(f"{self.name}: {argument.name} is {type(value)}, not {wanted}")
        plain = tuple(int(value) for value in args)
        RawKernel.launches.append(self.name)
        _submit(lambda: _HOST.launch(self.name, grid[0] * block[0], plain))


class RawModule:
    """Several kernels of one text, compiled when the first of them is asked for.

    As CuPy, it looks the text up without a lock: threads that ask at the same time all compile it.
    """

    #: Devices for which a text was compiled, in order; those for which it is there.
    compiled: list[int] = []
    _there: set[tuple[int, str, tuple[str, ...]]] = set()

    def __init__(self, *, code: str, options: tuple[str, ...] = (), backend: str = "nvrtc"):
        if not isinstance(options, tuple):
            raise TypeError("Argument 'options' has incorrect type")
        self.code, self.options = code, options

    def get_function(self, name: str) -> RawKernel:
        key = (_current.device, self.code, self.options)
        if key not in RawModule._there:
            RawModule.compiled.append(_current.device)
            time.sleep(0.02)
            RawModule._there.add(key)
        return RawKernel(self.code, name, self.options)


_HOST = HostKernels()
_DECODERS = EmulatedDevice()


def decompress_async(
    codec: str,
    in_ptrs: int,
    in_sizes: int,
    out_capacities: int,
    out_actual: int,
    n: int,
    temp: int,
    temp_nbytes: int,
    out_ptrs: int,
    statuses: int,
    stream: int,
    *,
    engine: bool = False,
) -> None:
    """Like gzarr.gpu.device.nvcomp.decompress_async: the tables are read at their addresses, when the stream comes to
    it."""

    def table(address: int, dtype: Any) -> np.ndarray:
        nbytes = n * np.dtype(dtype).itemsize
        return np.ctypeslib.as_array(_bytes_at(address, nbytes)).view(dtype)

    def run() -> None:
        rows = [table(at, np.uint64).astype(np.int64) for at in (in_ptrs, in_sizes, out_ptrs, out_capacities)]
        found = _DECODERS.decompress(codec, *rows)
        table(statuses, np.int32)[:] = found.statuses
        table(out_actual, np.uint64)[:] = found.sizes

    RawKernel.launches.append(f"{codec} on the engine" if engine else codec)
    _queue_at(stream).submit(run)


def compress_temp_nbytes(
    codec: str, n: int, max_chunk: int, total: int, options: bytes | None = None, stream: int = 0
) -> int:
    """Like gzarr.gpu.device.nvcomp.compress_temp_nbytes, which needs a device for zstd."""
    return _DECODERS.compress_scratch_nbytes(codec, n, max_chunk, total)


def compress_async(
    codec: str,
    in_ptrs: int,
    in_sizes: int,
    max_chunk: int,
    n: int,
    temp: int,
    temp_nbytes: int,
    out_ptrs: int,
    out_sizes: int,
    statuses: int,
    stream: int,
    options: bytes | None = None,
) -> None:
    """Like gzarr.gpu.device.nvcomp.compress_async: the tables are read at their addresses, when the stream comes to
    it."""

    def table(address: int, dtype: Any) -> np.ndarray:
        return np.ctypeslib.as_array(_bytes_at(address, n * np.dtype(dtype).itemsize)).view(dtype)

    typesize = next(size for size in (1, 2, 4, 8) if options in (None, compress_options(codec, size)))
    assert temp_nbytes >= compress_temp_nbytes(codec, n, max_chunk, n * max_chunk)

    def run() -> None:
        source, nbytes, target = (table(at, np.uint64).astype(np.int64) for at in (in_ptrs, in_sizes, out_ptrs))
        assert nbytes.max() <= max_chunk
        capacity = _DECODERS.compress_max_nbytes(codec, max_chunk)
        found = _DECODERS.compress(codec, source, nbytes, target, capacity, typesize)
        table(statuses, np.int32)[:] = found.statuses
        table(out_sizes, np.uint64)[:] = found.sizes

    RawKernel.launches.append(f"compress {codec}")
    _queue_at(stream).submit(run)


def crc32c_async(ptrs: int, sizes: int, n: int, max_nbytes: int, out: int, statuses: int, stream: int) -> None:
    """Like gzarr.gpu.device.nvcomp.crc32c_async."""
    _crc(_DECODERS.crc32c, ptrs, sizes, n, out, statuses, stream)


def crc32_async(ptrs: int, sizes: int, n: int, max_nbytes: int, out: int, statuses: int, stream: int) -> None:
    """Like gzarr.gpu.device.nvcomp.crc32_async."""
    _crc(_DECODERS.crc32, ptrs, sizes, n, out, statuses, stream)


def _crc(compute: Any, ptrs: int, sizes: int, n: int, out: int, statuses: int, stream: int) -> None:
    def run() -> None:
        source, nbytes = (
            np.ctypeslib.as_array(_bytes_at(at, 8 * n)).view(np.uint64).astype(np.int64) for at in (ptrs, sizes)
        )
        found = compute(source, nbytes)
        np.ctypeslib.as_array(_bytes_at(out, 4 * n)).view(np.uint32)[:] = found.sums
        np.ctypeslib.as_array(_bytes_at(statuses, 4 * n)).view(np.int32)[:] = found.statuses

    _queue_at(stream).submit(run)


def _bytes_at(address: int, nbytes: int) -> Any:
    return (ctypes.c_uint8 * nbytes).from_address(address)


def _queue_at(stream: int) -> _Queue:
    return Stream.null.queue if stream in (0, 1) else Stream.queues[stream]


_default_queues = [_Queue() for _ in range(N_DEVICES)]
Stream.queues.update({-1 - number: queue for number, queue in enumerate(_default_queues)})
Stream.null = Stream(null=True)
_current = _Current()


def module() -> ModuleType:
    """The double as a module named cupy."""
    fake: Any = ModuleType("cupy")
    names = (
        ndarray,
        empty,
        zeros,
        full,
        asarray,
        from_dlpack,
        asnumpy,
        ascontiguousarray,
        cumsum,
        packbits,
        rint,
        isnan,
        unpackbits,
        may_share_memory,
        RawKernel,
        RawModule,
    )
    for item in names:
        setattr(fake, item.__name__, item)
    fake.array = asarray
    fake.__version__ = "a double"
    for name in ("bool_", "uint8", "int8", "uint32", "int32", "uint64", "int64", "float32", "float64"):
        setattr(fake, name, getattr(np, name))
    fake.get_default_memory_pool = lambda: _POOL
    runtime = SimpleNamespace(
        getDeviceCount=lambda: N_DEVICES,
        memGetInfo=lambda: (1 << 30, 2 << 30),
        CUDARuntimeError=CUDARuntimeError,
        driverGetVersion=lambda: 0,
        runtimeGetVersion=lambda: 0,
        getDeviceProperties=lambda _: {
            "name": b"no GPU: a double",
            "totalGlobalMem": 0,
            "multiProcessorCount": 0,
            "major": 0,
            "minor": 0,
        },
    )
    fake.cuda = SimpleNamespace(
        Device=Device,
        Stream=Stream,
        Event=Event,
        get_current_stream=get_current_stream,
        get_allocator=get_allocator,
        set_allocator=set_allocator,
        using_allocator=using_allocator,
        Memory=Memory,
        MemoryPointer=MemoryPointer,
        MemoryPool=MemoryPool,
        UnownedMemory=UnownedMemory,
        memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        driver=SimpleNamespace(CUDADriverError=CUDADriverError),
        alloc_pinned_memory=alloc_pinned_memory,
        PinnedMemory=PinnedMemory,
        PinnedMemoryPointer=PinnedMemoryPointer,
        get_elapsed_time=get_elapsed_time,
        runtime=runtime,
        nvtx=nvtx,
    )
    return fake
