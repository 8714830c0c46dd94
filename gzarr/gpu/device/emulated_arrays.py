"""Arrays on the emulated device: they refuse on the host what CuPy's arrays refuse on a GPU.

An `EmulatedArray` has its values in a NumPy array that nobody else sees. It never becomes a NumPy array by itself, is
not mixed with NumPy arrays, and its reductions stay on the device as arrays without axes: code that passes with it has
no hidden copies. Texts of errors are CuPy's (CuPy 14.2), so that a search for one finds the same answers. Copies and
waits are told to `gzarr.profiling.transfers`.

Values are NumPy's: no rounding, order of sums or overflow of a GPU is emulated. So are the keywords of functions, of
which CuPy lacks some. Indices out of bounds raise an IndexError here; CuPy wraps them around. DLPack exports the memory
as the host's, as no library has this device: PyTorch and JAX take it as an array of their CPU. NumPy is refused, as by
CuPy.
"""

import math
import pickle
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from gzarr.profiling import transfers
from gzarr.tensors import DeviceArray

_IMPLICIT = (
    "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy array explicitly."
)
_NO_INTERFACE = (
    "arrays on the emulated device have no __cuda_array_interface__: their memory is the host's, which a CUDA library "
    "cannot read; use device='cuda', or give the library what .get() returns"
)
#: Data types that CuPy's arrays can have; bfloat16 is that of ml_dtypes.
_KINDS = "biufc"
_SCALARS = (bool, int, float, complex, np.bool_, np.number)
_COMPARISONS = ("greater", "greater_equal", "less", "less_equal", "equal", "not_equal")
#: NumPy's ufuncs that CuPy lacks.
_NO_UFUNCS = ("isnat", "spacing", "vecdot", "matvec", "vecmat")


