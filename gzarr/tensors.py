"""Tensors of PyTorch as arrays that share their memory, and data types that NumPy lacks in DLPack.

PyTorch has data types of its own, and its tensors refuse NumPy's protocols where NumPy cannot follow: while gradients
are recorded, with conjugation or negation pending, and for types that only ml_dtypes has. Everything that takes an
array passes it through here. PyTorch is recognized by its data types, and never imported.
"""

import ctypes
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from gzarr.errors import MissingExtraError, UnknownDataTypeError

#: Codes of ml_dtypes' types in DLPack (dlpack.h, DLDataTypeCode, version 1.1).
_DLPACK_CODES = {"bfloat16": 4} | {
    name: code
    for code, name in enumerate(
        (
            *("float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2"),
            *("float8_e5m2fnuz", "float8_e8m0fnu"),
        ),
        start=7,
    )
}


class DeviceArray:
    """A base of arrays in the memory of a device without CUDA, which no protocol describes."""

    __slots__ = ()

    _namespace: ClassVar[Any]  # the module with the functions for such arrays


def is_on_device(value: Any) -> bool:
    """Return whether an array is in the memory of a GPU or of the emulated device."""
    return hasattr(value, "__cuda_array_interface__") or isinstance(value, DeviceArray)


def namespace_of(array: DeviceArray) -> Any:
    """Return the module with the functions for an array on a device without CUDA."""
    return array._namespace  # noqa: SLF001 - CuPy's arrays have no public attribute for it


def numpy_dtype(dtype: Any) -> Any:
    """Return the NumPy data type that a data type of PyTorch stands for; anything else as it is.

    Raises UnknownDataTypeError if NumPy and ml_dtypes lack it, MissingExtraError if it needs ml_dtypes.
    """
    if type(dtype).__module__ != "torch":
        return dtype
    name = str(dtype).removeprefix("torch.")
    try:
        return np.dtype(name)
    except TypeError:
        pass
    try:
        import ml_dtypes
    except ImportError as error:
        raise MissingExtraError(f"{dtype} needs ml_dtypes; install it with: pip install 'gzarr[ml]'") from error
    if not hasattr(ml_dtypes, name):
        raise UnknownDataTypeError(f"NumPy and ml_dtypes have no data type for {dtype}; convert the tensor")
    return np.dtype(getattr(ml_dtypes, name))


def from_tensor(value: Any) -> Any:
    """Return a tensor of PyTorch as a NumPy array; lists of tensors as lists of arrays, anything else as it is.

    The array shares the memory of a tensor on the host, unless a conjugation or negation is pending. A tensor on a GPU
    is returned as a tensor that the protocols of arrays take, or copied to the host if CuPy lacks its data type.
    Raises TypeError for tensors without values, and what `numpy_dtype` raises.
    """
    if type(value) in (list, tuple) and value and _holds_tensors(value[0]):
        return [from_tensor(item) for item in value]
    if not is_tensor(value):
        return value
    plain, dtype = value.detach().resolve_conj().resolve_neg(), numpy_dtype(value.dtype)
    if plain.is_cuda and dtype.isbuiltin == 1:
        return plain
    if plain.is_meta:
        raise TypeError("a tensor on the device 'meta' has no values; make one on another device")
    return _shared(plain.cpu(), dtype)


def to_host(value: Any) -> Any:
    """Return a tensor of PyTorch, or an array in GPU memory of any library, as a NumPy array; anything else as it is.

    Lists of tensors become lists of arrays. Raises TypeError if the library says no way to copy to the host, and what
    `from_tensor` raises.
    """
    value = from_tensor(value)
    if not is_on_device(value):
        return value
    for method in ("get", "copy_to_host", "cpu"):  # of CuPy, Numba, PyTorch
        copied = getattr(value, method, None)
        if callable(copied):
            return np.asarray(copied())
    raise TypeError(f"a value of type {type(value).__name__} is in GPU memory: copy it into a NumPy array first")


def to_hosts(xp: Any, values: Sequence[Any]) -> list[Any]:
    """Return several arrays on the host, in one transfer if they are arrays of ``xp`` on a device."""
    if xp is np or not values or not all(isinstance(value, xp.ndarray) for value in values):
        return [to_host(value) for value in values]
    flat = [xp.ascontiguousarray(value).reshape(-1).view(np.uint8) for value in values]
    parts = np.split(to_host(xp.concatenate(flat)), np.cumsum([len(part) for part in flat])[:-1])
    return [part.view(value.dtype).reshape(value.shape) for part, value in zip(parts, values, strict=True)]


