"""The engine "gzarr" opens Zarr groups as lazy datasets of Xarray, with data variables on any device.

``xarray.open_dataset(path, engine="gzarr", device="cuda")``, ``open_datatree`` and ``open_groups`` find it by its entry
point.

Rules: coordinates, text, times and whatever else is not a number are on the host, where Xarray needs them. Xarray
decodes packed numbers through NumPy, so packed numbers on another device are decoded here. Nothing is copied from a
device to the host.
"""

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import xarray as xr
from xarray.backends import AbstractDataStore, BackendEntrypoint, StoreBackendEntrypoint
from xarray.core import indexing

from gzarr.api.open import open_group
from gzarr.errors import GroupNotFoundError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.lazy_views import LazyView
from gzarr.interop.xarray.datasets import NONE_NAME
from gzarr.interop.xarray.variables import LazyArray, dimensions, length_of, shown_attributes, variable_of
from gzarr.metadata.conventions import ATTRIBUTE, MASK, UNLIMITED
from gzarr.virtual.store import VirtualStore


@dataclass(frozen=True, slots=True)
class _Unpacked:
    """Decodes packed numbers on any device, as Xarray does on the host.

    Attributes
    ----------
    dtype : numpy.dtype
        Data type of the result.
    missing : tuple
        Stored values that mean missing ones, which become NaN.
    scale, offset : scalar or None
        The result is ``stored * scale + offset``.
    """

    dtype: np.dtype[Any]
    missing: tuple[Any, ...]
    scale: Any
    offset: Any

    def __call__(self, stored: Any) -> Any:
        data = stored.astype(self.dtype)
        for value in self.missing:
            if not np.isnan(value):  # NaN means missing already
                data = np.where(stored == value, np.nan, data).astype(self.dtype)
        if self.scale is not None:
            data = data * self.scale
        if self.offset is not None:
            data = data + self.offset
        return data.astype(self.dtype)


