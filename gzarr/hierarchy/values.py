"""Checks and shapes what goes into a selection and comes out: values to write, also lazy, and arrays to read into."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from gzarr.backend import Array as AnyArray
from gzarr.backend import Backend, Fields
from gzarr.dtypes.scalars import as_times, lacks_unit
from gzarr.errors import SelectionError, StoreError
from gzarr.hierarchy.node import Node, lies_within
from gzarr.indexing.selection import Box, Points, Range, Selection
from gzarr.metadata.conventions import split_names
from gzarr.metadata.model import ArrayMeta
from gzarr.storage.base import Store
from gzarr.storage.tables import mapped_file


def broadcast_value(value: Any, dtype: np.dtype[Any], selection: Selection, array: Node[ArrayMeta]) -> Any:
    """Return a value for an array, or for fields of a dtype, as something to index with an axis for each array axis.

    For points there is one axis for all. A lazy value is returned as it is only if it cannot read the array.
    """
    if not isinstance(value, np.ndarray):
        check_names(value, selection, array)
    is_plain = type(value) is np.ndarray and value.dtype == dtype and value.shape == selection.shape
    given = (
        value
        if is_plain and dtype.kind not in "mM" and array.backend.xp is np
        else broadcast_to_shape(value, dtype, selection, array)
    )
    if isinstance(selection, Box) and selection.view is not None:
        given = given[selection.view]
    return given if isinstance(selection, Box) else to_array_axes(given, selection)


def broadcast_to_shape(value: Any, dtype: np.dtype[Any], selection: Selection, array: Node[ArrayMeta]) -> Any:
    """Return a value as something of the selection's shape."""
    shape = selection.shape + dtype.shape
    if not isinstance(value, np.ndarray) and is_lazy(value):
        by_slices = isinstance(selection, Box) and selection.view is None and {*map(type, selection.axes)} <= {Range}
        fits = by_slices and len(shape) > 0 and tuple(value.shape) == shape
        if fits and is_separate(value, array.store, array.path) and _casts_surely(value.dtype, dtype.base):
            return value
        value = computed(value, dtype.base, array.backend)
    if dtype.hasobject and not shape:
        single = np.empty(1, object)
        single[0] = value[()] if isinstance(value, np.ndarray) and not value.shape else value
        return single.reshape(())
    if not shape and isinstance(value, np.ndarray) and not value.shape and isinstance(value, np.ma.MaskedArray):
        single = np.empty((), dtype.base)
        single[()] = value  # NumPy writes NaN for a masked element, or refuses it
        return single
    if isinstance(value, (bytearray, memoryview)) and array.metadata.data_type.variable == "bytes":
        value = bytes(value)  # one element, where NumPy sees a list of numbers
    given = array.backend.asarray(value, dtype.base)
    if given.dtype != dtype.base or (not given.dtype.isnative and lacks_unit(given.dtype)):
        given = _castable(given, dtype.base)
    if given.shape == shape:
        return given
    of_mask = isinstance(selection, Points) and selection.of_mask
    while given.ndim > len(shape) and given.shape[0] == 1 and not of_mask:
        given = given[0]
    try:
        return np.broadcast_to(given, shape)
    except ValueError as error:
        raise ValueError(f"cannot write a value of shape {given.shape} to a selection of shape {shape}") from error


