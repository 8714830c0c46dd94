"""What can be copied: arrays that are read region by region, and the groups around them, wherever they come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gzarr.copying.regions import Region
from gzarr.errors import CopyError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.indexing.grid import Grid, RegularAxis
from gzarr.indexing.keys import join_path
from gzarr.metadata.documents import NAMES
from gzarr.storage.rules import TEMPORARY_PREFIX


@dataclass(frozen=True, slots=True)
class Source:
    """An array to copy from.

    Attributes:
        name: what messages call it.
        shape: extents.
        dtype: anything that ``dtype=`` of the creation functions takes.
        itemsize: bytes of an element in memory; an estimate for text.
        read: gives the elements of a region, as an array on the host or on the source's device.
        grid: the pieces that reading fetches and decodes whole.
        attributes: user attributes, JSON values.
        dimension_names: a name or None for every axis, or None.
        options: keywords that create an array like it, such as chunks and fill_value.
        mask_value: the element that stands for missing data, or None.
        array: the gzarr array, if it is one: it may be copied without decoding.
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

    @property
    def nbytes(self) -> int:
        """Decoded size in bytes."""
        n = self.itemsize
        for extent in self.shape:
            n *= extent
        return n


@dataclass(frozen=True, slots=True)
class SourceTree:
    """Everything below one place, by path relative to it; an array alone has the path "".

    Attributes:
        name: what messages call the place; the same name means the same place.
        groups: attributes of the groups, parents first; empty if the place is an array.
        arrays: the arrays.
        zarr_format: format of the source, if it is Zarr.
    """

    name: str
    groups: Mapping[str, Mapping[str, Any]]
    arrays: Mapping[str, Source]
    zarr_format: int | None = None


def regular_grid(shape: tuple[int, ...], chunks: tuple[int, ...] | None) -> Grid:
    """A grid of chunks of one shape; of one chunk if none is given."""
    lengths = shape if chunks is None else chunks
    return tuple(RegularAxis(n, max(min(c, n), 1)) for n, c in zip(shape, lengths, strict=True))


def from_array(array: Array) -> Source:
    """A gzarr array as a source."""
    itemsize = 16 if array.dtype.hasobject else array.itemsize
    return Source(
        name=array.store_path,
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
    found: dict[str, Source] = {}
    for path, node in group.members(None):
        if isinstance(node, Group):
            groups[path] = node.attrs.asdict()
        else:
            found[path] = from_array(node)
    return SourceTree(group.store_path, groups, found, group.zarr_format)


def from_memory(data: Any, name: str = "array") -> Source:
    """Anything with shape and dtype that can be sliced: a NumPy array, a memory map, a CuPy array."""
    dtype = np.dtype(data.dtype)
    chunks = getattr(data, "chunks", None)
    if not isinstance(chunks, tuple) or len(chunks) != len(data.shape) or not all(isinstance(n, int) for n in chunks):
        chunks = (1,) * len(data.shape)  # memory is read in any pieces
    shape = tuple(int(n) for n in data.shape)
    return Source(name, shape, dtype, max(dtype.itemsize, 1), data.__getitem__, regular_grid(shape, chunks))


def without_attributes(source: Source) -> Source:
    """The same source without its user attributes."""
    return replace(source, attributes={})


def check_name(name: str | bytes, where: str) -> str:
    """A member's name that comes from another kind of file. Raises: CopyError if Zarr cannot have it as it is."""
    problem = ""
    if isinstance(name, bytes) or any("\ud800" <= char <= "\udfff" for char in name):
        raise CopyError(f"{where} has a member named {name!r}, which is not valid UTF-8; rename it")
    if not name or set(name) == {"."}:
        problem = "it is empty or of periods only"
    elif "/" in name or "\\" in name or "\0" in name:
        problem = "it contains a slash, a backslash or a NUL"
    elif name in NAMES or name.startswith(("__", TEMPORARY_PREFIX)):
        problem = "Zarr keeps such names for itself"
    if problem:
        raise CopyError(f"{where} has a member named {name!r}, which cannot be a name in Zarr: {problem}; rename it")
    return name


def child_path(parent: str, name: str, where: str) -> str:
    """Path of a checked member below a group of a tree."""
    return join_path(parent, check_name(name, where))