class GzarrBackendEntrypoint(BackendEntrypoint):
    """The engine "gzarr" of `xarray.open_dataset`, `open_datatree` and `open_groups`."""

    description = "Open Zarr v2 and v3 groups (.zarr, .zip) with gzarr, on the CPU or a GPU"
    supports_groups = True
    open_dataset_parameters = (
        *("filename_or_obj", "group", "mode", "zarr_format", "storage_options", "device", "consolidated"),
        *("cache_members", "use_zarr_fill_value_as_mask", "mask_and_scale"),
        *("decode_times", "decode_timedelta", "decode_coords", "concat_characters", "use_cftime", "drop_variables"),
    )

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Return whether to open something without being named: never, as the engine "zarr" opens the same.

        Parameters
        ----------
        filename_or_obj : object
            Anything.

        Returns
        -------
        bool
            False.
        """
        return False

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        drop_variables: str | Iterable[str] | None = None,
        group: str | None = None,
        device: str | None = None,
        consolidated: bool | None = None,
        use_zarr_fill_value_as_mask: bool | None = None,
        storage_options: Mapping[str, Any] | None = None,
        zarr_format: Literal[2, 3] | None = None,
        mode: Literal["r", "r+"] = "r",
        cache_members: bool = True,
        **decoders: Any,
    ) -> xr.Dataset:
        """Open a group as a dataset.

        Parameters
        ----------
        filename_or_obj : Group, Store, path, URL or mapping
            A gzarr group, or what `gzarr.open_group` opens.
        group : str, optional
            Path of the group in it.
        device : str, optional
            Where data variables put their values: "cpu" (default), "cuda", "cuda:N" or "auto". With ``chunks=`` Xarray
            copies blocks to the host; `gzarr.interop.xarray.open_dataset` leaves them on the device.
        consolidated : bool, optional
            Whether members are looked up in consolidated metadata, of the root or of the group. By default they are
            used if they exist, and a RuntimeWarning says that they do not, as of the engine "zarr"; True requires them.
        use_zarr_fill_value_as_mask : bool, optional
            Whether fill values count as missing values. By default in v2 only, as in Xarray.
        storage_options : mapping, optional
            Options for the server of a URL.
        zarr_format : {2, 3}, optional
            Format of the group, if it has metadata of both.
        mode : {"r", "r+"}
            Both open for reading; for writing see `gzarr.interop.xarray.to_zarr`.
        cache_members : bool
            Taken as the engine "zarr" does, without an effect: members are listed once.
        drop_variables
            See `xarray.open_dataset`.
        **decoders
            Its keywords ``mask_and_scale``, ``decode_times``, ``concat_characters``, ``decode_coords``, ``use_cftime``
            and ``decode_timedelta``.

        Returns
        -------
        xarray.Dataset
            Lazy variables.

        Raises
        ------
        GroupNotFoundError
            If there is no group.
        MetadataError
            If an array has no names for its axes, or ``consolidated=True`` and there are no consolidated metadata.
        DeviceError
            If the device cannot be used.
        """
        if mode not in ("r", "r+"):
            raise ValueError(f"mode={mode!r} would replace what is opened; mode must be 'r' or 'r+'")
        opened = open_at(filename_or_obj, group, storage_options, consolidated, zarr_format)
        dropped = {drop_variables} if isinstance(drop_variables, str) else set(drop_variables or ())
        arrays = {name: array for name, array in opened.arrays() if name not in dropped}
        variables = {name: variable_of(array, use_zarr_fill_value_as_mask) for name, array in arrays.items()}
        dataset = StoreBackendEntrypoint().open_dataset(_Undecoded(variables, opened.attrs.asdict()), **decoders)
        if isinstance(filename_or_obj, Group):  # else Xarray names what it was given
            dataset.encoding["source"] = str(opened.store_path)
        if device is not None:
            dataset = _on_device(dataset, arrays, device, None)
        return _closing(dataset, filename_or_obj, opened)

    def open_groups_as_dict(
        self,
        filename_or_obj: Any,
        *,
        group: str | None = None,
        consolidated: bool | None = None,
        storage_options: Mapping[str, Any] | None = None,
        zarr_format: Literal[2, 3] | None = None,
        **each: Any,
    ) -> dict[str, xr.Dataset]:
        """Open a group and all groups below it as datasets.

        Parameters
        ----------
        filename_or_obj, group, consolidated, storage_options, zarr_format
            See `open_dataset`.
        **each
            Other parameters of `open_dataset`, for every dataset.

        Returns
        -------
        dict of str to xarray.Dataset
            Datasets by path, "/" first.
        """
        opened = open_at(filename_or_obj, group, storage_options, consolidated, zarr_format)
        paths = ["", *(path for path, node in opened.members(None) if isinstance(node, Group))]
        datasets = {f"/{path}": self.open_dataset(opened, group=path or None, **each) for path in paths}
        _closing(datasets["/"], filename_or_obj, opened)
        return datasets

    def open_datatree(self, filename_or_obj: Any, **options: Any) -> xr.DataTree:
        """Open a group and all groups below it as a tree of datasets.

        Parameters
        ----------
        filename_or_obj, **options
            See `open_groups_as_dict`.

        Returns
        -------
        xarray.DataTree
            The tree.
        """
        datasets = self.open_groups_as_dict(filename_or_obj, **options)
        tree = xr.DataTree.from_dict(datasets)
        tree.set_close(datasets["/"].close)
        return tree


def open_dataset(
    filename_or_obj: Any,
    *,
    chunks: Any = None,
    device: str | None = None,
    group: str | None = None,
    consolidated: bool | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> xr.Dataset:
    """Open a group as a dataset, as ``xarray.open_dataset(..., engine="gzarr")`` does, with blocks on the device.

    Parameters
    ----------
    filename_or_obj : Group, Store, path, URL or mapping
        A gzarr group, or what `gzarr.open_group` opens.
    chunks : dict, "auto" or "inner", optional
        By default variables are lazy arrays. {} makes Dask arrays with the stored chunks or whole shards as blocks;
        "inner", with the chunks in shards; a dict gives lengths by the names of axes.
    device, group, consolidated, storage_options, **kwargs
        See `GzarrBackendEntrypoint.open_dataset`.

    Returns
    -------
    xarray.Dataset
        Lazy variables.

    Examples
    --------
    >>> import gzarr
    >>> from gzarr.interop.xarray import open_dataset
    >>> with gzarr.open_group("weather.zarr", "w") as root:
    ...     z = root.create_array("t", data=[[1.5, 2.5]], dimension_names=("lat", "lon"))
    >>> open_dataset("weather.zarr", device="cpu", consolidated=False)["t"].sum("lon").values
    array([4.])
    """
    opened = open_at(filename_or_obj, group, storage_options, consolidated)
    where = {} if chunks is not None else {"device": device}
    dataset = xr.open_dataset(opened, engine=GzarrBackendEntrypoint, **where, **kwargs)
    if chunks is not None:
        dataset = _on_device(dataset, dict(opened.arrays()), device or "cpu", chunks)
    return _closing(dataset, filename_or_obj, opened)


def as_dataarray(
    array: Array | LazyView, dims: Iterable[str] | None = None, *, coords: Any = None, name: str | None = None
) -> xr.DataArray:
    """Return a lazy `xarray.DataArray` over an array. What is selected is read when its values are asked for.

    Parameters
    ----------
    array : Array or LazyView
        The array, or a view of one.
    dims : iterable of str, optional
        Names of the axes. By default those that are stored with the array, or Xarray's ``dim_0``, ``dim_1``, ...
    coords : optional
        See `xarray.DataArray`.
    name : str, optional
        By default the array's.

    Returns
    -------
    xarray.DataArray
        The lazy array.

    Examples
    --------
    >>> import gzarr
    >>> from gzarr.interop.xarray import as_dataarray
    >>> z = gzarr.array([[1, 2], [3, 4]], dimension_names=("y", "x"), device="cpu")
    >>> as_dataarray(z).isel(y=1).values
    array([3, 4])
    """
    stored = dimensions(array)
    if dims is None:
        dims = stored or tuple(f"dim_{axis}" for axis in range(array.ndim))
    whole = array.arrays[0] if isinstance(array, LazyView) else array
    attributes = {key: value for key, value in whole.attrs.items() if key != ATTRIBUTE}
    variable = xr.Variable(tuple(dims), indexing.LazilyIndexedArray(LazyArray(array)), attributes)
    return xr.DataArray(variable, coords=coords, name=name or whole.basename or None)


class _Undecoded(AbstractDataStore):
    """What Xarray is to decode. Its own class for this would copy the stores of lazy arrays."""

    __slots__ = ("_attributes", "_variables")

    def __init__(self, variables: Mapping[str, xr.Variable], attributes: Mapping[str, Any]) -> None:
        self._variables = variables
        self._attributes = attributes

    def get_variables(self) -> Mapping[str, xr.Variable]:
        return self._variables

    def get_attrs(self) -> Mapping[str, Any]:
        return shown_attributes(self._attributes)

    def get_encoding(self) -> dict[str, Any]:
        return {"unlimited_dims": set(self._attributes[UNLIMITED])} if UNLIMITED in self._attributes else {}


def open_at(
    filename_or_obj: Any, path: str | None, options: Any, consolidated: bool | None, zarr_format: Any = None
) -> Group:
    """Open the group that Xarray's arguments name, for reading. Warns where consolidated metadata would be faster."""
    if isinstance(filename_or_obj, str) and "://" not in filename_or_obj:
        filename_or_obj = os.path.expanduser(filename_or_obj)  # noqa: PTH111 - a URL would not survive a Path
    how: dict[str, Any] = {"device": "cpu", "zarr_format": zarr_format, "use_consolidated": consolidated}
    place, options = filename_or_obj, {"storage_options": options}
    if path and consolidated is not False:
        with suppress(GroupNotFoundError):  # no root, or one of the other format
            place, options = open_group(place, "r", **how | options | {"use_consolidated": None}), {}
            if place.metadata.consolidated_metadata is not None:
                return open_group(place, "r", path=path, **how | {"use_consolidated": None})
    group = open_group(place, "r", path=path, **how, **options)
    others = isinstance(filename_or_obj, Group) or isinstance(group.store, VirtualStore) or group.store.zarr_format
    if consolidated is None and not others and group.metadata.consolidated_metadata is None:
        remedy = "make them with gzarr.consolidate_metadata, or read without them, more slowly, by consolidated=False"
        failed = "Failed to open Zarr store with consolidated metadata"  # as Xarray says
        warnings.warn(f"{failed}: {remedy}", RuntimeWarning, stacklevel=4)
    return group


