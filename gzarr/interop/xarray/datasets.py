"""Datasets as they can be written: of arrays, with names and attributes that Zarr has."""

from collections.abc import Mapping
from json import dumps
from typing import Any

import xarray as xr
from xarray.backends.zarr import encode_zarr_attr_value

#: Under what name Xarray writes a variable whose name is None.
NONE_NAME = "__values__"
#: Under what name Xarray writes an array whose name is taken, and the attribute with its name.
_UNNAMED, _NAME = "__xarray_dataarray_variable__", "__xarray_dataarray_name__"


def as_dataset(array: xr.DataArray) -> xr.Dataset:
    """Return the dataset from which `xarray.open_dataarray` makes an array again."""
    if array.name is not None and array.name not in array.coords and array.name not in array.dims:
        return array.to_dataset()
    dataset = array.to_dataset(name=_UNNAMED)
    if array.name is not None:
        dataset.attrs[_NAME] = array.name
    return dataset


def check_names(dataset: xr.Dataset, encoding: Mapping[Any, Any]) -> None:
    """Raise an error for names and attributes that Zarr cannot have, and KeyError for encodings of nothing."""
    for name, variable in dataset.variables.items():
        if not isinstance(name, str):
            raise TypeError(f"variable {name!r}: a name must be a string or None; rename it")
        if not name or "/" in name:
            raise ValueError(
                f"variable {name!r}: a name in Zarr is a string without '/', and the string must be length 1 or more; "
                "rename it"
            )
        _check_attributes(f"variable {name!r}", variable.attrs)
    _check_attributes("the dataset", dataset.attrs)
    unknown = set(encoding) - set(dataset.variables)
    if unknown:
        raise KeyError(f"encoding: the dataset has no variables {sorted(map(str, unknown))}")


def _check_attributes(owner: str, attributes: Mapping[Any, Any]) -> None:
    for key, value in attributes.items():
        try:
            dumps(encode_zarr_attr_value(value))
        except (TypeError, ValueError) as error:
            raise TypeError(f"Invalid attribute in Dataset.attrs: {key!r} of {owner}: {error}") from error
