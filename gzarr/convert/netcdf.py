"""Converts NetCDF files (classic, 64-bit and netCDF-4) to Zarr and back, with netCDF4 (the extra ``netcdf``).

Values stay packed: ``scale_factor`` and ``add_offset`` are attributes, as in xarray. Two threads must not call netCDF4
at once, so every read holds one lock.
"""

import json
import os
from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np

from gzarr.concurrency import new_lock
from gzarr.convert.writing import in_place, node_of, of_files, replacing, write, write_regions
from gzarr.copying.planning import TransferKeywords
from gzarr.copying.report import TransferReport
from gzarr.copying.sources import from_array
from gzarr.errors import CopyError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.indexing.regions import Region
from gzarr.metadata.conventions import ATTRIBUTE, MASK, UNLIMITED, decode_mask, split_enum, split_names
from gzarr.storage.extras import require

_LOCK = new_lock()
#: Attributes of elements, which have the type of their variable (CF conventions 1.11, sections 2.5.1 and 3.5).
_OF_ELEMENTS = {"missing_value", "valid_min", "valid_max", "valid_range", "flag_values", "flag_masks"}
#: NumPy's units of time, as netCDF writes them.
_UNITS = {"ns": "nanoseconds", "us": "microseconds", "ms": "milliseconds", "s": "seconds", "m": "minutes"}
_UNITS |= {"h": "hours", "D": "days"}


# -- from netCDF -------------------------------------------------------------------------------------------------


@of_files
def from_netcdf(source: str | os.PathLike[str], dest: Any, **options: Unpack[TransferKeywords]) -> TransferReport:
    """Convert a NetCDF file to a Zarr group that xarray opens like the file.

    Groups, dimension names, attributes, packed values and the value for missing data stay. Enumerations become
    integers, with their names in the attribute ``enum``, and in ``flag_values`` and ``flag_meanings``. Variables of
    variable-length types other than text are refused.

    Parameters
    ----------
    source : str or path
        Path or URL of the file.
    dest : path, URL, store or Group
        Where the Zarr node goes.
    **options
        Keywords of `gzarr.transfer`.

    Returns
    -------
    TransferReport
        What was done.

    Raises
    ------
    CopyError
        If the file cannot be read, has something that Zarr lacks, or the copy stops.
    MissingExtraError
        If the file is netCDF-4 and h5py is missing.

    Examples
    --------
    >>> import tempfile, gzarr
    >>> folder = tempfile.mkdtemp()
    >>> gzarr.convert.to_netcdf(gzarr.ones(3), f"{folder}/a.nc")
    >>> report = gzarr.convert.from_netcdf(f"{folder}/a.nc", f"{folder}/a.zarr")
    >>> gzarr.open(f"{folder}/a.zarr")["data"].dimension_names
    ('data_dim_0',)
    """
    with in_place(source, "NetCDF") as tree:
        return write(tree, dest, **options)


# -- to netCDF ---------------------------------------------------------------------------------------------------


def to_netcdf(
    source: Any, path: str | os.PathLike[str], *, overwrite: bool = False, compression: str | None = "zlib"
) -> None:
    """Write an array, or a group with everything in it, to a netCDF-4 file that xarray opens like the Zarr node.

    Axes without names become the dimensions "<variable>_dim_0", "<variable>_dim_1", ... Booleans are stored as bytes,
    and dates as integers with units, as in xarray. Attributes without a netCDF type become JSON text.

    Parameters
    ----------
    source : Array, Group, path or URL
        What is written.
    path : str or path
        Path of the file, which appears when it is complete.
    overwrite : bool, default False
        Whether to replace an existing file.
    compression : str, optional
        Compression of netCDF4, such as "zlib" (the default) or "zstd"; None for none.

    Raises
    ------
    CopyError
        If the file exists or cannot be written, netCDF lacks an element type, or two arrays of a group have dimensions
        of one name and different lengths.
    MissingExtraError
        If netCDF4 is missing.

    Examples
    --------
    >>> import netCDF4, tempfile, gzarr
    >>> folder = tempfile.mkdtemp()
    >>> gzarr.convert.to_netcdf(gzarr.ones((2, 3)), f"{folder}/a.nc")
    >>> netCDF4.Dataset(f"{folder}/a.nc")["data"].shape
    (2, 3)
    """
    node = node_of(source, path)
    netcdf4 = require("netCDF4", "netcdf", "the conversion of NetCDF files")
    nodes = list(node.members(None)) if isinstance(node, Group) else [(node.basename or "data", node)]
    with (
        replacing(path, overwrite=overwrite) as partial,
        netcdf4.Dataset(os.fspath(partial), "w", format="NETCDF4") as dataset,
    ):
        dataset.set_auto_maskandscale(False)
        if isinstance(node, Group):
            _fill_group(dataset, node)
        for name, member in nodes:
            if isinstance(member, Group):
                _fill_group(dataset.createGroup(name), member)
            else:
                _write_variable(dataset, name, member, compression)