def _closing(dataset: xr.Dataset, filename_or_obj: Any, opened: Group) -> xr.Dataset:
    """Return the dataset, which closes the store with itself if the store was opened here."""
    if opened.store is not getattr(filename_or_obj, "store", filename_or_obj):
        dataset.set_close(opened.store.close)
    return dataset


def _on_device(dataset: xr.Dataset, arrays: Mapping[str, Array], device: str, chunks: Any) -> xr.Dataset:
    """Return the dataset with its data variables that are numbers read on a device, even if they are packed."""
    variables = {}
    for name, decoded in dataset.data_vars.items():
        array = arrays[NONE_NAME if name is None else str(name)]
        unpack = _unpacked(array, decoded.variable)
        if isinstance(unpack, _Unpacked) or unpack is None:
            data = _device_data(array.to(device), unpack, decoded.dims, chunks)
            variables[name] = xr.Variable(decoded.dims, data, decoded.attrs, decoded.encoding)
    return dataset.assign(variables)


def _unpacked(array: Array, decoded: xr.Variable) -> _Unpacked | Literal["host"] | None:
    """Return how to decode an array as Xarray has decoded it on the host; None if it is stored as it is."""
    stored, dtype, encoding = array.dtype.newbyteorder("="), decoded.dtype, decoded.encoding
    if stored.kind not in "biufc" or dtype.kind not in "biufc" or "_Unsigned" in encoding:
        return "host"
    missing = [value for name in (MASK, "missing_value") if name in encoding for value in np.ravel(encoding[name])]
    scale, offset = encoding.get("scale_factor"), encoding.get("add_offset")
    if dtype == stored and scale is None and offset is None and all(np.isnan(value) for value in missing):
        return None
    return _Unpacked(dtype, tuple(missing), scale, offset) if dtype.kind in "fc" else "host"


def _device_data(array: Array, unpack: _Unpacked | None, dims: Sequence[Any], chunks: Any) -> Any:
    """Return a lazy array, or a Dask array if ``chunks`` are given, on the array's device."""
    if chunks is None:
        return indexing.LazilyIndexedArray(LazyArray(array, unpack))
    from gzarr.interop.dask import from_zarr

    if isinstance(chunks, Mapping) or chunks == "inner":
        grid, given = (array.metadata.chunk_grid, {}) if chunks == "inner" else (array.metadata.grid, chunks)
        chunks = tuple(given.get(dim, length) for dim, length in zip(dims, map(length_of, grid), strict=True))
    blocks = from_zarr(array, chunks=chunks)
    return blocks if unpack is None else blocks.map_blocks(unpack, dtype=unpack.dtype, meta=unpack(blocks._meta))  # noqa: SLF001 - how Dask says where blocks are
