"""Data types: ``dtype=`` and the metadata of Zarr v2 and v3 to NumPy dtypes and back, and fill values as JSON."""

from gzarr.dtypes.cast import cast_fill, default_fill
from gzarr.dtypes.datatype import DataType
from gzarr.dtypes.fill import fill_from_json, fill_to_json
from gzarr.dtypes.parse import parse_dtype, register_data_type
from gzarr.dtypes.v2 import from_v2, to_v2
from gzarr.dtypes.v3 import from_v3, to_v3

__all__ = [
    "DataType",
    "cast_fill",
    "default_fill",
    "fill_from_json",
    "fill_to_json",
    "from_v2",
    "from_v3",
    "parse_dtype",
    "register_data_type",
    "to_v2",
    "to_v3",
]
