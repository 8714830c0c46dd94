"""Values that give their parts on demand (of Dask, h5py, xarray, gzarr), and when a write may take them in parts.

Theory of operation. A write takes its value batch by batch, and stores a batch before it takes the next. A value that
reads the array that is written would thus give a mixture of old and new elements: ``dask.array.from_array(z)[::-1]``,
say. It cannot be told from outside what a lazy value reads.

Rule: only values that cannot read the array are taken part by part: HDF5 datasets, and gzarr arrays whose store gives
other names to its objects. All other lazy values are computed before anything is written, in memory or, if they are
large, in a temporary file.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from gzarr.backend import Backend
from gzarr.dtypes.scalars import lacks_unit
from gzarr.errors import StoreError
from gzarr.hierarchy.node import Node, lies_within
from gzarr.storage.base import Store

#: Larger values are computed into a temporary file, in parts of this size.
IN_MEMORY_NBYTES = 1 << 28

#: What arrays in memory have: pandas' have "iloc", as their brackets take labels.
_IN_MEMORY = ("__dlpack__", "__cuda_array_interface__", "__array_interface__", "iloc")


class LazyValue:
    """A lazy value that says which arrays of gzarr it reads."""

    __slots__ = ()

    @property
    def arrays(self) -> tuple[Node[Any], ...]:
        """The arrays."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Separate:
    """A lazy value that does not read the array it is written to, as the code that made the array knows.

    Attributes
    ----------
    value : object
        The value.
    """

    value: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the value."""
        return tuple(self.value.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the value."""
        dtype: np.dtype[Any] = self.value.dtype
        return dtype

    def __getitem__(self, key: Any) -> Any:
        return self.value[key]


def is_lazy(value: Any) -> bool:
    """Return whether a value computes or reads its parts when it is asked for them, with NumPy's brackets."""
    if isinstance(value, (np.ndarray, np.generic)) or not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return False
    return isinstance(value, (Node, Separate)) or (
        hasattr(value, "__getitem__") and not any(hasattr(value, name) for name in _IN_MEMORY)
    )


def meets(one: tuple[Store, str], other: tuple[Store, str]) -> bool:
    """Return whether two places, each a path in a store, are the same, or one is in the other."""
    return lies_within(*one, *other) or lies_within(*other, *one)


def is_separate(value: Any, store: Store, path: str) -> bool:
    """Return whether a lazy value surely does not read the array at a path of a store."""
    if isinstance(value, Node):
        return not meets((store, path), (value.store, value.path))
    if isinstance(value, LazyValue):
        return all(is_separate(array, store, path) for array in value.arrays)
    return isinstance(value, Separate) or type(value).__module__.partition(".")[0] == "h5py"


def computed(value: Any, dtype: np.dtype[Any], backend: Backend) -> Any:
    """Return all elements of a lazy value, as an array in memory or mapped from a temporary file without a name.

    dtype: of the elements in the file. Raises StoreError if there is no room for the file.
    """
    if not prod(value.shape) * dtype.itemsize > IN_MEMORY_NBYTES or dtype.hasobject or lacks_unit(dtype):
        whole = value if hasattr(value, "__array__") else value[(slice(None),) * len(value.shape)]
        # A gzarr array is in its store, whatever device its reads go to.
        return backend.asarray(np.asarray(whole) if isinstance(value, (Node, LazyValue)) else whole, dtype)
    shape = tuple(value.shape)
    with tempfile.TemporaryFile(prefix="gzarr-") as file:
        _reserve(file.fileno(), prod(shape) * dtype.itemsize)
        mapped = np.memmap(file, dtype, "r+", shape=shape)
    for part in _parts(shape, dtype.itemsize):
        mapped[part] = backend.host.asarray(value[part], dtype)
    return mapped


def _reserve(file: int, nbytes: int) -> None:
    """Allocate a temporary file. Raises StoreError."""
    try:
        allocate(file, nbytes)
    except OSError as error:
        raise StoreError(
            f"a value that may read the array it is written to is computed first, but {tempfile.gettempdir()!r} cannot"
            f" hold its {nbytes} bytes: {error}. Set TMPDIR to another directory, or write the value in parts"
        ) from error


def allocate(file: int, nbytes: int, offset: int = 0) -> None:
    """Allocate bytes of a file, as a full disk would end the process when they are written through a map.

    Raises OSError.
    """
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, offset, nbytes)
        return
    os.lseek(file, offset, os.SEEK_SET)
    block = bytes(1 << 20)
    while nbytes > 0:
        nbytes -= os.write(file, block[:nbytes])


def _parts(shape: tuple[int, ...], itemsize: int) -> Iterator[tuple[slice, ...]]:
    """Cut a shape into parts that fit into memory and are as contiguous as possible."""
    lengths = list(shape)
    for axis, extent in enumerate(shape):
        row = prod(shape[axis + 1 :]) * itemsize
        lengths[axis] = min(max(IN_MEMORY_NBYTES // row, 1), extent)
        if row <= IN_MEMORY_NBYTES:
            break
    counts = [-(-n // length) for n, length in zip(shape, lengths, strict=True)]
    for index in np.ndindex(*counts):
        yield tuple(
            slice(i * length, min((i + 1) * length, n)) for i, length, n in zip(index, lengths, shape, strict=True)
        )
