"""Many files with the same variables, such as one for each month, as one group."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from glob import glob
from itertools import pairwise
from typing import Any

import numpy as np

from gzarr.api.groups import open_group
from gzarr.errors import MetadataError, NodeNotFoundError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.indexing.keys import join_path
from gzarr.virtual.documents import group_document
from gzarr.virtual.joins import Objects, alone, join
from gzarr.virtual.lazy_tables import LazyTables
from gzarr.virtual.store import Chunks, Contents, VirtualStore


def open_many(files: Any, dim: str, *, device: str | None = None, **kwargs: Any) -> Group:
    """Open files with the same variables as one group, joined along a dimension, without a copy.

    Parameters
    ----------
    files : str, or iterable of path, URL or Group
        A pattern of paths, such as "era5_*.nc", whose files are taken in the order of their names; or the files, in
        order.
    dim : str
        The dimension. Variables that have it are joined (see `gzarr.concat`); others must be the same in all files.
    device : str, optional
        Where reads put their results, as in `gzarr.open_group`.
    **kwargs
        Of `gzarr.open_group`, for each file: ``storage_options``, ``virtual_containers``, ...

    Returns
    -------
    Group
        The group, read-only.

    Raises
    ------
    NodeNotFoundError
        If no file has such a name.
    MetadataError
        If the files have other variables, if variables cannot be joined, or if the coordinates of the dimension are not
        in order, where a pattern was given.

    Examples
    --------
    >>> import gzarr
    >>> for month, values in enumerate([[1, 2], [3]]):
    ...     root = gzarr.group(f"month{month}.zarr")
    ...     _ = root.create_array("rain", data=values, dimension_names=["time"])
    >>> gzarr.open_many("month*.zarr", "time")["rain"][:]
    array([1, 2, 3])
    """
    is_pattern = isinstance(files, (str, os.PathLike))
    places = sorted(glob(os.fspath(files))) if is_pattern else list(files)  # noqa: PTH207 - URLs are none
    if not places:
        raise NodeNotFoundError(f"no file is named {files!r}; of URLs, give a list")
    opened = tuple(one if isinstance(one, Group) else open_group(one, mode="r", **kwargs) for one in places)
    name = f"{len(opened)} files from {opened[0].store_path} to {opened[-1].store_path}"
    group = open_group(VirtualStore(partial(_find, opened, dim), name), mode="r", device=device)
    if is_pattern:
        _check_order(opened, group, dim)
    return group


def _find(groups: Sequence[Group], dim: str) -> Contents:
    """What the joined files hold. Raises: MetadataError."""
    objects, members = Objects(), [dict(one.members(None)) for one in groups]
    for one, found in zip(groups, members, strict=True):
        other = sorted(members[0].keys() ^ found.keys())
        if other:
            raise MetadataError(f"{groups[0].store_path} and {one.store_path}: only one of them has {other[0]!r}")
    documents = {"zarr.json": _group_document(groups)}
    makers: dict[str, Callable[[], Chunks]] = {}
    for path in members[0]:
        nodes = [found[path] for found in members]
        arrays = [node for node in nodes if isinstance(node, Array)]
        key = join_path(path, "zarr.json")
        if arrays and len(arrays) < len(nodes):
            raise MetadataError(f"{path!r} is an array in {arrays[0].store_path} alone, and a group in other files")
        if not arrays:
            documents[key] = _group_document([node for node in nodes if isinstance(node, Group)])
        elif any(dim in names_of(one) for one in arrays):
            documents[key], makers[path] = join(arrays, dim, objects)
        else:
            _expect_equal(arrays, dim)
            documents[key], makers[path] = alone(arrays[0], objects)
    if not any(dim in names_of(node) for node in members[0].values() if isinstance(node, Array)):
        raise MetadataError(f"{groups[0].store_path} has no array along {dim!r}; join arrays with gzarr.stack")
    return Contents(documents, LazyTables(list(makers), lambda path: makers[path]()), objects.found)


def names_of(array: Array) -> Sequence[str | None]:
    """The names of the axes of an array, in either format."""
    names: Any = array.dimension_names or array.attrs.get("_ARRAY_DIMENSIONS", ())
    return tuple(names)


def _group_document(groups: Iterable[Group]) -> bytes:
    """The document of a group: the attributes that all have."""
    first, *others = [one.attrs.asdict() for one in groups]
    missing = object()

    def is_common(item: tuple[str, Any]) -> bool:
        return all(other.get(item[0], missing) == item[1] for other in others)

    common: Mapping[str, Any] = dict(filter(is_common, first.items()))
    return group_document(common)


def _expect_equal(arrays: Sequence[Array], dim: str) -> None:
    """Raise MetadataError if arrays that are not along the dimension differ."""
    first, read = arrays[0], arrays[0].to("cpu")[...]
    for other in arrays[1:]:
        values = other.to("cpu")[...]
        if values.shape != read.shape or other.dtype != first.dtype or not _are_equal(read, values):
            raise MetadataError(
                f"{first.store_path} and {other.store_path} differ, and are not along {dim!r}; leave one of them out"
            )


def _are_equal(one: Any, other: Any) -> bool:
    return np.array_equal(one, other, equal_nan=np.asarray(one).dtype.kind in "fcmM")


def _check_order(groups: Sequence[Group], group: Group, dim: str) -> None:
    """Raise MetadataError if the coordinates of a dimension do not go on from file to file."""
    if (
        dim not in group
        or not isinstance(found := group[dim], Array)
        or found.ndim != 1
        or found.dtype.kind not in "iufmM"
    ):
        return
    values, at, ends = found.to("cpu")[...], 0, []
    for one in groups:
        length = one[dim].shape[0]
        if length:
            ends.append((one, values[at], values[at + length - 1]))
        at += length
    if len(ends) < 2:
        return
    goes_up = ends[1][1] > ends[0][2]
    for (before, _, last), (after, first, _) in pairwise(ends):
        if not (first > last if goes_up else first < last):
            raise MetadataError(
                f"{dim!r} does not go on from {before.store_path} (to {last}) to {after.store_path} (from {first}):"
                " give the files in order, as a list"
            )
