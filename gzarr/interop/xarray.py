"""Xarray over Zarr groups: the engine "gzarr" opens them as lazy datasets, with data variables on any device.

``xarray.open_dataset(path, engine="gzarr", device="cuda")``, ``open_datatree`` and ``open_groups`` find it by its entry
point. Names of axes are stored as Xarray stores them, as ``dimension_names`` in v3 and in the attribute
``_ARRAY_DIMENSIONS`` in v2, so ``Dataset.to_zarr`` and ``xarray.open_zarr`` exchange files with gzarr. Xarray decodes
the CF conventions.

Rules: coordinates, text, times and whatever else is not a number are on the host, where Xarray needs them. Xarray
decodes packed numbers through NumPy, so packed numbers on another device are decoded here. Nothing is copied from a
device to the host.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gzarr.api.open import open_group
from gzarr.errors import MetadataError, MissingExtraError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.threads import run_in_thread
from gzarr.metadata.conventions import ATTRIBUTE, MASK, decode_mask

try:
    import xarray as xr
    from xarray.backends import AbstractDataStore, BackendArray, BackendEntrypoint, StoreBackendEntrypoint
    from xarray.core import indexing
except ImportError as error:
    raise MissingExtraError("gzarr.interop.xarray needs Xarray: pip install 'gzarr[xarray]'") from error


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
        *("filename_or_obj", "group", "storage_options", "device", "use_zarr_fill_value_as_mask", "mask_and_scale"),
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
        use_zarr_fill_value_as_mask: bool | None = None,
        storage_options: Mapping[str, Any] | None = None,
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
        use_zarr_fill_value_as_mask : bool, optional
            Whether fill values count as missing values. By default in v2 only, as in Xarray.
        storage_options : mapping, optional
            Options for the server of a URL.
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
            If an array has no names for its axes.
        DeviceError
            If the device cannot be used.
        """
        opened = _open_group(filename_or_obj, group, storage_options)
        dropped = {drop_variables} if isinstance(drop_variables, str) else set(drop_variables or ())
        arrays = {name: array for name, array in opened.arrays() if name not in dropped}
        variables = {name: _variable(array, use_zarr_fill_value_as_mask) for name, array in arrays.items()}
        attributes = {key: value for key, value in opened.attrs.items() if not key.lower().startswith("_nc")}
        dataset = StoreBackendEntrypoint().open_dataset(_Undecoded(variables, attributes), **decoders)
        if device is not None:
            dataset = _on_device(dataset, arrays, device, None)
        return _closing(dataset, filename_or_obj, opened)

    def open_groups_as_dict(
        self,
        filename_or_obj: Any,
        *,
        group: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        **each: Any,
    ) -> dict[str, xr.Dataset]:
        """Open a group and all groups below it as datasets.

        Parameters
        ----------
        filename_or_obj, group, storage_options
            See `open_dataset`.
        **each
            Other parameters of `open_dataset`, for every dataset.

        Returns
        -------
        dict of str to xarray.Dataset
            Datasets by path, "/" first.
        """
        opened = _open_group(filename_or_obj, group, storage_options)
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
    storage_options: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> xr.Dataset:
    """Open a group as a dataset, as ``xarray.open_dataset(..., engine="gzarr")`` does, with blocks on the device.

    Parameters
    ----------
    filename_or_obj : Group, Store, path, URL or mapping
        A gzarr group, or what `gzarr.open_group` opens.
    chunks : dict or "auto", optional
        By default variables are lazy arrays. {} makes Dask arrays with the stored chunks or shards as blocks; a dict
        gives lengths by the names of axes.
    device, group, storage_options, **kwargs
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
    >>> open_dataset("weather.zarr", device="cpu")["t"].sum("lon").values
    array([4.])
    """
    opened = _open_group(filename_or_obj, group, storage_options)
    where = {} if chunks is not None else {"device": device}
    dataset = xr.open_dataset(opened, engine=GzarrBackendEntrypoint, **where, **kwargs)
    if chunks is not None:
        dataset = _on_device(dataset, dict(opened.arrays()), device or "cpu", chunks)
    return _closing(dataset, filename_or_obj, opened)


