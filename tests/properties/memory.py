"""The memory that property tests read into: the host's, or a device's for the duration of a block."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from gzarr.gpu.codecs.batch import has_dtype

_modules: list[Any] = [np]


@contextmanager
def allocated_by(module: Any) -> Iterator[None]:
    """Buffers come from an array module (cupy), for data types that it has."""
    _modules.append(module)
    try:
        yield
    finally:
        _modules.pop()


def module_for(dtype: np.dtype[Any]) -> Any:
    """The array module that makes buffers of a dtype."""
    return _modules[-1] if has_dtype(dtype) and dtype.isnative else np


def on_host(array: Any) -> Any:
    """An array of a device as a NumPy array; anything else as it is."""
    return array.get() if hasattr(array, "__cuda_array_interface__") else array
