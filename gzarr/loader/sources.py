"""The arrays of a loader: what was given, on which device, and which of them are kept in memory."""

import os
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import reduce
from itertools import pairwise
from operator import getitem
from typing import Any, TypeAlias

import numpy as np

from gzarr.api.create import array as new_array
from gzarr.api.many import read_many
from gzarr.api.open import open as open_node
from gzarr.backend import Array as AnyArray
from gzarr.backend import Backend
from gzarr.concurrency import Pool, new_lock, run_in_threads
from gzarr.devices import backend_for
from gzarr.dtypes import parse_dtype
from gzarr.errors import DeviceError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.lazy_views import LazyView
from gzarr.hierarchy.values import axis_names, stored_names
from gzarr.loader.arrays import JoinedArrays, stored_dtype
from gzarr.loader.ragged import Ragged, SparseRows
from gzarr.loader.viewed import array_of_view
from gzarr.loader.windows import Crops
from gzarr.storage.disk_cache import DiskCache
from gzarr.tensors import to_host

#: Arrays by name, of gzarr or NumPy.
Arrays: TypeAlias = dict[str, Any]
#: By name of array, the keys that lead to it in nested dicts.
Names: TypeAlias = dict[str, tuple[str, ...]]
#: Nodes that are opened at once where a server is asked for each.
OPENED_AT_ONCE = 32
_opening = Pool()
#: What an array is called that was given without a name.
ONLY = "array"


def collect(arrays: Any) -> tuple[Arrays, Names | None]:
    """Return the arrays by name, and where each is in a batch; None for one that was given without a name.

    Raises: TypeError, ValueError.
    """
    if isinstance(arrays, (list, tuple)) and arrays:
        arrays = opened(arrays)
        if isinstance(arrays[0], (Group, Mapping)):
            arrays = _transposed(arrays)
    if SparseRows.is_stored_in(arrays) or isinstance(arrays, (Ragged, SparseRows)):
        raise TypeError("arrays: give samples of varying length, or rows of a sparse matrix, a name: {'x': ...}")
    named = isinstance(arrays, (Group, Mapping))
    found: dict[tuple[str, ...], Any] = dict(flatten(arrays)) if named else {(ONLY,): arrays}
    if not found:
        raise ValueError("arrays: there are none; give an array, a dict of arrays, or a group that has some")
    names = {"/".join(path): path for path in found}
    if len(names) < len(found):
        raise ValueError(f"arrays: names of nested dicts must differ if joined by '/', got {list(found)}")
    _check_first({name: _names(found[path]) for name, path in names.items()})
    return {name: _checked(name, found[path]) for name, path in names.items()}, names if named else None


def through_cache(arrays: Arrays, folder: Any, nbytes: int | None) -> Arrays:
    """Arrays that are read through a cache on disk, if there is a folder for it. Raises: ValueError for views."""
    if folder is None and nbytes is not None:
        raise ValueError("cache_nbytes limits a folder: give cache= as well")
    stores: dict[int, DiskCache] = {}

    def cached(array: Any) -> Any:
        if isinstance(array, list):
            return list(map(cached, array))
        if isinstance(array, Ragged):
            again = copy(array)
            again.values = cached(array.values)
            again.arrays = (again.values,)
            return again
        if not isinstance(array, Array):
            return array
        if array.is_view:
            raise ValueError(f"cache: {array} is a view; open its array with gzarr.open_array(..., cache=)")
        if id(array.store) not in stores:
            stores[id(array.store)] = DiskCache(array.store, folder, nbytes)
        return Array(stores[id(array.store)], array.path, array.metadata, array.opened_with, read_only=True)

    return arrays if folder is None else {name: cached(array) for name, array in arrays.items()}


