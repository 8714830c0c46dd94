"""A double of CuPy on NumPy memory, with CuPy's signatures and refusals, to run `CudaDevice` where there is no GPU.

It shows wrong calls: arrays that are not NumPy's and do not become so by themselves, NumPy arrays handed to device
functions, arguments of kernels that are not 64 bits wide, tables in the wrong order, copies that have not happened yet.
Work is queued on streams and done only when something waits for it, so that host memory which is given back or changed
too early is seen: pinned memory is overwritten when it is freed. It shows nothing about CUDA itself, and no speed.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
import time
import weakref
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any, Self

import numpy as np

from gzarr.gpu import kernels
from gzarr.gpu.emulated import EmulatedDevice
from gzarr.gpu.hostbuild import HostKernels

_NO_CONVERSION = "Implicit conversion to a NumPy array is not allowed. Please use `.get()`"
#: What fresh device memory and freed pinned memory hold.
FRESH, FREED = 0xA5, 0xDB
N_DEVICES = 2


class CUDARuntimeError(RuntimeError):
    """As cupy.cuda.runtime.CUDARuntimeError."""


class _Current(threading.local):
    def __init__(self) -> None:
        self.device = 0
        self.streams: list[list[Stream]] = [[Stream.null] for _ in range(N_DEVICES)]


class Stream:
    """A queue of work: done when it is waited for, in order."""

    null: Stream
    numbers = itertools.count(0x1000)
    by_pointer: weakref.WeakValueDictionary[int, Stream] = weakref.WeakValueDictionary()
    made = 0

    def __init__(self, null: bool = False, non_blocking: bool = False, ptds: bool = False, priority: Any = None):
        self.ptr = 0 if null else next(Stream.numbers)
        self.device_id = -1 if null else _current.device
        self.pending: list[Callable[[], None]] = []
        Stream.by_pointer[self.ptr] = self
        Stream.made += not null

    def __enter__(self) -> Self:
        if self.device_id not in (-1, _current.device):
            raise RuntimeError("The device that the stream is created on does not match with the current device")
        _current.streams[_current.device].append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _current.streams[_current.device].pop()

    def synchronize(self) -> None:
        work, self.pending = self.pending, []
        for task in work:
            task()

    def record(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.stream = self
        return event

    def wait_event(self, event: Event) -> None:
        self.pending.append(event.synchronize)


class Event:
    """A point on a stream; waiting for it does the whole stream."""

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False):
        self.stream: Stream | None = None
        self.ptr = 1
        self.time = 0.0

    @property
    def done(self) -> bool:
        return self.stream is None or not self.stream.pending

    def record(self, stream: Stream | None = None) -> None:
        self.stream = stream or get_current_stream()

    def synchronize(self) -> None:
        if self.stream is not None:
            self.stream.synchronize()
        self.time = time.perf_counter()


def get_elapsed_time(start_event: Event, end_event: Event) -> float:
    return 1e-3 + abs(end_event.time - start_event.time)


class Device:
    """A device's number, and a context in which it is current."""

    def __init__(self, device: int | None = None):
        self.id = _current.device if device is None else int(device)
        self._before: list[int] = []

    def __enter__(self) -> Self:
        self._before.append(_current.device)
        _current.device = self.id
        return self

    def __exit__(self, *exc: object) -> None:
        _current.device = self._before.pop()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    __hash__ = None  # type: ignore[assignment]

    def use(self) -> None:
        _current.device = self.id

    def synchronize(self) -> None:
        for stream in list(Stream.by_pointer.values()):
            stream.synchronize()


def get_current_stream(device_id: int = -1) -> Stream:
    return _current.streams[_current.device if device_id < 0 else device_id][-1]


# -- arrays ----------------------------------------------------------------------------------------------------------


def _keep(host: np.ndarray) -> None:
    """Whoever queues this keeps an array until then."""


