"""Writes datasets and trees of Xarray to Zarr groups: new ones, along a growing axis, or into a region.

Everything is encoded and checked before anything is stored or deleted. Xarray encodes the CF conventions; a variable
that exists already is encoded as it is stored. No two Dask blocks that are written share a stored object.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import xarray as xr
from xarray import conventions
from xarray.backends.zarr import encode_zarr_attr_value

from gzarr.api.consolidated import consolidate_metadata
from gzarr.api.open import open_group
from gzarr.errors import GroupNotFoundError, MetadataError, StoreError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.create import paths_above
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.new_metadata import array_meta, checked_format
from gzarr.hierarchy.new_nodes import options_from
from gzarr.hierarchy.reaching import close_if_opened_here, join_storage_options, open_store_at
from gzarr.indexing.keys import join_path, normalize_path
from gzarr.interop.finding import reads
from gzarr.interop.xarray.datasets import NONE_NAME, as_dataset, check_names
from gzarr.interop.xarray.existing_arrays import Region, into, region_slices
from gzarr.interop.xarray.new_arrays import array_options
from gzarr.interop.xarray.variables import dimensions
from gzarr.metadata.conventions import UNLIMITED
from gzarr.metadata.documents import read_node
from gzarr.metadata.model import ZarrFormat
from gzarr.storage import Store, ZipStore

WriteMode: TypeAlias = Literal["w", "w-", "a", "a-", "r+"]
_MODES = ("w", "w-", "a", "a-", "r+")


def to_zarr(
    dataset: xr.Dataset | xr.DataArray | xr.DataTree,
    store: Any,
    mode: WriteMode | None = None,
    *,
    group: str | None = None,
    encoding: Mapping[Any, Mapping[str, Any]] | None = None,
    append_dim: Hashable | None = None,
    region: Region = None,
    consolidated: bool | None = None,
    compute: bool = True,
    zarr_format: Literal[2, 3] | None = None,
    write_empty_chunks: bool | None = None,
    unlimited_dims: Sequence[Hashable] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    safe_chunks: bool = True,
    align_chunks: bool = False,
    chunkmanager_store_kwargs: Mapping[str, Any] | None = None,
    write_inherited_coords: bool = False,
) -> Any:
    """Write a dataset to a Zarr group, as `xarray.Dataset.to_zarr` does, with gzarr alone.

    Blocks of Dask arrays are aligned with stored chunks or shards, so no write is refused as unsafe. A variable that
    reads what is written over is computed first.

    Parameters
    ----------
    dataset : xarray.Dataset, xarray.DataArray or xarray.DataTree
        The dataset. An array is written as `xarray.DataArray.to_zarr` does, in a dataset of its own. A tree is written
        as groups; it takes neither ``append_dim`` nor ``region``.
    store : Group, Store, path, URL or mapping
        Where it goes.
    mode : {"w", "w-", "a", "a-", "r+"}, optional
        "w" replaces what is there; "w-", the default, refuses to; "a" overwrites variables that exist and adds others;
        "a-" overwrites only those along ``append_dim``, for which "a" is the default; "r+" changes values only, and is
        the default with ``region``.
    group : str, optional
        Path of the group in the store.
    encoding : mapping, optional
        How variables are encoded, by name: the CF encodings of Xarray, and the keywords of `gzarr.create_array`:
        ``chunks``, ``shards``, ``compressors``, ``filters``, ``serializer``, ... By default ``variable.encoding``. For
        a tree, such mappings by the paths of its groups.
    append_dim : hashable, optional
        Dimension along which the dataset is appended to what is stored.
    region : mapping or "auto", optional
        Part of the stored variables to write into: a slice, or "auto" to look its coordinate up, by dimension.
    consolidated : bool, optional
        Whether to store consolidated metadata. By default they are, unless the mode is "r+".
    compute : bool
        Whether to write Dask arrays now; otherwise a Dask object that writes them is returned.
    zarr_format : {2, 3}, optional
        Format of a new group. By default the setting ``default_zarr_format``, which is 3.
    write_empty_chunks : bool, optional
        Whether chunks equal to the fill value are stored.
    unlimited_dims : sequence of hashable, optional
        Dimensions that are unlimited in netCDF, which `gzarr.convert.to_netcdf` and the engine "gzarr" restore. Every
        axis in Zarr can grow. By default ``dataset.encoding["unlimited_dims"]``.
    storage_options : mapping, optional
        Options for the server of a URL.
    safe_chunks, align_chunks : bool
        Without an effect: blocks are aligned as by ``align_chunks=True`` of Xarray. With ``safe_chunks=True``, Xarray
        refuses blocks that share a chunk, and in mode "r+" regions of Dask arrays that end within one. Here neither is
        refused: if several processes write regions at the same time, these must end where chunks or shards do.
    chunkmanager_store_kwargs : mapping, optional
        Further keywords of `dask.array.store`.
    write_inherited_coords : bool
        Whether the coordinates that a group of a tree inherits are written to it, too.

    Returns
    -------
    Group or dask.delayed.Delayed
        The group; with ``compute=False``, a Dask object.

    Raises
    ------
    ValueError
        If arguments contradict each other, or the dataset does not fit what is stored.
    KeyError, MetadataError
        If an encoding is of no variable, or makes no array.
    ContainsArrayError, ContainsGroupError
        If something is stored there and the mode is "w-".
    GroupNotFoundError
        If nothing is stored there and the mode is "r+".

    Examples
    --------
    >>> import gzarr, xarray as xr
    >>> from gzarr.interop.xarray import to_zarr
    >>> week = xr.Dataset({"t": ("time", [1.0, 2.0, 3.0])})
    >>> to_zarr(week, "weeks.zarr", encoding={"t": {"chunks": (2,)}})["t"].chunks
    (2,)
    >>> to_zarr(week, "weeks.zarr", append_dim="time")["t"].shape
    (6,)
    """
    checked, how = _checked_mode(mode, append_dim, region), chunkmanager_store_kwargs or {}
    call = _WriteCall(checked, append_dim, region, zarr_format, write_empty_chunks, write_inherited_coords, how)
    dataset = as_dataset(dataset) if isinstance(dataset, xr.DataArray) else dataset
    opened, base = open_store_at(join_storage_options(store, {"storage_options": storage_options}), _of_store(call))
    if not compute and isinstance(opened, ZipStore) and store is not opened:
        raise StoreError(f"{opened}: with compute=False, give an open gzarr.ZipStore, and close it after the writes")
    path = join_path(base, normalize_path(group or ""))
    if isinstance(dataset, xr.DataTree):
        root, writes = _tree(dataset, opened, path, encoding or {}, call)
    else:
        root, writes = _dataset(dataset, opened, path, encoding or {}, unlimited_dims, call)
    if call.mode != "r+" and (consolidated if consolidated is not None else opened.zarr_format is None):
        consolidate_metadata(opened, path=base)
    delayed = _written(writes, call.store_options, compute=compute)
    if compute:
        close_if_opened_here(store, opened)
    return root if compute else delayed


@dataclass(frozen=True, slots=True)
class _WriteCall:
    """The arguments of a call that hold for all variables."""

    mode: WriteMode
    append_dim: Hashable | None
    region: Region
    zarr_format: Literal[2, 3] | None
    write_empty_chunks: bool | None
    inherit: bool
    store_options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _VariableWrite:
    """A variable in its encoded form, and where it goes: into a new array, or a part of one that exists.

    Attributes
    ----------
    name : str
        Name of the array.
    data : array-like
        Values, on the host or on a device, or of Dask.
    options : dict
        Keywords of the new array; empty if it exists.
    shape : tuple of int
        Shape that the array has, or gets.
    part : tuple of slice
        Where the values go in it.
    """

    name: str
    data: Any
    options: dict[str, Any] = field(default_factory=dict)
    shape: tuple[int, ...] = ()
    part: tuple[slice, ...] = ()


def _checked_mode(mode: WriteMode | None, append_dim: Any, region: Region) -> WriteMode:
    if mode is None:
        return "a" if append_dim is not None else "r+" if region is not None else "w-"
    if mode not in _MODES:
        raise ValueError(f"mode must be one of {', '.join(map(repr, _MODES))}, got {mode!r}")
    if append_dim is not None and mode not in ("a", "a-"):
        raise ValueError(f"cannot set append_dim unless mode='a', mode='a-' or mode=None; got {mode!r}")
    if region is not None and mode not in ("a", "a-", "r+"):
        raise ValueError(f"cannot set region unless mode='a', mode='a-', mode='r+' or mode=None; got {mode!r}")
    return mode


def _of_store(call: _WriteCall) -> Any:
    return "a" if call.mode == "a-" else call.mode


# -- what is written ---------------------------------------------------------------------------------------------------


def _tree(
    tree: xr.DataTree, store: Store, path: str, encoding: Mapping[Any, Any], call: _WriteCall
) -> tuple[Group, list[tuple[Array, _VariableWrite]]]:
    """Write the groups of a tree, the root first, which replaces what the mode replaces."""
    if call.append_dim is not None or call.region is not None:
        raise ValueError("append_dim and region are for datasets: write the groups of the tree one by one")
    unknown = set(encoding) - set(tree.groups)
    if unknown:
        raise ValueError(f"encoding: {sorted(unknown)} are not groups of the tree; it has {list(tree.groups)}")
    roots: list[Group] = []
    writes: list[tuple[Array, _VariableWrite]] = []
    below = replace(call, mode="a" if call.mode in ("w", "w-") else call.mode)
    for where, node in tree.subtree_with_keys:
        dataset = node.to_dataset(inherit=call.inherit or node is tree)
        here = encoding.get(node.path, {})
        root, some = _dataset(
            dataset, store, join_path(path, normalize_path(where.lstrip("."))), here, None, below if roots else call
        )
        roots.append(root)
        writes += some
    return roots[0], writes


def _dataset(
    dataset: xr.Dataset, store: Store, path: str, encoding: Mapping[Any, Any], unlimited: Any, call: _WriteCall
) -> tuple[Group, list[tuple[Array, _VariableWrite]]]:
    """Store metadata; return the group and what is to be written into its arrays."""
    dataset = dataset.rename({None: NONE_NAME}) if None in dataset.variables else dataset
    encoding = {NONE_NAME if name is None else name: how for name, how in encoding.items()}
    check_names(dataset, encoding)
    group = _existing(store, path, call)
    arrays = {} if group is None else dict(group.arrays())
    if call.region is not None:
        part, dataset = region_slices(dataset, call.region, call.append_dim, arrays)
    else:
        part = {}
    variables, attributes = conventions.encode_dataset_coordinates(dataset)
    _check_known(variables, arrays, call)
    changed = [path] if group is None else [join_path(path, name) for name in variables if name in arrays]
    variables = {name: v.compute() if _reads(v, store, changed) else v for name, v in variables.items()}
    given = group.metadata.zarr_format if group is not None else _new_format(store, path, call)
    writes = []
    for name, variable in variables.items():
        if name not in arrays:
            options = array_options(name, variable, encoding.get(name), given, call.write_empty_chunks)
            array_meta(options_from({key: value for key, value in options.items() if key != "data"}))
            writes.append(_VariableWrite(name, options.pop("data"), options, variable.shape))
        elif name in encoding:
            raise ValueError(f"variable {name!r} exists in {store}, but encoding was provided; leave it out")
        elif call.mode != "a-" or call.append_dim is None or call.append_dim in variable.dims:
            writes.append(_VariableWrite(name, **into(arrays[name], name, variable, part, call.append_dim)))
    if group is None:
        group = open_group(store, _of_store(call), path=path, zarr_format=given)
    if call.mode != "r+":
        _put_attributes(group, dataset, attributes, unlimited)
    return group, [(_target(group, write, call), write) for write in writes]


def _existing(store: Store, path: str, call: _WriteCall) -> Group | None:
    """Return the group that is written into, or None if a new one is made."""
    if call.mode in ("w", "w-"):
        return None
    try:
        return open_group(store, "r+", path=path, zarr_format=call.zarr_format)
    except GroupNotFoundError:
        if call.mode == "r+" or call.append_dim is not None or call.region is not None:
            raise
        return None


def _new_format(store: Store, path: str, call: _WriteCall) -> ZarrFormat:
    """Return the format of a new group: by default, that of the group it goes into."""
    for above in reversed(list(paths_above(path))) if call.zarr_format is None else ():
        node = read_node(store, above)
        if node is not None:
            return node.zarr_format
    return checked_format(call.zarr_format)


def _reads(variable: xr.Variable, store: Store, paths: Sequence[str]) -> bool:
    """Return whether a variable reads, when its values are asked for, what is written over."""
    if isinstance(variable, xr.IndexVariable):
        return False
    graph = variable.chunks is not None and getattr(variable.data, "dask", None)
    return reads(graph.layers.values() if graph else [variable], [(store, path) for path in paths])


def _check_known(variables: Mapping[Any, xr.Variable], arrays: Mapping[str, Array], call: _WriteCall) -> None:
    new = sorted(name for name in variables if name not in arrays)
    if new and (call.mode == "r+" or call.region is not None):
        remedy = "leave them out with drop_vars, or write them with mode='a' and without region first"
        raise ValueError(
            f"dataset contains non-pre-existing variables {new}, which mode='r+' and region= do not create; {remedy}"
        )
    if call.append_dim is not None:
        dims = {dim for array in arrays.values() for dim in dimensions(array) or ()}
        if call.append_dim not in dims:
            raise ValueError(
                f"append_dim={call.append_dim!r} does not match any existing dataset dimensions {sorted(dims)}"
            )


# -- storing -----------------------------------------------------------------------------------------------------------


def _put_attributes(group: Group, dataset: xr.Dataset, attributes: Mapping[Any, Any], unlimited: Any) -> None:
    dims = dataset.encoding.get("unlimited_dims") if unlimited is None else unlimited
    missing = sorted(map(str, set(dims or ()) - set(dataset.sizes))) if unlimited is not None else []
    if missing:
        raise ValueError(f"unlimited_dims: the dataset has no dimensions {missing}")
    kept = {UNLIMITED: group.attrs[UNLIMITED]} if UNLIMITED in group.attrs else {}
    if dims is not None:
        kept = {UNLIMITED: sorted(str(dim) for dim in dims if dim in dataset.sizes)} if dims else {}
    group.attrs.put({str(name): encode_zarr_attr_value(value) for name, value in attributes.items()} | kept)


def _target(group: Group, write: _VariableWrite, call: _WriteCall) -> Array:
    """Return the array that a variable is written into: a new one, or one that is extended where needed."""
    if write.options:
        return group.create_array(write.name, **write.options)
    array = group[write.name]
    if not isinstance(array, Array):
        raise MetadataError(f"{group.store_path}: {write.name!r} is a group, not an array; write to another group")
    if write.shape != array.shape:
        array.resize(write.shape)
    if call.write_empty_chunks is not None:
        empty = call.write_empty_chunks
        array = Array(array.store, array.path, array.metadata, array.opened_with, write_empty_chunks=empty)
    return array


def _written(writes: list[tuple[Array, _VariableWrite]], options: Mapping[str, Any], *, compute: bool) -> Any:
    """Write values now; those of Dask when it is asked to, if ``compute`` is false."""
    blocks = [(array, write) for array, write in writes if hasattr(write.data, "dask")]
    for array, write in writes:
        if not hasattr(write.data, "dask"):
            array[write.part or ...] = np.asarray(write.data) if array.ndim == 0 else write.data
    if not blocks and compute:
        return None
    import dask
    import dask.array as da

    from gzarr.interop.dask import aligned, check_shared

    if not blocks:
        return dask.delayed(None)
    sources, regions = [], []
    for array, write in blocks:
        check_shared(write.data, array)
        part = write.part or tuple(slice(0, extent, 1) for extent in array.shape)
        sources.append(aligned(write.data, array, part))
        regions.append(part)
    # Without a lock: no two blocks share a stored object.
    how = {"lock": False, **options, "regions": regions, "compute": compute}
    stored = da.store(sources, [array for array, _ in blocks], **how)
    return None if compute else dask.delayed(_nothing)(stored)


def _nothing(_stored: Any) -> None:
    """What writing later returns."""