def flatten(arrays: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All arrays of nested dicts and groups, with the keys that lead to them."""
    items = arrays.arrays() if isinstance(arrays, Group) else arrays.items()
    for name, item in items:
        if not isinstance(name, str):
            raise TypeError(f"arrays: names must be strings, got {name!r}")
        found: Any = item
        if SparseRows.is_stored_in(found):
            found = SparseRows(found)
        if isinstance(found, (Ragged, SparseRows)):
            yield from (((*path, name, part), array) for part, array in found.parts().items())
        elif isinstance(found, (Group, Mapping)):
            yield from flatten(found, (*path, name))
        else:
            yield (*path, name), found


def nested(
    arrays: Mapping[str, Any],
    names: Names,
    makers: Mapping[tuple[str, ...], Ragged | SparseRows],
    *,
    packed: bool = False,
) -> dict[str, Any]:
    """Arrays by name as nested dicts. makers: what makes something else of what is at a place. packed: as of it."""
    found: dict[str, Any] = {}
    for name, path in names.items():
        inner = found
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
        inner[path[-1]] = arrays[name]
    for path, maker in makers.items():
        inner = reduce(getitem, path[:-1], found)
        inner[path[-1]] = maker.made(inner[path[-1]], packed=packed)
    return found


def opened(items: Sequence[Any]) -> list[Any]:
    """Items of a list, paths and URLs among them opened for reading, several at a time where servers are asked."""
    found = list(items)
    paths = [n for n, item in enumerate(found) if isinstance(item, (str, os.PathLike))]

    def open_one(number: int) -> None:
        found[number] = open_node(found[number], "r")

    remote = any("://" in str(found[n]) for n in paths)
    run_in_threads(open_one, paths, OPENED_AT_ONCE if remote else 1, _opening)
    return found


def _transposed(items: Sequence[Any]) -> dict[str, Any]:
    """Lists by name of what many dicts or groups have."""
    each = [dict(flatten(item)) for item in items]
    for number, arrays in enumerate(each):
        if set(arrays) != set(each[0]):
            raise ValueError(f"arrays: item {number} of the list has {sorted(arrays)}, item 0 has {sorted(each[0])}")
    names = {"/".join(path): path for path in each[0]}
    return nested({name: [one[path] for one in each] for name, path in names.items()}, names, {})


def _names(array: Any) -> tuple[Any, ...]:
    array = array[0] if isinstance(array, (list, tuple)) and array else array
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
    if isinstance(array, (list, tuple)) and array and any(map(_is_array, array)):
        found = [_checked(f"{name}[{number}]", one) for number, one in enumerate(opened(array))]
        if any(isinstance(one, Ragged) for one in found):
            raise TypeError(
                f"arrays: {name!r} is a list of Ragged; join their values and offsets, and give one of them"
            )
        return found
    if isinstance(array, LazyView):
        array = array_of_view(array)
    if not isinstance(array, (Array, Ragged)):
        if isinstance(array, (str, bytes)) or not hasattr(array, "__array__") or getattr(array, "chunks", None):
            raise TypeError(f"arrays: {name!r} must be a gzarr or NumPy array, got {_told(array)}")
        array = np.asarray(to_host(array))
    if not array.ndim:
        raise ValueError(f"arrays: {name!r} has no axes; samples lie along the first one")
    return array


def _is_array(item: Any) -> bool:
    return isinstance(item, (Array, LazyView, str, os.PathLike)) or bool(getattr(item, "ndim", 0))


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
        remedy = "; make an array of it with numpy.asarray, or a list of arrays" if array else ": the list is empty"
    return (kind if module == "builtins" else f"{module}.{kind}") + remedy


def find_backend(arrays: Arrays, device: str | Backend | None) -> Backend:
    """Return the backend of the device asked for, or of the arrays. Raises: DeviceError."""
    if device is not None:
        return backend_for(device)
    arrays = {name: array.values if isinstance(array, Ragged) else array for name, array in arrays.items()}
    members = [one for a in arrays.values() for one in (a if isinstance(a, list) else [a])]
    backends = {id(a.backend): a.backend for a in members if isinstance(a, Array)}
    if len(backends) > 1:
        names = ", ".join(sorted({backend.device for backend in backends.values()}))
        raise DeviceError(f"the arrays are open on several devices or with several options ({names}); give device=")
    return next(iter(backends.values())) if backends else backend_for("cpu")


def parse_target(device: str | Backend | None, backend: Backend) -> Backend:
    """Return the backend that batches are uploaded to. Raises: DeviceError."""
    target = backend if device is None else backend_for(device)
    if target is not backend and backend.host is not backend:
        raise DeviceError(f"prefetch_to: batches are on {backend.device!r} already; make the loader with device='cpu'")
    return target


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


def join(arrays: Arrays, crops: Crops | None, backend: Backend) -> Arrays:
    """Arrays with those of lists joined; single ones, too, if samples may reach past their ends."""
    padded = crops is not None and crops.is_padded
    return {
        name: _joined(name, array if isinstance(array, list) else [array], crops, backend)
        if padded or isinstance(array, list)
        else array
        for name, array in arrays.items()
    }


def _joined(name: str, arrays: list[Any], crops: Crops | None, backend: Backend) -> Any:
    """Arrays of a list as one. Those of NumPy become one, or, if boxes are cut out of them, arrays in memory."""
    if crops is None and not any(isinstance(array, Array) for array in arrays):
        if len({array.shape[1:] for array in arrays}) > 1:
            raise ValueError(f"arrays: those of {name!r} differ in shape beyond axis 0; give crops=")
        if len({array.dtype.newbyteorder("=") for array in arrays}) > 1:
            raise ValueError(f"arrays: those of {name!r} differ in type; expected one: use array.astype(...)")
        return np.concatenate(arrays)
    device: Any = backend
    made = [one if isinstance(one, Array) else new_array(one, compressors=None, device=device) for one in arrays]
    return JoinedArrays(name, made)


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
                made = on_device(self._arrays[name], self._backend), self._backend.record()
                self._made[name] = made
        data, mark = made
        self._backend.wait(mark)
        return data


def on_device(array: Any, backend: Backend) -> AnyArray:
    """All of an array on a device, contiguous and in native byte order."""
    data: AnyArray
    if isinstance(array, JoinedArrays):
        data = backend.empty(array.shape, array.stored)
        ends = pairwise(array.offsets.tolist())
        some = [(one.to(backend), lo, hi) for one, (lo, hi) in zip(array.arrays, ends, strict=True) if lo < hi]
        read_many(
            [(one.astype(array.stored) if one.dtype != array.stored else one, (), data[lo:hi]) for one, lo, hi in some]
        )
        return data
    if isinstance(array, Array):
        there = array if array.backend is backend else array.to(backend)
        # Views made by `astype` are cast when batches are put together.
        data = (there if array.dtype == stored_dtype(array) else there.astype(stored_dtype(array)))[...]
        return data
    array = np.ascontiguousarray(array, stored_dtype(array))
    if backend.device == "cpu":
        return array
    device: Any = backend
    return new_array(array, compressors=None, device=device)[...]