def _host(value: Any) -> Any:
    """What an operation on the device takes: device arrays and plain numbers, never NumPy arrays."""
    if isinstance(value, ndarray):
        get_current_stream().synchronize()
        return value._host
    if isinstance(value, np.ndarray) and value.ndim:
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    return value


def _index(key: Any) -> Any:
    """Lists and NumPy arrays may be indices."""
    if isinstance(key, tuple):
        return tuple(_index(item) for item in key)
    return _host(key) if isinstance(key, ndarray) else key


def _operator(name: str) -> Callable[..., Any]:
    def apply(self: ndarray, *others: Any) -> Any:
        found = getattr(_host(self), name)(*(_host(other) for other in others))
        return found if found is NotImplemented else ndarray(np.asarray(found), self._id)

    return apply


class ndarray:  # noqa: N801 - CuPy's name
    """As cupy.ndarray: it never becomes a NumPy array by itself."""

    __array_priority__ = 100

    def __init__(self, host: np.ndarray, device_id: int | None = None):
        if host.dtype.kind not in "biufc" or not host.dtype.isnative:
            raise ValueError(f"Unsupported dtype {host.dtype}")
        self._host = host
        self._id = _current.device if device_id is None else device_id

    def __del__(self) -> None:
        # CuPy's pool hands out freed memory again in the order of the stream: work under way may still use it.
        host, stream = getattr(self, "_host", None), get_current_stream()
        if stream.pending:
            stream.pending.append(lambda: _keep(host))

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise TypeError(_NO_CONVERSION)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return ndarray(np.asarray(getattr(ufunc, method)(*(_host(item) for item in inputs), **kwargs)), self._id)

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
    T = property(lambda self: ndarray(self._host.T, self._id))
    device = property(lambda self: Device(self._id))

    @property
    def flags(self) -> Any:
        flags = self._host.flags
        return SimpleNamespace(c_contiguous=flags.c_contiguous, f_contiguous=flags.f_contiguous, owndata=flags.owndata)

    @property
    def data(self) -> Any:
        def copy_from_device_async(src: Any, size: int, stream: Any = None) -> None:
            get_current_stream().pending.append(lambda: ctypes.memmove(start, src.ptr, size))

        start = int(self._host.__array_interface__["data"][0])
        return SimpleNamespace(ptr=start, device_id=self._id, copy_from_device_async=copy_from_device_async)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self._host.__array_interface__, "version": 3, "stream": 1}

    def set(self, arr: Any, stream: Stream | None = None) -> None:
        if not isinstance(arr, np.ndarray):
            raise TypeError("Only numpy.ndarray can be set to cupy.ndarray")
        if arr.dtype != self.dtype or arr.shape != self.shape:
            raise ValueError(f"Shape or dtype mismatch: {arr.shape} {arr.dtype}, {self.shape} {self.dtype}")
        stream = stream or get_current_stream()
        pinned = _pinned.get(arr.ctypes.data)
        if pinned is None:  # pageable memory was copied when the call returns
            stream.synchronize()
            self._host[...] = arr
            return
        target, nbytes = self._host, arr.nbytes
        stream.pending.append(lambda: target.reshape(-1).view(np.uint8).__setitem__(slice(None), pinned[:nbytes]))

    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> np.ndarray:
        (stream or get_current_stream()).synchronize()
        if out is not None:
            out[...] = self._host
            return out
        return np.array(self._host, order=order)

    def view(self, dtype: Any) -> ndarray:
        return ndarray(self._host.view(dtype), self._id)

    def reshape(self, *shape: Any, order: str = "C") -> ndarray:
        get_current_stream().synchronize()  # it may copy
        return ndarray(self._host.reshape(*shape, order=order), self._id)

    def astype(
        self, dtype: Any, order: str = "K", casting: Any = None, subok: Any = None, copy: bool = True
    ) -> ndarray:
        return ndarray(_host(self).astype(dtype, copy=copy), self._id)

    def transpose(self, *axes: Any) -> ndarray:
        return ndarray(self._host.transpose(*axes), self._id)

    def fill(self, value: Any) -> None:
        _host(self).fill(_host(value))

    def sum(self, axis: Any = None, dtype: Any = None) -> ndarray:
        return ndarray(np.asarray(_host(self).sum(axis, dtype)), self._id)

    def tolist(self) -> Any:
        return self.get().tolist()

    def item(self) -> Any:
        return self.get().item()

    def __getitem__(self, key: Any) -> ndarray:
        found = _host(self)[_index(key)]
        return ndarray(found if isinstance(found, np.ndarray) else np.asarray(found), self._id)

    def __setitem__(self, key: Any, value: Any) -> None:
        whole = type(key) is slice and key == slice(None) and isinstance(value, np.ndarray)
        _host(self)[_index(key)] = value if whole else _host(value)

    def __len__(self) -> int:
        return len(self._host)

    def __bool__(self) -> bool:
        return bool(self.get())

    def __int__(self) -> int:
        return int(self.get())