class Device:
    """The emulated device, as `cupy.cuda.Device`."""

    id = 0

    def __init__(self, device: Any = None) -> None:
        if device not in (None, 0) and not isinstance(device, Device):
            raise ValueError(f"the emulated device is number 0, got {device!r}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def __int__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "<Emulated Device 0>"

    def use(self) -> None:
        """Do nothing, as there is one device."""

    def synchronize(self) -> None:
        """Wait for the device, which has done everything already."""
        transfers.notify("synchronize")


class Pointer(NamedTuple):
    """Where the memory of an array begins, as `cupy.cuda.MemoryPointer`."""

    ptr: int
    device: Device
    device_id: int = 0


class Flags(NamedTuple):
    """The layout of an array's memory, as `cupy.ndarray.flags`."""

    c_contiguous: bool
    f_contiguous: bool
    owndata: bool

    def __getitem__(self, name: Any) -> Any:
        return getattr(self, name.lower())


class EmulatedArray(NDArrayOperatorsMixin, DeviceArray):
    """An array on the emulated device, as `cupy.ndarray`."""

    __slots__ = ("__weakref__", "_host")
    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]
    _namespace: ClassVar[Any]  # `gzarr.gpu.device.emulated_cupy`, which sets it

    def __init__(self, shape: Any, dtype: Any = float, *, order: str = "C") -> None:
        self._host = allocated(shape, _supported(np.dtype(dtype)), order="F" if order == "F" else "C")

    # What hands values to the host: explicitly, or for a scalar of Python.

    def get(
        self, stream: Any = None, order: str = "C", out: NDArray[Any] | None = None, *, blocking: bool = True
    ) -> NDArray[Any]:
        """Return a copy on the host, or copy into a NumPy array on the host of the same shape and dtype."""
        if out is not None:
            _check_out(self, out)
        elif order.upper() not in ("C", "F", "A"):
            raise ValueError(f"unsupported order: {order}")
        transfers.notify("to_host", self.nbytes)
        if blocking:
            transfers.notify("synchronize")
        if out is None:
            return np.array(self._host, order=order.upper(), copy=True)  # type: ignore[call-overload]
        out[...] = self._host
        return out

    def item(self) -> Any:
        """Return the one element as a scalar of Python."""
        if self.size != 1:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        return self.get().item()

    def __bool__(self) -> bool:
        if self.size > 1:
            raise ValueError(
                "The truth value of an array with more than one element is ambiguous. Use a.any() or a.all()"
            )
        return bool(self.get())

    def __bytes__(self) -> bytes:
        return bytes(self.get())

    def dumps(self) -> bytes:
        """Return the array as a pickle."""
        return pickle.dumps(self, -1)

    def __reduce__(self) -> Any:
        return self._namespace.asarray, (self.get(),)

    # What takes values of the host.

    def set(self, arr: Any, stream: Any = None) -> None:
        """Copy a NumPy array of the same shape and dtype into this array."""
        if not isinstance(arr, np.ndarray):
            raise TypeError("Only numpy.ndarray can be set to cupy.ndarray")
        if arr.dtype != self.dtype:
            raise TypeError(f"{arr.dtype} array cannot be set to {self.dtype} array")
        if arr.shape != self.shape:
            raise ValueError(f"Shape mismatch. Old shape: {self.shape}, new shape: {arr.shape}")
        if not (self.flags.c_contiguous or self.flags.f_contiguous):
            raise RuntimeError("Cannot set to non-contiguous array")
        transfers.notify("to_device", arr.nbytes)
        self._host[...] = arr

    def fill(self, value: Any) -> None:
        """Fill the array with a scalar."""
        self[...] = value

    def __setitem__(self, key: Any, value: Any) -> None:
        self._host[_index(key)] = self._assigned(value, is_view=_is_basic(key))

    def _assigned(self, value: Any, *, is_view: bool) -> Any:
        """Return what may be assigned to elements; only those of advanced indices take arrays of the host."""
        if isinstance(value, EmulatedArray):
            return host_of(value)
        if isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim):
            if is_view:
                raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
            return sent(value, self.dtype)
        if isinstance(value, (*_SCALARS, np.ndarray)):
            return value
        raise TypeError(f"Unsupported type {type(value)}")

    # What NumPy and other libraries ask.

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        raise TypeError(_IMPLICIT)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        raise AttributeError(_NO_INTERFACE)

    def __dlpack_device__(self) -> Any:
        return self._host.__dlpack_device__()

    def __dlpack__(self, **keywords: Any) -> Any:
        if keywords.get("dl_device", ()) is None and "stream" not in keywords:  # how NumPy asks, and nobody else
            raise BufferError("Unsupported device in DLTensor: an array on the emulated device; use .get()")
        keywords["stream"] = None
        return self._host.__dlpack__(**keywords)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = (), **keywords: Any) -> Any:
        if ufunc.__name__ in _NO_UFUNCS:
            return NotImplemented
        if method == "at" and not _has_atomics(ufunc.__name__, inputs[0].dtype):
            raise TypeError(f"cupy.{ufunc.__name__}.at has no atomics for {inputs[0].dtype}")
        if not all(isinstance(x, (EmulatedArray, np.ndarray, *_SCALARS)) for x in (*inputs, *out) if method != "at"):
            return NotImplemented
        if ufunc.__name__ in _COMPARISONS:
            inputs = tuple(x.item() if isinstance(x, np.ndarray) and not x.ndim else x for x in inputs)
        given = [operand(x) for x in inputs]
        if out:
            keywords["out"] = tuple(operand(x) for x in out)
        keywords = {name: operand(x) if name == "where" else x for name, x in keywords.items()}
        with np.errstate(all="ignore"):
            result = getattr(ufunc, method)(*given, **keywords)
        return (out if len(out) > 1 else out[0]) if out else wrapped(result)

    def __array_function__(self, function: Any, types: Any, args: Any, keywords: Any) -> Any:
        if not all(issubclass(kind, (EmulatedArray, np.ndarray)) for kind in types):
            return NotImplemented
        own = self._namespace
        try:
            for name in (*function.__module__.split(".")[1:], function.__name__):
                own = getattr(own, name)
        except AttributeError:
            return NotImplemented
        return own(*args, **keywords)

    # Elements, and attributes.

    def __getitem__(self, key: Any) -> "EmulatedArray":
        if _is_basic(key):
            items = key if isinstance(key, tuple) else (key,)
            return view(self._host[items if any(item is ... for item in items) else (*items, ...)])
        return wrapped(self._host[_index(key)])

    def __iter__(self) -> "Iterator[EmulatedArray]":
        if not self.ndim:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of unsized object")
        return len(self._host)

    def __copy__(self) -> "EmulatedArray":
        return self.copy()

    def __deepcopy__(self, memo: Any) -> "EmulatedArray":
        return self.copy()

    @property
    def device(self) -> Device:
        """The emulated device."""
        return Device()

    @property
    def data(self) -> Pointer:
        """Where the memory begins."""
        return Pointer(address_of(self._host), Device())

    @property
    def flags(self) -> Flags:
        """The layout of the memory."""
        flags = self._host.flags
        return Flags(flags.c_contiguous, flags.f_contiguous, flags.owndata)

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis; an assignment reshapes in place."""
        return self._host.shape

    @shape.setter
    def shape(self, shape: Any) -> None:
        self._host = self._host.reshape(shape, copy=False)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...  # what the tables at the end of this module name


def _method(name: str, convert: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a method of NumPy's arrays for arrays of the device. convert: what makes its arguments NumPy's."""

    def call(self: EmulatedArray, *args: Any, out: Any = None, **keywords: Any) -> Any:
        host = host_of(self)
        given = {key: convert(value) for key, value in keywords.items() if (name, key) != ("astype", "subok")}
        if out is not None:
            given["out"] = operand(out)
        with np.errstate(all="ignore"):
            result = getattr(host, name)(*map(convert, args), **given)
        if result is None or out is not None:
            return out
        return self if result is host else wrapped(result, host)

    call.__name__ = call.__qualname__ = name
    return call


