"""As much of PyTorch as gzarr meets, on NumPy: for tests where PyTorch is not installed, and of tensors on a GPU.

Like PyTorch's, its tensors refuse NumPy's protocols while gradients are recorded, a conjugation is pending, for
bfloat16, and on other devices; a tensor on the device "cuda" gives its address by CUDA's array interface.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np


class DType:
    """A data type of PyTorch, which NumPy cannot interpret."""

    __module__ = "torch"

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"


class Tensor:
    """A tensor on some device; all are in the memory of the host."""

    def __init__(self, values: np.ndarray, device: str = "cpu", **state: bool) -> None:
        self._values = values
        self.device = SimpleNamespace(type=device)
        self.dtype = DTYPES[values.dtype.name]
        self.shape, self.ndim = values.shape, values.ndim
        self.is_cuda, self.is_meta = device == "cuda", device == "meta"
        self.requires_grad, self._conj = state.get("grad", False), state.get("conj", False)

    def __getattr__(self, name: str) -> Any:
        if name != "__cuda_array_interface__" or not self.is_cuda:
            raise AttributeError(name)
        if self.requires_grad:
            raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad")
        return {**self._values.__array_interface__, "version": 2}

    def requires_grad_(self) -> Tensor:
        return Tensor(self._values, self.device.type, grad=True)

    def detach(self) -> Tensor:
        return Tensor(self._values, self.device.type, conj=self._conj)

    def conj(self) -> Tensor:
        return Tensor(self._values, self.device.type, conj=True)

    def is_conj(self) -> bool:
        return self._conj

    def is_neg(self) -> bool:
        return False

    def resolve_conj(self) -> Tensor:
        return Tensor(self._values.conj(), self.device.type) if self._conj else self

    def resolve_neg(self) -> Tensor:
        return self

    def bfloat16(self) -> Tensor:
        return Tensor(self._values.astype(ml_dtypes.bfloat16), self.device.type)

    def to(self, device: str) -> Tensor:
        return Tensor(self._values, device, grad=self.requires_grad)

    def cpu(self) -> Tensor:
        return self.to("cpu")

    def contiguous(self) -> Tensor:
        return Tensor(np.ascontiguousarray(self._values))

    def expand(self, *shape: int) -> Tensor:
        return Tensor(np.lib.stride_tricks.as_strided(self._values, shape, (0, *self._values.strides[1:])))

    @property
    def T(self) -> Tensor:  # noqa: N802 - PyTorch's name
        return Tensor(self._values.T)

    def stride(self) -> tuple[int, ...]:
        return tuple(step // self._values.itemsize for step in self._values.strides)

    def view(self, dtype: DType) -> Tensor:
        return Tensor(self._values.view(dtype.name), self.device.type)

    def numpy(self) -> np.ndarray:
        if self.requires_grad or self._conj or self.device.type != "cpu":
            raise RuntimeError("Can't call numpy()")
        if not self._values.dtype.isbuiltin == 1:
            raise TypeError("Got unsupported ScalarType")
        return self._values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.numpy(), dtype)

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self.numpy().__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2 if self.is_cuda else 1), 0

    def __getitem__(self, key: Any) -> Tensor:
        return Tensor(np.asarray(self._values[key]), self.device.type)

    def __index__(self) -> int:
        return int(self._values)


NAMES = ("bool", "uint8", "int16", "int32", "int64", "float32", "float64", "complex64", "bfloat16", "quint8")
DTYPES = {name: DType(name) for name in NAMES}
globals().update(DTYPES)


def tensor(values: Any, dtype: DType | None = None) -> Tensor:
    array = np.asarray(values)
    if dtype is None and array.dtype.kind == "f":
        array = array.astype("f4")
    return Tensor(array if dtype is None else array.astype(dtype.name))


def zeros(*shape: int, dtype: DType | None = None) -> Tensor:
    name = "float32" if dtype is None else dtype.name
    return Tensor(np.zeros(shape, ml_dtypes.bfloat16 if name == "bfloat16" else name))
