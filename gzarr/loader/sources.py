"""The arrays of a loader: what was given, on which device, and which of them are kept in memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from gzarr.api.create import array as new_array
from gzarr.backend import Array as AnyArray
from gzarr.backend import Backend
from gzarr.chunk_io.array_io import ArrayIO
from gzarr.concurrency import new_lock
from gzarr.devices import backend_for
from gzarr.dtypes import parse_dtype
from gzarr.errors import DeviceError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.named_axes import axis_names, stored_names
from gzarr.loader.feeds import FeedSource
from gzarr.loader.samples import Samples
from gzarr.tensors import to_host

#: Arrays by name, of gzarr or NumPy.
Arrays: TypeAlias = dict[str, Any]
#: What an array is called that was given without a name.
ONLY = "array"


def collect(arrays: Any) -> tuple[Arrays, bool]:
    """Return the arrays by name, and whether they were given by name. Raises: TypeError, ValueError."""
    named = isinstance(arrays, (Group, Mapping))
    if isinstance(arrays, Group):
        arrays = dict(arrays.arrays())
    elif not named:
        arrays = {ONLY: arrays}
    if not arrays:
        raise ValueError("arrays: there are none; give an array, a dict of arrays, or a group that has some")
    bad = next((name for name in arrays if not isinstance(name, str)), None)
    if bad is not None:
        raise TypeError(f"arrays: names must be strings, got {bad!r}")
    _check_first({name: _names(array) for name, array in arrays.items()})
    return {name: _checked(name, array) for name, array in arrays.items()}, named


def _names(array: Any) -> tuple[Any, ...]:
    return stored_names(array.metadata) if isinstance(array, Array) else axis_names(array)


def _check_first(axes: Mapping[str, tuple[Any, ...]]) -> None:
    """Raise ValueError if the axis of the samples of one array has another place in another."""
    firsts = {names[0]: name for name, names in axes.items() if names and names[0] is not None}
    for name, names in axes.items():
        for axis in names[1:]:
            if axis in firsts and names[0] != axis:
                raise ValueError(
                    f"arrays: samples of {firsts[axis]!r} lie along its first axis, {axis!r}, but {name!r} has the "
                    f"axes {names}; transpose it, so that {axis!r} comes first"
                )


def _checked(name: str, array: Any) -> Any:
    if not isinstance(array, Array):
        if isinstance(array, (str, bytes)) or not hasattr(array, "__array__") or getattr(array, "chunks", None):
            raise TypeError(f"arrays: {name!r} must be a gzarr or NumPy array, got {_told(array)}")
        array = np.asarray(to_host(array))
    if not array.ndim:
        raise ValueError(f"arrays: {name!r} has no axes; samples lie along the first one")
    return array


def _told(array: Any) -> str:
    """What was given instead of an array, and what to give."""
    module, kind, remedy = type(array).__module__.partition(".")[0], type(array).__name__, ""
    if module == "zarr":
        remedy = "; open it with gzarr.open_array or gzarr.open_group"
    elif hasattr(array, "__array__"):
        remedy = ", all of which would be read into memory; if it fits, give numpy.asarray of it"
    elif isinstance(array, (str, bytes, os.PathLike)):
        remedy = f"; open it: gzarr.open_array({array!r}), or gzarr.open_group"
    elif isinstance(array, (list, tuple)):
        remedy = "; make an array of it with numpy.asarray, or a dict of several arrays"
    return (kind if module == "builtins" else f"{module}.{kind}") + remedy


def find_backend(arrays: Arrays, device: str | Backend | None) -> Backend:
    """Return the backend of the device asked for, or of the arrays. Raises: DeviceError."""
    if device is not None:
        return backend_for(device)
    backends = {id(a.backend): a.backend for a in arrays.values() if isinstance(a, Array)}
    if len(backends) > 1:
        names = ", ".join(sorted({backend.device for backend in backends.values()}))
        raise DeviceError(f"the arrays are open on several devices or with several options ({names}); give device=")
    return next(iter(backends.values())) if backends else backend_for("cpu")


def parse_dtypes(dtype: Any, arrays: Arrays) -> dict[str, np.dtype[Any]]:
    """Return the data type that each array has in batches. Raises: TypeError, ValueError.

    dtype: one for all, one by name, or None for those of the arrays.
    """
    wanted = dtype if isinstance(dtype, Mapping) else dict.fromkeys(arrays, dtype)
    unknown = next((name for name in wanted if name not in arrays), None)
    if unknown is not None:
        raise ValueError(f"dtype: there is no array {unknown!r}; there are {', '.join(map(repr, arrays))}")
    return {name: _cast(name, array, wanted.get(name)) for name, array in arrays.items()}


def _cast(name: str, array: Any, wanted: Any) -> np.dtype[Any]:
    stored = stored_dtype(array)
    dtype = (array.dtype if wanted is None else parse_dtype(wanted).dtype).newbyteorder("=")
    if dtype != stored and not np.can_cast(stored, dtype, "same_kind"):
        raise TypeError(
            f"dtype: {stored} of {name!r} cannot become {dtype} without a change of kind; leave it out and convert "
            "batches with transform="
        )
    return dtype


def stored_dtype(array: Any) -> np.dtype[Any]:
    """The data type that chunks are decoded to, in native byte order."""
    dtype: np.dtype[Any] = array.metadata.data_type.dtype if isinstance(array, Array) else array.dtype
    return dtype.newbyteorder("=")


def io_of(array: Array) -> ArrayIO:
    """How an array is read. Raises: UnknownCodecError, MissingExtraError."""
    return array._io  # noqa: SLF001 - of the same package


def make_source(
    name: str, array: Any, backend: Backend, samples: Samples, dtype: np.dtype[Any], *, kept: AnyArray | None
) -> FeedSource:
    """An array as it is read. kept: all of it, if it is kept in memory."""
    io = None
    if kept is None:
        io = io_of(array if array.backend is backend else array.to(backend))
    shape = tuple(array.shape)
    stored = stored_dtype(array)
    return FeedSource(name, backend, io, kept, samples.box(shape), samples.shape(shape), stored, dtype)


class Kept:
    """Arrays in memory, by name: read, or copied to the device, when they are first asked for."""

    def __init__(self, arrays: Arrays, backend: Backend) -> None:
        self._arrays, self._backend = arrays, backend
        self._lock = new_lock()
        self._made: dict[str, tuple[AnyArray, object]] = {}

    def get(self, name: str) -> AnyArray | None:
        """Return an array, which the current stream can use; None for one that is not kept."""
        if name not in self._arrays:
            return None
        with self._lock:
            made = self._made.get(name)
            if made is None:
                made = _on_device(self._arrays[name], self._backend), self._backend.record()
                self._made[name] = made
        data, mark = made
        self._backend.wait(mark)
        return data


def _on_device(array: Any, backend: Backend) -> AnyArray:
    """All of an array on a device, contiguous and in native byte order."""
    if isinstance(array, Array):
        there = array if array.backend is backend else array.to(backend)
        # Views made by `astype` are cast when batches are put together.
        data: AnyArray = (there if array.dtype == stored_dtype(array) else there.astype(stored_dtype(array)))[...]
        return data
    array = np.ascontiguousarray(array, stored_dtype(array))
    if backend.device == "cpu":
        return array
    device: Any = backend
    return new_array(array, compressors=None, device=device)[...]
