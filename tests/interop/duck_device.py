"""A backend whose arrays behave like CuPy's where it matters to other libraries: they refuse to become NumPy arrays."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from gzarr.cpu.backend import CpuBackend
from gzarr.gpu.codecs.dtypes import has_dtype


class DeviceArray(NDArrayOperatorsMixin):
    """An array in the memory of a device that is not there: NumPy functions work on it, `np.asarray` does not."""

    __array_priority__ = 100
    #: gzarr knows CuPy's arrays by this; the CPU backend downloads them.
    __cuda_array_interface__: ClassVar[dict[str, Any]] = {}

    def __init__(self, host: Any) -> None:
        self.host = np.asarray(host)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "host":
            raise AttributeError(name)
        found = getattr(self.host, name)
        return (
            (lambda *args, **kwargs: wrapped(found(*unwrapped(args), **unwrapped(kwargs))))
            if callable(found)
            else found
        )

    def get(self) -> Any:
        return self.host

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError("implicit conversion of a device array to a NumPy array is not allowed; call get()")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return wrapped(getattr(ufunc, method)(*unwrapped(inputs), **unwrapped(kwargs)))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return wrapped(function(*unwrapped(args), **unwrapped(kwargs)))

    def __getitem__(self, key: Any) -> Any:
        return DeviceArray(self.host[unwrapped(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.host[unwrapped(key)] = unwrapped(value)

    def __len__(self) -> int:
        return len(self.host)

    def __bool__(self) -> bool:
        return bool(self.host)


def unwrapped(value: Any) -> Any:
    if isinstance(value, DeviceArray):
        return value.host
    if isinstance(value, (list, tuple)):
        return type(value)(unwrapped(v) for v in value)
    return {k: unwrapped(v) for k, v in value.items()} if isinstance(value, dict) else value


def wrapped(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)) and has_dtype(value.dtype):
        return DeviceArray(value)
    if isinstance(value, (list, tuple)):
        return type(value)(wrapped(v) for v in value)
    return value


class DuckBackend(CpuBackend):
    """The CPU backend with results in `DeviceArray`; like a GPU it has native byte order and no times or objects."""

    device = "duck"

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        if not has_dtype(dtype):
            return super().empty(shape, dtype)
        return DeviceArray(np.empty(shape, dtype.newbyteorder("=")))

    def asarray(self, value: Any, dtype: np.dtype[Any]) -> Any:
        return super().asarray(unwrapped(value), dtype)
