"""Many files with the same variables, such as one for each month, as one group."""

import os
from collections.abc import Callable, Sequence
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
from gzarr.metadata.conventions import described_in
from gzarr.virtual.agreement import agree
from gzarr.virtual.documents import group_document
from gzarr.virtual.joins import Objects, alone, join
from gzarr.virtual.store import Chunks, Contents, LazyTables, VirtualStore


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
        if not is_pattern:
            raise NodeNotFoundError("there are no files to join; give at least one")
        pattern = os.fspath(files)
        name = pattern if "://" in pattern else os.path.abspath(pattern)  # noqa: PTH100 - links are kept
        raise NodeNotFoundError(f"no file is named {name!r}; correct the pattern, and of URLs, give a list")
    opened = tuple(one if isinstance(one, Group) else open_group(one, mode="r", **kwargs) for one in places)
    name = f"{len(opened)} files from {opened[0].store_path} to {opened[-1].store_path}"
    group = open_group(VirtualStore(partial(_find, opened, dim), name), mode="r", device=device)
    if is_pattern:
        _check_order(opened, group, dim)
    return group


def _find(groups: Sequence[Group], dim: str) -> Contents:
    """What the joined files hold. Raises: MetadataError."""
    objects, members = Objects(), [dict(one.members(None)) for one in groups]
    found = {name for node in members[0].values() if isinstance(node, Array) for name in _dimensions(node)}
    if dim not in found:
        raise MetadataError(
            f"{groups[0].store_path} has no array along {dim!r}, only along {sorted(found)}; give one of these, or join"
            " arrays along a new axis with gzarr.stack"
        )
    documents = {"zarr.json": _group_document(groups)}
    joined, others = dict[str, Callable[[], Chunks]](), dict[str, Callable[[], Chunks]]()
    chains: dict[str, Sequence[bytes]] = {}
    for path in sorted(set().union(*members)):
        nodes = [found.get(path) for found in members]
        arrays = [node for node in nodes if isinstance(node, Array)]
        inner = [node for node in nodes if isinstance(node, Group)]
        other = next((at for at, node in enumerate(nodes) if type(node) is not type(nodes[0])), None)
        key = join_path(path, "zarr.json")
        if other is not None:
            raise MetadataError(f"{groups[0].store_path} and {groups[other].store_path}: only one of them has {path!r}")
        if inner:
            documents[key] = _group_document(inner)
        elif any(dim in _dimensions(one) for one in arrays):
            documents[key], joined[path], chains[path] = join(arrays, dim, objects)
        else:
            _expect_equal(arrays, dim)
            documents[key], others[path] = alone(arrays[0], objects)
    return Contents(documents, LazyTables(joined | others), objects.found, tokens=objects.tokens, chains=chains)


def _dimensions(array: Array) -> list[str]:
    """The names of an array's axes that have one."""
    return [name for name in described_in(array.metadata, 3).dimension_names or () if name is not None]


def _group_document(groups: Sequence[Group]) -> bytes:
    """The document of a group: the attributes that all have."""
    first = groups[0].attrs.asdict().items()
    return group_document({name: value for name, value in first if all(one.attrs.get(name) == value for one in groups)})


def _expect_equal(arrays: Sequence[Array], dim: str) -> None:
    """Raise MetadataError if arrays that are not along the dimension differ."""
    is_alike, first = not any(agree(arrays).conversions), arrays[0].to("cpu")[...]
    for other in arrays[1:]:
        values = other.to("cpu")[...]
        if not is_alike or not np.array_equal(first, values, equal_nan=first.dtype.kind in "fcmM"):
            raise MetadataError(
                f"{arrays[0].store_path} and {other.store_path} differ, and are not along {dim!r}; leave one out"
            )


def _check_order(groups: Sequence[Group], group: Group, dim: str) -> None:
    """Raise MetadataError if the coordinates of a dimension do not go on from file to file."""
    found = group.get(dim)
    if not isinstance(found, Array) or found.ndim != 1 or found.dtype.kind not in "iufmM":
        return
    values, lengths = found.to("cpu")[...], [one[dim].shape[0] for one in groups]
    ends = np.cumsum(lengths)
    full = [number for number, length in enumerate(lengths) if length]
    pairs = [(one, other, values[ends[one] - 1], values[ends[one]]) for one, other in pairwise(full)]
    for one, other, last, first in pairs:
        if not (first > last if pairs[0][3] > pairs[0][2] else first < last):
            raise MetadataError(
                f"{dim!r} does not go on from {groups[one].store_path} (to {last}) to {groups[other].store_path}"
                f" (from {first}): give the files in order, as a list"
            )
