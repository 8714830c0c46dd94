"""What netCDF-4 makes of HDF5: dimensions, variables that have their names, and attributes of one number."""

from collections.abc import Mapping, Sequence
from typing import Any

from gzarr.copying.hdf5 import scale_paths
from gzarr.indexing.keys import Coords

#: What netCDF-4 calls a dimension without a variable.
_ONLY_DIMENSION = b"This is a netCDF dimension but not a netCDF variable"
#: Attributes by which netCDF-4 numbers dimensions, and says which ones a variable has.
_NUMBER, _NUMBERS = "_Netcdf4Dimid", "_Netcdf4Coordinates"


def is_dimension(dataset: Any) -> bool:
    """Whether a dataset only stands for a dimension of netCDF-4."""
    name = dataset.attrs.get("NAME", b"")
    return (name if isinstance(name, bytes) else str(name).encode()).startswith(_ONLY_DIMENSION)


def axes_of_variables(datasets: Sequence[Any]) -> dict[str, tuple[tuple[str, ...] | None, Coords]]:
    """Names of axes, if HDF5 has them only by numbers, and shape of each variable of netCDF-4, by its path.

    All variables along a dimension that grows are as long as the longest, whatever of them was written.
    """
    numbered = {int(one.attrs[_NUMBER]): one.name for one in datasets if one.is_scale and _NUMBER in one.attrs}
    dimensions, longest = dict[str, list[str | None]](), dict[str | None, int]()
    scales = dict[Any, str | None]()
    variables = [one for one in datasets if not is_dimension(one)]
    for one in variables:
        numbers = one.attrs.get(_NUMBERS, ())
        if one.is_scale or (len(numbers) and None in one.maxshape):
            dimensions[one.name] = [numbered.get(int(n)) for n in numbers] or [one.name]
        elif None in one.maxshape:
            dimensions[one.name] = scale_paths(one, scales)
        for dimension, n in zip(dimensions.get(one.name, ()), one.shape, strict=False):
            longest[dimension] = max(n, longest.get(dimension, 0))
    found = {}
    for one in variables:
        names, shape = dimensions.get(one.name, []), list(one.shape)
        for axis, dimension in enumerate(names[: len(shape)]):
            if dimension is not None and one.maxshape[axis] is None:
                shape[axis] = longest[dimension]
        by_number = tuple(name.rpartition("/")[2] for name in names if name is not None)
        found[one.name] = (by_number if len(by_number) == len(shape) else None), tuple(shape)
    return found


def attributes_of(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as netCDF-4 has them: one value is no list, as it often is in HDF5."""
    return {k: v[0] if isinstance(v, list) and len(v) == 1 else v for k, v in attributes.items()}
