"""Arrays of the double: they never become NumPy arrays by themselves, and refuse what CuPy's refuse.

Their own arithmetic on floats is as wrong as CuPy's (`tests.gpu.flushing`). It waits for its operands, as the double
computes with NumPy; copies are queued. A copy reads its source, pinned or pageable, when the stream comes to it: CUDA
may have copied pageable memory before, but promises it for none.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.gpu.fake_cupy.clock import Costs
from tests.gpu.fake_cupy.memory import FREED, FRESH, MemoryPointer, UnownedMemory, allocate, pinned_at
from tests.gpu.fake_cupy.streams import Device, Queue, Stream, get_current_stream, keep, queue_at, submit
from tests.gpu.flushing import flushed, result_of

_NO_CONVERSION = "Implicit conversion to a NumPy array is not allowed. Please use `.get()`"


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
        memptr = memptr or allocate(math.prod(shape) * dtype.itemsize)
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
        _copy_up(self, arr, stream.queue)

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
        if not (self.flags.c_contiguous and out.flags.c_contiguous):
            raise ValueError("only a copy between contiguous arrays goes on by itself")
        pinned = pinned_at(out.ctypes.data, out.nbytes)
        target, start, nbytes = out.ctypes.data, self._host.__array_interface__["data"][0], self.nbytes
        alive = (self._mem, pinned)

        def copy() -> Callable[[Costs], float]:
            keep(alive, ctypes.memmove(target, start, nbytes))
            return lambda costs: nbytes / costs.copy_rate

        stream.queue.submit(copy, engine="down")
        if pinned is None:
            stream.synchronize()
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
        if isinstance(value, ndarray):
            value = _host(value)
        host, memory = self._host, self._mem
        submit(lambda: keep(memory, host.fill(value)))

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
        if isinstance(value, ndarray) and _is_basic(key) and value.dtype == self.dtype:
            there, source = self[key], value
            submit(lambda: np.copyto(there._host, source._host))
            return
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


def _copy_up(there: ndarray, array: np.ndarray, queue: Queue) -> None:
    """Queue a copy to the device. Nothing keeps the source: if it is gone by then, the copy has rubbish."""
    target, memory = there._host.__array_interface__["data"][0], there._mem
    start, nbytes = array.ctypes.data, array.nbytes
    alive = pinned_at(start, nbytes)
    owner = _owner(array) if alive is None else lambda: alive

    def copy() -> Callable[[Costs], float]:
        source = owner()
        if source is None:
            ctypes.memset(target, FREED, nbytes)
        else:
            ctypes.memmove(target, start, nbytes)
        return lambda costs: keep(memory, source) or nbytes / costs.copy_rate

    queue.submit(copy, engine="up")


def _owner(array: np.ndarray) -> Callable[[], Any]:
    """What has the memory of an array, as a weak reference where that is possible."""
    owner: Any = array
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    try:
        return weakref.ref(owner)
    except TypeError:
        return lambda: owner


def empty(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    made = ndarray(shape, dtype, order=order)
    flat, memory = made._host.reshape(-1, order="A").view(np.uint8), made._mem
    submit(lambda: keep(memory, flat.fill(FRESH)))
    return made


def zeros(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    made = ndarray(shape, dtype, order=order)
    host, memory = made._host, made._mem
    submit(lambda: keep(memory, host.fill(0)))
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
            queue_at(stream).run()
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


def pad(array: ndarray, pad_width: Any, mode: str = "constant") -> ndarray:
    return _new(np.pad(_host(array), pad_width, mode=mode))