#: Attributes of NumPy's arrays that CuPy's have too, and methods that hand the values to the host.
_ATTRIBUTES = "T dtype imag itemsize mT nbytes ndim real size strides"
_EXPLICIT = "__complex__ __float__ __format__ __int__ __repr__ __str__ tobytes tofile tolist"
#: Methods of NumPy's arrays that CuPy's have too.
_METHODS = (
    "all any argmax argmin argpartition argsort astype byteswap clip conj conjugate copy cumprod cumsum diagonal dot "
    "flatten max mean min nonzero partition prod ravel reshape round searchsorted sort squeeze std sum swapaxes trace "
    "transpose var view"
)
#: Those whose arguments may be arrays of the host, as they are indices.
TAKING_INDICES = "choose compress put repeat take"


def view(host: NDArray[Any]) -> EmulatedArray:
    """Return an array of the device in the memory of a NumPy array, which the caller gives up."""
    made = EmulatedArray.__new__(EmulatedArray)
    made._host = host  # noqa: SLF001 - this function belongs to the class
    return made


def _has_atomics(name: str, dtype: np.dtype[Any]) -> bool:
    """Whether CuPy (14) has a ufunc's ``at`` for a data type."""
    return (dtype.kind in "iuf" and dtype.itemsize >= 4) or (name == "add" and dtype == np.float16)


def wrapped(result: Any, shared: NDArray[Any] | None = None) -> Any:
    """Return what NumPy calculated as arrays of the device: arrays and scalars, also in tuples and lists.

    shared: memory that results may share; others are allocations. Raises ValueError for data types that CuPy lacks.
    """
    if isinstance(result, (tuple, list)):
        items = [wrapped(item, shared) for item in result]
        return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)
    if not isinstance(result, (np.ndarray, np.generic)):
        return result
    host = np.asarray(result)
    _supported(host.dtype)
    if transfers.is_observed() and (shared is None or not np.may_share_memory(host, shared)):
        transfers.notify("allocate", host.nbytes)
        _tell_of_end(host)
    return view(host)


def host_of(array: EmulatedArray) -> NDArray[Any]:
    """Return the NumPy array that has the values: for gzarr's own device, which works with it without a copy."""
    return array._host  # noqa: SLF001 - this function belongs to the class


def address_of(host: NDArray[Any]) -> int:
    """Return the address of the first element of a NumPy array."""
    return int(host.__array_interface__["data"][0])