def memory_of(out: Any) -> Any:
    """Return a tensor of PyTorch to read into as a NumPy array of the same memory; anything else as it is.

    A tensor on a GPU is returned as it is. Raises ValueError for tensors that cannot be read into, TypeError for those
    whose data type CuPy lacks, and what `numpy_dtype` raises.
    """
    if not is_tensor(out):
        return out
    if out.requires_grad:
        raise ValueError("out requires a gradient, which reads do not record; give out.detach()")
    if out.is_conj() or out.is_neg():
        raise ValueError("out is a view that is conjugated or negated; give a tensor with memory of its own")
    if any(step == 0 and extent > 1 for step, extent in zip(out.stride(), out.shape, strict=True)):
        raise ValueError("out is expanded, so that elements share memory; give out.contiguous()")
    dtype = numpy_dtype(out.dtype)
    if out.is_cuda and dtype.isbuiltin != 1:
        raise TypeError(f"out has {out.dtype}, which CuPy lacks; give a tensor on the host")
    if out.is_cuda:
        return out
    if out.device.type != "cpu":
        raise ValueError(f"out is on the device {out.device}, which gzarr cannot write to; give a tensor on the host")
    return _shared(out, dtype)


def is_tensor(value: Any) -> bool:
    """Return whether a value is a tensor of PyTorch."""
    return type(getattr(value, "dtype", None)).__module__ == "torch"


def dlpack(array: Any, **kwargs: Any) -> Any:
    """Export an array by DLPack, also a NumPy array of a type of ml_dtypes that DLPack has and NumPy does not export.

    Raises BufferError if DLPack lacks the data type.
    """
    code = _DLPACK_CODES.get(array.dtype.name)
    if code is None or not isinstance(array, np.ndarray):
        return array.__dlpack__(**kwargs)
    capsule = array.view(f"u{array.itemsize}").__dlpack__(**kwargs)
    _set_code(capsule, code)
    return capsule


def _holds_tensors(item: Any) -> bool:
    """Return whether an item of a list is a tensor, or a list whose first item is one."""
    while type(item) in (list, tuple) and item:
        item = item[0]
    return is_tensor(item)


def _shared(tensor: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return a NumPy array that shares the memory of a tensor on the host."""
    if dtype.isbuiltin == 1:
        return tensor.numpy()
    bits = getattr(sys.modules["torch"], f"int{8 * dtype.itemsize}")
    as_integers: np.ndarray[Any, Any] = tensor.view(bits).numpy()
    return as_integers.view(dtype)


def map_arrays(convert: Callable[[Any], Any], batch: Any) -> Any:
    """Apply a function to an array, or to those of a dict, list or tuple, which may hold others; scalars are arrays."""
    if isinstance(batch, Mapping):
        return {name: map_arrays(convert, item) for name, item in batch.items()}
    if isinstance(batch, (list, tuple)):
        return getattr(type(batch), "_make", type(batch))([map_arrays(convert, item) for item in batch])  # named, too
    return convert(np.asarray(batch) if isinstance(batch, np.generic) else batch)


class Exported:
    """An array that other libraries take by DLPack, in all data types that `dlpack` knows.

    Parameters
    ----------
    array : numpy.ndarray or cupy.ndarray
        The array. What takes it keeps it alive.
    """

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **kwargs: Any) -> Any:
        return dlpack(self._array, **kwargs)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


class _Tensor(ctypes.Structure):
    """The beginning of DLTensor (dlpack.h)."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("pipeline_slots", ctypes.c_uint16),
    )


class _VersionedTensor(ctypes.Structure):
    """The beginning of DLManagedTensorVersioned (dlpack.h)."""

    _fields_ = (
        ("version", ctypes.c_uint32 * 2),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


def _set_code(capsule: Any, code: int) -> None:
    """Set the data type's code in a capsule that nobody has taken yet."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    is_named = ctypes.pythonapi.PyCapsule_IsValid
    is_named.restype, is_named.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
    if is_named(capsule, b"dltensor_versioned"):
        _VersionedTensor.from_address(pointer(capsule, b"dltensor_versioned")).tensor.code = code
    else:
        _Tensor.from_address(pointer(capsule, b"dltensor")).code = code