def as_dataarray(
    array: Array, dims: Iterable[str] | None = None, *, coords: Any = None, name: str | None = None
) -> xr.DataArray:
    """Return a lazy `xarray.DataArray` over an array. What is selected is read when its values are asked for.

    Parameters
    ----------
    array : Array
        The array.
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
    stored = _dimensions(array)
    if dims is None:
        dims = stored or tuple(f"dim_{axis}" for axis in range(array.ndim))
    attributes = {key: value for key, value in array.attrs.items() if key != ATTRIBUTE}
    variable = xr.Variable(tuple(dims), indexing.LazilyIndexedArray(LazyArray(array)), attributes)
    return xr.DataArray(variable, coords=coords, name=name or array.basename or None)


class _Undecoded(AbstractDataStore):
    """What Xarray is to decode. Its own class for this would copy the stores of lazy arrays."""

    __slots__ = ("_attributes", "_variables")

    def __init__(self, variables: Mapping[str, xr.Variable], attributes: Mapping[str, Any]) -> None:
        self._variables = variables
        self._attributes = attributes

    def get_variables(self) -> Mapping[str, xr.Variable]:
        return self._variables

    def get_attrs(self) -> Mapping[str, Any]:
        return self._attributes


class LazyArray(BackendArray):
    """An array as Xarray's lazy indexing wants it. gzarr itself makes selections of every kind.

    Attributes
    ----------
    shape : tuple of int
        Extents.
    dtype : numpy.dtype
        Data type; it says whether objects are text.
    """

    __slots__ = ("_array", "_unpack", "dtype", "shape")

    def __init__(self, array: Array, unpack: _Unpacked | None = None) -> None:
        self._array = array
        self._unpack = unpack
        self.shape = array.shape
        # Xarray recognizes text in arrays of objects by this metadata.
        is_text = array.metadata.data_type.variable == "string" and array.dtype.hasobject
        stored = np.dtype("O", metadata={"element_type": str}) if is_text else array.dtype
        self.dtype = stored if unpack is None else unpack.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        array = self._array
        if isinstance(key, indexing.VectorizedIndexer):
            # If only some axes have points, Xarray takes them out of the box around them.
            points = all(isinstance(item, np.ndarray) for item in key.tuple)
            support = indexing.IndexingSupport.VECTORIZED if points else indexing.IndexingSupport.OUTER
            method = array.get_coordinate_selection if points else array.get_orthogonal_selection
        else:
            support = indexing.IndexingSupport.OUTER
            method = array.get_orthogonal_selection
        values = indexing.explicit_indexing_adapter(key, array.shape, support, method)
        return values if self._unpack is None else self._unpack(values)

    async def async_getitem(self, key: indexing.ExplicitIndexer) -> Any:
        """Read a selection on a thread, for ``await dataset.load_async()``."""
        return await run_in_thread(self.__getitem__, key)


def _open_group(filename_or_obj: Any, path: str | None, options: Mapping[str, Any] | None) -> Group:
    if isinstance(filename_or_obj, str) and "://" not in filename_or_obj:
        filename_or_obj = os.path.expanduser(filename_or_obj)  # noqa: PTH111 - a URL would not survive a Path
    return open_group(filename_or_obj, "r", path=path, device="cpu", storage_options=options)


def _closing(dataset: xr.Dataset, filename_or_obj: Any, opened: Group) -> xr.Dataset:
    """Return the dataset, which closes the store with itself if the store was opened here."""
    if opened.store is not getattr(filename_or_obj, "store", filename_or_obj):
        dataset.set_close(opened.store.close)
    return dataset


def _on_device(dataset: xr.Dataset, arrays: Mapping[str, Array], device: str, chunks: Any) -> xr.Dataset:
    """Return the dataset with its data variables that are numbers read on a device, even if they are packed."""
    variables = {}
    for name, decoded in dataset.data_vars.items():
        array = arrays[str(name)]
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

    if isinstance(chunks, Mapping):
        stored = map(_length, array.metadata.grid)
        chunks = tuple(chunks.get(dim, length) for dim, length in zip(dims, stored, strict=True))
    blocks = from_zarr(array, chunks=chunks)
    return blocks if unpack is None else blocks.map_blocks(unpack, dtype=unpack.dtype, meta=unpack(blocks._meta))  # noqa: SLF001 - how Dask says where blocks are


def _variable(array: Array, fill_is_missing: bool | None) -> xr.Variable:
    """Return an array as Xarray finds it before decoding."""
    dims = _dimensions(array)
    if dims is None:
        raise MetadataError(
            f"{array.store_path}: Xarray needs names for its {array.ndim} axes; create it "
            f"with dimension_names (v3), set its attribute {ATTRIBUTE!r} (v2), or leave it out with drop_variables"
        )
    if len(dims) != array.ndim:
        raise MetadataError(f"{array.store_path}: {len(dims)} names {dims} for {array.ndim} axes")
    attributes = {key: value for key, value in array.attrs.items() if key != ATTRIBUTE}
    meta = array.metadata
    if fill_is_missing is None:
        fill_is_missing = meta.zarr_format == 2
    if fill_is_missing and meta.fill_value is not None:
        attributes[MASK] = meta.fill_value
    elif not fill_is_missing and MASK in attributes:
        value = attributes[MASK]
        try:
            attributes[MASK] = decode_mask(value, array.dtype)
        except ValueError as error:
            raise MetadataError(
                f"{array.store_path}: attribute {MASK!r} is {value!r}, not a value in base64"
            ) from error
    encoding = {
        "chunks": array.chunks,
        **({"shards": array.shards} if array.shards else {}),
        "preferred_chunks": dict(zip(dims, map(_length, meta.grid), strict=True)),
    }
    return xr.Variable(dims, indexing.LazilyIndexedArray(LazyArray(array)), attributes, encoding)


def _length(axis: Any) -> int | tuple[int, ...]:
    """Return the length of the stored objects along an axis; all of them if they vary."""
    length: int | tuple[int, ...] = axis.length if hasattr(axis, "length") else axis.lengths
    return length


def _dimensions(array: Array) -> tuple[str, ...] | None:
    """Return the names of an array's axes, or None if an axis has none."""
    names = array.dimension_names or array.attrs.get(ATTRIBUTE)
    if names is None:
        return None if array.ndim else ()
    named = tuple(name for name in names if isinstance(name, str))
    return named if len(named) == len(names) else None