def _supported(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a data type in native byte order. Raises ValueError if CuPy lacks it."""
    if (dtype.kind not in _KINDS or dtype.char in "gG") and dtype.name != "bfloat16":
        raise ValueError(f"Unsupported dtype {dtype}")
    return dtype.newbyteorder("=")


def sent(value: Any, dtype: Any = None, order: Any = "K", ndmin: int = 0) -> NDArray[Any]:
    """Return a copy of values of the host for the device. Raises ValueError for data types that CuPy lacks."""
    host = np.array(value, dtype, order=order, ndmin=ndmin)
    host = host.astype(_supported(host.dtype), copy=False)
    transfers.notify("to_device", host.nbytes)
    return host


def allocated(
    shape: Any, dtype: np.dtype[Any], *, order: Literal["C", "F"] = "C", inside: bool = False
) -> NDArray[Any]:
    """Return uninitialized memory of the device as a NumPy array. inside: whether it is for gzarr's own work."""
    if not transfers.is_observed():
        return np.empty(shape, dtype, order)
    transfers.notify("allocate", math.prod(np.atleast_1d(shape).tolist()) * dtype.itemsize, inside=inside)
    host = np.empty(shape, dtype, order)
    _tell_of_end(host, inside=inside)
    return host


def _tell_of_end(host: NDArray[Any], *, inside: bool = False) -> None:
    """Tell observers when the memory of an array is given back."""
    weakref.finalize(host, transfers.freeing(host.nbytes, inside=inside or transfers.is_inside()))


def operand(value: Any) -> Any:
    """Return what an operation on the device calculates with: arrays of the device and scalars."""
    if isinstance(value, EmulatedArray):
        return host_of(value)
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}")
    return value


def _argument(value: Any) -> Any:
    """Return an argument of a function: arrays of the device, also in tuples and lists, or anything but NumPy's."""
    if type(value) in (list, tuple):
        return type(value)([_argument(item) for item in value])
    return operand(value)


def _index(key: Any) -> Any:
    """Return an index for NumPy. Lists and NumPy arrays may be indices, and are sent to the device for that."""
    if isinstance(key, tuple):
        return tuple(_index(item) for item in key)
    if isinstance(key, (list, np.ndarray)):
        if isinstance(key, list) and any(isinstance(item, EmulatedArray) for item in key):
            return np.array([host_of(item) if isinstance(item, EmulatedArray) else item for item in key])
        transfers.notify("to_device", np.asarray(key).nbytes)
        return key
    return host_of(key) if isinstance(key, EmulatedArray) else key


def _is_basic(key: Any) -> bool:
    """Return whether an index makes a view."""
    items = key if isinstance(key, tuple) else (key,)
    return all(
        item is None or item is ... or isinstance(item, (slice, np.integer)) or type(item) is int for item in items
    )


def _check_out(array: EmulatedArray, out: Any) -> None:
    if not isinstance(out, np.ndarray):
        raise TypeError("Only numpy.ndarray can be obtained fromcupy.ndarray")
    if array.dtype != out.dtype:
        raise TypeError(f"{out.dtype} array cannot be obtained from {array.dtype} array")
    if array.shape != out.shape:
        raise ValueError(f"Shape mismatch. Expected shape: {array.shape}, actual shape: {out.shape}")
    if not (out.flags.c_contiguous or out.flags.f_contiguous):
        raise RuntimeError("`out` cannot be specified when copying to non-contiguous ndarray")


def _explicit(name: str) -> Callable[..., Any]:
    """Return a method of NumPy's arrays that hands the values to the host."""

    def call(self: EmulatedArray, *args: Any, **keywords: Any) -> Any:
        return getattr(self.get(), name)(*args, **keywords)

    return call


def _attribute(name: str) -> property:
    """Return an attribute of NumPy's arrays; one that is an array is a view of the device's memory."""

    def value(self: EmulatedArray) -> Any:
        found = getattr(host_of(self), name)
        return view(found) if isinstance(found, np.ndarray) else found

    return property(value)


for _name in _EXPLICIT.split():
    setattr(EmulatedArray, _name, _explicit(_name))
for _name in _ATTRIBUTES.split():
    setattr(EmulatedArray, _name, _attribute(_name))
for _name in _METHODS.split():
    setattr(EmulatedArray, _name, _method(_name, _argument))
for _name in TAKING_INDICES.split():
    setattr(EmulatedArray, _name, _method(_name, _index))
