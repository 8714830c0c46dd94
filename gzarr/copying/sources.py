"""Sources of copies: arrays that are read region by region, and the groups that contain them."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gzarr.errors import CopyError, GzarrError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.group_info import left_out
from gzarr.indexing.grid import Grid, RegularAxis
from gzarr.indexing.regions import Region
from gzarr.metadata.documents import NAMES
from gzarr.storage.rules import TEMPORARY_PREFIX
from gzarr.tensors import from_tensor


@dataclass(frozen=True, slots=True)
class Source:
    """An array to copy from.

    Attributes
    ----------
    name : str
        Name in messages.
    shape : tuple of int
        Shape of the array.
    dtype : dtype
        Anything that ``dtype=`` of the creation functions takes.
    itemsize : int
        Bytes of an element in memory; an estimate for text.
    read : callable
        Function of a region that returns its elements, on the host or on the source's device.
    grid : Grid
        The parts that are read and decoded whole.
    attributes : mapping
        User attributes, as JSON values.
    dimension_names : tuple or None
        A name or None for every axis.
    options : mapping
        Keywords that create a similar array, such as chunks and fill_value.
    mask_value : scalar or None
        The element that stands for missing data.
    array : Array or None
        The gzarr array, if the source is one; it may be copied without decoding.
    data : array-like
        What is read, if it is in memory or was opened by the caller.
    block : callable, optional
        Makes what copies a block, if it is not `gzarr.copying.arrays.CopyBlock`.
    """

    name: str
    shape: tuple[int, ...]
    dtype: Any
    itemsize: int
    read: Callable[[Region], Any]
    grid: Grid
    attributes: Mapping[str, Any] = field(default_factory=dict)
    dimension_names: tuple[str | None, ...] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    mask_value: Any = None
    array: Array | None = None
    data: Any = None
    block: Callable[..., Callable[[int], Any]] | None = None

    @property
    def nbytes(self) -> int:
        """Decoded size in bytes."""
        return math.prod(self.shape) * self.itemsize


@dataclass(frozen=True, slots=True)
class SourceTree:
    """The groups and arrays below one place, by relative path; the path of a single array is "".

    Attributes
    ----------
    name : str
        Name of the place in messages; equal names mean the same place.
    groups : mapping
        Attributes of the groups, parents first; empty if the place is an array.
    arrays : mapping
        The arrays.
    zarr_format : int or None
        Format of the source, if it is Zarr.
    files : sequence of str
        The files that are read, if the source is one or several of another format.
    """

    name: str
    groups: Mapping[str, Mapping[str, Any]]
    arrays: Mapping[str, Source]
    zarr_format: int | None = None
    files: Sequence[str] = ()

    def left_out(self) -> Iterator[str]:
        """What Zarr lacks of a file of another format that is read in place, and why."""
        for attributes in (*self.groups.values(), *(array.attributes for array in self.arrays.values())):
            yield from (f"{name}: {why}" for name, why in left_out(attributes).items())


class WhereTheyFit(tuple[int, ...]):
    """Lengths for those arrays of a group that have as many axes; the others stay as they are."""

    __slots__ = ()


def fitting(keywords: Mapping[str, Any], arrays: Mapping[str, Source], name: str) -> dict[str, Any]:
    """Keywords for an array of a group, without lengths of other arrays. Raises CopyError for those of none."""
    ndims = {len(source.shape) for source in arrays.values()}
    lists = {key: len(given) for key, given in keywords.items() if isinstance(given, WhereTheyFit) and name}
    for key, ndim in lists.items():
        if ndim not in ndims:
            raise CopyError(f"{key}: no array has {ndim} axes; give lengths by axes, such as time=12")
    ndim = len(arrays[name].shape)
    return {key: given for key, given in keywords.items() if lists.get(key, ndim) == ndim}


def regular_grid(shape: tuple[int, ...], chunks: tuple[int, ...] | None = None) -> Grid:
    """A grid of chunks of one shape; by default of single elements, for what can be read in any parts."""
    return tuple(RegularAxis(n, max(min(c, n), 1)) for n, c in zip(shape, chunks or (1,) * len(shape), strict=True))


def from_array(array: Array) -> Source:
    """A gzarr array as a source."""
    itemsize = 16 if array.dtype.hasobject else array.itemsize
    return Source(
        name=str(array.store_path),
        shape=array.shape,
        dtype=array.dtype,
        itemsize=max(itemsize, 1),
        read=array.__getitem__,
        grid=array.metadata.chunk_grid,
        attributes=array.attrs.asdict(),
        dimension_names=array.dimension_names,
        array=array,
    )


def from_group(group: Group) -> SourceTree:
    """A gzarr group, with everything below it."""
    groups: dict[str, Mapping[str, Any]] = {"": group.attrs.asdict()}
    arrays: dict[str, Source] = {}
    for path, node in group.members(None):
        if isinstance(node, Group):
            groups[path] = node.attrs.asdict()
        else:
            arrays[path] = from_array(node)
    return SourceTree(str(group.store_path), groups, arrays, group.zarr_format)


def from_memory(data: Any, name: str = "array") -> Source:
    """An array in memory as a source: anything sliceable with shape and dtype, from NumPy, a memory map or CuPy."""
    data = from_tensor(data)
    dtype = np.dtype(data.dtype)
    chunks = getattr(data, "chunks", None)
    if not isinstance(chunks, tuple) or len(chunks) != len(data.shape) or not all(isinstance(n, int) for n in chunks):
        chunks = None
    shape = tuple(int(n) for n in data.shape)
    return Source(name, shape, dtype, max(dtype.itemsize, 1), data.__getitem__, regular_grid(shape, chunks), data=data)


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn what the library of a format raises for a damaged file, of whatever class, into CopyError."""
    try:
        yield
    except GzarrError:
        raise
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise CopyError(
            f"cannot read {what}: {reason}; if the file is damaged or cut off, get a whole copy of it"
        ) from error


def of_file(source: Source) -> Source:
    """A source in a file of another format: an error while it is read is a CopyError with its name."""

    def read(region: Region) -> Any:
        with reading(source.name):
            return source.read(region)

    return replace(source, read=read)


def on_host(data: Any) -> Any:
    """What a source has read, as a NumPy array."""
    return np.asarray(data.get() if hasattr(data, "get") else data)


def check_name(name: str | bytes, where: str) -> str:
    """Check a member's name in another kind of file. Raises CopyError if Zarr cannot have such a name."""
    if isinstance(name, bytes) or any("\ud800" <= char <= "\udfff" for char in name):
        raise CopyError(f"{where} has a member named {name!r}, which is not valid UTF-8; rename it")
    problem = ""
    if not name or set(name) == {"."}:
        problem = "it is empty or has only periods"
    elif "/" in name or "\\" in name or "\0" in name:
        problem = "it contains a slash, a backslash or a NUL"
    elif name in NAMES or name.startswith(("__", TEMPORARY_PREFIX)):
        problem = "Zarr reserves such names"
    if problem:
        raise CopyError(f"{where} has a member named {name!r}, which is not a valid name in Zarr: {problem}; rename it")
    return name