def _fill_group(group: Any, node: Group) -> None:
    """Set the attributes of a group, and make its unlimited dimensions."""
    attributes = node.attrs.asdict()
    for name in attributes.pop(UNLIMITED, ()):
        group.createDimension(name, None)
    _set_attributes(group, attributes)


def _write_variable(dataset: Any, path: str, array: Array, compression: str | None) -> None:
    source = from_array(array)
    parent, _, name = path.rpartition("/")
    group = dataset[parent] if parent else dataset
    attributes, names = split_names(source.attributes, source.dimension_names, len(source.shape))
    dims = [names[i] if names and names[i] else f"{name}_dim_{i}" for i in range(len(source.shape))]
    for dim, extent in zip(dims, source.shape, strict=True):
        _require_dimension(group, str(dim), extent, source.name)
    attributes, enum = split_enum(attributes, array.dtype)
    dtype, convert, extra = _encoding(array)
    mask = attributes.pop(MASK, None)
    if array.zarr_format == 2 and ATTRIBUTE in source.attributes and array.fill_value is not None:
        mask = array.fill_value  # whatever the attribute says, as in xarray
    plain = np.dtype(dtype)
    fill = extra.pop(MASK, None)  # of times, which have one of their own
    if fill is None and mask is not None and dtype is not str:
        fill = plain.type(decode_mask(mask, plain))
    chunks = [max(min(c, n), 1) for c, n in zip(array.chunks, source.shape, strict=True)]
    variable = group.createVariable(
        name,
        dtype if enum is None else group.createEnumType(plain, f"{name}_enum", enum),
        dims,
        compression=compression if dims and dtype is not str else None,
        chunksizes=chunks or None,
        fill_value=fill,
    )
    variable.set_auto_maskandscale(False)
    variable.set_auto_chartostring(False)
    _set_attributes(variable, {**attributes, **extra})
    _type_attributes(variable, attributes, plain)

    def put(region: Region, data: Any) -> None:
        values = convert(data)
        with _LOCK:
            variable[region] = values

    write_regions(source, put, tuple(chunks))


def _type_attributes(variable: Any, attributes: Mapping[str, Any], dtype: np.dtype[Any]) -> None:
    """Set those attributes anew that have the type of their variable, where it holds their values."""
    for key in _OF_ELEMENTS & attributes.keys():
        given = np.asarray(attributes[key])
        # floats of packed integers are limits of what is unpacked
        if dtype.kind in "iuf" and (given.dtype.kind in "iu" or (given.dtype.kind, dtype.kind) == ("f", "f")):
            with np.errstate(over="ignore"):
                value = given.astype(dtype)
            if np.array_equal(value, given, equal_nan=True):
                variable.setncattr(key, value)


def _require_dimension(group: Any, name: str, extent: int, what: str) -> None:
    """Make a dimension, unless the group or one above it has it."""
    above = group
    while above is not None:
        if name in above.dimensions:
            length = len(above.dimensions[name])
            if length == extent or (above.dimensions[name].isunlimited() and not length):
                return
            if above is group:
                raise CopyError(
                    f"{what}: the dimension {name!r} has {extent} elements, in another array of the group {length}; "
                    "rename it, or write the arrays to separate files"
                )
            break
        above = above.parent
    group.createDimension(name, extent)


def _encoding(array: Array) -> tuple[Any, Any, dict[str, Any]]:
    """The dtype in netCDF, a function that converts values to it, and attributes that say so. Raises CopyError."""
    dtype = array.dtype
    if array.metadata.data_type.variable == "string" or dtype.kind == "U":
        return str, lambda values: values.astype(object), {}
    if dtype.kind == "S" and dtype.itemsize > 1:
        return str, lambda values: np.char.decode(values, "utf-8").astype(object), {}
    if dtype.kind == "b":
        return "i1", lambda values: values.astype("i1"), {"dtype": "bool"}
    unit, count = np.datetime_data(dtype) if dtype.kind in "mM" else ("", 1)
    if unit in _UNITS and count == 1:
        units = _UNITS[unit] + (" since 1970-01-01" if dtype.kind == "M" else "")
        return "i8", lambda values: values.astype("i8"), {"units": units, MASK: np.iinfo("i8").min}
    if dtype.names is not None or not (dtype.kind in "iuS" or dtype.str[1:] in ("f4", "f8")):
        raise CopyError(f"{array.store_path} has dtype {dtype}, which has no form in NetCDF; convert or leave it out")
    return dtype.newbyteorder("="), lambda values: values, {}


def _set_attributes(node: Any, attributes: Mapping[str, Any]) -> None:
    for name, value in attributes.items():
        kinds = set(map(type, value)) if isinstance(value, list) else {type(value)}
        if kinds == {bool}:  # netCDF has none; text would be true if it is "false"
            node.setncattr(name, np.asarray(value, "i1")[()])
        else:
            plain = kinds == {str} or (kinds and kinds <= {int, float})
            node.setncattr(name, value if plain else json.dumps(value))