for _name in ("add", "sub", "mul", "truediv", "floordiv", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor"):
    setattr(ndarray, f"__{_name}__", _operator(f"__{_name}__"))
    if hasattr(np.ndarray, f"__r{_name}__"):
        setattr(ndarray, f"__r{_name}__", _operator(f"__r{_name}__"))
for _name in ("invert", "neg"):
    setattr(ndarray, f"__{_name}__", _operator(f"__{_name}__"))
for _name in ("all", "any", "min", "max"):
    setattr(ndarray, _name, _operator(_name))
ndarray.__hash__ = None  # type: ignore[assignment, method-assign]


def empty(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    made = np.empty(shape, dtype, order)
    if made.size:
        made.reshape(-1, order="A").view(np.uint8)[...] = FRESH
    return ndarray(made)


def zeros(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    return ndarray(np.zeros(shape, dtype, order))


def asarray(a: Any, dtype: Any = None, order: str | None = None, *, blocking: bool = False) -> ndarray:
    if isinstance(a, ndarray):
        return a if dtype is None or a.dtype == dtype else a.astype(dtype)
    return ndarray(np.array(a, dtype, order=order or "K"))


array = asarray


def asnumpy(a: Any, stream: Any = None, order: str = "C", out: Any = None, *, blocking: bool = True) -> np.ndarray:
    return a.get(stream, order, out, blocking) if isinstance(a, ndarray) else np.asarray(a, order=order)


def ascontiguousarray(a: ndarray, dtype: Any = None) -> ndarray:
    host = np.ascontiguousarray(_host(a), dtype)
    return a if host is a._host else ndarray(host, a._id)


def cumsum(a: ndarray, axis: int | None = None, dtype: Any = None, out: Any = None) -> ndarray:
    return ndarray(np.cumsum(_host(a), axis, dtype), a._id)


def unpackbits(a: ndarray, axis: Any = None, bitorder: str = "big") -> ndarray:
    if axis is not None:
        raise NotImplementedError("axis option is not supported yet")
    if a.dtype.kind not in "bu" or a.itemsize != 1:
        raise TypeError("Expected an input array of unsigned byte data type")
    return ndarray(np.unpackbits(_host(a), bitorder=bitorder), a._id)


def may_share_memory(a: ndarray, b: ndarray, max_work: Any = None) -> bool:
    return np.may_share_memory(a._host, b._host)


# -- memory and kernels ----------------------------------------------------------------------------------------------

_pinned: dict[int, np.ndarray] = {}


def alloc_pinned_memory(size: int) -> Any:
    """Memory that is overwritten when nothing refers to it any more, as a pool would hand it out again."""
    backing = np.full(max(size, 1), FREED, np.uint8)
    start = backing.ctypes.data
    _pinned[start] = backing
    kind = type("PinnedMemoryPointer", (ctypes.c_int8 * max(size, 1),), {})
    pointer = kind.from_address(start)
    weakref.finalize(pointer, _give_back, start)
    return pointer


def _give_back(start: int) -> None:
    _pinned.pop(start).fill(FREED)


class RawKernel:
    """A kernel, compiled by g++ and run when its stream is waited for."""

    launches: list[str] = []

    def __init__(self, code: str, name: str, options: tuple[str, ...] = (), backend: str = "nvrtc"):
        if code != kernels.source(name) or not isinstance(options, tuple):
            raise ValueError("not a kernel of gzarr, or options that are no tuple")
        self.name = name
        self.attributes = {"num_regs": 0, "local_size_bytes": 0, "max_threads_per_block": 1024}

    def __call__(self, grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...], shared_mem: int = 0):
        if not 1 <= grid[0] < 2**31 or not 1 <= block[0] <= 1024:
            raise CUDARuntimeError("cudaErrorInvalidConfiguration")
        for argument, value in zip(kernels.KERNELS[self.name], args, strict=True):
            wanted = np.int64 if argument.type == "i64" else np.uint64
            if type(value) is not wanted:
                raise TypeError(f"{self.name}: {argument.name} is {type(value)}, not {wanted}")
        plain = tuple(int(value) for value in args)
        RawKernel.launches.append(self.name)
        get_current_stream().pending.append(lambda: _HOST.launch(self.name, grid[0] * block[0], plain))


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
) -> None:
    """As gzarr.gpu.nvcomp.decompress_async: the tables are read at their addresses, when the stream comes to it."""

    def table(address: int, dtype: Any) -> np.ndarray:
        nbytes = n * np.dtype(dtype).itemsize
        return np.ctypeslib.as_array(_bytes_at(address, nbytes)).view(dtype)

    def run() -> None:
        rows = [table(at, np.uint64).astype(np.int64) for at in (in_ptrs, in_sizes, out_ptrs, out_capacities)]
        found = _DECODERS.decompress(codec, *rows)
        table(statuses, np.int32)[:] = found.statuses
        table(out_actual, np.uint64)[:] = found.sizes

    RawKernel.launches.append(codec)
    Stream.by_pointer[stream].pending.append(run)


def crc32c_async(ptrs: int, sizes: int, n: int, max_nbytes: int, out: int, statuses: int, stream: int) -> None:
    """As gzarr.gpu.nvcomp.crc32c_async."""

    def run() -> None:
        source, nbytes = (
            np.ctypeslib.as_array(_bytes_at(at, 8 * n)).view(np.uint64).astype(np.int64) for at in (ptrs, sizes)
        )
        np.ctypeslib.as_array(_bytes_at(out, 4 * n)).view(np.uint32)[:] = _DECODERS.crc32c(source, nbytes)

    Stream.by_pointer[stream].pending.append(run)


def _bytes_at(address: int, nbytes: int) -> Any:
    return (ctypes.c_uint8 * nbytes).from_address(address)


Stream.null = Stream(null=True)
_current = _Current()


def module() -> ModuleType:
    """The double as a module named cupy."""
    fake: Any = ModuleType("cupy")
    names = (
        ndarray,
        empty,
        zeros,
        asarray,
        asnumpy,
        ascontiguousarray,
        cumsum,
        unpackbits,
        may_share_memory,
        RawKernel,
    )
    for item in names:
        setattr(fake, item.__name__, item)
    fake.array = asarray
    fake.__version__ = "a double"
    for name in ("bool_", "uint8", "int8", "uint32", "int32", "uint64", "int64", "float32", "float64"):
        setattr(fake, name, getattr(np, name))
    fake.get_default_memory_pool = lambda: SimpleNamespace(free_bytes=lambda: 0, used_bytes=lambda: 0)
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
        alloc_pinned_memory=alloc_pinned_memory,
        get_elapsed_time=get_elapsed_time,
        runtime=runtime,
    )
    return fake