def _castable(given: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
    """Return values that can be cast to a dtype chunk by chunk, or have been. Raises what the cast raises."""
    if not np.can_cast(given.dtype, dtype, "unsafe"):
        raise TypeError(f"cannot write a value of dtype {given.dtype} to an array of dtype {dtype}")
    if lacks_unit(dtype) and isinstance(given, np.ndarray):
        return as_times(given, dtype)
    on_host = type(given) in (np.ndarray, np.memmap)
    depends = given.dtype.kind in "fc" and dtype.kind in "iu"  # floats out of range, on the elements beside them
    if not _casts_surely(given.dtype, dtype) or (on_host and (depends or not given.shape)):
        return given.astype(dtype)
    return given


def _casts_surely(given: np.dtype[Any], dtype: np.dtype[Any]) -> bool:
    """Return whether all elements can be cast. Of texts and objects only a cast shows it.

    Times in the other byte order are cast at once, as chunks of times without a unit are in native order.
    """
    if lacks_unit(dtype) and not given.isnative:
        return False
    return np.can_cast(given, dtype, "unsafe") and (given.kind not in "OSUT" or dtype.kind in (given.kind, "O"))


def check_out(out: AnyArray, shape: tuple[int, ...], dtype: np.dtype[Any]) -> AnyArray:
    """Return an array to read into. Raises ValueError for its shape, TypeError for its dtype."""
    if tuple(out.shape) != shape + dtype.shape:
        raise ValueError(f"out has shape {tuple(out.shape)}, but the selection has shape {shape + dtype.shape}")
    if not np.can_cast(dtype.base, out.dtype, "same_kind"):
        raise TypeError(f"out has dtype {out.dtype}, which cannot hold values of {dtype}")
    if hasattr(out, "flags") and getattr(out.flags, "writeable", True) is False:
        raise ValueError("out is read-only")
    return out


def native_times(out: AnyArray) -> AnyArray:
    """Return the memory of an array to read into; in native byte order if it is of times without a unit."""
    return out if out.dtype.isnative or not lacks_unit(out.dtype) else out.view(out.dtype.newbyteorder("="))


def fields_dtype(dtype: np.dtype[Any], fields: Fields) -> np.dtype[Any]:
    """Return the dtype of some fields of a structured dtype. Raises SelectionError naming the fields there are."""
    if not isinstance(fields, (str, list, tuple)):
        raise SelectionError(f"fields are a name or a list of names, got {fields!r}")
    names = [fields] if isinstance(fields, str) else fields
    missing = [name for name in names if dtype.names is None or name not in dtype.names]
    if missing:
        known = ", ".join(map(repr, dtype.names or ()))
        remedy = f"the array's fields are {known}" if known else f"the array's dtype, {dtype}, has no fields"
        raise SelectionError(f"no field {missing[0]!r}; {remedy}")
    if isinstance(fields, str):
        return dtype[fields]
    return np.dtype([(name, dtype[name]) for name in names])


def to_array_axes(value: Any, selection: Selection) -> Any:
    """Return a value with one axis per array axis, or one for all points; axes of a subarray field stay last."""
    if isinstance(selection, Points):
        return value.reshape(-1, *value.shape[len(selection.shape) :])
    return value if selection.view is None else value[selection.view]


# -- names of axes -----------------------------------------------------------------------------------------------------
# A value is not transposed to fit: its axes may have one length, so that the mistake would go unnoticed.


def axis_names(value: Any) -> tuple[Any, ...]:
    """Return the names of the axes of a value as xarray's arrays have them; empty if it has none."""
    dims = getattr(value, "dims", None)
    is_named = isinstance(dims, tuple) and len(dims) == len(getattr(value, "shape", ()))
    return dims if is_named and dims is not None else ()


def stored_names(meta: ArrayMeta) -> tuple[str | None, ...]:
    """Return the names of the axes of a stored array, of either format; empty if it has none."""
    return split_names(meta.attributes, meta.dimension_names, len(meta.shape))[1] or ()


def check_names(value: Any, selection: Selection, array: Node[ArrayMeta]) -> None:
    """Raise ValueError if a value's axes would go to axes that have other names."""
    dims = axis_names(value)
    if dims and isinstance(selection, Box):
        names = stored_names(array.metadata)
        check_aligned(dims, _names_of_result(names, selection), names, array.store_path)


def check_aligned(dims: Sequence[Any], names: Sequence[Any], known: Sequence[Any], where: object) -> None:
    """Raise ValueError if axes that are broadcast, the last to the last, would go to axes of other names.

    Names that an array does not know say nothing.
    """
    for dim, name in zip(reversed(dims), reversed(names), strict=False):
        if dim != name and dim in known:
            raise ValueError(
                f"{where}: a value with the axes {tuple(dims)} would be written to the axes {tuple(names)}, {dim!r} to "
                f"{name!r}; transpose it with value.transpose, or give value.data, whose axes have no names"
            )


def _names_of_result(names: Sequence[str | None], selection: Box) -> list[str | None]:
    """Return the names of the axes of what is selected; None for a new axis."""
    if selection.view is None:
        return list(names)
    found: list[str | None] = []
    rest = iter(names)
    for item in selection.view:
        if item is None:
            next(rest, None)
        elif item is not ...:
            found.append(None if isinstance(item, int) else next(rest, None))
    return found


# -- values that give their parts on demand ----------------------------------------------------------------------------
# Of Dask, h5py, xarray, gzarr. A write takes its value batch by batch, and stores a batch before it takes the next. A
# value that reads the array that is written would thus give a mixture of old and new elements, such as
# ``dask.array.from_array(z)[::-1]``. It cannot be told from outside what a lazy value reads.
#
# Rule: only values that cannot read the array are taken part by part: HDF5 datasets, and gzarr arrays whose store gives
# other names to its objects. All other lazy values are computed before anything is written, in memory or, if they are
# large, in a temporary file.

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
        return self.value.dtype

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
    try:
        mapped = mapped_file(shape, dtype)
    except OSError as error:
        raise StoreError(
            f"a value that may read the array it is written to is computed first, but {tempfile.gettempdir()!r} cannot"
            f" hold its {prod(shape) * dtype.itemsize} bytes: {error}. Set TMPDIR to another directory, or write the"
            " value in parts"
        ) from error
    for part in _parts(shape, dtype.itemsize):
        mapped[part] = backend.host.asarray(value[part], dtype)
    return mapped


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
